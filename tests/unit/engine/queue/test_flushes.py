# SPDX-License-Identifier: Apache-2.0
"""When inadmissible workloads are flushed, and what is admitted then (`docs/spec/engine.md §1.7`, ADR 0027)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from multikueue.engine.cache.tree import Forest, QuotaNode
from multikueue.engine.queue.flushes import FlushRequests
from multikueue.engine.values import ClusterQueue
from tests.support.engine_builders import Bench, group, holding, key, pods, preemption, queue, workload

_START = datetime(2026, 1, 1, tzinfo=UTC)
_QUEUE = QuotaNode("q", is_cohort=False)


def _at(seconds: float) -> datetime:
    return _START + timedelta(seconds=seconds)


def _requests() -> FlushRequests:
    return _with_allowance(0)


def test_quota_freed_in_a_quiet_tree_is_offered_at_once() -> None:
    made = _requests()
    made.request(_QUEUE, _at(5))
    assert made.next() == _at(5.02)
    assert made.take(_at(5.01), _at(5.01)) == []
    assert made.take(_at(5.02), _at(5.02)) == [(False, "q")]
    assert made.next() is None


def test_a_tree_is_flushed_once_a_second_however_much_comes_free() -> None:
    made = _requests()
    flushes = []
    for step in range(300):
        now = _at(step / 100)
        made.request(_QUEUE, now)
        flushes += [now for _ in made.take(now, now)]
    assert flushes == [_at(0.02), _at(1.02), _at(2.02)]


def test_a_flush_on_demand_counts_as_one() -> None:
    made = _requests()
    made.request(_QUEUE, _at(0))
    assert made.take(None, _at(0)) == [(False, "q")]
    made.request(_QUEUE, _at(0.5))
    assert made.next() == _at(1)


def _tree(cohort: str, *queues: str) -> QuotaNode:
    forest = Forest.of([ClusterQueue(name=name, cohort=cohort) for name in queues], [])
    return forest.queues[queues[0]]


def _with_allowance(heads: float) -> FlushRequests:
    made = FlushRequests(
        window_seconds=1.0,
        gather_seconds=0.02,
        early_seconds=0.1,
        heads_of=lambda root: len(list(root.all_queues())),
    )
    made.allowance = heads
    return made


def _flushed(made: FlushRequests, *nodes: QuotaNode, seconds: int, start: int = 0) -> list[tuple[float, str]]:
    """When which tree is flushed while something is freed in each all the time."""
    found = []
    for step in range(start * 100, (start + seconds) * 100):
        now = _at(step / 100)
        for node in nodes:
            made.request(node, now)
        found += [(step / 100, name) for _, name in made.take(now, now)]
    return found


def test_while_the_allowance_lasts_what_is_freed_is_offered_a_tenth_of_a_second_later() -> None:
    assert [when for when, _ in _flushed(_with_allowance(100), _QUEUE, seconds=1)] == [
        0.02,
        *(round(0.12 + 0.1 * step, 2) for step in range(9)),
    ]


def test_a_flush_costs_as_much_of_the_allowance_as_its_tree_has_heads() -> None:
    small, large = _tree("small", "a", "b"), _tree("large", *(f"q{number}" for number in range(11)))
    flushed = _flushed(_with_allowance(10), small, large, seconds=3)
    assert [when for when, name in flushed if name == "large"] == [0.02, 1.02, 2.02]
    # Ten heads at once, and ten more in each second.
    assert 15 <= len([when for when, name in flushed if name == "small"]) <= 23


def test_a_tree_without_a_share_of_the_allowance_is_flushed_once_a_second() -> None:
    greedy, other = _QUEUE, QuotaNode("other", is_cohort=False)
    flushed = _flushed(_with_allowance(5), greedy, other, seconds=4)
    for name in ("q", "other"):
        times = [when for when, each in flushed if each == name]
        assert all(later - sooner <= 1.01 for sooner, later in pairwise(times))
        assert times[0] == 0.02


def test_what_is_not_used_of_the_allowance_is_lost_after_a_second() -> None:
    made = _with_allowance(4)
    _flushed(made, _QUEUE, seconds=2)
    later = _flushed(made, _QUEUE, seconds=1, start=600)
    assert len(later) <= 1 + 4 + 4


def test_a_clock_that_goes_back_gives_no_allowance() -> None:
    made = _with_allowance(1)
    made.request(_QUEUE, _at(100))
    assert made.take(None, _at(100))
    made.request(_QUEUE, _at(100.05))
    assert made.take(None, _at(100.05)), "that is paid for"
    made.request(_QUEUE, _at(50))
    assert made.next() == _at(101.05)


FULL = 6


def full(*, allowance: float, shapes: int = 1) -> Bench:
    """A queue of six cpu of which each has a workload, and as many wait in a number of shapes; nothing was flushed."""
    bench = Bench(queue("q", group(default=str(FULL)), cohort="c"))
    bench.engine.allow_early_flushes(allowance)
    bench.add(*(workload(f"first-{number}", "q", pods(cpu="1")) for number in range(FULL)))
    bench.pass_time(5)
    bench.settle()
    bench.add(*(workload(f"more-{n}", "q", pods(cpu=f"{1000 - n % shapes}m")) for n in range(FULL)))
    bench.settle()
    return bench


def admitted(bench: Bench) -> int:
    return FULL - len(bench.engine.pending("q"))


def after_all_end(bench: Bench, *, seconds: int) -> list[int]:
    """One ends each hundredth of a second: how many of the others are admitted, tenth by tenth."""
    found = []
    for step in range(seconds * 100):
        if step < FULL:
            bench.finish(f"first-{step}")
        bench.settle()
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


def test_what_a_withdrawn_reservation_frees_is_offered() -> None:
    bench = Bench(queue("q", group(default="4"), preemption=preemption("LowerPriority")))
    bench.add(workload("large", "q", pods(cpu="4")))
    bench.cycle()
    bench.add(workload("small", "q", pods(cpu="1"), created=1))
    bench.settle()
    assert bench.waits("q") == ["[small]"]
    bench.add(workload("preemptor", "q", pods(cpu="3"), priority=5, created=2))
    assert [victim.workload.name for victim in bench.decide("preemptor").victims] == ["large"]
    bench.engine.admission_failed(key("large"), bench.now)
    bench.settle_after(1)
    assert bench.has_quota("preemptor")
    assert bench.has_quota("small")


def test_a_victim_that_is_not_evicted_after_all_may_be_that_of_another() -> None:
    policy = preemption(reclaim="LowerPriority", borrow="LowerPriority")
    bench = Bench(
        *(queue(name, group(default="0"), cohort="c", preemption=policy) for name in ("a", "b")),
        queue("loose", group(default="0"), cohort="c"),
        queue("idle", group(default="3"), cohort="c"),
    )
    bench.add(holding(workload("victim", "loose", pods(cpu="3")), "loose"))
    bench.add(workload("first", "a", pods(cpu="3"), priority=5), workload("second", "b", pods(cpu="3"), priority=4))
    assert [victim.workload.name for victim in bench.decide("first").victims] == ["victim"]
    assert bench.waits("b") == ["[second]"]
    bench.engine.delete_workload(key("first"), bench.now)
    bench.engine.eviction_failed(key("victim"), bench.now)
    bench.pass_time(1)
    assert [victim.workload.name for victim in bench.decide("second").victims] == ["victim"]
