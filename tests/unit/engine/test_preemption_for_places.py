# SPDX-License-Identifier: Apache-2.0
"""Preemption for places of a topology (`docs/spec/engine.md §3.7`, §3.9, §4.4 and §6.8)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from multikueue.engine import Decision, Engine, Outcome, RequeueReason, Settings
from tests.support.engine_builders import (
    STRICT,
    Bench,
    at,
    group,
    key,
    preemption,
    queue,
)
from tests.support.topology_builders import (
    PLENTY,
    TAS,
    A,
    B,
    bench,
    cpus,
    decisions,
    domains,
    left,
    node,
    running,
    topology_bench,
)

LOWER = preemption("LowerPriority")


def victims(decision: Decision) -> list[str]:
    return sorted(victim.workload.name for victim in decision.victims)


def test_workloads_are_evicted_for_their_places_alone() -> None:
    table = bench(A, preemption=LOWER)
    table.add(running("low", "3", "a", priority=1), cpus("high", "2", priority=2))
    decision = table.decide("high")
    assert (decision.outcome, victims(decision)) == (Outcome.PREEMPTING, ["low"])
    assert 'topology "hosts"' in decision.message
    table.evict("low")
    assert domains(table.decide("high")) == {"a": 1}


def test_no_more_are_evicted_than_places_need() -> None:
    table = bench(A, B, preemption=LOWER)
    table.add(*(running(f"low-{at}{n}", "2", at, priority=n) for at in "ab" for n in (1, 2)))
    decision = table.add(cpus("high", "4", priority=9)).decide("high")
    assert decision.outcome is Outcome.PREEMPTING
    assert len({name[4] for name in victims(decision)}) == 1
    assert len(victims(decision)) == 2


def test_equal_priority_keeps_its_places() -> None:
    table = bench(A, preemption=LOWER)
    table.add(running("old", "3", "a"))
    decision = table.add(cpus("w", "2")).decide("w")
    assert (decision.outcome, decision.requeue_reason, victims(decision)) == (
        Outcome.PENDING,
        RequeueReason.PREEMPTION_NO_CANDIDATES,
        [],
    )
    assert decision.reason == "WaitingForQuota"


def test_workloads_of_other_trees_keep_their_places() -> None:
    table = bench(A, queues=("p", "q"), preemption=LOWER)
    table.add(running("other", "3", "a", "p"), cpus("high", "2", "q", priority=9))
    assert victims(table.decide("high")) == []


def test_a_victim_frees_quota_and_places_at_once() -> None:
    table = bench(A, B, groups=group(tas="6"), preemption=LOWER)
    table.add(running("low-a", "4", "a"), running("low-b", "2", "b"), cpus("high", "3", priority=9))
    assert victims(table.decide("high")) == ["low-a"]


def test_the_places_of_a_preemptor_are_kept_from_others_in_the_cycle() -> None:
    table = bench(A, queues=("p", "q"), preemption=LOWER)
    table.add(running("low", "3", "a", "p"), cpus("high", "4", "p", priority=9), cpus("other", "1", "q"))
    found = decisions(table)
    assert found["high"].outcome is Outcome.PREEMPTING
    assert found["other"].outcome is not Outcome.RESERVED
    assert left(table) == {"a": 1000}


@pytest.mark.parametrize("until", [pytest.param(None, id="by us"), pytest.param(at(60), id="by the API server")])
def test_places_that_a_preemptor_kept_are_free_for_other_trees_when_its_victim_is_not_evicted_after_all(
    until: datetime | None,
) -> None:
    table = bench(A, queues=("p", "q"), preemption=LOWER)
    table.add(running("low", "3", "a", "p"), cpus("high", "4", "p", priority=9), cpus("other", "1", "q"))
    table.settle_after(2)
    assert table.waits("q") == ["[other]"]
    table.engine.delete_workload(key("high"), table.now)
    table.engine.eviction_failed(key("low"), table.now, exempt_until=until)
    table.settle_after(2)
    assert table.waits("q") == []


def test_what_a_victim_frees_beyond_that_is_for_others() -> None:
    table = bench(A, queues=("p", "q"), preemption=LOWER)
    table.add(running("low", "4", "a", "p"), cpus("high", "2", "p", priority=9), cpus("other", "1", "q"))
    found = decisions(table)
    assert victims(found["high"]) == ["low"]
    # It was nominated while all was in use.
    assert found["other"].outcome is not Outcome.RESERVED
    assert left(table) == {"a": 0}


def test_a_preemptor_without_victims_keeps_its_places_for_the_cycle() -> None:
    table = bench(A, node("r1/b", cpu="3"), queues=("p", "q"), preemption=LOWER)
    table.add(running("same", "2", "a", "p", priority=9), cpus("high", "4", "p", priority=9), cpus("other", "2", "q"))
    found = decisions(table)
    assert found["high"].requeue_reason is RequeueReason.PREEMPTION_NO_CANDIDATES
    assert domains(found["other"]) == {"b": 1}


def test_who_finds_no_place_but_for_those_that_are_kept_for_the_cycle_is_tried_again() -> None:
    table = bench(A, queues=("p", "q"))
    table.add(running("runs", "2", "a", "p"), cpus("large", "4", "p"), cpus("small", "2", "q", created=1))
    found = decisions(table)
    assert found["large"].requeue_reason is RequeueReason.PREEMPTION_NO_CANDIDATES
    assert (found["small"].outcome, found["small"].message) == (
        Outcome.SKIPPED,
        "Workload no longer fits after processing another workload",
    )
    table.settle()
    assert table.waits("q") == []
    assert left(table) == {"a": 0}


def test_nobody_is_evicted_because_of_places_that_are_kept_for_the_cycle() -> None:
    table = bench(A, B, queues=("p", "q"), preemption=LOWER)
    table.add(running("runs", "2", "a", "p", priority=9), running("low", "4", "b", "q"))
    table.add(cpus("large", "4", "p", priority=2), cpus("small", "2", "q", priority=1))
    assert victims(decisions(table)["small"]) == []
    table.settle()
    assert table.waits("q") == []
    assert left(table) == {"a": 0, "b": 0}


def test_a_preemptor_gets_the_place_of_its_victim_although_it_was_kept_for_another_in_a_cycle() -> None:
    table = bench(A, queues=("p", "q"), preemption=LOWER)
    table.add(running("low", "2", "a", "q"), running("runs", "2", "a", "p", priority=9))
    assert victims(table.add(cpus("high", "2", "q", priority=1)).decide("high")) == ["low"]
    table.evict("low")
    table.add(cpus("large", "4", "p", priority=2))
    table.settle()
    assert table.waits("q") == ["[low]"]


def strict_with_head(*queues: str, cohort: str = "") -> Bench:
    """Beside these queues a strict one, whose head would fill the host if another workload did not use half of it."""
    table = bench(A, queues=queues, cohort=cohort)
    table.add_queue(queue("strict", PLENTY, cohort=cohort, strategy=STRICT))
    table.engine.flush(table.now)
    return table.add(running("runs", "2", "a", "strict"), cpus("large", "4", "strict"))


def test_what_is_kept_for_a_strict_head_is_kept_in_each_cycle() -> None:
    table = strict_with_head("q", cohort="co")
    table.add(cpus("first", "2", created=1), cpus("second", "2", created=2))
    table.settle()
    assert (table.waits("q"), left(table)) == (["[first]", "[second]"], {"a": 2000})


def test_places_that_are_kept_for_a_strict_head_are_free_for_other_trees() -> None:
    table = strict_with_head("p", "q")
    table.add(cpus("small", "1", "p", created=1), cpus("other", "1", "q", created=1))
    table.settle()
    assert (table.waits("p"), table.waits("q"), table.waits("strict")) == ([], [], ["large"])


def test_other_trees_take_places_that_are_kept_for_a_strict_head_only_if_there_are_no_others() -> None:
    table = strict_with_head("q")
    table.engine.set_node("b", node("r1/b", cpu="3"), table.now)
    assert domains(table.add(cpus("small", "2", created=1)).decide("small")) == {"b": 1}


def test_nobody_is_evicted_because_of_places_that_are_kept_for_a_strict_head_of_another_tree() -> None:
    table = bench(A, B, queues=("q",), preemption=LOWER)
    table.add_queue(queue("strict", PLENTY, strategy=STRICT))
    table.engine.flush(table.now)
    table.add(running("runs", "2", "a", "strict"), running("low", "4", "b"))
    table.add(cpus("large", "4", "strict", priority=2), cpus("small", "2", priority=1))
    assert domains(decisions(table)["small"]) == {"a": 1}


def test_strict_heads_of_two_trees_do_not_keep_each_others_neighbours_waiting() -> None:
    table = bench(A, B, queues=())
    for cohort in "xy":
        table.add_queue(queue(f"strict-{cohort}", PLENTY, cohort=cohort, strategy=STRICT))
        table.add_queue(queue(f"q-{cohort}", PLENTY, cohort=cohort))
    table.engine.flush(table.now)
    table.add(running("a", "2", "a", "strict-x"), running("b", "2", "b", "strict-y"))
    table.add(*(cpus(f"large-{cohort}", "4", f"strict-{cohort}") for cohort in "xy"))
    table.add(*(cpus(f"small-{cohort}", "1", f"q-{cohort}", created=1) for cohort in "xy"))
    table.settle()
    assert (table.waits("q-x"), table.waits("q-y")) == ([], [])


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(lambda engine, now: engine.delete_workload(key("large"), now), id="is deleted"),
        pytest.param(lambda engine, now: engine.delete_local_queue(key("strict"), now), id="loses its queue"),
        pytest.param(
            lambda engine, now: engine.upsert_cluster_queue(queue("strict", PLENTY, strategy=STRICT), now),
            id="is of another tree",
        ),
        pytest.param(
            lambda engine, now: engine.upsert_workload(cpus("tiny", "500m", "strict", priority=9), now),
            id="is the head no more",
        ),
    ],
)
def test_those_who_lost_their_places_to_a_strict_head_are_evaluated_once_it_leaves(
    leave: Callable[[Engine, datetime], object],
) -> None:
    table = strict_with_head("q", cohort="co")
    table.add(cpus("first", "1", created=1))
    table.settle_after(2)
    assert table.waits("q") == ["[first]"]
    leave(table.engine, table.now)
    table.settle()
    flushed = table.engine.next_wake(table.now)
    assert flushed is not None, "nothing wakes it"
    decided = table.engine.cycle(flushed, repeat=False).decisions
    assert "first" in [decision.workload.name for decision in decided]


@pytest.mark.parametrize(
    ("cpu", "want"),
    [
        pytest.param("1", RequeueReason.PENDING_PREEMPTION, id="that is enough"),
        pytest.param("2", RequeueReason.PREEMPTION_NO_CANDIDATES, id="that is not enough"),
    ],
)
def test_who_needs_the_same_victim_gets_what_its_preemptor_leaves(cpu: str, want: RequeueReason) -> None:
    reclaiming = preemption(reclaim="Any")
    lenders = (queue(name, group(tas="4"), cohort="co", preemption=reclaiming) for name in "mn")
    table = topology_bench(Bench(queue("p", group(tas="0"), cohort="co"), *lenders, flavors=(TAS,)), A)
    table.add(running("low", "4", "a", "p"), cpus("first", "3", "m", created=1), cpus("second", cpu, "n", created=2))
    found = decisions(table)
    assert victims(found["first"]) == ["low"]
    assert (victims(found["second"]), found["second"].requeue_reason) == ([], want)
    assert left(table) == {"a": 0}


def test_fair_sharing_evicts_for_places_too() -> None:
    table = bench(A, preemption=LOWER, cohort="co", settings=Settings(pods_ready=None, fair_sharing=True))
    table.add(running("low", "3", "a", priority=1), cpus("high", "2", priority=2))
    assert victims(table.decide("high")) == ["low"]
    assert left(table) == {"a": 1000}


def test_explaining_changes_nothing() -> None:
    table = bench(A, preemption=LOWER)
    table.add(running("low", "3", "a", priority=1), cpus("high", "2", priority=2))
    explanation = table.engine.explain(key("high"), table.now)
    assert [victim.workload.name for victim in explanation.victims] == ["low"]
    assert left(table) == {"a": 1000}
