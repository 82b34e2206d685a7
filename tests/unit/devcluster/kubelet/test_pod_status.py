# SPDX-License-Identifier: Apache-2.0
"""What the API server is told of a life, and that a life can be read back from it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from devcluster.kubelet.lifecycle import LifecycleState, PodLifecycle
from devcluster.kubelet.pod_status import lifecycle_of, shows_spec, status_of

START = datetime(2026, 1, 1, tzinfo=UTC)
LATER = START + timedelta(seconds=5)


def pod(status: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "busybox"}]},
        "status": status or {"phase": "Pending"},
    }


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status["conditions"]}


@pytest.mark.parametrize(
    ("life", "want_phase", "want_ready", "want_state"),
    [
        pytest.param(
            PodLifecycle(state=LifecycleState.NOT_PULLED),
            "Pending",
            "False",
            "waiting",
            id="a pod whose image cannot be pulled",
        ),
        pytest.param(
            PodLifecycle(state=LifecycleState.STARTING, started_at=START),
            "Running",
            "False",
            "running",
            id="a starting pod is not ready",
        ),
        pytest.param(
            PodLifecycle(state=LifecycleState.READY, started_at=START, ready_at=START),
            "Running",
            "True",
            "running",
            id="a ready pod",
        ),
        pytest.param(
            PodLifecycle(state=LifecycleState.ENDED, started_at=START, finished_at=LATER, exit_code=0),
            "Succeeded",
            "False",
            "terminated",
            id="a pod that ended well",
        ),
        pytest.param(
            PodLifecycle(state=LifecycleState.ENDED, started_at=START, finished_at=LATER, exit_code=3),
            "Failed",
            "False",
            "terminated",
            id="a pod that ended badly",
        ),
        pytest.param(
            PodLifecycle(
                state=LifecycleState.BACKING_OFF, started_at=START, finished_at=LATER, exit_code=1, restarts=2
            ),
            "Running",
            "False",
            "waiting",
            id="a crashed container leaves its pod running",
        ),
        pytest.param(
            PodLifecycle(state=LifecycleState.REMOVED, started_at=START, finished_at=LATER, exit_code=143),
            "Failed",
            "False",
            "terminated",
            id="a stopped pod",
        ),
    ],
)
def test_status_of_a_lifecycle(life: PodLifecycle, want_phase: str, want_ready: str, want_state: str) -> None:
    status = status_of(pod(), life, now=LATER)
    assert (status["phase"], conditions(status)["Ready"]) == (want_phase, want_ready)
    assert list(status["containerStatuses"][0]["state"]) == [want_state]


def test_a_condition_that_stays_keeps_the_time_of_its_last_change() -> None:
    first = status_of(pod(), PodLifecycle(state=LifecycleState.READY, started_at=START, ready_at=START), now=START)
    ended = PodLifecycle(state=LifecycleState.ENDED, started_at=START, finished_at=LATER, exit_code=0)
    second = status_of(pod(first), ended, now=LATER)
    times = {condition["type"]: condition["lastTransitionTime"] for condition in second["conditions"]}
    assert times["Initialized"] == "2026-01-01T00:00:00Z"
    assert times["Ready"] == "2026-01-01T00:00:05Z"


def test_a_status_says_which_spec_it_is_of() -> None:
    started = pod()
    started["metadata"]["generation"] = 2
    life = PodLifecycle(state=LifecycleState.READY, started_at=START, ready_at=START)
    assert not shows_spec(started)
    shown = {**started, "status": status_of(started, life, now=START)}
    assert shown["status"]["observedGeneration"] == 2
    assert shows_spec(shown)
    shown["metadata"]["generation"] = 3
    assert not shows_spec(shown)


@pytest.mark.parametrize("state", [LifecycleState.STARTING, LifecycleState.READY])
def test_a_running_lifecycle_is_read_back(state: LifecycleState) -> None:
    life = PodLifecycle(
        state=state, started_at=START, ready_at=START if state is LifecycleState.READY else None, restarts=1
    )
    read = lifecycle_of(pod(status_of(pod(), life, now=START)))
    assert (read.state, read.started_at, read.ready_at, read.restarts) == (state, START, life.ready_at, 1)


def test_an_ended_lifecycle_is_read_back_as_ended() -> None:
    ended = PodLifecycle(state=LifecycleState.ENDED, started_at=START, finished_at=LATER, exit_code=0)
    assert lifecycle_of(pod(status_of(pod(), ended, now=LATER))).state is LifecycleState.ENDED


def test_a_pod_that_has_not_run_is_waiting() -> None:
    assert lifecycle_of(pod()).state is LifecycleState.WAITING


def test_a_crashed_container_is_read_back_as_one_restart_more() -> None:
    crashed = PodLifecycle(
        state=LifecycleState.BACKING_OFF, started_at=START, finished_at=LATER, exit_code=1, restarts=2
    )
    read = lifecycle_of(pod(status_of(pod(), crashed, now=LATER)))
    assert (read.state, read.restarts) == (LifecycleState.WAITING, 3)


def test_a_pod_shows_its_address_and_that_of_its_node_in_both_forms() -> None:
    status = status_of(
        pod(),
        PodLifecycle(state=LifecycleState.READY, started_at=START, ready_at=START),
        now=START,
        address="10.244.0.7",
    )
    assert (status["podIP"], status["podIPs"]) == ("10.244.0.7", [{"ip": "10.244.0.7"}])
    assert (status["hostIP"], status["hostIPs"]) == ("127.0.0.1", [{"ip": "127.0.0.1"}])


def test_a_pod_that_has_no_address_yet_shows_none() -> None:
    assert "podIP" not in status_of(pod(), PodLifecycle(), now=START)
