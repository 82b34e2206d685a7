# SPDX-License-Identifier: Apache-2.0
"""Trees whose heads wait until freed quota is offered to all of their workloads (ADR 0032)."""

from __future__ import annotations

from tests.support.engine_builders import Bench, group, pods, queue, workload

WINDOW = 1.0
QUOTA = 6


def full(*, waits: str | None = "4", holds: bool = True) -> Bench:
    """A queue of six cpu with a workload on each, another queue of its cohort, and perhaps a large one that waits."""
    bench = Bench(queue("q", group(default=str(QUOTA)), cohort="c"), queue("other", group(default="0"), cohort="c"))
    if holds:
        bench.engine.hold_trees_until_flush()
    bench.add(*(workload(f"first-{number}", "q", pods(cpu="1")) for number in range(QUOTA)))
    settle(bench)
    if waits is not None:
        bench.add(workload("large", "q", pods(cpu=waits), priority=10))
        settle(bench)
        assert bench.waits("q") == ["[large]"]
    # What is freed in a tree that was quiet is offered at once: the next flush after this one is a second later.
    bench.pass_time(5)
    ends(bench, "first-0")
    bench.pass_time(0.02)
    settle(bench)
    return bench


def settle(bench: Bench) -> None:
    while bench.engine.has_heads(bench.now, repeat=False):
        bench.engine.cycle(bench.now, repeat=False)


def ends(bench: Bench, name: str) -> None:
    bench.finish(name)
    settle(bench)


def comes(bench: Bench, name: str, *, cluster_queue: str = "q", cpu: str = "1") -> None:
    bench.add(workload(name, cluster_queue, pods(cpu=cpu)))
    settle(bench)


def has_quota(bench: Bench, name: str) -> bool:
    return all(waits.strip("[]") != name for queue in ("q", "other") for waits in bench.waits(queue))


def small_ones_come_while_quota_is_freed(bench: Bench) -> None:
    """Three more cpu within a window, each with a small workload that would fit in it."""
    for number in range(1, 4):
        bench.pass_time(0.1)
        ends(bench, f"first-{number}")
        comes(bench, f"small-{number}", cluster_queue="other" if number == 3 else "q")


def test_what_is_freed_in_a_window_goes_to_the_large_one_that_waits_for_it() -> None:
    bench = full()
    small_ones_come_while_quota_is_freed(bench)
    bench.pass_time(WINDOW)
    settle(bench)
    assert has_quota(bench, "large")
    assert bench.waits("q") == ["[small-1]", "[small-2]"]


def test_without_that_small_ones_take_it_piece_by_piece() -> None:
    bench = full(holds=False)
    small_ones_come_while_quota_is_freed(bench)
    bench.pass_time(WINDOW)
    settle(bench)
    assert not has_quota(bench, "large")
    assert has_quota(bench, "small-1")


def test_a_tree_in_which_nothing_is_inadmissible_is_not_held() -> None:
    bench = full(waits=None)
    bench.pass_time(0.1)
    ends(bench, "first-1")
    assert bench.engine.flushes.next() is not None
    comes(bench, "new")
    assert has_quota(bench, "new")


def test_heads_are_held_for_a_window_at_most_however_often_quota_is_freed() -> None:
    bench = full(waits="7")
    bench.pass_time(0.1)
    ends(bench, "first-1")
    comes(bench, "new")
    assert not has_quota(bench, "new")
    for step in range(1, 101):
        bench.pass_time(WINDOW / 100)
        if step % 30 == 0:
            ends(bench, f"first-{1 + step // 30}")
        settle(bench)
    assert has_quota(bench, "new")


def test_a_tree_that_is_being_decided_is_not_held_by_what_is_freed_meanwhile() -> None:
    bench = full(waits="7")
    bench.add(*(workload(f"many-{number}", "q", pods(cpu="1")) for number in range(QUOTA)))
    for number in range(1, QUOTA):
        assert bench.engine.has_heads(bench.now, repeat=False)
        bench.engine.cycle(bench.now, repeat=False)
        bench.finish(f"first-{number}")
    settle(bench)
    assert bench.waits("q") == ["[large]"]


def test_the_next_wake_is_the_end_of_the_hold() -> None:
    bench = full()
    bench.pass_time(0.1)
    ends(bench, "first-1")
    comes(bench, "new")
    assert not bench.engine.has_heads(bench.now, repeat=False)
    assert bench.engine.has_heads(bench.now), "a cycle over all heads is not held"
    wake = bench.engine.next_wake(bench.now)
    assert wake is not None
    assert (wake - bench.now).total_seconds() <= WINDOW
    bench.now = wake
    settle(bench)
    assert has_quota(bench, "new")
