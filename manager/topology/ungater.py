# SPDX-License-Identifier: Apache-2.0
"""Lets the pods of admitted Workloads go to the domains that they were given.

The pods of such a Workload have a scheduling gate. Each gets the node selector of its domain when the gate is removed,
in one write. Level-based: which pods are where is read from the pods.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Final

from manager.context import ManagerContext
from manager.topology.objects import TopologyObjects, workload_of
from multikueue.api.constants import (
    POD_GROUP_POD_INDEX_LABEL,
    POD_GROUP_POD_INDEX_LABEL_ANNOTATION,
    POD_INDEX_OFFSET_ANNOTATION,
    POD_SET_LABEL,
    TOPOLOGY_SCHEDULING_GATE,
)
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import PODS, WORKLOADS
from multikueue.api.topologyslices import expand
from multikueue.core.conditions import is_true_in
from multikueue.core.keys import Key
from multikueue.engine.topology.pod_domains import PlacedPod, RankLabels, chosen_domains
from multikueue.engine.workloads import AssignedDomains
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import ApiError, NotFound
from multikueue.kube.runtime.controller import Controller, Result

_log = logging.getLogger(__name__)

_DEFAULT_RANKS: Final = (
    RankLabels(index="batch.kubernetes.io/job-completion-index"),
    RankLabels(index="training.kubeflow.org/replica-index"),
    RankLabels(index=POD_GROUP_POD_INDEX_LABEL),
)
"""Where the Workload names no labels: those of a Job, of Kubeflow's kinds, and of pod groups."""
_INDEX: Final = re.compile(r"[0-9]{1,9}")
_ENDS: Final = (WorkloadCondition.EVICTED, WorkloadCondition.FINISHED)


class TopologyUngater:
    """Starts the pods of topologies; its keys are Workloads."""

    def __init__(self, context: ManagerContext, objects: TopologyObjects) -> None:
        self._context = context
        self._objects = objects
        self._workloads = context.caches.view(WORKLOADS)
        self.controller: Controller[Key] = Controller(
            "topology-pods",
            self.reconcile,
            clock=context.clock,
            metrics=context.metrics.controllers,
            quarantine=context.caches.quarantine,
            resource=WORKLOADS,
        )

    def attach(self) -> None:
        """Follow the pods, and Workloads on behalf of their pods."""
        self._objects.pods.add_handler(self._pod_changed)
        self._context.caches.subscribe(WORKLOADS, self._workload_changed)

    def _pod_changed(self, change: Change) -> None:
        key = workload_of(change.row.object())
        if key is not None:
            self.controller.enqueue(key)

    def _workload_changed(self, change: Change) -> None:
        if self._objects.pods_of(change.key):
            self.controller.enqueue(change.key)

    async def reconcile(self, key: Key) -> Result | None:
        """Start the waiting pods of one Workload that have a domain."""
        workload = self._workloads.object(key)
        status: JsonObject = (workload or {}).get("status") or {}
        if workload is None or not is_true_in(status, WorkloadCondition.ADMITTED):
            return None
        if any(is_true_in(status, each) for each in _ENDS):
            return None
        if status.get("unhealthyNodes"):
            return None  # the pods that replace those of a failed node would go there as well
        # One that is being deleted has its place until it has stopped.
        pods = [pod for pod in self._objects.pods_of(key) if not (_is_deleted(pod) and _waits(pod))]
        failure: ApiError | None = None
        specs: dict[str, JsonObject] = {str(each.get("name")): each for each in workload["spec"].get("podSets") or ()}
        for name, assigned in _assigned(status):
            own = {str(pod["metadata"]["name"]): pod for pod in pods if _pod_set(pod) == name}
            placed = [_placed(pod) for pod in own.values()]
            request: JsonObject = specs.get(name, {}).get("topologyRequest") or {}
            for pod, values in chosen_domains(placed, assigned, ranks=_ranks(request, placed)):
                try:
                    await self._start(own[pod.name], dict(zip(assigned.levels, values, strict=True)))
                except ApiError as error:
                    failure = failure or error  # the others may be started
        if failure is not None:
            raise failure
        return None

    async def _start(self, pod: JsonObject, selector: dict[str, str]) -> None:
        metadata, gates = pod["metadata"], pod["spec"].get("schedulingGates") or ()
        left = [gate for gate in gates if gate.get("name") != TOPOLOGY_SCHEDULING_GATE]
        body = {"spec": {"nodeSelector": selector, "schedulingGates": left or None}}
        try:
            answer = await self._context.client.patch(
                PODS,
                metadata["name"],
                body,
                namespace=metadata["namespace"],
                # Fails if the pod has changed since; its change brings the Workload here again.
                resource_version=metadata["resourceVersion"],
            )
        except NotFound:
            return
        self._objects.on_write(answer)
        _log.debug("pod placed pod=%s/%s domain=%s", metadata["namespace"], metadata["name"], selector)


def _assigned(status: JsonObject) -> Iterator[tuple[str, AssignedDomains]]:
    for each in (status.get("admission") or {}).get("podSetAssignments") or ():
        if each.get("topologyAssignment"):
            plain = expand(each["topologyAssignment"])
            domains = tuple((tuple(domain["values"]), int(domain["count"])) for domain in plain["domains"])
            yield str(each.get("name")), AssignedDomains(tuple(plain["levels"]), domains)


def _ranks(request: JsonObject, pods: list[PlacedPod]) -> RankLabels | None:
    if request.get("podIndexLabel"):
        return RankLabels(
            index=str(request["podIndexLabel"]),
            subgroup=str(request.get("subGroupIndexLabel") or ""),
            subgroups=int(request.get("subGroupCount") or 1),
        )
    return next((each for each in _DEFAULT_RANKS if pods and all(each.index in pod.labels for pod in pods)), None)


def _pod_set(pod: JsonObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POD_SET_LABEL, ""))


def _is_deleted(pod: JsonObject) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _waits(pod: JsonObject) -> bool:
    return any(gate.get("name") == TOPOLOGY_SCHEDULING_GATE for gate in pod["spec"].get("schedulingGates") or ())


def _placed(pod: JsonObject) -> PlacedPod:
    metadata, spec = pod["metadata"], pod["spec"]
    labels: dict[str, str] = metadata.get("labels") or {}
    annotations: dict[str, str] = metadata.get("annotations") or {}
    own, first = (
        annotations.get(key, "") for key in (POD_GROUP_POD_INDEX_LABEL_ANNOTATION, POD_INDEX_OFFSET_ANNOTATION)
    )
    return PlacedPod(
        name=str(metadata["name"]),
        waits=_waits(pod),
        labels={**labels, POD_GROUP_POD_INDEX_LABEL: labels[own]} if own in labels else labels,
        offset=int(first) if _INDEX.fullmatch(first) else 0,
        node_selector=spec.get("nodeSelector") or {},
    )
