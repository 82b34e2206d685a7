# SPDX-License-Identifier: Apache-2.0
"""Heads that borrow freed quota which its owner needs wait for a later cycle (ADR 0032)."""

from __future__ import annotations

from random import Random

import pytest

from multikueue.engine import Engine, Outcome, Settings
from multikueue.engine.values import ClusterQueue
from multikueue.engine.workloads import Workload
from tests.support.engine_builders import STRICT, Bench, group, holding, pods, preemption, queue, workload

OWNED = 2


def bench_of(*queues: ClusterQueue, defers: bool = True) -> Bench:
    engine = Engine(Settings(pods_ready=None))
    if defers:
        engine.defer_admissions()
    return Bench(*queues, engine=engine)


def full(*, defers: bool = True, strict: bool = False, unused: int = 0, reclaim: str = "Any") -> Bench:
    """A queue with two of its own cpu, one that can only borrow, and perhaps one that lends; all cpu are used."""
    changes = {"strategy": STRICT} if strict else {}
    bench = bench_of(
        queue("owner", group(default=str(OWNED)), cohort="c", preemption=preemption(reclaim=reclaim), **changes),
        queue("borrower", group(default="0"), cohort="c"),
        queue("unused", group(default=str(unused)), cohort="c"),
        defers=defers,
    )
    for number in range(OWNED):
        bench.add(workload(f"first-{number}", "owner", pods(cpu="1")))
        settle(bench)
    for number in range(unused):
        bench.add(workload(f"lent-{number}", "borrower", pods(cpu="1")))
        settle(bench)
    bench.pass_time(2)
    settle(bench)
    return bench


def all_end(bench: Bench) -> None:
    """What holds quota ends, and the flush that offers it to those that wait is due."""
    for held in list(bench.engine.reservations.records):
        bench.finish(str(held.name))
    bench.pass_time(1.1)


def wait(bench: Bench, **cpus: str) -> None:
    """Workloads come and are inadmissible: `own_1="1"` waits in the queue of the owner, others borrow."""
    for number, (name, cpu) in enumerate(cpus.items()):
        where = "owner" if name.startswith("own") else "borrower"
        bench.add(workload(name.replace("_", "-"), where, pods(cpu=cpu), created=10 + number))
    settle(bench)


def settle(bench: Bench) -> None:
    for _ in range(1000):
        if not bench.engine.has_heads(bench.now, repeat=False):
            return
        for decision in bench.engine.cycle(bench.now, repeat=False).decisions:
            for victim in decision.victims:
                bench.evict(str(victim.workload.name))
    pytest.fail("the same heads are decided again and again")


def reserved(bench: Bench) -> set[str]:
    """What the next cycle reserves quota for."""
    return {str(each.workload.name) for each in bench.cycle().decisions if each.outcome is Outcome.RESERVED}


def test_what_a_queue_needs_of_its_own_quota_in_the_next_cycle_is_not_lent_in_this_one() -> None:
    bench = full()
    wait(bench, own_1="1", own_2="1", borrows="1")
    all_end(bench)
    assert reserved(bench) == {"own-1"}
    assert reserved(bench) == {"own-2"}


def test_without_that_the_borrower_is_admitted_and_preempted_in_the_next_cycle() -> None:
    bench = full(defers=False)
    wait(bench, own_1="1", own_2="1", borrows="1")
    all_end(bench)
    assert reserved(bench) == {"own-1", "borrows"}
    victims = [victim for each in bench.cycle().decisions for victim in each.victims]
    assert [str(victim.workload.name) for victim in victims] == ["borrows"]


def test_a_head_that_does_not_fit_makes_way_for_the_next_one_of_its_queue_before_others_borrow() -> None:
    bench = full()
    wait(bench, own_1="9", own_2="1", borrows="2")
    all_end(bench)
    assert reserved(bench) == set()
    assert reserved(bench) == {"own-2"}


def test_what_an_owner_has_no_more_heads_for_is_lent_in_the_same_cycle() -> None:
    bench = full()
    wait(bench, own_1="1", borrows="1")
    all_end(bench)
    assert reserved(bench) == {"own-1", "borrows"}


def test_what_others_have_left_is_lent_in_the_same_cycle() -> None:
    bench = full(unused=1)
    wait(bench, own_1="1", own_2="1", borrows="1")
    all_end(bench)
    assert reserved(bench) == {"own-1", "borrows"}


def test_a_strict_queue_that_is_stuck_keeps_nothing_from_others() -> None:
    bench = full(strict=True)
    wait(bench, own_1="9", own_2="1", borrows="2")
    all_end(bench)
    assert reserved(bench) == {"borrows"}


def test_a_queue_that_reclaims_nothing_keeps_nothing_from_others() -> None:
    bench = full(reclaim="Never")
    wait(bench, own_1="1", own_2="1", borrows="1")
    all_end(bench)
    assert reserved(bench) == {"own-1", "borrows"}


@pytest.mark.parametrize(("priority", "first"), [(0, {"own-1", "borrows"}), (-1, {"own-1"})])
def test_a_queue_that_reclaims_from_lower_priorities_keeps_nothing_from_others(priority: int, first: set[str]) -> None:
    bench = full(reclaim="LowerPriority")
    wait(bench, own_1="1", own_2="1")
    bench.add(workload("borrows", "borrower", pods(cpu="1"), priority=priority, created=20))
    settle(bench)
    all_end(bench)
    assert reserved(bench) == first


def test_what_a_head_has_left_of_its_own_that_no_longer_fits_is_not_lent_in_the_same_cycle() -> None:
    owners = ("first", "second")
    bench = bench_of(
        *(queue(name, group(default="4"), cohort="c", preemption=preemption(reclaim="Any")) for name in owners),
        queue("borrower", group(default="1"), cohort="c"),
    )
    bench.add(*(workload(f"runs-{name}", name, pods(cpu="1")) for name in owners))
    settle(bench)
    bench.add(*(workload(name, name, pods(cpu="4"), created=number) for number, name in enumerate(owners)))
    bench.add(workload("borrows", "borrower", pods(cpu="2"), created=2))
    assert reserved(bench) == {"first"}


def test_what_is_freed_where_nothing_is_inadmissible_goes_to_its_owner_first() -> None:
    bench = full()
    bench.add(*(workload(f"own-{number}", "owner", pods(cpu="1"), created=number) for number in range(2)))
    bench.add(workload("borrows", "borrower", pods(cpu="1")))
    for held in list(bench.engine.reservations.records):
        bench.finish(str(held.name))
    assert reserved(bench) == {"own-0"}
    assert reserved(bench) == {"own-1"}


def test_workloads_that_come_while_quota_is_free_are_decided_as_in_kueue() -> None:
    bench = full()
    all_end(bench)
    settle(bench)
    bench.add(*(workload(f"own-{number}", "owner", pods(cpu="1"), created=number) for number in range(2)))
    bench.add(workload("borrows", "borrower", pods(cpu="1")))
    assert reserved(bench) == {"own-0", "borrows"}


def test_an_owner_whose_workloads_come_and_end_all_the_time_keeps_only_its_own_quota_from_others() -> None:
    bench = full(unused=1)
    wait(bench, **{f"own_{number}": "1" for number in range(50)}, borrows="1")
    for _ in range(10):
        all_end(bench)
        settle(bench)
    assert bench.waits("borrower") == []
    assert bench.waits("owner")


@pytest.mark.parametrize("reclaim", ["Never", "Any"])
@pytest.mark.parametrize("seed", range(30))
def test_at_rest_nothing_waits_that_an_engine_without_it_would_admit(seed: int, reclaim: str) -> None:
    random = Random(seed)
    resources = ("cpu", "gpu") if seed % 2 else ("cpu",)
    queues = [
        queue(
            f"q-{number}",
            group(default={each: f"{random.randint(0, 4)}/{random.choice(['', '2', '9'])}" for each in resources}),
            cohort="c",
            preemption=preemption(reclaim=reclaim),
        )
        for number in range(4)
    ]
    bench = bench_of(*queues)
    values: dict[str, Workload] = {}
    for number in range(120):
        if random.random() < 0.6:
            name = f"w-{number}"
            made = workload(
                name,
                f"q-{random.randrange(4)}",
                pods(
                    1,
                    "main",
                    None,
                    **{each: str(random.choice([1, 1, 2, 5])) for each in random.choice([resources, resources[:1]])},
                ),
                priority=random.choice([0, 0, 10]),
                created=number,
            )
            values[name] = made
            bench.add(made)
        else:
            held = [name for name in values if not bench.engine.is_pending(values[name].key)]
            if held:
                name = random.choice(held)
                bench.finish(name)
                del values[name]
        settle(bench)
        bench.pass_time(random.choice([0.0, 0.01, 0.2, 1.5]))
        settle(bench)
    for _ in range(2):
        bench.pass_time(20)
        settle(bench)
    reserved = {name for name, value in values.items() if not bench.engine.is_pending(value.key)}
    plain = bench_of(*queues, defers=False)
    plain.add(*(holding(values[name], values[name].queue_name) for name in reserved))
    plain.add(*(value for name, value in values.items() if name not in reserved))
    settle(plain)
    assert {name for name, value in values.items() if not plain.engine.is_pending(value.key)} == reserved
