# SPDX-License-Identifier: Apache-2.0
"""What the engine makes of each change of a Workload's status that it sees (`docs/spec/engine.md §7.11`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.engine import lifecycle
from multikueue.engine.workloads import Admission, PodSetAdmission, Workload
from tests.support.engine_builders import Bench, at, group, holding, key, pods, queue, workload

ONE = pods(cpu="1")


def bench() -> Bench:
    """One queue for one CPU, held by `w`; `next` waits and was found not to fit."""
    made = Bench(queue("q", group(default="1")))
    made.add(held(), workload("next", "q", ONE, created=5))
    made.cycle()
    assert made.waits("q") == ["[next]"]
    return made


def held() -> Workload:
    return holding(workload("w", "q", ONE), "q")


def counts(made: Bench) -> tuple[int, int, int]:
    state = made.engine.cluster_queue_state("q")
    return state.reserving, state.admitted, state.pending


def preempted(value: Workload) -> Workload:
    return lifecycle.released(lifecycle.evicted(value, "Preempted", "m", at(1)), at(2))


def test_pending_to_reserved_leaves_the_queue_and_is_counted() -> None:
    made = Bench(queue("q", group(default="1")))
    made.add(workload("w", "q", ONE))
    assert counts(made) == (0, 0, 1)
    made.add(held())
    assert counts(made) == (1, 1, 0)


def test_reserved_to_admitted_moves_its_usage() -> None:
    made = Bench(queue("q", group(default="1")))
    bare = replace(held(), conditions=tuple(each for each in held().conditions if each.type != "Admitted"))
    made.add(bare)
    assert counts(made) == (1, 0, 0)
    made.add(held())
    assert counts(made) == (1, 1, 0)


def test_admitted_to_pending_frees_quota_tries_the_others_and_queues_it_at_once() -> None:
    made = bench()
    made.add(preempted(held()))
    made.engine.flush(made.now)
    assert counts(made) == (0, 0, 2)
    assert made.waits("q") == ["w", "next"]


def test_admitted_to_pending_with_a_back_off_queues_it_when_that_is_over() -> None:
    made = bench()
    made.add(replace(preempted(held()), requeue_at=at(60)))
    made.pass_time(1)
    assert made.decide("next").outcome == "Reserved"
    assert [each.workload.name for each in made.engine.pending("q") if not each.inadmissible] == []
    assert made.engine.next_wake(made.now) == at(60)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(
            lambda made: made.add(lifecycle.finished(held(), "Succeeded", "", at(1))), id="finished frees its quota"
        ),
        pytest.param(lambda made: made.add(replace(held(), active=False)), id="deactivated frees its quota"),
        pytest.param(lambda made: made.engine.delete_workload(key("w"), made.now), id="deleted frees its quota"),
    ],
)
def test_the_end_of_a_reservation_tries_the_others(end: object) -> None:
    made = bench()
    end(made)  # type: ignore[operator]
    made.pass_time(1)
    assert made.decide("next").outcome == "Reserved"


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda made, value: made.add(lifecycle.finished(value, "Failed", "", at(1))), id="finished"),
        pytest.param(lambda made, value: made.add(replace(value, active=False)), id="inactive"),
        pytest.param(lambda made, value: made.add(replace(value, deleting=True)), id="being deleted"),
        pytest.param(lambda made, value: made.engine.delete_workload(value.key, made.now), id="deleted"),
    ],
)
def test_the_end_of_a_wait_leaves_the_queue(end: object) -> None:
    made = bench()
    end(made, workload("next", "q", ONE, created=5))  # type: ignore[operator]
    assert counts(made) == (1, 1, 0)


def test_reserved_to_reserved_with_another_usage_is_counted_anew() -> None:
    made = Bench(queue("q", group(default="3")))
    made.add(held())
    assignment = PodSetAdmission(name="main", flavors={"cpu": "default"}, usage={"cpu": 2000}, count=1)
    made.add(replace(held(), admission=Admission("q", (assignment,))))
    assert list(made.engine.cluster_queue_state("q").reservation.values()) == [2000]


def test_updates_while_a_reservation_is_not_written_yet_do_not_queue_it_again() -> None:
    made = Bench(queue("q", group(default="1")))
    value = workload("w", "q", ONE)
    made.add(value)
    assert made.decide("w").outcome == "Reserved"
    made.add(replace(value, priority=5))
    assert made.engine.holds_unwritten(key("w"))
    assert counts(made)[::2] == (1, 0)


def test_a_reservation_that_is_not_written_yet_ends_when_the_workload_is_deleted() -> None:
    made = Bench(queue("q", group(default="1")))
    value = workload("w", "q", ONE)
    made.add(value)
    assert made.decide("w").outcome == "Reserved"
    made.add(replace(value, deleting=True))
    assert not made.engine.holds_unwritten(key("w"))
    assert counts(made) == (0, 0, 0)


def test_a_workload_that_is_deleted_keeps_its_quota_until_it_is_gone() -> None:
    made = bench()
    made.add(replace(held(), deleting=True))
    made.pass_time(1)
    assert counts(made)[1] == 1
