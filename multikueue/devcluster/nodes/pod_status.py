# SPDX-License-Identifier: Apache-2.0
"""What the API server is told of a pod's life, and how a life is read back from it.

Pure. The status is written as a strategic merge patch, so that the conditions of others (the scheduler's, a taint
manager's) stay. Reading back is what lets a virtual node go on after its own process was killed: a pod that was running
runs on until the time it would have ended.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.timestamps import format_time, parse_time
from multikueue.devcluster.nodes.lifecycle import EXIT_KILLED, Life, State

LOOPBACK: Final = "127.0.0.1"
BAD_ANNOTATION: Final = "BadAnnotation"


def status_of(pod: JsonObject, life: Life, *, now: datetime) -> JsonObject:
    """The part of `status` that a kubelet owns."""
    ready = life.state is State.READY or (life.state is State.STOPPING and life.ready_at is not None)
    phase = _phase(pod, life)
    over = phase in ("Succeeded", "Failed")
    why = {"reason": "PodCompleted"} if over else {"reason": "ContainersNotReady"}
    known = {condition["type"]: condition for condition in (pod.get("status") or {}).get("conditions") or []}

    def condition(type_: str, extra: dict[str, str], *, true: bool) -> JsonObject:
        status = "True" if true else "False"
        old = known.get(type_)
        since = old["lastTransitionTime"] if old is not None and old["status"] == status else format_time(now)
        return {"type": type_, "status": status, "lastTransitionTime": since, **extra}

    conditions = [
        condition("PodReadyToStartContainers", {}, true=not over),
        condition("Initialized", {"reason": "PodCompleted"} if phase == "Succeeded" else {}, true=True),
        condition("ContainersReady", {} if ready else why, true=ready),
        condition("Ready", {} if ready else why, true=ready),
    ]
    status: JsonObject = {
        "phase": phase,
        "conditions": conditions,
        "containerStatuses": [_container(container, life, ready=ready) for container in pod["spec"]["containers"]],
        "hostIP": LOOPBACK,
    }
    if life.started_at is not None and not (pod.get("status") or {}).get("startTime"):
        status["startTime"] = format_time(life.started_at)
    return status


def refusal(pod: JsonObject, message: str, *, now: datetime) -> JsonObject:
    """The status of a pod that cannot be run."""
    return {
        "phase": "Failed",
        "reason": BAD_ANNOTATION,
        "message": message,
        "startTime": format_time(now),
        "containerStatuses": [],
    }


def life_of(pod: JsonObject) -> Life:
    """The life that a pod's status tells of: of a pod that another process of ours ran before."""
    status: JsonObject = pod.get("status") or {}
    containers: list[JsonObject] = status.get("containerStatuses") or []
    if status.get("phase") in ("Succeeded", "Failed"):
        return Life(state=State.ENDED)
    if status.get("phase") != "Running" or not containers:
        return Life()
    restarts = int(containers[0].get("restartCount", 0))
    state: JsonObject = containers[0].get("state") or {}
    if "running" not in state:
        # It crashed before we did; it starts again now, which a real node's back-off would at most delay.
        return Life(restarts=restarts + 1)
    started = parse_time(state["running"]["startedAt"])
    ready = bool(containers[0].get("ready"))
    return Life(
        state=State.READY if ready else State.STARTING,
        started_at=started,
        restarts=restarts,
        ready_at=started if ready else None,
        due=started,  # looked at again at once; the handler finds out what it is due for
    )


def _phase(pod: JsonObject, life: Life) -> str:
    if life.state in (State.ENDED, State.REMOVED) and life.exit_code is not None:
        return "Succeeded" if life.exit_code == 0 else "Failed"
    if life.started_at is None:
        return "Pending"
    return "Running"


def _container(container: JsonObject, life: Life, *, ready: bool) -> JsonObject:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"virtual://{image}",
        "containerID": f"virtual://{container['name']}-{life.restarts}",
        "ready": ready,
        "started": life.running,
        "restartCount": life.restarts,
        "state": _container_state(life),
    }


def _container_state(life: Life) -> JsonObject:
    if life.state is State.BACKING_OFF:
        return {"waiting": {"reason": "CrashLoopBackOff", "message": "the container ended and is to start again"}}
    if life.started_at is None:
        return {"waiting": {"reason": "ContainerCreating"}}
    if life.finished_at is None:
        return {"running": {"startedAt": format_time(life.started_at)}}
    code = life.exit_code or 0
    reason = "Completed" if code == 0 else "Killed" if code == EXIT_KILLED else "Error"
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": format_time(life.started_at),
            "finishedAt": format_time(life.finished_at),
        }
    }
