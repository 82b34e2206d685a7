# SPDX-License-Identifier: Apache-2.0
"""Binds pods to nodes, the most urgent first, as `placement` decides.

Owns which pods wait, and what is taken of each node: by pods the cache knows and by pods it has bound itself and not
heard of yet. A pod that fits nowhere is told so once, and tried again when a node changes or a pod ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import anyio

from multikueue.api.objects import JsonObject
from multikueue.api.resource import PODS
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.devcluster.controllers import pod_facts
from multikueue.devcluster.controllers.caches import Caches
from multikueue.devcluster.controllers.placement import NodeRoom, Refusal, place
from multikueue.devcluster.controllers.pod_needs import PodNeeds, needs_of, requests_of
from multikueue.kube.client import KubeClient, PatchKind
from multikueue.kube.errors import ApiError, Conflict, KubeError, NotFound
from multikueue.kube.events import EventRecorder, Reference
from multikueue.kube.informer import Change

log = logging.getLogger(__name__)

NAME: Final = "default-scheduler"
_RETRY_SECONDS: Final = 0.5
_BINDINGS_AT_ONCE: Final = 16


class Scheduler:
    """The scheduler of one cluster."""

    def __init__(self, client: KubeClient, caches: Caches, *, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._clock = clock
        self._rooms: dict[str, NodeRoom] = {}
        self._placed: dict[str, tuple[str, Mapping[str, int]]] = {}
        """Node and requests of each pod that takes room, by uid."""
        self._waiting: dict[Key, None] = {}
        self._parked: dict[Key, None] = {}
        self._wake = anyio.Event()
        caches.nodes.add_handler(self._node_changed)
        caches.pods.add_handler(self._pod_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._caches.nodes.synced.wait()
        await self._caches.pods.synced.wait()
        while True:
            while self._waiting:
                if not await self._cycle():
                    await anyio.sleep(_RETRY_SECONDS)
            self._wake = anyio.Event()
            await self._wake.wait()

    async def _cycle(self) -> bool:
        """Place what waits; False when something could not be written and waits still."""
        keys, self._waiting = list(self._waiting), {}
        pods: list[tuple[JsonObject, PodNeeds]] = []
        for key in keys:
            pod = self._caches.pods.store.object(key)
            if pod is None or not _waits(pod):
                continue
            try:
                pods.append((pod, needs_of(pod)))
            except BadInput as error:
                log.warning("pod %s cannot be scheduled: %s", key, error)
        pods.sort(key=lambda found: (-found[1].priority, found[0]["metadata"]["creationTimestamp"]))
        failed = False
        limit = anyio.Semaphore(_BINDINGS_AT_ONCE)

        async def write(pod: JsonObject, decision: str | Refusal) -> None:
            nonlocal failed
            async with limit:
                try:
                    await (self._bind(pod, decision) if isinstance(decision, str) else self._refuse(pod, decision))
                except KubeError as error:
                    failed = True
                    self._forget(pod_facts.uid(pod))
                    self._waiting[_key(pod)] = None
                    log.debug("pod %s: %s; again soon", _key(pod), error)

        async with anyio.create_task_group() as tasks:
            for pod, needs in pods:
                decision = place(needs, self._rooms.values())
                if isinstance(decision, str):
                    self._take(pod_facts.uid(pod), node=decision, requests=needs.requests)
                else:
                    self._parked[_key(pod)] = None
                tasks.start_soon(write, pod, decision)
        return not failed

    async def _bind(self, pod: JsonObject, node: str) -> None:
        metadata = pod["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.request("POST", PODS.path(namespace, name, "binding"), body=body)
        except (NotFound, Conflict):
            self._forget(metadata["uid"])  # gone, going, or bound by somebody else: the watch tells
            return
        self._tell(pod, "Normal", "Scheduled", f"Successfully assigned {namespace}/{name} to {node}", action="Binding")

    async def _refuse(self, pod: JsonObject, refusal: Refusal) -> None:
        known = pod_facts.condition(pod, "PodScheduled")
        if known is not None and known.get("message") == refusal.message:
            return
        self._tell(pod, "Warning", "FailedScheduling", refusal.message, action="Scheduling")
        metadata = pod["metadata"]
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": refusal.message,
            "lastTransitionTime": format_time(self._clock.now()),
        }
        if known is not None and known["status"] == "False" and known.get("lastTransitionTime"):
            condition["lastTransitionTime"] = known["lastTransitionTime"]
        body = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                PODS,
                metadata["name"],
                body,
                namespace=metadata["namespace"],
                kind=PatchKind.STRATEGIC,
                subresource="status",
            )
        except (NotFound, Conflict):
            return
        except ApiError as error:
            log.warning("pod %s: %s", _key(pod), error)

    def _tell(self, pod: JsonObject, type_: str, reason: str, message: str, *, action: str) -> None:
        about = Reference.of(pod, api_version=PODS.api_version, kind=PODS.kind)
        self._recorder.event(about, type_, reason, message, action=action)

    def _node_changed(self, change: Change) -> None:
        name = change.key.name
        if change.new is None:
            self._rooms.pop(name, None)
            return
        room, old = NodeRoom.of(change.new.object()), self._rooms.get(name)
        if old is not None:
            room.used = old.used
        else:
            for node, requests in self._placed.values():
                if node == name:
                    room.take(requests)
        if old is None or old != room:
            self._rooms[name] = room
            self._try_again()

    def _pod_changed(self, change: Change) -> None:
        key, uid = change.key, change.row.uid
        pod = change.new.object() if change.new is not None else None
        node = pod["spec"].get("nodeName") if pod is not None else None
        if pod is None or pod_facts.ended(pod):
            self._parked.pop(key, None)
            if self._forget(uid):
                self._try_again()
        elif node:
            self._parked.pop(key, None)
            if self._placed.get(uid, ("", {}))[0] != node:
                self._forget(uid)
                self._take(uid, node=node, requests=requests_of(pod["spec"]))
        elif key not in self._parked and uid not in self._placed and _waits(pod):
            self._waiting[key] = None
            self._wake.set()

    def _try_again(self) -> None:
        self._waiting.update(self._parked)
        self._parked.clear()
        if self._waiting:
            self._wake.set()

    def _take(self, uid: str, *, node: str, requests: Mapping[str, int]) -> None:
        self._placed[uid] = (node, requests)
        room = self._rooms.get(node)
        if room is not None:
            room.take(requests)

    def _forget(self, uid: str) -> bool:
        node, requests = self._placed.pop(uid, ("", {}))
        room = self._rooms.get(node)
        if room is not None:
            room.give(requests)
        return bool(node)


def _waits(pod: JsonObject) -> bool:
    """Whether it is ours to bind, now."""
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and spec.get("schedulerName", NAME) == NAME
        and not spec.get("schedulingGates")
        and pod_facts.active(pod)
    )


def _key(pod: JsonObject) -> Key:
    return Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
