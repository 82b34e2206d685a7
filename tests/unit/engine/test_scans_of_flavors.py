# SPDX-License-Identifier: Apache-2.0
"""Scans of flavors that take several cycles, and when they end (`docs/spec/engine.md §3.6`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from multikueue.engine.queue.pending import ScanProgress, Tried
from multikueue.engine.values import ClusterQueue, Flavor
from multikueue.engine.workloads import Workload
from tests.support.engine_builders import (
    STRICT,
    Bench,
    group,
    holding,
    pods,
    preemption,
    queue,
    workload,
)
from tests.support.topology_builders import cpus, node, placed, topology_bench

TWO_SETS = pods(1, "a", cpu="500m"), pods(2, "b", cpu="500m")


def held(name: str, cpu: str, flavor: str) -> Workload:
    return holding(workload(name, "q", pods(cpu=cpu), priority=9), "q", flavor=flavor)


def full(value: ClusterQueue) -> Bench:
    """One CPU is free, in the first flavor; `big` requests half of one for one pod set, and one for the other.

    Each pod set alone fits there, so that its scan stops at that flavor, and is at its end when the other one's is.
    """
    bench = Bench(value)
    bench.add(held("first", "3", "f1"), held("second", "2", "f2"))
    return bench.add(workload("big", "q", *TWO_SETS, priority=1), workload("small", "q", pods(cpu="1"), created=5))


def cycles(bench: Bench) -> int:
    """How many cycles there are until the heads would be decided again as they were."""
    for number in count():
        if not bench.engine.has_heads(bench.now, repeat=False):
            return number
        assert number < 100, "the scan does not end"
        bench.engine.cycle(bench.now, repeat=False)
    raise AssertionError


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(preemption(), id="without preemption"),
        pytest.param(preemption("LowerPriority"), id="without candidates"),
    ],
)
def test_a_scan_whose_pod_sets_stop_in_turn_ends_and_smaller_workloads_are_evaluated(policy: object) -> None:
    bench = full(queue("q", group(f1="4", f2="2"), preemption=policy))
    cycles(bench)
    assert bench.waits("q") == ["[big]"]
    assert bench.has_quota("small")


def test_the_head_of_a_strict_queue_is_not_scanned_for_ever() -> None:
    bench = full(queue("q", group(f1="4", f2="2"), strategy=STRICT))
    cycles(bench)
    assert bench.waits("q") == ["big", "small"]
    bench.finish("second")
    cycles(bench)
    assert bench.has_quota("big")


@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_quota_that_comes_free_during_a_scan_is_found(after: int) -> None:
    bench = full(queue("q", group(f1="4", f2="2")))
    for _ in range(after):
        bench.cycle()
    bench.finish("second")
    cycles(bench)
    bench.settle_after(1)
    assert bench.has_quota("big")
    assert bench.has_quota("small")


def test_after_its_end_a_scan_begins_with_the_first_flavor() -> None:
    bench = full(queue("q", group(f1="4", f2="2")))
    cycles(bench)
    bench.finish("small")
    bench.engine.flush(bench.now)
    assert bench.decide("big").last_tried_flavor_index == ({"cpu": 0}, {"cpu": -1})


def strict_queues(**flavors: tuple[str, ...]) -> Bench:
    """Queues of one cohort and their flavors, of which only the first has a host; two of its four CPUs are free."""
    names = {flavor for names in flavors.values() for flavor in names}
    bench = Bench(
        *(
            queue(name, group(**dict.fromkeys(names, "9")), cohort="co", strategy=STRICT)
            for name, names in flavors.items()
        ),
        flavors=[Flavor(name=name, topology="hosts", node_labels={"flavor": name}) for name in sorted(names)],
    )
    topology_bench(bench, node("r1/a", cpu="4", labels={"flavor": "f1"}))
    first = next(iter(flavors))
    return bench.add(placed(cpus("runs", "2", first), first, "f1", a=1))


def test_strict_heads_that_come_to_the_end_of_their_flavors_in_turn_are_not_scanned_for_ever() -> None:
    bench = strict_queues(p=("f1", "f2"), q=("f1", "f2"))
    bench.add(cpus("one", "3", "p")).cycle()
    bench.add(cpus("other", "3", "q", created=1))
    cycles(bench)
    assert (bench.waits("p"), bench.waits("q")) == (["one"], ["other"])
    bench.finish("runs")
    bench.cycle()
    assert bench.has_quota("one"), "it begins with its first flavor again"


def test_a_head_fits_where_another_one_that_scans_faster_is_not() -> None:
    bench = strict_queues(p=("f1", "f2"), q=("f1", "f2", "f3"))
    bench.add(cpus("large", "3", "p"), cpus("small", "2", "q", created=1))
    cycles(bench)
    assert bench.has_quota("small")


def stops(*periods: int) -> Iterator[Tried]:
    """Where pod sets stop that begin again after so many cycles."""
    for number in count(1):
        yield tuple({"cpu": number % period - 1} for period in periods)


@pytest.mark.parametrize(
    ("periods", "want"),
    [
        pytest.param((1,), 1, id="all flavors in one cycle"),
        pytest.param((3,), 3, id="one pod set stops twice before the end"),
        pytest.param((2, 3), 6, id="two pod sets meet at the end"),
        pytest.param((4, 6), 12, id="two pod sets meet at the end before each has met each flavor of the other"),
        pytest.param((7, 11, 13), 65, id="no more cycles than are enough for any that anyone needs"),
    ],
)
def test_a_scan_ends_when_it_has_stopped_everywhere(periods: tuple[int, ...], want: int) -> None:
    progress = None
    for cycle, tried in enumerate(stops(*periods), 1):
        progress = ScanProgress.after(progress, tried, generation=1, cycle=cycle, flush=0)
        if not progress.unfinished:
            assert (cycle, progress.began) == (want, 1)
            break


def test_a_flush_gives_a_scan_its_cycles_anew() -> None:
    progress = None
    for cycle, tried in zip(range(1, 121), stops(997), strict=False):
        progress = ScanProgress.after(progress, tried, generation=1, cycle=cycle, flush=cycle // 60)
        assert progress.unfinished
