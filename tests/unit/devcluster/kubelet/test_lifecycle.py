# SPDX-License-Identifier: Apache-2.0
"""The life of a virtual pod, transition by transition, without a loop or a clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from devcluster.kubelet.behaviour import EXIT_TERMINATED, Behaviour
from devcluster.kubelet.containers.programs import FOREVER
from devcluster.kubelet.lifecycle import (
    EXIT_KILLED,
    TRANSITIONS,
    LifecycleEvent,
    LifecycleFacts,
    LifecycleState,
    PodLifecycle,
    ProgramExit,
    advance,
)
from multikueue.core.errors import InvalidTransition

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Pod:
    """A life that a test pushes through time."""

    def __init__(self, behaviour: Behaviour, life: PodLifecycle | None = None) -> None:
        self.behaviour = behaviour
        self.life = life or PodLifecycle()

    def on(
        self, event: LifecycleEvent, seconds: float, *, kill_at: float | None = None, failed_before: bool = False
    ) -> PodLifecycle:
        facts = LifecycleFacts(
            now=at(seconds),
            behaviour=self.behaviour,
            failed_before=failed_before,
            kill_at=at(kill_at) if kill_at is not None else None,
        )
        self.life = advance(self.life, event, facts)
        return self.life


def test_an_ordinary_pod_is_ready_at_once_and_ends_when_it_is_due() -> None:
    pod = Pod(Behaviour(run_for=3, restart_policy="Never"))
    started = pod.on(LifecycleEvent.BIND, 0)
    assert (started.state, started.due, started.ready_at) == (LifecycleState.READY, at(3), at(0))
    ended = pod.on(LifecycleEvent.DUE, 3)
    assert (ended.state, ended.due, ended.exit_code, ended.finished_at) == (LifecycleState.ENDED, None, 0, at(3))


def test_a_pod_that_is_looked_at_late_ended_when_it_was_due() -> None:
    pod = Pod(Behaviour(run_for=3, restart_policy="Never"))
    pod.on(LifecycleEvent.BIND, 0)
    assert pod.on(LifecycleEvent.DUE, 60).finished_at == at(3)


def test_a_pod_with_ready_after_becomes_ready_on_its_way() -> None:
    pod = Pod(Behaviour(run_for=5, ready_after=2, restart_policy="Never"))
    assert (pod.on(LifecycleEvent.BIND, 0).state, pod.life.due) == (LifecycleState.STARTING, at(2))
    assert (pod.on(LifecycleEvent.DUE, 2).state, pod.life.due) == (LifecycleState.READY, at(5))
    assert pod.on(LifecycleEvent.DUE, 5).state is LifecycleState.ENDED


def test_a_pod_that_ends_before_it_would_be_ready_never_is() -> None:
    pod = Pod(Behaviour(run_for=1, ready_after=2, restart_policy="Never"))
    pod.on(LifecycleEvent.BIND, 0)
    assert (pod.on(LifecycleEvent.DUE, 1).state, pod.life.ready_at) == (LifecycleState.ENDED, None)


def test_a_pod_whose_image_cannot_be_pulled_waits_until_it_is_deleted() -> None:
    pod = Pod(Behaviour(run_for=1, pull_fails=True))
    waiting = pod.on(LifecycleEvent.BIND, 0)
    assert (waiting.state, waiting.due, waiting.started_at) == (LifecycleState.NOT_PULLED, None, None)
    assert pod.on(LifecycleEvent.DELETE, 5, kill_at=35).state is LifecycleState.REMOVED


def test_a_pod_that_is_never_ready_and_never_ends_is_due_for_nothing() -> None:
    pod = Pod(Behaviour(run_for=FOREVER, ready_after=FOREVER))
    assert (pod.on(LifecycleEvent.BIND, 0).state, pod.life.due) == (LifecycleState.STARTING, None)


def test_a_lifecycle_read_from_a_status_continues_until_its_end() -> None:
    running = PodLifecycle(state=LifecycleState.READY, started_at=at(0), ready_at=at(0), due=at(0))
    pod = Pod(Behaviour(run_for=10, restart_policy="Never"), running)
    assert (pod.on(LifecycleEvent.DUE, 4).state, pod.life.due) == (LifecycleState.READY, at(10))


def test_a_starting_lifecycle_read_from_a_status_waits_until_ready() -> None:
    starting = PodLifecycle(state=LifecycleState.STARTING, started_at=at(0), due=at(0))
    pod = Pod(Behaviour(run_for=10, ready_after=5, restart_policy="Never"), starting)
    assert (pod.on(LifecycleEvent.DUE, 4).state, pod.life.due) == (LifecycleState.STARTING, at(5))


@pytest.mark.parametrize(
    ("policy", "exit_code", "want"),
    [
        ("Never", 0, LifecycleState.ENDED),
        ("Never", 1, LifecycleState.ENDED),
        ("OnFailure", 0, LifecycleState.ENDED),
        ("OnFailure", 1, LifecycleState.BACKING_OFF),
        ("Always", 0, LifecycleState.BACKING_OFF),
    ],
)
def test_the_restart_policy_decides_what_follows_an_end(policy: str, exit_code: int, want: LifecycleState) -> None:
    pod = Pod(Behaviour(run_for=1, exit_code=exit_code, restart_policy=policy))
    pod.on(LifecycleEvent.BIND, 0)
    assert pod.on(LifecycleEvent.DUE, 1).state is want


def test_a_container_restarts_at_once_and_then_with_growing_pauses() -> None:
    pod = Pod(Behaviour(run_for=0, exit_code=1, restart_policy="OnFailure"))
    pod.on(LifecycleEvent.BIND, 0)
    pauses = []
    for _ in range(8):
        pod.on(LifecycleEvent.DUE, 0)
        assert pod.life.due is not None
        pauses.append((pod.life.due - START).total_seconds())
        pod.on(LifecycleEvent.DUE, 0)
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]
    assert pod.life.restarts == 8


def test_a_container_that_fails_once_succeeds_after_its_restart() -> None:
    pod = Pod(Behaviour(run_for=1, fail_once=True, restart_policy="OnFailure"))
    pod.on(LifecycleEvent.BIND, 0)
    assert pod.on(LifecycleEvent.DUE, 1).exit_code == 1
    pod.on(LifecycleEvent.DUE, 1)
    assert (pod.on(LifecycleEvent.DUE, 2).state, pod.life.exit_code) == (LifecycleState.ENDED, 0)


def test_a_running_pod_that_is_deleted_stops_at_once_by_default() -> None:
    pod = Pod(Behaviour(run_for=FOREVER))
    pod.on(LifecycleEvent.BIND, 0)
    assert (pod.on(LifecycleEvent.DELETE, 5, kill_at=35).due, pod.life.state) == (at(5), LifecycleState.STOPPING)
    removed = pod.on(LifecycleEvent.DUE, 5)
    assert (removed.state, removed.exit_code, removed.finished_at) == (LifecycleState.REMOVED, EXIT_TERMINATED, at(5))


def test_a_pod_that_takes_longer_than_its_grace_is_killed_when_that_is_over() -> None:
    pod = Pod(Behaviour(run_for=FOREVER, stop_after=FOREVER))
    pod.on(LifecycleEvent.BIND, 0)
    assert pod.on(LifecycleEvent.DELETE, 5, kill_at=35).due == at(35)
    assert pod.on(LifecycleEvent.DUE, 35).exit_code == EXIT_KILLED


def test_a_pod_that_ends_within_its_grace_is_not_killed() -> None:
    pod = Pod(Behaviour(run_for=FOREVER, stop_after=3))
    pod.on(LifecycleEvent.BIND, 0)
    assert pod.on(LifecycleEvent.DELETE, 5, kill_at=35).due == at(8)
    assert pod.on(LifecycleEvent.DUE, 8).exit_code == EXIT_TERMINATED


def test_a_second_delete_can_shorten_the_grace_and_not_lengthen_it() -> None:
    pod = Pod(Behaviour(run_for=FOREVER, stop_after=20))
    pod.on(LifecycleEvent.BIND, 0)
    pod.on(LifecycleEvent.DELETE, 0, kill_at=30)
    assert pod.on(LifecycleEvent.DELETE, 1, kill_at=60).due == at(20)
    assert pod.on(LifecycleEvent.DELETE, 2, kill_at=4).due == at(4)


@pytest.mark.parametrize("state", [LifecycleState.WAITING, LifecycleState.ENDED, LifecycleState.BACKING_OFF])
def test_a_pod_whose_containers_do_not_run_is_removed_at_once(state: LifecycleState) -> None:
    pod = Pod(Behaviour(run_for=1), PodLifecycle(state=state))
    assert pod.on(LifecycleEvent.DELETE, 0, kill_at=30).state is LifecycleState.REMOVED


def test_every_state_can_be_deleted() -> None:
    assert {state for state, event in TRANSITIONS if event is LifecycleEvent.DELETE} == set(LifecycleState)


def test_an_unknown_pair_is_an_error_that_names_it() -> None:
    with pytest.raises(InvalidTransition, match="Ended on BIND"):
        Pod(Behaviour(run_for=1), PodLifecycle(state=LifecycleState.ENDED)).on(LifecycleEvent.BIND, 0)


@pytest.mark.parametrize(
    ("policy", "restarts", "want"),
    [
        pytest.param("Never", 0, (LifecycleState.ENDED, 3), id="a program that was asked to end has ended"),
        pytest.param("Always", 0, (LifecycleState.BACKING_OFF, 3), id="it starts again where that is the policy"),
        pytest.param(
            "Never", 1, (LifecycleState.READY, None), id="what an earlier process was asked does not end a later one"
        ),
    ],
)
def test_a_program_ends_as_it_was_asked_to(policy: str, restarts: int, want: tuple[LifecycleState, int | None]) -> None:
    plan = Behaviour(run_for=FOREVER, restart_policy=policy)
    life = PodLifecycle(state=LifecycleState.READY, started_at=at(0), ready_at=at(0), restarts=restarts)
    facts = LifecycleFacts(now=at(5), behaviour=plan, exit=ProgramExit(3, at(4), 0))
    found = advance(life, LifecycleEvent.EXIT, facts)
    assert (found.state, found.exit_code) == want
    assert found.finished_at == (at(4) if restarts == 0 else None)
