# SPDX-License-Identifier: Apache-2.0
"""The scheduler: binds pods to nodes in priority order, as `placement` decides.

Owns the queue of pending pods and the requests on each node, including pods that it has bound and the cache does not
show yet. An unschedulable pod gets one event, and is retried when a node changes or a pod ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import anyio

from devcluster.controllers import pod_facts
from devcluster.controllers.caches import ControllerCaches
from devcluster.controllers.placement import NodeInfo, Unschedulable, select_node
from devcluster.controllers.pod_info import PodInfo, pod_info_of, requests_of
from multikueue.api.objects import JsonObject
from multikueue.api.resource import PODS
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import ApiError, Conflict, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient, PatchKind
from multikueue.kube.runtime.events import EventRecorder, Reference

log = logging.getLogger(__name__)

NAME: Final = "default-scheduler"
_RETRY_SECONDS: Final = 0.5
_BINDINGS_AT_ONCE: Final = 16


class PodScheduler:
    """The scheduler of one cluster."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._clock = clock
        self._nodes: dict[str, NodeInfo] = {}
        self._assigned: dict[str, tuple[str, Mapping[str, int]]] = {}
        """Node and requests of each assigned pod, by uid."""
        self._pending: dict[Key, None] = {}
        self._unschedulable: dict[Key, None] = {}
        self._wake = anyio.Event()
        caches.nodes.add_handler(self._node_changed)
        caches.pods.add_handler(self._pod_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._caches.nodes.synced.wait()
        await self._caches.pods.synced.wait()
        while True:
            while self._pending:
                if not await self._cycle():
                    await anyio.sleep(_RETRY_SECONDS)
            self._wake = anyio.Event()
            await self._wake.wait()

    async def _cycle(self) -> bool:
        """Schedule all pending pods; False if a write failed and must be retried."""
        keys, self._pending = list(self._pending), {}
        pods: list[tuple[JsonObject, PodInfo]] = []
        for key in keys:
            pod = self._caches.pods.store.object(key)
            if pod is None or not _is_pending(pod):
                continue
            try:
                pods.append((pod, pod_info_of(pod)))
            except BadInput as error:
                log.warning("pod not scheduled pod=%s error=%s", key, error)
        pods.sort(key=lambda found: (-found[1].priority, found[0]["metadata"]["creationTimestamp"]))
        failed = False
        limit = anyio.Semaphore(_BINDINGS_AT_ONCE)

        async def write(pod: JsonObject, decision: str | Unschedulable) -> None:
            nonlocal failed
            async with limit:
                try:
                    await (
                        self._bind(pod, decision)
                        if isinstance(decision, str)
                        else self._report_unschedulable(pod, decision)
                    )
                except KubeError as error:
                    failed = True
                    self._unassign(pod_facts.uid(pod))
                    self._pending[_key(pod)] = None
                    log.debug("decision not written, retrying pod=%s error=%s", _key(pod), error)

        async with anyio.create_task_group() as tasks:
            for pod, info in pods:
                decision = select_node(info, self._nodes.values())
                if isinstance(decision, str):
                    self._assign(pod_facts.uid(pod), node=decision, requests=info.requests)
                else:
                    self._unschedulable[_key(pod)] = None
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
            self._unassign(metadata["uid"])  # deleted, terminating, or bound by another client
            return
        self._emit(pod, "Normal", "Scheduled", f"Successfully assigned {namespace}/{name} to {node}", action="Binding")

    async def _report_unschedulable(self, pod: JsonObject, refusal: Unschedulable) -> None:
        known = pod_facts.condition(pod, "PodScheduled")
        if known is not None and known.get("message") == refusal.message:
            return
        self._emit(pod, "Warning", "FailedScheduling", refusal.message, action="Scheduling")
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
            log.warning("condition not written pod=%s error=%s", _key(pod), error)

    def _emit(self, pod: JsonObject, type_: str, reason: str, message: str, *, action: str) -> None:
        about = Reference.of(pod, api_version=PODS.api_version, kind=PODS.kind)
        self._recorder.event(about, type_, reason, message, action=action)

    def _node_changed(self, change: Change) -> None:
        name = change.key.name
        if change.new is None:
            self._nodes.pop(name, None)
            return
        info, old = NodeInfo.of(change.new.object()), self._nodes.get(name)
        if old is not None:
            info.requested = old.requested
        else:
            for node, requests in self._assigned.values():
                if node == name:
                    info.add_pod(requests)
        if old is None or old != info:
            self._nodes[name] = info
            self._retry_unschedulable()

    def _pod_changed(self, change: Change) -> None:
        key, uid = change.key, change.row.uid
        pod = change.new.object() if change.new is not None else None
        node = pod["spec"].get("nodeName") if pod is not None else None
        if pod is None or pod_facts.ended(pod):
            self._unschedulable.pop(key, None)
            if self._unassign(uid):
                self._retry_unschedulable()
        elif node:
            self._unschedulable.pop(key, None)
            if self._assigned.get(uid, ("", {}))[0] != node:
                self._unassign(uid)
                self._assign(uid, node=node, requests=requests_of(pod["spec"]))
        elif key not in self._unschedulable and uid not in self._assigned and _is_pending(pod):
            self._pending[key] = None
            self._wake.set()

    def _retry_unschedulable(self) -> None:
        self._pending.update(self._unschedulable)
        self._unschedulable.clear()
        if self._pending:
            self._wake.set()

    def _assign(self, uid: str, *, node: str, requests: Mapping[str, int]) -> None:
        self._assigned[uid] = (node, requests)
        info = self._nodes.get(node)
        if info is not None:
            info.add_pod(requests)

    def _unassign(self, uid: str) -> bool:
        node, requests = self._assigned.pop(uid, ("", {}))
        info = self._nodes.get(node)
        if info is not None:
            info.remove_pod(requests)
        return bool(node)


def _is_pending(pod: JsonObject) -> bool:
    """Whether this scheduler should bind the pod now."""
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and spec.get("schedulerName", NAME) == NAME
        and not spec.get("schedulingGates")
        and pod_facts.active(pod)
    )


def _key(pod: JsonObject) -> Key:
    return Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
