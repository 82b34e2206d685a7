# SPDX-License-Identifier: Apache-2.0
"""What metrics show of queues and cohorts beyond their statuses."""

from __future__ import annotations

import math

from multikueue.core.keys import Key
from multikueue.engine import Settings
from multikueue.engine.resources import FlavorResource
from tests.support.engine_builders import Bench, group, key, pods, queue, workload

CPU = FlavorResource("default", "cpu")


def test_pending_workloads_are_counted_by_kind_and_by_what_they_request() -> None:
    bench = Bench(queue("a", group(default="1")))
    large, small = pods(cpu="3"), pods(cpu="1")
    bench.add(*(workload(f"l{n}", "a", large, created=n) for n in range(3)), workload("s", "a", small, created=9))
    (before,) = bench.engine.queue_figures()
    assert (before.hashes, before.inadmissible_hashes, dict(before.inadmissible)) == (2, 0, {})
    assert before.requested == {"cpu": 10_000}
    bench.cycle()
    (after,) = bench.engine.queue_figures()
    assert (after.hashes, after.inadmissible_hashes) == (1, 1)
    assert dict(after.inadmissible) == {key("a"): 3}


def test_the_place_of_a_queue_in_its_tree_and_its_quota() -> None:
    bench = Bench(queue("a", group(default="4"), cohort="left"), queue("b", group(default="2"), cohort="left"))
    bench.add_cohort("left", parent="top")
    bench.add(workload("w", "b", pods(cpu="1")))
    bench.cycle()
    one, _ = bench.engine.queue_figures()
    assert (one.cohort, one.root, one.share) == ("left", "top", None)
    assert one.quotas["default", "cpu"].nominal == 4000
    by_name = {each.name: each for each in bench.engine.cohort_figures()}
    assert (by_name["left"].parent, by_name["left"].root, by_name["top"].parent) == ("top", "top", "")
    assert by_name["left"].quota[CPU] == by_name["top"].quota[CPU] == 6000
    assert by_name["top"].reserved[CPU] == 1000


def test_a_queue_of_weight_nothing_that_borrows_has_a_share_that_is_no_number() -> None:
    settings = Settings(fair_sharing=True)
    bench = Bench(
        queue("a", group(default="0"), cohort="c", weight=0.0),
        queue("b", group(default="4"), cohort="c"),
        settings=settings,
    )
    bench.add(workload("w", "a", pods(cpu="1")))
    bench.cycle()
    shares = {each.name: each.share for each in bench.engine.queue_figures()}
    assert shares["a"] is not None
    assert math.isnan(shares["a"])
    assert shares["b"] == 0


def test_a_queue_without_a_cohort_is_in_no_tree() -> None:
    (alone,) = Bench(queue("a", group(default="1"))).engine.queue_figures()
    assert (alone.cohort, alone.root, Key("", "a").name) == ("", "", "a")
