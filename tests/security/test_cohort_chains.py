# SPDX-License-Identifier: Apache-2.0
"""Chains and cycles of cohorts of any length, made and taken apart in any order, affect their own queues only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from multikueue.engine import Outcome, Settings
from multikueue.engine.cache.tree import MAX_LEVELS, Forest
from multikueue.engine.values import Cohort
from tests.support.engine_builders import Bench, group, key, pods, preemption, queue, workload

ONE = pods(cpu="1")
TOO_DEEP = (
    f"its tree has more than {MAX_LEVELS} levels of cohorts; change spec.parentName of this cohort or of one above"
)
Order = Callable[[int], Sequence[int]]


def shuffled(length: int) -> Sequence[int]:
    numbers = list(range(length))
    Random(7).shuffle(numbers)
    return numbers


def outside_in(length: int) -> Sequence[int]:
    return [number // 2 if number % 2 else length - 1 - number // 2 for number in range(length)]


ORDERS: list[Order] = [range, lambda length: range(length - 1, -1, -1), shuffled, outside_in]
ORDER_NAMES = ["from the root down", "from the leaf up", "shuffled", "from both ends"]


def bench_of(length: int, *, fair: bool = False) -> Bench:
    """Queues at the root, the last level, below it and the end of a chain that is still to be made; one outside."""
    names = {"root": 0, "last": MAX_LEVELS - 1, "below": MAX_LEVELS, "leaf": length - 1}
    quota = group(default="1")
    policy = preemption("LowerPriority", "Any")
    queues = [queue(name, quota, cohort=f"c{level}", preemption=policy) for name, level in names.items()]
    return Bench(*queues, queue("outside", quota), settings=Settings(pods_ready=None, fair_sharing=fair))


def make(bench: Bench, order: Sequence[int], *, length: int, closed: bool = False) -> None:
    for number in order:
        parent = f"c{(number - 1) % length}" if number or closed else ""
        bench.engine.upsert_cohort(Cohort(name=f"c{number}", parent=parent), bench.now)


def states(bench: Bench) -> dict[str, tuple[bool, str]]:
    found = {name: bench.engine.cluster_queue_state(name) for name in ("root", "last", "below", "leaf", "outside")}
    return {name: (state.active, str(state.reason)) for name, state in found.items()}


def reserved(bench: Bench) -> set[str]:
    return {item.workload.name for item in bench.cycle().decisions if item.outcome is Outcome.RESERVED}


READY, CUT = (True, "Ready"), (False, "CohortInvalid")


@pytest.mark.parametrize("taken_apart", ORDERS, ids=[f"and taken apart {name}" for name in ORDER_NAMES])
@pytest.mark.parametrize("made", ORDERS, ids=[f"made {name}" for name in ORDER_NAMES])
def test_a_chain_of_a_thousand_cohorts(made: Order, taken_apart: Order) -> None:
    bench = bench_of(1000)
    make(bench, made(1000), length=1000)
    assert states(bench) == {"root": READY, "last": READY, "below": CUT, "leaf": CUT, "outside": READY}
    bench.add(*(workload(f"w-{name}", name, ONE) for name in ("root", "last", "below", "leaf", "outside")))
    bench.engine.flush(bench.now)
    assert reserved(bench) == {"w-root", "w-last", "w-outside"}
    for number in taken_apart(1000):
        bench.engine.delete_cohort(f"c{number}", bench.now)
    assert set(states(bench).values()) == {READY}
    bench.pass_time(2)
    assert reserved(bench) == {"w-below", "w-leaf"}


@pytest.mark.attacks
@pytest.mark.timeout(600)
@pytest.mark.parametrize("order", ORDERS[1:3], ids=ORDER_NAMES[1:3])
def test_a_chain_of_a_hundred_thousand_cohorts(order: Order) -> None:
    length = 100_000
    bench = bench_of(length)
    make(bench, order(length), length=length)
    assert states(bench) == {"root": READY, "last": READY, "below": CUT, "leaf": CUT, "outside": READY}
    deep, well = bench.engine.cohort_state(f"c{MAX_LEVELS}"), bench.engine.cohort_state(f"c{MAX_LEVELS - 1}")
    assert (deep.active, deep.reason, deep.message) == (False, "CohortTooDeep", TOO_DEEP)
    assert (well.active, well.reason) == (True, "Ready")
    bench.add(workload("w", "outside", ONE), workload("v", "last", pods(cpu="2")))
    bench.engine.flush(bench.now)
    assert reserved(bench) == {"w", "v"}
    for number in reversed(order(length)):
        bench.engine.delete_cohort(f"c{number}", bench.now)
    assert set(states(bench).values()) == {READY}
    assert len(bench.engine.forest.cohorts) == 4, "those that queues name"


@pytest.mark.parametrize(
    ("length", "reason"),
    [
        pytest.param(2, "CohortCycle", id="of two"),
        pytest.param(MAX_LEVELS, "CohortCycle", id="as long as a tree may be deep"),
        pytest.param(1000, "CohortTooDeep", id="of a thousand"),
        pytest.param(20_000, "CohortTooDeep", id="of twenty thousand"),
    ],
)
def test_a_cycle_of_cohorts_stops_its_own_queues_only(length: int, reason: str) -> None:
    bench = bench_of(length)
    make(bench, shuffled(length), length=length, closed=True)
    state = bench.engine.cohort_state("c0")
    assert (state.active, state.reason) == (False, reason)
    assert states(bench)["leaf"] == CUT
    bench.add(workload("w", "outside", ONE), workload("v", "leaf", ONE))
    bench.engine.flush(bench.now)
    assert reserved(bench) == {"w"}
    bench.engine.upsert_cohort(Cohort(name="c0"), bench.now)
    assert bench.engine.cohort_state("c0").active
    assert states(bench)["leaf"] == (READY if length <= MAX_LEVELS else CUT)


def test_a_queue_says_which_cohort_is_wrong_and_why() -> None:
    bench = bench_of(100)
    make(bench, range(100), length=100)
    state = bench.engine.cluster_queue_state("below")
    assert state.message == f"Can't admit new workloads: Cohort c{MAX_LEVELS}: {TOO_DEEP}."
    bench.add(workload("w", "below", ONE))
    assert bench.engine.explain(key("w"), bench.now).message == "ClusterQueue below is inactive"


@pytest.mark.parametrize("fair", [False, True], ids=["classical", "fair sharing"])
def test_preemption_and_borrowing_reach_through_all_levels_of_a_tree(fair: bool) -> None:
    bench = bench_of(MAX_LEVELS, fair=fair)
    make(bench, range(MAX_LEVELS), length=MAX_LEVELS)
    bench.add(workload("borrower", "root", pods(cpu="2"), created=0))
    bench.engine.flush(bench.now)
    assert bench.decide("borrower").outcome is Outcome.RESERVED
    bench.add(*(workload(f"w{number}", "last", ONE, created=number) for number in (1, 2)))
    bench.add(workload("reclaimer", "leaf", ONE, created=3))
    outcomes = [item.outcome for _ in range(4) for item in bench.cycle().decisions]
    assert Outcome.RESERVED in outcomes
    assert bench.engine.cluster_queue_state("last").reserving == 1


def test_quota_below_the_last_level_is_not_lent_and_comes_back_when_the_chain_gets_shorter() -> None:
    made = Forest()
    for number in range(MAX_LEVELS + 1):
        made.set_cohort(f"c{number}", parent=f"c{number - 1}" if number else "", groups=(), weight=1.0)
    made.set_queue("deep", cohort=f"c{MAX_LEVELS}", groups=[group(default="5")], weight=1.0)
    made.set_queue("top", cohort="c0", groups=[group(default="1")], weight=1.0)
    (cell,) = made.queue("top").cells.values()
    assert cell.potential == 1000
    assert list(made.queue("deep").all_queues()) == [made.queue("deep")]
    made.set_cohort("c2", parent="c0", groups=(), weight=1.0)
    assert cell.potential == 6000
    assert {node.name for node in made.cohorts["c0"].all_queues()} == {"deep", "top"}
    made.set_cohort("c2", parent="c1", groups=(), weight=1.0)
    assert cell.potential == 1000
