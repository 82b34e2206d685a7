# SPDX-License-Identifier: Apache-2.0
"""The nodes and the pods of this cluster, followed once a flavor has a topology.

They are apart from the shared caches: many hubs have no topologies, and then nothing of them is read. Pods come first,
since nothing is placed before there are nodes. What an API server refuses to list is not there: then no pod is placed,
and the reason is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

import anyio
import orjson

from manager.context import ManagerContext
from multikueue.api.constants import HOSTNAME_LABEL, WORKLOAD_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.resource import NODES, PODS, RESOURCE_FLAVORS
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.cache.overlay import WriteOverlay
from multikueue.kube.cache.packing import packed
from multikueue.kube.errors import KubeError

_log = logging.getLogger(__name__)

_READY_SECONDS: Final = 10.0
_WORKLOAD_INDEX: Final = "workload"
_HOST_INDEX: Final = "host"
_KEPT_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "labels",
    "annotations",
    "deletionTimestamp",
    "ownerReferences",
)
_KEPT_POD_SPEC: Final = (
    "nodeName",
    "nodeSelector",
    "schedulingGates",
    "containers",
    "initContainers",
    "overhead",
    "resources",
)
_KEPT_CONTAINER: Final = ("name", "resources", "restartPolicy")
_LIVING: Final = "status.phase!=Succeeded,status.phase!=Failed"


class TopologyObjects:
    """Nodes, and pods that have not ended."""

    def __init__(self, context: ManagerContext) -> None:
        self._context = context
        self._wanted = anyio.Event()
        followed = partial(
            Informer,
            context.client,
            clock=context.clock,
            random=context.random,
            quarantine=context.caches.quarantine,
        )
        self.nodes: Informer = followed(NODES, indexers={_HOST_INDEX: _host}, shrink=_node)
        self.pods: Informer = followed(PODS, field_selector=_LIVING, indexers={_WORKLOAD_INDEX: _workload}, shrink=_pod)
        self._written = WriteOverlay(self.pods.store, clock=context.clock)
        self.pods.add_handler(self._pod_changed)

    def node_of(self, host: str) -> JsonObject | None:
        """The node with that value of the label `kubernetes.io/hostname`."""
        return next(self.nodes.store.objects(_HOST_INDEX, host), None)

    def pods_of(self, workload: Key) -> list[JsonObject]:
        """The pods that say they are of that Workload and have not ended, as they were written last."""
        keys = (_key(pod) for pod in self.pods.store.objects(_WORKLOAD_INDEX, str(workload)))
        rows = (self._written.get(key) for key in keys)
        return [row.object() for row in rows if row is not None]

    def on_write(self, raw: bytes) -> None:
        """Take in a pod that the API server has answered to a write: the watch may show it later."""
        self._written.on_write(raw)

    def _pod_changed(self, change: Change) -> None:
        self._written.on_change(change)

    async def prepare(self) -> None:
        """Read nodes and pods if a flavor has a topology, before anything is decided; an error is tried again later."""
        self._context.caches.subscribe(RESOURCE_FLAVORS, self._flavor_changed)
        if not self._wanted.is_set():
            return
        with anyio.move_on_after(_READY_SECONDS):
            try:
                await self.pods.relist()
                await self.nodes.relist()
            except KubeError as error:
                _log.warning("nodes and pods of topologies cannot be read: %s", error)

    async def run(self) -> None:
        """Follow both until cancelled, from the first flavor with a topology."""
        await self._wanted.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.pods.run, name="topology-pods")
            await self.pods.synced.wait()
            tasks.start_soon(self.nodes.run, name="topology-nodes")

    def _flavor_changed(self, change: Change) -> None:
        flavor = None if change.new is None else change.new.object()
        if flavor is not None and (flavor.get("spec") or {}).get("topologyName"):
            self._wanted.set()


def host_of(node: JsonObject) -> str:
    """Its label `kubernetes.io/hostname`; its name without one."""
    metadata = node["metadata"]
    return str((metadata.get("labels") or {}).get(HOSTNAME_LABEL) or metadata["name"])


def workload_of(pod: JsonObject) -> Key | None:
    """The Workload that a pod says it is of."""
    metadata = pod["metadata"]
    name = (metadata.get("annotations") or {}).get(WORKLOAD_ANNOTATION)
    return Key(metadata["namespace"], name) if name else None


def _key(pod: JsonObject) -> Key:
    return Key(pod["metadata"]["namespace"], pod["metadata"]["name"])


def _workload(pod: JsonObject) -> Iterable[str]:
    key = workload_of(pod)
    return () if key is None else (str(key),)


def _host(node: JsonObject) -> Iterable[str]:
    return (host_of(node),)


def _node(node: JsonObject) -> bytes:
    """The node without all that is not read here."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    conditions = [each for each in status.get("conditions") or () if each.get("type") == "Ready"]
    ready = [{name: each.get(name) for name in ("type", "status")} for each in conditions]
    return packed(
        orjson.dumps(
            {
                "metadata": _metadata(node),
                "spec": {name: spec[name] for name in ("taints", "unschedulable") if name in spec},
                "status": {"allocatable": status.get("allocatable") or {}, "conditions": ready},
            }
        )
    )


def _pod(pod: JsonObject) -> bytes:
    """The pod without all that is not read here."""
    spec = {name: value for name, value in (pod.get("spec") or {}).items() if name in _KEPT_POD_SPEC}
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [{name: each[name] for name in _KEPT_CONTAINER if name in each} for each in spec[field]]
    phase = (pod.get("status") or {}).get("phase") or ""
    return packed(orjson.dumps({"metadata": _metadata(pod), "spec": spec, "status": {"phase": phase}}))


def _metadata(obj: JsonObject) -> JsonObject:
    return {name: obj["metadata"][name] for name in _KEPT_METADATA if name in obj["metadata"]}
