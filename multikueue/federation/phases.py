# SPDX-License-Identifier: Apache-2.0
"""The phases of an assignment as its agent reports them, as a table.

Owns which phase may follow which and on what. `mirror.step` finds the event; the table says whether it may happen.
Within one epoch Finished, and Evicted, are for good: whatever becomes of the Job afterwards, the word stays
(`docs/spec/multikueue.md §1.7`, "TTL fires before sync"). A new epoch starts again at Pending.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from multikueue.api.remoteassignment import Phase
from multikueue.core.errors import InvalidTransition

ENDED: Final = frozenset({Phase.FINISHED, Phase.EVICTED, Phase.REFUSED})
"""The phases in which an assignment takes no room and runs nothing."""

JOB_GONE: Final = "JobNotFound"
"""Reason of Evicted: somebody removed the Job that ran."""


class PhaseEvent(StrEnum):
    """What the agent found when it looked at an assignment."""

    NO_ROOM = "NoRoom"
    ROOM_HELD = "RoomHeld"
    REFUSED = "Refused"
    JOB_RUNS = "JobRuns"
    JOB_ENDED = "JobEnded"
    JOB_STOPPED = "JobStopped"
    JOB_VANISHED = "JobVanished"


_E = PhaseEvent
_WAITING: Final[Mapping[PhaseEvent, Phase]] = {
    _E.NO_ROOM: Phase.PENDING,
    _E.ROOM_HELD: Phase.RESERVED,
    _E.REFUSED: Phase.REFUSED,
    _E.JOB_RUNS: Phase.RUNNING,
    _E.JOB_ENDED: Phase.FINISHED,
    # Told to stop before it had begun.
    _E.JOB_STOPPED: Phase.EVICTED,
}
_FINAL_EVENTS: Final = tuple(PhaseEvent)

TRANSITIONS: Final[Mapping[Phase, Mapping[PhaseEvent, Phase]]] = {
    Phase.PENDING: _WAITING,
    # A node that went away takes the room with it, so a reservation can fall back to Pending.
    Phase.RESERVED: _WAITING,
    # A refusal ends when its cause does: the namespace appears, the foreign Job goes.
    Phase.REFUSED: _WAITING,
    Phase.RUNNING: {
        _E.JOB_RUNS: Phase.RUNNING,
        _E.JOB_ENDED: Phase.FINISHED,
        _E.JOB_STOPPED: Phase.EVICTED,
        _E.JOB_VANISHED: Phase.EVICTED,
    },
    Phase.FINISHED: dict.fromkeys(_FINAL_EVENTS, Phase.FINISHED),
    Phase.EVICTED: dict.fromkeys(_FINAL_EVENTS, Phase.EVICTED),
}


def advance(phase: Phase, event: PhaseEvent) -> Phase:
    """The phase that follows. Raises `InvalidTransition` when the table has no such row."""
    following = TRANSITIONS[phase].get(event)
    if following is None:
        raise InvalidTransition(machine="assignment", state=phase, event=event)
    return following
