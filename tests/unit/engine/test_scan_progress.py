# SPDX-License-Identifier: Apache-2.0
"""Heads that go through their flavors in several cycles (`docs/spec/engine.md §3.6`)."""

from __future__ import annotations

import pytest

from multikueue.engine import Outcome
from tests.support.engine_builders import STRICT, Bench, fungibility, group, holding, pods, queue, workload


def outcomes(bench: Bench) -> dict[str, Outcome]:
    """What the next cycle decides, by name."""
    return {decision.workload.name: decision.outcome for decision in bench.cycle().decisions}


def borrower(*, minimum: int | None = None) -> Bench:
    """A head that would borrow six cpu of `a`, of which another takes three in the same cycle; there are eight."""
    bench = Bench(
        queue("q", group(a="1", b="1"), cohort="c", fungibility=fungibility("MayStopSearch")),
        queue("lender", group(a="7"), cohort="c"),
    )
    bench.add(workload("own", "lender", pods(cpu="3")), workload("w", "q", pods(6, minimum=minimum, cpu="1")))
    assert outcomes(bench) == {"own": Outcome.RESERVED, "w": Outcome.SKIPPED}
    return bench


def test_fewer_pods_fit_a_flavor_that_was_tried_before() -> None:
    bench = borrower(minimum=4)
    decision = bench.decide("w")
    assert decision.outcome is Outcome.RESERVED
    assert [(each.count, each.flavors) for each in decision.pod_sets] == [(5, {"cpu": "a"})]


def test_a_flavor_that_was_tried_before_fits_again_once_another_workload_has_ended() -> None:
    bench = borrower()
    bench.finish("own")
    bench.engine.flush(bench.now)
    decision = bench.decide("w")
    assert [each.flavors for each in decision.pod_sets] == [{"cpu": "a"}]


def test_flavors_that_were_tried_before_do_not_fit_by_themselves() -> None:
    bench = borrower()
    decision = bench.decide("w")
    assert decision.outcome is Outcome.PENDING
    assert "flavor b" in decision.message, "the reasons are those of the flavors that were left"
    assert "flavor a" not in decision.message
    assert bench.waits("q") == ["[w]"]


def test_pod_sets_fit_a_flavor_together_when_the_one_of_the_second_is_lost() -> None:
    policies = fungibility("TryNextFlavor", "MayStopSearch")
    bench = Bench(
        queue("q", group(a="2", b="1"), cohort="here", fungibility=policies),
        queue("near", group(b="1"), cohort="here"),
        queue("far", group(a="4"), cohort="there"),
    )
    bench.add_cohort("here", parent="top")
    bench.add_cohort("there", parent="top")
    bench.add(
        workload("own", "near", pods(cpu="1")),
        workload("w", "q", pods(2, "one", cpu="1"), pods(2, "other", cpu="1")),
    )
    found = {decision.workload.name: decision for decision in bench.cycle().decisions}
    assert [each.flavors for each in found["w"].pod_sets] == [{"cpu": "a"}, {"cpu": "b"}]
    assert found["w"].outcome is Outcome.SKIPPED, "the other one has what it would borrow of b"
    assert [each.flavors for each in bench.decide("w").pod_sets] == [{"cpu": "a"}, {"cpu": "a"}]


def test_a_head_that_loses_a_flavor_to_what_is_held_for_another_is_not_tried_for_ever() -> None:
    bench = Bench(
        queue("strict", group(a="4"), cohort="c", strategy=STRICT),
        queue("q", group(a="0", b="0"), cohort="c", fungibility=fungibility("MayStopSearch")),
    )
    bench.add(holding(workload("held", "q", pods(cpu="2")), "q", flavor="a"))
    bench.add(workload("first", "strict", pods(cpu="4")), workload("w", "q", pods(cpu="1")))
    for _ in range(10):
        if not bench.engine.has_heads(bench.now, repeat=False):
            break
        bench.engine.cycle(bench.now, repeat=False)
    else:
        pytest.fail("cycles do not end")
    bench.engine.delete_workload(workload("first", "strict").key, bench.now)
    assert outcomes(bench) == {"w": Outcome.RESERVED}
