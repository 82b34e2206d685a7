# SPDX-License-Identifier: Apache-2.0
"""Notes in Workloads that a node has failed on which they have pods (`docs/spec/engine.md §6.10`).

A node that is gone has failed at once; one that is not Ready, or has a taint that the pods do not tolerate, once those
of the Workload there have ended or are being deleted. The scheduler then moves its pods; of two failed nodes it moves
none, and the Workload is evicted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from manager.cache.indexes import TOPOLOGY_HOST_INDEX, topology_hosts
from manager.context import ManagerContext
from manager.topology.objects import TopologyObjects, host_of, workload_of
from manager.workload import changes
from multikueue.api.constants import IS_GROUP_WORKLOAD_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import EvictedReason
from multikueue.api.resource import NODES, WORKLOADS
from multikueue.core.keys import Key
from multikueue.core.taints import tolerates
from multikueue.engine import decode
from multikueue.engine.topology.capacity import HOSTNAME, Node
from multikueue.engine.workloads import PodSetAdmission, Workload
from multikueue.kube.cache.informer import Change
from multikueue.kube.runtime.controller import Controller, Result

_log = logging.getLogger(__name__)

_REPELS: Final = ("NoSchedule", "NoExecute")
_POD: Final = "Pod"


class NodeFailures:
    """Follows nodes on behalf of Workloads; its keys are the values of the label `kubernetes.io/hostname`."""

    def __init__(self, context: ManagerContext, objects: TopologyObjects) -> None:
        self._context = context
        self._objects = objects
        self._workloads = context.caches.view(WORKLOADS)
        self._shapes = decode.Shapes()
        self.controller: Controller[Key] = Controller(
            "topology-nodes",
            self.reconcile,
            clock=context.clock,
            metrics=context.metrics.controllers,
            quarantine=context.caches.quarantine,
            resource=NODES,
        )

    def attach(self) -> None:
        """Follow nodes, and pods that leave them."""
        self._objects.nodes.add_handler(self._node_changed)
        self._objects.pods.add_handler(self._pod_changed)

    async def run(self) -> None:
        """Reconcile until cancelled, once the nodes are known."""
        await self._objects.nodes.synced.wait()
        await self._context.caches.replay(WORKLOADS, self._workload_changed)
        await self.controller.run()

    def _workload_changed(self, change: Change) -> None:
        """A node that was gone before the manager started, or before pods were placed on it, has no event."""
        for host in () if change.new is None else topology_hosts(change.new.object()):
            if self._objects.node_of(host) is None:
                self.controller.enqueue(Key("", host))

    def _node_changed(self, change: Change) -> None:
        self.controller.enqueue(Key("", host_of(change.row.object())))

    def _pod_changed(self, change: Change) -> None:
        pod = change.row.object()
        if workload_of(pod) is not None and (change.new is None or "deletionTimestamp" in pod["metadata"]):
            host = (pod["spec"].get("nodeSelector") or {}).get(HOSTNAME) or pod["spec"].get("nodeName")
            if host:
                self.controller.enqueue(Key("", str(host)))

    async def reconcile(self, key: Key) -> Result | None:
        """Note or take back the failure of one host in each Workload that has pods there."""
        host = key.name
        workloads = list(self._workloads.objects(TOPOLOGY_HOST_INDEX, host))
        found = self._objects.node_of(host) if workloads else None
        if found is None and not self._objects.nodes.synced.is_set():
            return None  # its deletion is an event of the next list
        node = None if found is None else decode.node(found)
        for workload in workloads:
            await self._review(workload, host, node)
        return None

    async def _review(self, workload: JsonObject, host: str, node: Node | None) -> None:
        status, metadata = workload.get("status") or {}, workload["metadata"]
        read = decode.workload(workload, self._shapes)
        if not _has_pods_on(read, host) or _is_single_pod(workload):
            return
        known = tuple(str(each.get("name")) for each in status.get("unhealthyNodes") or ())
        key = Key(metadata["namespace"], metadata["name"])
        failed = node is None or (not _takes(node, read) and not self._has_living_pods(key, host))
        if failed is (host in known):
            return
        if failed and known:
            names = ", ".join(sorted((*known, host)))
            text = f"Workload eviction triggered due to multiple TAS assigned node failures, including: {names}"
            await self._context.statuses.write(
                key,
                lambda before: changes.evict(
                    before, reason=EvictedReason.NODE_FAILURES, message=text, now=self._context.clock.now()
                ),
                uid=metadata["uid"],
            )
            return
        left = (*known, host) if failed else tuple(name for name in known if name != host)
        _log.info("node of workload node=%s failed=%s workload=%s", host, failed, key)
        await self._context.statuses.write(
            key, lambda before: changes.unhealthy_nodes(before, left), uid=metadata["uid"]
        )

    def _has_living_pods(self, key: Key, host: str) -> bool:
        return any(
            "deletionTimestamp" not in pod["metadata"] and (pod["spec"].get("nodeSelector") or {}).get(HOSTNAME) == host
            for pod in self._objects.pods_of(key)
        )


def _has_pods_on(workload: Workload, host: str) -> bool:
    """Whether it holds quota and was given that host."""
    if not workload.reserved or workload.evicted or workload.admission is None:
        return False
    return any(host in _hosts(assigned) for assigned in workload.admission.pod_sets)


def _hosts(assigned: PodSetAdmission) -> Iterable[str]:
    if assigned.topology is None or assigned.topology.levels[-1:] != (HOSTNAME,):
        return ()
    return (values[-1] for values, _ in assigned.topology.domains)


def _takes(node: Node, workload: Workload) -> bool:
    """Whether the node is Ready, and its taints are tolerated; one that is cordoned keeps its pods."""
    if not node.ready:
        return False
    return all(
        tolerates(pod_set.shape.tolerations, taint)
        for pod_set in workload.pod_sets
        for taint in node.taints
        if taint.effect in _REPELS
    )


def _is_single_pod(workload: JsonObject) -> bool:
    """A pod that is not in a group cannot run elsewhere."""
    metadata = workload["metadata"]
    owners = metadata.get("ownerReferences") or ()
    in_group = (metadata.get("annotations") or {}).get(IS_GROUP_WORKLOAD_ANNOTATION) == "true"
    return not in_group and any(owner.get("kind") == _POD for owner in owners)
