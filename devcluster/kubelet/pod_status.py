# SPDX-License-Identifier: Apache-2.0
"""Converts a pod's lifecycle to its status and back. Pure.

The status is written as a strategic merge patch, which keeps the conditions of other writers. A restarted kubelet reads
lifecycles from the status: a running pod continues until its original end.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from devcluster.kubelet.lifecycle import EXIT_KILLED, LifecycleState, PodLifecycle
from multikueue.api.meta import JsonObject
from multikueue.core.timestamps import format_time, parse_time

LOOPBACK: Final = "127.0.0.1"
BAD_ANNOTATION: Final = "BadAnnotation"


def status_of(pod: JsonObject, life: PodLifecycle, *, now: datetime, address: str = "") -> JsonObject:
    """The part of `status` that a kubelet owns; `address` is empty if the pod has none."""
    ready = life.state is LifecycleState.READY or (life.state is LifecycleState.STOPPING and life.ready_at is not None)
    phase = _phase(pod, life)
    ended = phase in ("Succeeded", "Failed")
    why = {"reason": "PodCompleted"} if ended else {"reason": "ContainersNotReady"}
    known = {condition["type"]: condition for condition in (pod.get("status") or {}).get("conditions") or []}

    def condition(type_: str, extra: dict[str, str], *, true: bool) -> JsonObject:
        status = "True" if true else "False"
        old = known.get(type_)
        since = old["lastTransitionTime"] if old is not None and old["status"] == status else format_time(now)
        return {"type": type_, "status": status, "lastTransitionTime": since, **extra}

    conditions = [
        condition("PodReadyToStartContainers", {}, true=not ended),
        condition("Initialized", {"reason": "PodCompleted"} if phase == "Succeeded" else {}, true=True),
        condition("ContainersReady", {} if ready else why, true=ready),
        condition("Ready", {} if ready else why, true=ready),
    ]
    status: JsonObject = {
        "observedGeneration": pod["metadata"].get("generation"),
        "phase": phase,
        "conditions": conditions,
        "containerStatuses": [_container(container, life, ready=ready) for container in pod["spec"]["containers"]],
        "hostIP": LOOPBACK,
        "hostIPs": [{"ip": LOOPBACK}],
    }
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    if life.started_at is not None and not (pod.get("status") or {}).get("startTime"):
        status["startTime"] = format_time(life.started_at)
    return status


def shows_spec(pod: JsonObject) -> bool:
    """Whether the status was written for the pod's present spec."""
    status: JsonObject = pod.get("status") or {}
    return bool(status.get("observedGeneration") == pod["metadata"].get("generation"))


def refusal(pod: JsonObject, message: str, *, now: datetime) -> JsonObject:
    """The status of a rejected pod."""
    return {
        "phase": "Failed",
        "reason": BAD_ANNOTATION,
        "message": message,
        "startTime": format_time(now),
        "containerStatuses": [],
    }


def lifecycle_of(pod: JsonObject) -> PodLifecycle:
    """The lifecycle in a pod's status, for a pod of an earlier kubelet process."""
    status: JsonObject = pod.get("status") or {}
    containers: list[JsonObject] = status.get("containerStatuses") or []
    if status.get("phase") in ("Succeeded", "Failed"):
        return PodLifecycle(state=LifecycleState.ENDED)
    if status.get("phase") != "Running" or not containers:
        return PodLifecycle()
    restarts = int(containers[0].get("restartCount", 0))
    state: JsonObject = containers[0].get("state") or {}
    if "running" not in state:
        # It crashed before the kubelet ended; it restarts at once, without the remaining back-off.
        return PodLifecycle(restarts=restarts + 1)
    started = parse_time(state["running"]["startedAt"])
    ready = bool(containers[0].get("ready"))
    return PodLifecycle(
        state=LifecycleState.READY if ready else LifecycleState.STARTING,
        started_at=started,
        restarts=restarts,
        ready_at=started if ready else None,
        due=started,  # reconciled at once; the handler computes the due time
    )


def _phase(pod: JsonObject, life: PodLifecycle) -> str:
    if life.state in (LifecycleState.ENDED, LifecycleState.REMOVED) and life.exit_code is not None:
        return "Succeeded" if life.exit_code == 0 else "Failed"
    if life.started_at is None:
        return "Pending"
    return "Running"


def _container(container: JsonObject, life: PodLifecycle, *, ready: bool) -> JsonObject:
    image = container.get("image", "")
    # Without `resources` of a running container an API server refuses to resize its pod.
    size = {"resources": container.get("resources") or {}} if life.started_at is not None else {}
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"virtual://{image}",
        "containerID": f"virtual://{container['name']}-{life.restarts}",
        "ready": ready,
        "started": life.running,
        "restartCount": life.restarts,
        "state": _container_state(life, image=image),
        **size,
    }


def _container_state(life: PodLifecycle, *, image: str) -> JsonObject:
    if life.state is LifecycleState.NOT_PULLED:
        return {"waiting": {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}"'}}
    if life.state is LifecycleState.BACKING_OFF:
        return {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting the container"}}
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
