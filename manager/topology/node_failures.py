# SPDX-License-Identifier: Apache-2.0
"""Notes in Workloads that a node has failed on which they have pods (`docs/spec/engine.md §6.10`).

A node that is gone has failed at once; one that is not Ready, or has a taint that the pods do not tolerate, once those
of the Workload there have ended or are being deleted. The scheduler then moves its pods; of two failed nodes it moves
none, and the Workload is evicted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from manager.cache.indexes import TOPOLOGY_HOST_INDEX, topology_hosts
from manager.context import ManagerContext
from manager.topology.objects import TopologyObjects, host_of, workload_of
from manager.workload import changes
from manager.workload.status import Status
from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import NODES, PODS, RESOURCE_FLAVORS, WORKLOADS
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.taints import Toleration, untolerated
from multikueue.engine import decode
from multikueue.engine.topology.capacity import Node
from multikueue.engine.workloads import PodSetAdmission, Workload
from multikueue.jobs.framework.workloads import is_of_group
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.runtime.controller import Controller, Result

_log = logging.getLogger(__name__)

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
        for row in (change.old, change.new):  # its label may have changed
            if row is not None:
                self.controller.enqueue(Key("", host_of(row.object())))

    def _pod_changed(self, change: Change) -> None:
        pod = change.row.object()
        if workload_of(pod) is not None and (change.new is None or "deletionTimestamp" in pod["metadata"]):
            host = (pod["spec"].get("nodeSelector") or {}).get(HOSTNAME_LABEL) or pod["spec"].get("nodeName")
            if host:
                self.controller.enqueue(Key("", str(host)))

    async def reconcile(self, key: Key) -> Result | None:
        """Note or take back the failure of one host in each Workload that has pods there."""
        host = key.name
        workloads = list(self._workloads.objects(TOPOLOGY_HOST_INDEX, host))
        node = self._objects.node_of(host) if workloads else None
        if node is None and not self._objects.nodes.synced.is_set():
            return None  # its deletion is an event of the next list
        failure: KubeError | None = None
        for workload in workloads:
            try:
                await self._review(workload, host, node)
            except BadInput as error:
                _log.warning("node failure of unreadable workload not noted node=%s error=%s", host, error)
            except KubeError as error:
                failure = failure or error  # the others are reviewed all the same
        if failure is not None:
            raise failure
        return None

    async def _review(self, workload: JsonObject, host: str, node: JsonObject | None) -> None:
        metadata = workload["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        read = decode.workload(workload, self._shapes)
        if not _has_pods_on(read, host) or _is_single_pod(workload):
            return
        takes = node is not None and self._takes(decode.node(node), read, host)
        if not takes:
            await self._remove_unbound(key, host)
        failed = not takes and self._has_failed(read, host, node)
        if failed is (host in read.unhealthy_nodes):
            return
        _log.info("node of workload node=%s failed=%s workload=%s", host, failed, key)

        def change(before: Status) -> Status:
            return changes.node_failure(before, host, failed=failed, now=self._context.clock.now())

        await self._context.statuses.write(key, change, uid=metadata["uid"])

    async def _remove_unbound(self, workload: Key, host: str) -> None:
        """Delete pods that were let go to the host and do not run there yet, so that their controllers make new ones.

        No scheduler binds them any more, and the failure is noted once no pod is there.
        """
        for pod in self._objects.pods_of(workload):
            metadata, spec = pod["metadata"], pod["spec"]
            if spec.get("nodeName") or not _is_sent_to(pod, host) or controller_of(pod) is None:
                continue
            with suppress(NotFound):
                await self._context.client.delete(
                    PODS,
                    metadata["name"],
                    namespace=metadata["namespace"],
                    uid=metadata["uid"],
                    resource_version=metadata["resourceVersion"],  # not if it was bound since
                )

    def _has_failed(self, workload: Workload, host: str, node: JsonObject | None) -> bool:
        """Whether a node that does not take its pods has failed for it."""
        if node is None or not node["status"]["conditions"]:
            return True
        # Pods that come there by mistake do not mend it.
        return host in workload.unhealthy_nodes or not self._has_living_pods(workload.key, host)

    def _takes(self, node: Node, workload: Workload, host: str) -> bool:
        """Whether the node is Ready, and its taints are tolerated; one that is cordoned keeps its pods."""
        specs = {pod_set.name: pod_set.shape for pod_set in workload.pod_sets}
        return node.ready and all(
            untolerated(node.taints, (*specs[assigned.name].tolerations, *self._tolerations(assigned))) is None
            for assigned in _assigned_to(workload, host)
            if assigned.name in specs
        )

    def _tolerations(self, assigned: PodSetAdmission) -> Iterator[Toleration]:
        """What its flavors add to the pods."""
        for name in sorted(set(assigned.flavors.values())):
            flavor = self._context.caches.view(RESOURCE_FLAVORS).object(Key("", name))
            if flavor is not None:
                yield from decode.flavor(flavor).tolerations

    def _has_living_pods(self, key: Key, host: str) -> bool:
        return any(_is_sent_to(pod, host) for pod in self._objects.pods_of(key))


def _is_sent_to(pod: JsonObject, host: str) -> bool:
    """Whether it was let go to that host, and is not being deleted."""
    spec = pod["spec"]
    gated, selector = bool(spec.get("schedulingGates")), spec.get("nodeSelector") or {}
    return not gated and selector.get(HOSTNAME_LABEL) == host and "deletionTimestamp" not in pod["metadata"]


def _has_pods_on(workload: Workload, host: str) -> bool:
    """Whether it holds quota and was given that host."""
    return workload.reserved and not workload.evicted and any(True for _ in _assigned_to(workload, host))


def _assigned_to(workload: Workload, host: str) -> Iterator[PodSetAdmission]:
    """The pod sets with pods on that host."""
    for assigned in () if workload.admission is None else workload.admission.pod_sets:
        topology = assigned.topology
        on_hosts = topology is not None and topology.levels[-1:] == (HOSTNAME_LABEL,)
        if topology is not None and on_hosts and any(values[-1] == host for values, _ in topology.domains):
            yield assigned


def _is_single_pod(workload: JsonObject) -> bool:
    """A pod that is not in a group cannot run elsewhere."""
    owners = workload["metadata"].get("ownerReferences") or ()
    return not is_of_group(workload) and any(owner.get("kind") == _POD for owner in owners)
