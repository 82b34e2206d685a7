# SPDX-License-Identifier: Apache-2.0
"""What a manager that has just started assumes of work on clusters that it has not read yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manager.dispatch.assumed_observations import assumed_epoch
from manager.workload import changes
from manager.workload.status import Eviction, Status
from multikueue.api.constants import EPOCH_ANNOTATION
from tests.unit.manager.builders import NOW, admitted, evicted


def running(*, evictions: int) -> Status:
    """Admitted after that many evictions."""
    counted = (Eviction(reason="Preempted", count=evictions),) if evictions else ()
    return replace(admitted(), evictions=counted)


@pytest.mark.parametrize("evictions", [0, 1, 3])
def test_work_that_is_being_evicted_runs_in_the_epoch_before_that_eviction(evictions: int) -> None:
    runs = running(evictions=evictions)
    stops = changes.evict(runs, reason="Preempted", message="go", now=NOW)
    assert assumed_epoch(runs, {}) == assumed_epoch(stops, {}) == evictions + 1


def test_the_annotation_of_a_restored_workload_is_the_least_epoch() -> None:
    stops = changes.evict(running(evictions=1), reason="Preempted", message="go", now=NOW)
    assert assumed_epoch(stops, {EPOCH_ANNOTATION: "7"}) == 7


def test_an_eviction_that_was_not_counted_is_of_the_first_epoch() -> None:
    assert assumed_epoch(evicted(admitted(), "Preempted"), {}) == 1
