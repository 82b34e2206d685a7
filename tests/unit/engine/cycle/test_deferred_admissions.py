# SPDX-License-Identifier: Apache-2.0
"""Heads that borrow what others need for their own quota wait for a later cycle (ADR 0032)."""

from __future__ import annotations

from random import Random

import pytest

from multikueue.engine import Engine, Outcome, Settings
from multikueue.engine.values import ClusterQueue
from multikueue.engine.workloads import Workload
from tests.support.engine_builders import STRICT, Bench, group, holding, pods, preemption, queue, workload

RECLAIMS = preemption(reclaim="Any")


def bench_of(*queues: ClusterQueue, defers: bool = True) -> Bench:
    engine = Engine(Settings(pods_ready=None))
    if defers:
        engine.defer_admissions()
    return Bench(*queues, engine=engine)


def owner_and_borrower(*, defers: bool = True, strict: bool = False, unused: str = "0") -> Bench:
    """A queue with two of its own cpu, and one that can only borrow; no workloads yet."""
    changes = {"strategy": STRICT} if strict else {}
    return bench_of(
        queue("owner", group(default="2"), cohort="c", preemption=RECLAIMS, **changes),
        queue("borrower", group(default="0"), cohort="c"),
        queue("unused", group(default=unused), cohort="c"),
        defers=defers,
    )


def settle(bench: Bench) -> None:
    for _ in range(1000):
        if not bench.engine.has_heads(bench.now, repeat=False):
            return
        bench.engine.cycle(bench.now, repeat=False)
    pytest.fail("the same heads are decided again and again")


def reserved(bench: Bench) -> set[str]:
    """What the next cycle reserves quota for."""
    return {str(each.workload.name) for each in bench.cycle().decisions if each.outcome is Outcome.RESERVED}


def two_own(bench: Bench, first: str = "1") -> None:
    bench.add(workload("own-1", "owner", pods(cpu=first)), workload("own-2", "owner", pods(cpu="1"), created=1))


def test_what_a_queue_needs_of_its_own_quota_in_the_next_cycle_is_not_lent_in_this_one() -> None:
    bench = owner_and_borrower()
    two_own(bench)
    bench.add(workload("borrows", "borrower", pods(cpu="1")))
    assert reserved(bench) == {"own-1"}
    assert reserved(bench) == {"own-2"}


def test_without_that_the_borrower_is_admitted_and_preempted_in_the_next_cycle() -> None:
    bench = owner_and_borrower(defers=False)
    two_own(bench)
    bench.add(workload("borrows", "borrower", pods(cpu="1")))
    assert reserved(bench) == {"own-1", "borrows"}
    victims = [victim for each in bench.cycle().decisions for victim in each.victims]
    assert [str(victim.workload.name) for victim in victims] == ["borrows"]


def test_a_head_that_does_not_fit_makes_way_for_the_next_one_of_its_queue_before_others_borrow() -> None:
    bench = owner_and_borrower()
    two_own(bench, first="9")
    bench.add(workload("borrows", "borrower", pods(cpu="2")))
    assert reserved(bench) == set()
    assert reserved(bench) == {"own-2"}


def test_what_an_owner_has_no_more_heads_for_is_lent_in_the_same_cycle() -> None:
    bench = owner_and_borrower()
    bench.add(workload("own-1", "owner", pods(cpu="1")), workload("borrows", "borrower", pods(cpu="1")))
    assert reserved(bench) == {"own-1", "borrows"}


def test_what_others_have_left_is_lent_in_the_same_cycle() -> None:
    bench = owner_and_borrower(unused="1")
    two_own(bench)
    bench.add(workload("borrows", "borrower", pods(cpu="1")))
    assert reserved(bench) == {"own-1", "borrows"}


def test_a_strict_queue_that_is_stuck_keeps_nothing_from_others() -> None:
    bench = owner_and_borrower(strict=True)
    two_own(bench, first="9")
    bench.add(workload("borrows", "borrower", pods(cpu="2")))
    assert reserved(bench) == {"borrows"}


def test_an_owner_whose_workloads_come_and_end_all_the_time_keeps_only_its_own_quota_from_others() -> None:
    bench = owner_and_borrower(unused="1")
    for number in range(50):
        bench.add(workload(f"own-{number}", "owner", pods(cpu="1"), created=number))
    bench.add(*(workload(f"borrows-{number}", "borrower", pods(cpu="1")) for number in range(2)))
    assert reserved(bench) == {"own-0", "borrows-0"}
    for number in range(40):
        bench.finish(f"own-{number}")
        settle(bench)
        bench.pass_time(0.3)
    assert len(bench.waits("borrower")) == 1


@pytest.mark.parametrize("seed", range(30))
def test_at_rest_nothing_waits_that_an_engine_without_it_would_admit(seed: int) -> None:
    random = Random(seed)
    queues = [
        queue(f"q-{number}", group(default=f"{random.randint(0, 4)}/{random.choice(['', '2', '9'])}"), cohort="c")
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
                pods(cpu=str(random.choice([1, 1, 2, 5]))),
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
    bench.pass_time(2)
    settle(bench)
    held = {name for name, value in values.items() if not bench.engine.is_pending(value.key)}
    plain = bench_of(*queues, defers=False)
    plain.add(*(holding(values[name], values[name].queue_name) for name in held))
    plain.add(*(value for name, value in values.items() if name not in held))
    settle(plain)
    assert {name for name, value in values.items() if not plain.engine.is_pending(value.key)} == held
