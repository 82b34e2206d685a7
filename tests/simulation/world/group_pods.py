# SPDX-License-Identifier: Apache-2.0
"""What runs on a worker of pods that an agent created: the scheduler and the kubelet as one, seen from true time."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from devcluster.apiserver.storage.entry import StoredChange
from multikueue.api.constants import EPOCH_ANNOTATION, ORIGIN_LABEL, ORIGIN_UID_ANNOTATION, PREBUILT_WORKLOAD_LABEL
from tests.simulation.world.pods import Copy, Pods, State

PODS: Final = "pods"
_RETRY_SECONDS: Final = 0.5

Object = dict[str, Any]


class RemotePods(Pods):
    """The pods of one cluster that were sent there; a copy is one of them."""

    collection = PODS
    path = "/api/v1"

    def restored(self) -> None:
        """The server was restored from a backup: what has ended is reported again, and what was deleted runs again."""
        stored = {pod["metadata"]["uid"]: pod for pod in self._server.api.context.objects(PODS)}
        for copy in self.copies.values():
            pod = stored.get(copy.uid)
            if pod is None:
                copy.wanted, copy.behind = False, False
            else:
                self._follow(copy, pod)
                if copy.status:
                    self._write(copy, {})
            self._look(copy)

    def _concerns(self, collection: str, event: StoredChange) -> bool:
        return collection == PODS and ORIGIN_LABEL in (event.value()["metadata"].get("labels") or {})

    def _follow(self, copy: Copy, job: Object) -> None:
        marks = job["metadata"].get("annotations") or {}
        copy.workload, copy.epoch = marks.get(PREBUILT_WORKLOAD_LABEL, ""), int(marks.get(EPOCH_ANNOTATION, 0))
        copy.origin = marks.get(ORIGIN_UID_ANNOTATION, "")
        gated = bool(job["spec"].get("schedulingGates"))
        copy.wanted = not gated and "deletionTimestamp" not in job["metadata"]

    def _start(self, copy: Copy) -> None:
        pod = self._job(copy)
        if pod is None or not self._server.up or not self._bind(copy, pod):
            self._move(copy, State.STARTING, _RETRY_SECONDS, self._start)
            return
        seconds = min(self._longest, self._seconds(copy.key.rpartition("/")[2]))
        self._move(copy, State.LIVE, seconds, self._complete)
        self._tell("starts", copy)
        self._write(copy, {"phase": "Running", "startTime": self._now(), "conditions": [self._ready("True", "")]})

    def _bind(self, copy: Copy, pod: Object) -> bool:
        if pod["spec"].get("nodeName"):
            return True
        target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": copy.key.rpartition("/")[2]}}
        return self._send(copy, "POST", "/binding", {**target, "target": {"kind": "Node", "name": "node"}})

    def _complete(self, copy: Copy) -> None:
        self._move(copy, State.ENDED)
        copy.ended = True
        self._tell("completes", copy)
        self._write(copy, {"phase": "Succeeded", "conditions": [self._ready("False", "PodCompleted")]})

    def _stopped(self, copy: Copy) -> None:
        if self._random.random() < 0.5:
            self._write(copy, {"phase": "Failed", "conditions": [self._ready("False", "PodFailed")]})
        super()._stopped(copy)

    def _settle(self, copy: Copy) -> None:
        """No containers are left: let a pod go that waits for that."""
        pod = self._job(copy)
        if pod is None or "deletionTimestamp" not in pod["metadata"]:
            return
        now = {"gracePeriodSeconds": 0, "preconditions": {"uid": copy.uid}}
        if not self._send(copy, "DELETE", "", now):
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._settle, copy)

    def _catch_up(self, copy: Copy) -> None:
        copy.behind = self._job(copy) is not None and not self._send(copy, "PATCH", "/status", {"status": copy.status})
        if copy.behind:
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._catch_up, copy)

    def _ready(self, status: str, reason: str) -> Object:
        condition = {"type": "Ready", "status": status, "lastProbeTime": None, "lastTransitionTime": self._now()}
        return {**condition, "reason": reason} if reason else condition


class ServingPods(RemotePods):
    """Those of a StatefulSet: they run until they are stopped, and some fail."""

    def hurry(self, longest: float) -> None:
        """From now on none fails."""
        self._longest = longest

    def _complete(self, copy: Copy) -> None:
        if self._longest < float("inf") or self._random.random() < 0.5:
            self._move(copy, State.LIVE)
            return
        self._move(copy, State.ENDED)
        self._tell("fails", copy)
        self._write(copy, {"phase": "Failed", "conditions": [self._ready("False", "PodFailed")]})
