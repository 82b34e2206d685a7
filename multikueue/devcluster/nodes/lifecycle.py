# SPDX-License-Identifier: Apache-2.0
"""The life of a pod on a virtual node, as a state machine that is data.

States, events and the table of transitions; each handler takes the life so far and gives the life from now on. Nothing
here awaits or reads a clock. Promises that every life with a `due` time changes state when that comes, so that the
shell needs to know nothing but when to look again.

    Waiting ─BIND→ Starting ─DUE→ Ready ─DUE→ Ended        (restartPolicy Never, or OnFailure after success)
                       ↑            └─DUE→ BackingOff ─DUE→ Starting
    any ─DELETE→ Stopping ─DUE→ Removed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from multikueue.core.errors import InvalidTransition
from multikueue.devcluster.nodes.behaviour import FOREVER, Behaviour

EXIT_TERMINATED: Final = 143  # 128 + SIGTERM
EXIT_KILLED: Final = 137  # 128 + SIGKILL: the grace period was over
_RESTART_BASE, _RESTART_CAP = 10.0, 300.0  # as a kubelet waits between crashes, after a first restart at once


class State(StrEnum):
    """Where a pod is in its life."""

    WAITING = "Waiting"
    STARTING = "Starting"
    READY = "Ready"
    BACKING_OFF = "BackingOff"
    ENDED = "Ended"
    STOPPING = "Stopping"
    REMOVED = "Removed"


class Event(StrEnum):
    """What can happen to it."""

    BIND = "BIND"
    DUE = "DUE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A pod's life so far."""

    state: State = State.WAITING
    due: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    restarts: int = 0
    ready_at: datetime | None = None

    @property
    def running(self) -> bool:
        """Whether its containers run."""
        return self.started_at is not None and self.finished_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a transition may depend on."""

    now: datetime
    behaviour: Behaviour
    failed_before: bool = False
    """A try of the same work failed before."""
    kill_at: datetime | None = None
    """When the grace period of a deleted pod is over."""


Handler: TypeAlias = Callable[[Life, Facts], Life]


def advance(life: Life, event: Event, facts: Facts) -> Life:
    """The life after the event. Raises `InvalidTransition` for a pair the table has no row for."""
    handler = TRANSITIONS.get((life.state, event))
    if handler is None:
        raise InvalidTransition(machine="pod", state=life.state, event=event)
    return handler(life, facts)


def _start(life: Life, facts: Facts) -> Life:
    state = State.READY if facts.behaviour.ready_after <= 0 else State.STARTING
    started = replace(life, state=state, started_at=facts.now, finished_at=None, exit_code=None, ready_at=None)
    if state is State.READY:
        started = replace(started, ready_at=facts.now)
    return replace(started, due=_next_due(started, facts))


def _start_again(life: Life, facts: Facts) -> Life:
    return replace(_start(life, facts), restarts=life.restarts + 1)


def _starting_due(life: Life, facts: Facts) -> Life:
    end = _end_time(life, facts)
    if end is not None and end <= facts.now:
        return _end(life, facts)
    due = _next_due(life, facts)
    if due is None or due > facts.now:  # a life read back from a status is looked at before its time
        return replace(life, due=due)
    ready = replace(life, state=State.READY, ready_at=facts.now)
    return replace(ready, due=_next_due(ready, facts))


def _ready_due(life: Life, facts: Facts) -> Life:
    end = _end_time(life, facts)
    return _end(life, facts) if end is not None and end <= facts.now else replace(life, due=end)


def _end(life: Life, facts: Facts) -> Life:
    code = facts.behaviour.exit_code_of(failed_before=facts.failed_before or life.restarts > 0)
    # The time it was due, not the time we looked: a busy machine must not make a short pod seem a long one.
    finished = max(life.started_at or facts.now, min(facts.now, _end_time(life, facts) or facts.now))
    ended = replace(life, state=State.ENDED, due=None, finished_at=finished, exit_code=code)
    policy = facts.behaviour.restart_policy
    if policy == "Never" or (policy == "OnFailure" and code == 0):
        return ended
    pause = 0.0 if life.restarts == 0 else min(_RESTART_CAP, _RESTART_BASE * 2 ** min(life.restarts - 1, 10))
    return replace(ended, state=State.BACKING_OFF, due=facts.now + timedelta(seconds=pause))


def _stop(life: Life, facts: Facts) -> Life:
    kill_at = facts.kill_at or facts.now
    if facts.behaviour.stop_after == FOREVER:
        due = kill_at
    else:
        due = min(kill_at, facts.now + timedelta(seconds=facts.behaviour.stop_after))
    killed = facts.behaviour.stop_after > 0 and due >= kill_at
    code = EXIT_KILLED if killed else EXIT_TERMINATED
    return replace(life, state=State.STOPPING, due=max(due, facts.now), exit_code=code)


def _stopped(life: Life, facts: Facts) -> Life:
    return replace(life, state=State.REMOVED, due=None, finished_at=facts.now)


def _kill_sooner(life: Life, facts: Facts) -> Life:
    # A second delete may shorten the grace period, never lengthen it.
    if life.due is None or facts.kill_at is None or facts.kill_at >= life.due:
        return life
    return replace(life, due=max(facts.kill_at, facts.now), exit_code=EXIT_KILLED)


def _remove(life: Life, facts: Facts) -> Life:
    return replace(life, state=State.REMOVED, due=None)


def _same(life: Life, facts: Facts) -> Life:
    return life


TRANSITIONS: Final[Mapping[tuple[State, Event], Handler]] = {
    (State.WAITING, Event.BIND): _start,
    (State.STARTING, Event.DUE): _starting_due,
    (State.READY, Event.DUE): _ready_due,
    (State.BACKING_OFF, Event.DUE): _start_again,
    (State.STOPPING, Event.DUE): _stopped,
    (State.WAITING, Event.DELETE): _remove,
    (State.STARTING, Event.DELETE): _stop,
    (State.READY, Event.DELETE): _stop,
    (State.BACKING_OFF, Event.DELETE): _remove,
    (State.ENDED, Event.DELETE): _remove,
    (State.STOPPING, Event.DELETE): _kill_sooner,
    (State.REMOVED, Event.DELETE): _same,
}


def _end_time(life: Life, facts: Facts) -> datetime | None:
    if life.started_at is None or facts.behaviour.run_for == FOREVER:
        return None
    return life.started_at + timedelta(seconds=facts.behaviour.run_for)


def _next_due(life: Life, facts: Facts) -> datetime | None:
    times = [_end_time(life, facts)]
    if life.state is State.STARTING and life.started_at is not None and facts.behaviour.ready_after != FOREVER:
        times.append(life.started_at + timedelta(seconds=facts.behaviour.ready_after))
    return min((time for time in times if time is not None), default=None)
