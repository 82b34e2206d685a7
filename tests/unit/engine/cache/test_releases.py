# SPDX-License-Identifier: Apache-2.0
"""How long workloads of a queue run, and how soon a cohort releases as much quota as some of its workloads hold."""

from __future__ import annotations

import pytest

from tests.support.engine_builders import Bench, group, key, pods, queue, workload


def running() -> Bench:
    """Two queues of a cohort, in which a workload of one cpu ran for ten and for twenty seconds; two more run."""
    bench = Bench(*(queue(name, group(default="3"), cohort="c") for name in ("fast", "slow")))
    for name, seconds in (("fast", 10.0), ("slow", 20.0)):
        for number in range(3):
            bench.add(workload(f"{name}-{number}", name, pods(cpu="1")))
            bench.cycle()
        bench.pass_time(seconds)
        bench.finish(f"{name}-0")
    return bench


def soon(bench: Bench, *names: str) -> float | None:
    return bench.engine.seconds_until_released(key(name) for name in names)


def test_it_is_what_they_hold_by_what_all_queues_of_the_cohort_release_in_a_second() -> None:
    bench = running()
    fast, slow = bench.mean_run("fast"), bench.mean_run("slow")
    assert fast is not None
    assert slow is not None
    a_second = 2 / fast + 2 / slow
    assert soon(bench, "fast-1") == pytest.approx(1 / a_second)
    assert soon(bench, "fast-1", "slow-1") == pytest.approx(2 / a_second)


def test_it_is_not_known_where_nothing_has_ended() -> None:
    bench = Bench(queue("q", group(default="3")))
    bench.add(workload("w", "q", pods(cpu="1")))
    bench.cycle()
    assert soon(bench, "w") is None


def test_a_queue_in_which_nothing_has_ended_releases_nothing() -> None:
    bench = running()
    before = soon(bench, "fast-1")
    bench.add_queue(queue("new", group(default="3"), cohort="c"))
    bench.add(workload("new", "new", pods(cpu="3")))
    bench.cycle()
    assert soon(bench, "fast-1") == before


def test_another_cohort_counts_for_itself_and_the_longer_one_decides() -> None:
    bench = running()
    bench.add_queue(queue("other", group(default="3")))
    for number in range(2):
        bench.add(workload(f"other-{number}", "other", pods(cpu="1")))
        bench.cycle()
    bench.pass_time(1000.0)
    bench.finish("other-0")
    assert soon(bench, "other-1") == pytest.approx(1000.0)
    assert soon(bench, "other-1", "fast-1") == pytest.approx(1000.0)


def test_a_workload_that_holds_nothing_any_more_does_not_count() -> None:
    bench = running()
    assert soon(bench, "fast-0") is None
    assert soon(bench, "fast-0", "fast-1") == soon(bench, "fast-1")


def test_a_queue_in_which_nothing_has_ended_is_taken_to_run_its_workloads_as_long_as_the_others_of_its_cohort() -> None:
    bench = running()
    bench.add_queue(queue("new", group(default="3"), cohort="c"))
    bench.add_queue(queue("alone", group(default="3")))
    assert bench.mean_run("new") == pytest.approx(15.0)
    assert bench.mean_run("alone") is None
    bench.add(workload("new", "new", pods(cpu="1")))
    bench.cycle()
    bench.pass_time(100.0)
    bench.finish("new")
    assert bench.mean_run("new") == pytest.approx(100.0)
