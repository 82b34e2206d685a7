# SPDX-License-Identifier: Apache-2.0
"""The order in which the heads of a cycle are processed, without fair sharing (`docs/spec/engine.md §3.8`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from multikueue.engine.nomination import Nomination
from multikueue.engine.settings import Settings

Rank = tuple[bool, int, int, datetime, str]


def classical(nominations: Iterable[Nomination], settings: Settings) -> Iterator[Nomination]:
    """Active preemptors (by gate), then lower level of borrowing, priority, time; ties by uid (§12 row 18)."""
    return iter(sorted(nominations, key=lambda nomination: rank(nomination, settings)))


def rank(nomination: Nomination, settings: Settings) -> Rank:
    """What the order compares."""
    pending = nomination.pending
    gates = settings.gates
    return (
        gates.prioritize_preemptors and not nomination.live.queue.is_preemptor(pending),
        nomination.assignment.level,
        -pending.priority if gates.priority_sorting_within_cohort else 0,
        pending.since,
        pending.workload.uid,
    )
