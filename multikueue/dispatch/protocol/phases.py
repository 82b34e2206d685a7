# SPDX-License-Identifier: Apache-2.0
"""The phases of an assignment as its agent reports them, as a table of transitions.

`assignment_state.step` finds the event; the table decides which phase follows. Within one epoch Finished and Evicted
are final, whatever happens to the Job afterwards (`docs/spec/multikueue.md §1.7`, "TTL fires before sync"). A new epoch
starts at Pending.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.core.errors import InvalidTransition

ENDED: Final = frozenset({AssignmentPhase.FINISHED, AssignmentPhase.EVICTED, AssignmentPhase.REFUSED})
"""The phases in which an assignment takes no capacity and runs nothing."""

JOB_GONE: Final = "JobNotFound"
"""Reason of Evicted: the running Job was deleted."""


class PhaseEvent(StrEnum):
    """What the agent observed about an assignment."""

    NO_CAPACITY = "NoCapacity"
    CAPACITY_REQUESTED = "CapacityRequested"
    CAPACITY_PROVISIONED = "CapacityProvisioned"
    CAPACITY_HELD = "CapacityHeld"
    REFUSED = "Refused"
    JOB_RUNS = "JobRuns"
    JOB_ENDED = "JobEnded"
    JOB_STOPPED = "JobStopped"
    JOB_VANISHED = "JobVanished"


_E = PhaseEvent
_WAITING: Final[Mapping[PhaseEvent, AssignmentPhase]] = {
    _E.NO_CAPACITY: AssignmentPhase.PENDING,
    _E.CAPACITY_HELD: AssignmentPhase.RESERVED,
    _E.CAPACITY_REQUESTED: AssignmentPhase.PROVISIONING,
    _E.CAPACITY_PROVISIONED: AssignmentPhase.PROVISIONED,
    _E.REFUSED: AssignmentPhase.REFUSED,
    _E.JOB_RUNS: AssignmentPhase.RUNNING,
    _E.JOB_ENDED: AssignmentPhase.FINISHED,
    # Stopped before it had started.
    _E.JOB_STOPPED: AssignmentPhase.EVICTED,
}
_FINAL_EVENTS: Final = tuple(PhaseEvent)

TRANSITIONS: Final[Mapping[AssignmentPhase, Mapping[PhaseEvent, AssignmentPhase]]] = {
    AssignmentPhase.PENDING: _WAITING,
    AssignmentPhase.PROVISIONING: _WAITING,
    # A booking may expire, and capacity be revoked, before the job is created.
    AssignmentPhase.PROVISIONED: _WAITING,
    # A lost node takes its capacity with it, so a reservation can fall back to Pending.
    AssignmentPhase.RESERVED: _WAITING,
    # A refusal ends with its cause: the namespace is created, the conflicting Job is deleted.
    AssignmentPhase.REFUSED: _WAITING,
    AssignmentPhase.RUNNING: {
        _E.JOB_RUNS: AssignmentPhase.RUNNING,
        _E.JOB_ENDED: AssignmentPhase.FINISHED,
        _E.JOB_STOPPED: AssignmentPhase.EVICTED,
        _E.JOB_VANISHED: AssignmentPhase.EVICTED,
    },
    AssignmentPhase.FINISHED: dict.fromkeys(_FINAL_EVENTS, AssignmentPhase.FINISHED),
    AssignmentPhase.EVICTED: dict.fromkeys(_FINAL_EVENTS, AssignmentPhase.EVICTED),
}


def advance(phase: AssignmentPhase, event: PhaseEvent) -> AssignmentPhase:
    """The next phase. Raises `InvalidTransition` if the table has none."""
    following = TRANSITIONS[phase].get(event)
    if following is None:
        raise InvalidTransition(machine="assignment", state=phase, event=event)
    return following
