# SPDX-License-Identifier: Apache-2.0
"""Workloads that preempt others for some flavors, and would choose others after that (`docs/spec/engine.md §3.7`)."""

from __future__ import annotations

import pytest

from multikueue.engine import Decision, Outcome, Settings
from multikueue.engine.values import ClusterQueue, Flavor
from tests.support.engine_builders import (
    Bench,
    fungibility,
    group,
    holding,
    pods,
    preemption,
    queue,
    workload,
)
from tests.support.topology_builders import node, placed, spread, topology_bench

LOWER = preemption("LowerPriority")
NEXT = fungibility("TryNextFlavor", "TryNextFlavor")
OWNS = queue("q", group(borrowed="0", own="2"), cohort="c", preemption=LOWER, fungibility=NEXT)
LENDS = queue("lends", group(borrowed="1"), cohort="c")


def flavors(decision: Decision) -> dict[str, str]:
    """The flavor of the CPUs of each pod set."""
    return {each.name: each.flavors["cpu"] for each in decision.pod_sets}


def bench_of(*queues: ClusterQueue, victims: int = 1, settings: Settings | None = None) -> Bench:
    """`high` may borrow one CPU for its pod `a`, and has to preempt for the two of `b`.

    Once these are free `a` fits beside its own quota, and prefers it to what it would borrow; `b` does not fit then.
    """
    bench = Bench(*queues, settings=settings)
    for number in range(victims):
        low = workload(f"low-{number}", "q", pods(2 // victims, cpu="1"), created=number)
        bench.add(holding(low, "q", flavor="own"))
    return bench.add(workload("high", "q", pods(1, "a", cpu="1"), pods(2, "b", cpu="1"), priority=1, created=9))


def preempt(bench: Bench, *victims: str) -> None:
    """Let `high` preempt these."""
    decision = bench.decide("high")
    assert decision.outcome is Outcome.PREEMPTING
    assert sorted(victim.workload.name for victim in decision.victims) == sorted(victims)


@pytest.mark.parametrize("fair", [pytest.param(False, id="classical"), pytest.param(True, id="fair sharing")])
def test_a_preemptor_gets_the_flavors_for_which_it_preempted_if_it_fits_in_no_others(fair: bool) -> None:
    bench = bench_of(OWNS, LENDS, settings=Settings(pods_ready=None, fair_sharing=fair))
    preempt(bench, "low-0")
    bench.evict("low-0")
    decision = bench.decide("high")
    assert (decision.outcome, flavors(decision)) == (Outcome.RESERVED, {"a": "borrowed", "b": "own"})
    bench.settle_after(2)
    assert bench.waits("q") == ["[low-0]"]


def test_a_preemptor_gets_the_flavors_for_which_it_preempted_if_others_have_no_places_for_it() -> None:
    of = {name: Flavor(name=name, topology="hosts", node_labels={"of": name}) for name in ("borrowed", "own")}
    owns = queue("q", group(borrowed="0", own="3"), cohort="c", preemption=LOWER, fungibility=NEXT)
    bench = topology_bench(
        Bench(owns, LENDS, flavors=of.values()),
        node("r1/a", cpu="1", labels={"of": "borrowed"}),
        node("r1/b", cpu="2", labels={"of": "own"}),
    )
    bench.add(placed(workload("low", "q", spread(2, cpu="1")), "q", "own", b=2))
    bench.add(placed(workload("small", "q", pods(1, cpu="1"), priority=9), "q", "own"))
    bench.add(workload("high", "q", spread(1, "a", cpu="1"), spread(2, "b", cpu="1"), priority=1, created=9))
    preempt(bench, "low")
    bench.finish("small")
    bench.evict("low")
    decision = bench.decide("high")
    assert (decision.outcome, flavors(decision)) == (Outcome.RESERVED, {"a": "borrowed", "b": "own"})


def test_a_preemptor_waits_for_the_last_of_its_victims_though_it_prefers_what_the_first_has_freed() -> None:
    bench = bench_of(OWNS, LENDS, victims=2)
    preempt(bench, "low-0", "low-1")
    bench.evict("low-1")
    decision = bench.decide("high")
    assert (decision.outcome, [victim.workload.name for victim in decision.victims]) == (Outcome.PREEMPTING, ["low-0"])
    bench.evict("low-0")
    assert bench.decide("high").outcome is Outcome.RESERVED


def test_its_victim_gets_the_quota_back_if_a_preemptor_fits_there_no_more() -> None:
    bench = bench_of(OWNS, LENDS)
    preempt(bench, "low-0")
    bench.evict("low-0")
    bench.add(holding(workload("owner", "lends", pods(1, cpu="1")), "lends", flavor="borrowed"))
    assert bench.decide("high").outcome is Outcome.PENDING
    bench.finish("owner")
    assert bench.decide("low-0").outcome is Outcome.RESERVED
