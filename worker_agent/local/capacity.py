# SPDX-License-Identifier: Apache-2.0
"""The capacity of the worker cluster: its ledger, kept up to date from nodes and pods.

Owns the informers of Nodes and Pods, which of their fields count, and the notification that capacity was freed. What a
pod requests is decided by `dispatch.worker.demands`. Promises that the ledger is complete once both informers have
synced, and that it neither reports nor refuses anything while the agent may not read nodes. `small_node` and
`small_pod` cut objects down as they arrive, so that a cluster with a hundred thousand pods needs little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Final

import orjson

from multikueue.api.constants import (
    BATCH_JOB_NAME_LABEL,
    MANAGED_LABEL_VALUE,
    REMOTE_POD_LABEL,
    WORKER_WORKLOAD_POD_LABEL,
)
from multikueue.api.meta import JsonObject
from multikueue.api.resource import JOBS, NODES, PODS
from multikueue.core.clock import Clock
from multikueue.core.conditions import is_true_in
from multikueue.core.keys import Key
from multikueue.core.taints import Taint
from multikueue.dispatch.worker.demands import amounts, pod_requests
from multikueue.dispatch.worker.ledger import Demand, Ledger, NodeFacts, PodFacts
from multikueue.dispatch.worker.node_groups import capacity_wire, group_wire, grouped, total
from multikueue.jobs.kinds.pod_group import group_of
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine
from worker_agent.local.jobs import GROUP_PREFIX, RemoteJobKey
from worker_agent.reconnect import RECONNECT

_UNFINISHED_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_JOB_PODS: Final[Mapping[str, str]] = {BATCH_JOB_NAME_LABEL: JOBS.qualified}


class Capacity:
    """The ledger of one cluster and its informers."""

    def __init__(
        self,
        client: KubeClient,
        *,
        clock: Clock,
        random: Random,
        freed: Callable[[], None],
        changed: Callable[[], None],
        is_known: Callable[[], bool] = lambda: True,
        pod_labels: Mapping[str, str] | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        """`pod_labels` are the labels by which pods name their jobs, each with the resource of these jobs.

        `is_known` is whether the nodes were read: without the right to read them their capacity is unknown."""
        self.ledger = Ledger()
        self._is_known = is_known
        self._freed = freed
        self._changed = changed
        self.nodes = Informer(
            client,
            NODES,
            shrink=small_node,
            clock=clock,
            random=random,
            backoff=RECONNECT,
            quarantine=quarantine,
        )
        self.pods = Informer(
            client,
            PODS,
            field_selector=_UNFINISHED_PODS,
            shrink=partial(small_pod, pod_labels=pod_labels or _JOB_PODS),
            clock=clock,
            random=random,
            backoff=RECONNECT,
            quarantine=quarantine,
        )
        self.nodes.add_handler(self._on_node)
        self.pods.add_handler(self._on_pod)

    def release(self, owner: str) -> None:
        """Release the capacity that `owner` has reserved; notifies if there was any."""
        if owner in self.ledger.owners:
            self.ledger.release(owner)
            self._freed()

    def shortage(self, owner: str, wanted: tuple[Demand, ...]) -> str:
        """Reserve capacity; why it cannot be, or an empty string. Unknown capacity is left to the scheduler."""
        if not self._is_known():
            return ""
        short = self.ledger.reserve(owner, wanted)
        return "" if short is None else short.reason

    def report(self) -> JsonObject:
        """The capacity in a ClusterReport: in total and by node group; nothing while it is unknown."""
        if not self._is_known():
            return {}
        groups, varying = grouped(self.ledger.capacities())
        return {
            "capacity": [capacity_wire(name, capacity) for name, capacity in sorted(total(groups).items())],
            "groups": [group_wire(group) for group in groups],
            "varying": list(varying),
            "nodes": {"ready": self.ledger.ready_nodes, "total": self.ledger.total_nodes},
        }

    def _on_node(self, change: Change) -> None:
        if change.new is None:
            self.ledger.remove_node(change.key.name)
        elif change.old is None or change.old.raw != change.new.raw:
            try:
                facts = node_facts(change.key.name, change.new.raw)
            except Exception:
                # A node that cannot be read has no capacity.
                self.ledger.remove_node(change.key.name)
                raise
            self.ledger.set_node(facts)
        else:
            return  # a heartbeat of the kubelet changes nothing in the ledger
        self._freed()
        self._changed()

    def _ours(self, change: Change) -> bool:
        """Whether the pod belongs to an assignment: the hub counts those itself and needs no report of them."""
        raw = change.row.raw if change.new is None else change.new.raw
        facts = pod_facts(raw)
        return facts is None or facts.owner in self.ledger.owners

    def _on_pod(self, change: Change) -> None:
        facts = None if change.new is None else pod_facts(change.new.raw)
        key = str(change.key)
        if facts is None:
            self.ledger.remove_pod(key)
            if change.old is not None and change.old.raw:
                self._freed()
        else:
            self.ledger.set_pod(key, facts)
        if not self._ours(change):
            self._changed()


def small_node(node: JsonObject) -> bytes:
    """The fields of a Node that `node_facts` reads."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    ready = is_true_in(status, "Ready")
    return orjson.dumps(
        {
            "allocatable": status.get("allocatable") or {},
            "labels": node["metadata"].get("labels") or {},
            "taints": spec.get("taints") or [],
            "ready": ready and not spec.get("unschedulable"),
        }
    )


def node_facts(name: str, small: bytes) -> NodeFacts:
    """The node as the ledger counts it."""
    node: JsonObject = orjson.loads(small)
    return NodeFacts(
        name=name,
        allocatable=amounts(node["allocatable"]),
        labels=node["labels"],
        taints=tuple(
            Taint(key=taint["key"], value=taint.get("value", ""), effect=taint["effect"]) for taint in node["taints"]
        ),
        ready=node["ready"],
    )


def small_pod(pod: JsonObject, *, pod_labels: Mapping[str, str] = _JOB_PODS) -> bytes:
    """The fields of a Pod that `pod_facts` reads; empty for a pod that uses no capacity.

    A pod of a remote job uses the capacity that was reserved for the job which the first of its `pod_labels` names.
    """
    spec: JsonObject = pod.get("spec") or {}
    node = spec.get("nodeName")
    if not node or (pod.get("status") or {}).get("phase") in _FINISHED:
        return b""
    metadata: JsonObject = pod["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    owner = ""
    if labels.get(WORKER_WORKLOAD_POD_LABEL) == MANAGED_LABEL_VALUE:
        named = (
            str(RemoteJobKey(resource, Key(metadata["namespace"], labels[label])))
            for label, resource in pod_labels.items()
            if label in labels
        )
        owner = next(named, _remote_pod(pod))
    return orjson.dumps([node, owner, pod_requests(spec)])


def _remote_pod(pod: JsonObject) -> str:
    """The remote job that is this pod, or its group; empty for a pod of another one."""
    metadata: JsonObject = pod["metadata"]
    if REMOTE_POD_LABEL not in (metadata.get("labels") or {}):
        return ""
    group = group_of(pod)
    name = f"{GROUP_PREFIX}{group}" if group else str(metadata["name"])
    return str(RemoteJobKey(PODS.qualified, Key(metadata["namespace"], name)))


def pod_facts(small: bytes) -> PodFacts | None:
    """The pod as the ledger counts it; None for a pod that uses no capacity."""
    if not small:
        return None
    node, owner, requests = orjson.loads(small)
    return PodFacts(node=node, owner=owner, requests=requests)
