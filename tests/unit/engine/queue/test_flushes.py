# SPDX-License-Identifier: Apache-2.0
"""When inadmissible workloads are flushed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from multikueue.engine.cache.tree import QuotaNode
from multikueue.engine.queue.waiting import FlushRequests

_START = datetime(2026, 1, 1, tzinfo=UTC)
_QUEUE = QuotaNode("q", is_cohort=False)


def _at(seconds: float) -> datetime:
    return _START + timedelta(seconds=seconds)


def _requests() -> FlushRequests:
    return FlushRequests(window_seconds=1.0, gather_seconds=0.02)


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
