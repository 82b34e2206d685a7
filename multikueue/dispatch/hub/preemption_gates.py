# SPDX-License-Identifier: Apache-2.0
"""Which cluster may preempt for a workload: one at a time (`docs/spec/multikueue.md §1.5` rule 7, alpha, off).

A gate is opened no sooner than the window after the last one, across leader changes; none is opened once a cluster is
chosen; and a new epoch begins with all gates closed. An open gate stays open, since preemption on the worker may have
begun. An assignment that is granted without a reservation begins open: no other cluster has one, and if its report was
wrong it would be refused otherwise. `manager/dispatch` stores an opening in the Workload before it writes to the
cluster.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from multikueue.api.constants import GatePosition
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.dispatch.hub.facts import DispatchedWorkload, DispatchFacts, GateOpening, Observation


@dataclass(frozen=True, slots=True)
class Turn:
    """The opening that begins now, or the seconds until the next one may."""

    begins: GateOpening | None = None
    requeue_after: float | None = None


def next_turn(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime, *, among: Collection[str]) -> Turn:
    """The next opening, on one of the clusters `among` where only preemption can admit the workload.

    The cluster that has waited longest by its own clock is first. The last opening counts for its whole window, even
    if its cluster was lost since: preemption may continue there.
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
    facts: DispatchFacts,
    workload: DispatchedWorkload,
    cluster: str,
    *,
    now: datetime,
    opening: GateOpening | None = None,
    chosen: str = "",
) -> GatePosition | None:
    """The desired position of the gate on `cluster`, given the `opening` that begins; None without the feature.

    An open gate stays open when its assignment is updated. A new assignment begins closed; on the `chosen` cluster it
    begins open, unless another cluster may preempt now.
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


def _seconds_left(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> float:
    """The seconds left of the window of the last opening."""
    last = _last(workload)
    return 0.0 if last is None else (last.at + facts.settings.preemption_window - now).total_seconds()


def _last(workload: DispatchedWorkload) -> GateOpening | None:
    last = workload.gate_opening
    return last if last is not None and last.epoch == workload.epoch else None


def _is_blocked(facts: DispatchFacts, workload: DispatchedWorkload, seen: Observation, now: datetime) -> bool:
    opened = position(facts, workload, seen.cluster, now=now) is GatePosition.OPEN
    return not opened and seen.epoch == workload.epoch and seen.has_phase(AssignmentPhase.PENDING)
