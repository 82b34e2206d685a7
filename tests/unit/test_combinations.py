# SPDX-License-Identifier: Apache-2.0
"""Which combinations of API server and transport CI leaves out."""

from __future__ import annotations

from itertools import product

import pytest

from tests.support.combinations import combination, has_all, left_out
from tests.support.sites import Transport

ALL = [frozenset(each) for each in product(("embedded", "binaries"), ("pull", "push"))]


@pytest.mark.parametrize(
    "parameters", [{"stage": ("binaries", Transport.PUSH)}, {"pair": "binaries", "transport": "push"}], ids=str
)
def test_the_server_and_the_transport_are_parameters_of_their_own_or_one(parameters: dict[str, object]) -> None:
    positions = dict.fromkeys(parameters, 0)
    assert combination(parameters, positions) == (frozenset({"binaries", "push"}), frozenset())


def test_tests_with_other_parameters_are_distinguished() -> None:
    found = combination({"pair": "embedded", "size": 2, "verb": ("get", 1)}, {"pair": 0, "size": 1, "verb": 4})
    assert found == (frozenset({"embedded"}), frozenset({("size", 1), ("verb", 4)}))


def test_a_test_that_lacks_one_combination_keeps_the_others() -> None:
    assert has_all(ALL)
    for lacking in ALL:
        assert not has_all(set(ALL) - {lacking})


def test_a_module_keeps_one_transport_on_real_servers_and_both_are_kept_somewhere() -> None:
    real = {frozenset({"binaries", transport}) for transport in Transport}
    kept = set()
    for module in ("tests/component/kinds/test_job_sets.py", "tests/component/kinds/test_queued_pods.py"):
        without = left_out(module, ALL)
        assert frozenset({"embedded", Transport.PUSH}) in without
        assert frozenset({"embedded", Transport.PULL}) not in without
        kept |= real - without
    assert kept == real


@pytest.mark.parametrize("combinations", [ALL, [frozenset({"embedded", "push"}), frozenset({"binaries", "push"})]])
def test_a_long_test_keeps_real_servers_only(combinations: list[frozenset[str]]) -> None:
    kept = set(combinations) - left_out("tests/component/kinds/test_job_sets.py", combinations, long=combinations)
    assert len(kept) == 1
    assert all("binaries" in each for each in kept)


def test_a_long_test_that_has_embedded_servers_only_keeps_them() -> None:
    embedded = [frozenset({"embedded", "pull"}), frozenset({"embedded", "push"})]
    assert left_out("tests/component/kinds/test_job_sets.py", embedded, long=embedded) == frozenset()


def test_attacks_keep_both_transports_on_real_servers() -> None:
    without = left_out("tests/security/test_hostile_hub.py", ALL, long=ALL)
    assert without == {frozenset({"embedded", Transport.PUSH})}
