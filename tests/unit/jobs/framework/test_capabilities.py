# SPDX-License-Identifier: Apache-2.0
"""Which capabilities a kind has, by the members of its class."""

from __future__ import annotations

from multikueue.jobs.framework.capabilities import DefaultedKind, GroupedKind, PodHoldingKind, UpdatedKind
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.jobs.kinds.pod import BARE_POD


class _Whole:
    def updated(self, new: object, old: object) -> object:
        return new


class _Refused:
    updated = None


def test_a_kind_has_the_capability_whose_members_its_class_has() -> None:
    assert isinstance(_Whole(), UpdatedKind)
    assert not isinstance(_Whole(), DefaultedKind)
    assert isinstance(BARE_POD, GroupedKind)
    assert not isinstance(BATCH_JOB, PodHoldingKind)


def test_a_member_that_is_none_is_no_capability() -> None:
    assert not isinstance(_Refused(), UpdatedKind)


def test_the_answer_for_one_class_is_not_that_of_another() -> None:
    for _ in range(2):
        assert [isinstance(kind, UpdatedKind) for kind in (_Whole(), object(), _Refused())] == [True, False, False]
