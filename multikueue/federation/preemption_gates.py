# SPDX-License-Identifier: Apache-2.0
"""Which copy of a workload may preempt: one at a time (`docs/spec/multikueue.md §1.5` rule 7, an alpha gate, off).

Owns whose gate is opened and when, and where the gate of each copy is to be. Promises that the next gate is opened no
sooner than the window after the last, whoever leads, that none is opened once a cluster is chosen, and that a new epoch
begins with all of them closed. Nothing is closed again: what a worker has begun to preempt goes on there. A copy that
is granted without being asked is made open, as nobody else has one: it was thought to have room, and would otherwise
be refused for good where the reports were wrong. Writing an opening into the Workload before a cluster is told of it is
`manager/dispatch`'s, the gate on the worker the agent's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from multikueue.api.constants import GatePosition
from multikueue.api.remoteassignment import Phase
from multikueue.federation.facts import Facts, GateOpening, Observation, WorkloadFacts


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose turn begins now, or in how many seconds somebody's may."""

    begins: GateOpening | None = None
    requeue_after: float | None = None


def next_turn(facts: Facts, workload: WorkloadFacts, now: datetime, *, among: Collection[str]) -> Turn:
    """The next opening, of the copies on clusters `among` that can only be admitted by preempting.

    The oldest signal is first, by the clocks of the workers. The last opening counts for its window, even when its
    cluster has been lost since: what it preempts there, it goes on preempting.
    """
    if not facts.settings.orchestrated_preemption or workload.cluster_name:
        return Turn()
    waiting = [
        (seen.blocked_since, name)
        for name, seen in facts.observations.items()
        if name in among and seen.blocked_since is not None and _is_blocked(facts, workload, seen, now)
    ]
    if not waiting:
        return Turn()
    left = _seconds_left(facts, workload, now)
    if left > 0:
        return Turn(requeue_after=left)
    _, first = min(waiting)
    return Turn(begins=GateOpening(workload.epoch, first, now))


def position(
    facts: Facts,
    workload: WorkloadFacts,
    cluster: str,
    *,
    now: datetime,
    opening: GateOpening | None = None,
    chosen: str = "",
) -> GatePosition | None:
    """Where the gate of the copy on `cluster` is to be, with the turn that begins; None without the feature.

    One that is open stays open, as a copy that is brought up to date must not lose its turn. One that was made anew
    since, on a cluster whose turn is over, begins closed again; on the `chosen` one it begins open, unless it is
    another one's turn.
    """
    if not facts.settings.orchestrated_preemption:
        return None
    turn = opening or _last(workload)
    if turn is not None and turn.cluster == cluster:
        return GatePosition.OPEN
    seen = facts.observations.get(cluster)
    if seen is not None and seen.epoch == workload.epoch:
        return seen.gate or GatePosition.CLOSED
    alone = cluster == chosen and _seconds_left(facts, workload, now) <= 0
    return GatePosition.OPEN if alone else GatePosition.CLOSED


def _seconds_left(facts: Facts, workload: WorkloadFacts, now: datetime) -> float:
    """Of the turn that began last."""
    last = _last(workload)
    return 0.0 if last is None else (last.at + facts.settings.preemption_window - now).total_seconds()


def _last(workload: WorkloadFacts) -> GateOpening | None:
    last = workload.gate_opening
    return last if last is not None and last.epoch == workload.epoch else None


def _is_blocked(facts: Facts, workload: WorkloadFacts, seen: Observation, now: datetime) -> bool:
    opened = position(facts, workload, seen.cluster, now=now) is GatePosition.OPEN
    return not opened and seen.epoch == workload.epoch and seen.says(Phase.PENDING)
