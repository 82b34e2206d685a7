# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of a pod on a virtual node, as a state machine. Pure.

States, events and a transition table; each handler takes a lifecycle and returns the next one. A lifecycle with a `due`
time changes its state at that time, so that the shell only has to requeue the pod.

    Waiting ─BIND→ NotPulled                                (its image cannot be pulled)
    Waiting ─BIND→ Starting ─DUE→ Ready ─DUE→ Ended        (restartPolicy Never, or OnFailure after success)
                       ↑            └─DUE→ BackingOff ─DUE→ Starting
    Starting, Ready ─EXIT→ as at the end of `run_for`
    any ─DELETE→ Stopping ─DUE→ Removed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from devcluster.kubelet.behaviour import Behaviour
from devcluster.kubelet.containers.programs import FOREVER
from multikueue.core.errors import InvalidTransition

EXIT_KILLED: Final = 137  # 128 + SIGKILL: the grace period has expired
_RESTART_BASE, _RESTART_CAP = 10.0, 300.0  # the back-off of a kubelet; the first restart is immediate


class LifecycleState(StrEnum):
    """The state of a pod."""

    WAITING = "Waiting"
    NOT_PULLED = "NotPulled"
    STARTING = "Starting"
    READY = "Ready"
    BACKING_OFF = "BackingOff"
    ENDED = "Ended"
    STOPPING = "Stopping"
    REMOVED = "Removed"


class LifecycleEvent(StrEnum):
    """The events of a pod."""

    BIND = "BIND"
    DUE = "DUE"
    DELETE = "DELETE"
    EXIT = "EXIT"
    """A program ended on request, as over HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLifecycle:
    """The lifecycle of a pod."""

    state: LifecycleState = LifecycleState.WAITING
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


@dataclass(frozen=True, slots=True)
class ProgramExit:
    """A requested end of a program."""

    code: int
    at: datetime
    restarts: int
    """The restart count of the process that it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleFacts:
    """The inputs of a transition."""

    now: datetime
    behaviour: Behaviour
    failed_before: bool = False
    """Whether an earlier attempt at the same work failed."""
    kill_at: datetime | None = None
    """When the grace period of a deleted pod expires."""
    exit: ProgramExit | None = None
    """The requested end of the program."""


Handler: TypeAlias = Callable[[PodLifecycle, LifecycleFacts], PodLifecycle]


def advance(life: PodLifecycle, event: LifecycleEvent, facts: LifecycleFacts) -> PodLifecycle:
    """The lifecycle after the event. Raises `InvalidTransition` for a pair that is not in the table."""
    handler = TRANSITIONS.get((life.state, event))
    if handler is None:
        raise InvalidTransition(machine="pod", state=life.state, event=event)
    return handler(life, facts)


def _start(life: PodLifecycle, facts: LifecycleFacts) -> PodLifecycle:
    if facts.behaviour.pull_fails:
        return replace(life, state=LifecycleState.NOT_PULLED)
    state = LifecycleState.READY if facts.behaviour.ready_after <= 0 else LifecycleState.STARTING
    started = replace(life, state=state, started_at=facts.now, finished_at=None, exit_code=None, ready_at=None)
    if state is LifecycleState.READY:
        started = replace(started, ready_at=facts.now)
    return replace(started, due=_next_due(started, facts))


def _start_again(life: PodLifecycle, facts: LifecycleFacts) -> PodLifecycle:
    return replace(_start(life, facts), restarts=life.restarts + 1)


def _starting_due(life: PodLifecycle, facts: LifecycleFacts) -> PodLifecycle:
    end = _end_time(life, facts)
    if end is not None and end <= facts.now:
        return _end(life, facts)
    due = _next_due(life, facts)
    if due is None or due > facts.now:  # a lifecycle read from a status is reconciled early
        return replace(life, due=due)
    ready = replace(life, state=LifecycleState.READY, ready_at=facts.now)
    return replace(ready, due=_next_due(ready, facts))


def _ready_due(life: PodLifecycle, facts: LifecycleFacts) -> PodLifecycle:
    end = _end_time(life, facts)
    return _end(life, facts) if end is not None and end <= facts.now else replace(life, due=end)


def _end(life: PodLifecycle, facts: LifecycleFacts) -> PodLifecycle:
    code = facts.behaviour.exit_code_of(failed_before=facts.failed_before or life.restarts > 0)
    # The due time, not the current time: on a busy machine a short pod must not appear to run longer.
    finished = max(life.started_at or facts.now, min(facts.now, _end_time(life, facts) or facts.now))
    return _ended(life, facts, code=code, finished=finished)


def _exit(life: PodLifecycle, facts: LifecycleFacts) -> PodLifecycle:
    requested_exit = facts.exit
    if requested_exit is None or requested_exit.restarts != life.restarts:
        return life
    return _ended(
        life, facts, code=requested_exit.code, finished=max(life.started_at or requested_exit.at, requested_exit.at)
    )


def _ended(life: PodLifecycle, facts: LifecycleFacts, *, code: int, finished: datetime) -> PodLifecycle:
    ended = replace(life, state=LifecycleState.ENDED, due=None, finished_at=finished, exit_code=code)
    policy = facts.behaviour.restart_policy
    if policy == "Never" or (policy == "OnFailure" and code == 0):
        return ended
    pause = 0.0 if life.restarts == 0 else min(_RESTART_CAP, _RESTART_BASE * 2 ** min(life.restarts - 1, 10))
    return replace(ended, state=LifecycleState.BACKING_OFF, due=facts.now + timedelta(seconds=pause))


def _stop(life: PodLifecycle, facts: LifecycleFacts) -> PodLifecycle:
    kill_at = facts.kill_at or facts.now
    if facts.behaviour.stop_after == FOREVER:
        due = kill_at
    else:
        due = min(kill_at, facts.now + timedelta(seconds=facts.behaviour.stop_after))
    killed = facts.behaviour.stop_after > 0 and due >= kill_at
    code = EXIT_KILLED if killed else facts.behaviour.stop_code
    return replace(life, state=LifecycleState.STOPPING, due=max(due, facts.now), exit_code=code)


def _stopped(life: PodLifecycle, facts: LifecycleFacts) -> PodLifecycle:
    return replace(life, state=LifecycleState.REMOVED, due=None, finished_at=facts.now)


def _kill_sooner(life: PodLifecycle, facts: LifecycleFacts) -> PodLifecycle:
    # A second delete may shorten the grace period, never lengthen it.
    if life.due is None or facts.kill_at is None or facts.kill_at >= life.due:
        return life
    return replace(life, due=max(facts.kill_at, facts.now), exit_code=EXIT_KILLED)


def _remove(life: PodLifecycle, facts: LifecycleFacts) -> PodLifecycle:
    return replace(life, state=LifecycleState.REMOVED, due=None)


def _same(life: PodLifecycle, facts: LifecycleFacts) -> PodLifecycle:
    return life


TRANSITIONS: Final[Mapping[tuple[LifecycleState, LifecycleEvent], Handler]] = {
    (LifecycleState.WAITING, LifecycleEvent.BIND): _start,
    (LifecycleState.STARTING, LifecycleEvent.DUE): _starting_due,
    (LifecycleState.READY, LifecycleEvent.DUE): _ready_due,
    (LifecycleState.BACKING_OFF, LifecycleEvent.DUE): _start_again,
    (LifecycleState.STOPPING, LifecycleEvent.DUE): _stopped,
    (LifecycleState.WAITING, LifecycleEvent.DELETE): _remove,
    (LifecycleState.NOT_PULLED, LifecycleEvent.DELETE): _remove,
    (LifecycleState.STARTING, LifecycleEvent.DELETE): _stop,
    (LifecycleState.READY, LifecycleEvent.DELETE): _stop,
    (LifecycleState.BACKING_OFF, LifecycleEvent.DELETE): _remove,
    (LifecycleState.ENDED, LifecycleEvent.DELETE): _remove,
    (LifecycleState.STOPPING, LifecycleEvent.DELETE): _kill_sooner,
    (LifecycleState.REMOVED, LifecycleEvent.DELETE): _same,
    (LifecycleState.STARTING, LifecycleEvent.EXIT): _exit,
    (LifecycleState.READY, LifecycleEvent.EXIT): _exit,
}


def _end_time(life: PodLifecycle, facts: LifecycleFacts) -> datetime | None:
    if life.started_at is None or facts.behaviour.run_for == FOREVER:
        return None
    return life.started_at + timedelta(seconds=facts.behaviour.run_for)


def _next_due(life: PodLifecycle, facts: LifecycleFacts) -> datetime | None:
    times = [_end_time(life, facts)]
    if life.state is LifecycleState.STARTING and life.started_at is not None and facts.behaviour.ready_after != FOREVER:
        times.append(life.started_at + timedelta(seconds=facts.behaviour.ready_after))
    return min((time for time in times if time is not None), default=None)
