# SPDX-License-Identifier: Apache-2.0
"""Computes the status of a pod from the state of its process. Pure.

Conditions keep their transition time while they do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from devcluster.ports import LOOPBACK
from multikueue.api.meta import JsonObject
from multikueue.core.timestamps import format_time

_MAX_MESSAGE: Final = 2000  # a kubelet keeps 2048 bytes of a termination message


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """The last end of the process."""

    exit_code: int
    message: str
    started: datetime
    finished: datetime

    def state(self) -> JsonObject:
        """The container state."""
        return {
            "terminated": {
                "exitCode": self.exit_code,
                "reason": "Completed" if self.exit_code == 0 else "Error",
                "message": self.message[-_MAX_MESSAGE:],
                "startedAt": format_time(self.started),
                "finishedAt": format_time(self.finished),
            }
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport:
    """The state of a pod's process; `waiting` is the reason why it does not run."""

    started: datetime | None = None
    ready: bool = False
    restarts: int = 0
    waiting: str = ""
    message: str = ""
    last: ProcessEnd | None = None


def pod_status(pod: JsonObject, report: ProcessReport, *, address: str, now: datetime) -> JsonObject:
    """The part of `status` that a kubelet owns, as a merge patch that replaces lists."""
    before: JsonObject = pod.get("status") or {}
    known = {each["type"]: each for each in before.get("conditions") or []}
    not_ready = {} if report.ready else {"reason": "ContainersNotReady"}

    def condition(kind: str, extra: JsonObject, *, true: bool) -> JsonObject:
        status = "True" if true else "False"
        old = known.get(kind) or {}
        since = old["lastTransitionTime"] if old.get("status") == status else format_time(now)
        return {"type": kind, "status": status, "lastTransitionTime": since, **extra}

    changed = [
        condition("PodReadyToStartContainers", {}, true=True),
        condition("Initialized", {}, true=True),
        condition("ContainersReady", not_ready, true=report.ready),
        condition("Ready", not_ready, true=report.ready),
    ]
    kinds = {each["type"] for each in changed}
    container = pod["spec"]["containers"][0]
    state: JsonObject = {"waiting": {"reason": report.waiting or "ContainerCreating", "message": report.message}}
    if report.started is not None and not report.waiting:
        state = {"running": {"startedAt": format_time(report.started)}}
    return {
        "phase": "Running" if report.started is not None or report.restarts else "Pending",
        "conditions": [*(each for kind, each in known.items() if kind not in kinds), *changed],
        "hostIP": LOOPBACK,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": before.get("startTime") or format_time(now),
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": f"process://{container['image']}",
                "containerID": f"process://{pod['metadata']['uid']}-{report.restarts}",
                "ready": report.ready,
                "started": report.started is not None and not report.waiting,
                "restartCount": report.restarts,
                "state": state,
                "lastState": report.last.state() if report.last is not None else {},
            }
        ],
    }
