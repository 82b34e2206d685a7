# SPDX-License-Identifier: Apache-2.0
"""How soon quota that was freed is offered to inadmissible workloads (`docs/spec/engine.md §1.7`, ADR 0027)."""

from __future__ import annotations

from multikueue.engine import Settings
from tests.support.engine_builders import Bench, group, pods, queue, workload

FULL = 6


def full(*, allowance: float, shapes: int = 1) -> Bench:
    """A queue of six cpu of which each has a workload, and as many wait in a number of shapes; nothing was flushed."""
    settings = Settings(pods_ready=None, flush_allowance=allowance)
    bench = Bench(queue("q", group(default=str(FULL)), cohort="c"), settings=settings)
    bench.add(*(workload(f"first-{number}", "q", pods(cpu="1")) for number in range(FULL)))
    bench.pass_time(5)
    settle(bench)
    bench.add(*(workload(f"more-{n}", "q", pods(cpu=f"{1000 - n % shapes}m")) for n in range(FULL)))
    settle(bench)
    return bench


def settle(bench: Bench) -> None:
    while bench.engine.has_heads(bench.now, repeat=False):
        bench.engine.cycle(bench.now, repeat=False)


def admitted(bench: Bench) -> int:
    return FULL - len(bench.engine.pending("q"))


def after_all_end(bench: Bench, *, seconds: int) -> list[int]:
    """One ends each hundredth of a second: how many of the others are admitted, tenth by tenth."""
    found = []
    for step in range(seconds * 100):
        if step < FULL:
            bench.finish(f"first-{step}")
        settle(bench)
        if step % 10 == 9:
            found.append(admitted(bench))
        bench.pass_time(0.01)
    return found


def test_without_an_allowance_what_ends_together_is_replaced_a_second_later() -> None:
    assert after_all_end(full(allowance=0), seconds=2)[:11] == [3] * 10 + [FULL]


def test_with_it_all_is_replaced_a_tenth_of_a_second_later() -> None:
    assert after_all_end(full(allowance=100), seconds=1)[:2] == [3, FULL]


def test_many_shapes_in_a_queue_are_as_many_heads_and_use_the_allowance_up() -> None:
    assert after_all_end(full(allowance=2, shapes=6), seconds=2)[:11] == [3] * 10 + [FULL]
    assert after_all_end(full(allowance=6, shapes=6), seconds=1)[:2] == [3, FULL]
