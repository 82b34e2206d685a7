# SPDX-License-Identifier: Apache-2.0
"""Filters and scores nodes for a pod. Pure.

Filters: unschedulable, taints, node selector, required node affinity, resources. Score: the largest free share of the
scarcest resource. Not implemented: affinity between pods, topology spread, preferred node affinity, volumes, host
ports, dynamic resources and preemption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from devcluster.controllers.pod_info import Amounts, PodInfo, amounts_of
from multikueue.api.objects import JsonObject
from multikueue.core.taints import Taint, tolerates, untolerated

_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


@dataclass(slots=True, kw_only=True)
class NodeInfo:
    """A node and the resources that its pods request."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)
    requested: Amounts = field(default_factory=dict)

    @classmethod
    def of(cls, node: JsonObject) -> NodeInfo:
        """A node without pods."""
        spec = node.get("spec") or {}
        return cls(
            name=node["metadata"]["name"],
            labels=node["metadata"].get("labels") or {},
            taints=tuple(
                Taint(entry["key"], entry.get("value") or "", entry["effect"]) for entry in spec.get("taints") or ()
            ),
            unschedulable=bool(spec.get("unschedulable")),
            allocatable=amounts_of((node.get("status") or {}).get("allocatable") or {}),
        )

    def add_pod(self, requests: Mapping[str, int]) -> None:
        """Add the requests of a pod."""
        for name, amount in requests.items():
            self.requested[name] = self.requested.get(name, 0) + amount

    def remove_pod(self, requests: Mapping[str, int]) -> None:
        """Subtract the requests of a pod."""
        for name, amount in requests.items():
            self.requested[name] = self.requested.get(name, 0) - amount


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node fits; the message of the PodScheduled condition."""

    message: str


def select_node(pod: PodInfo, nodes: Iterable[NodeInfo]) -> str | Unschedulable:
    """The name of the best node for a pod."""
    best: tuple[int, float, int, str] | None = None
    reasons: Counter[str] = Counter()
    total = 0
    for node in nodes:
        total += 1
        why = filter_node(pod, node)
        if why:
            reasons.update(why)
            continue
        avoided = sum(t.effect == "PreferNoSchedule" and not tolerates(pod.tolerations, t) for t in node.taints)
        rank = (avoided, -_score(pod, node), node.requested.get("pods", 0), node.name)
        if best is None or rank < best:
            best = rank
    if best is not None:
        return best[3]
    if not total:
        return Unschedulable("no nodes available to schedule pods")
    listed = ", ".join(sorted(f"{count} {why}" for why, count in reasons.items()))
    return Unschedulable(f"0/{total} nodes are available: {listed}.")


def filter_node(pod: PodInfo, node: NodeInfo) -> list[str]:
    """The reasons of the first filter that the pod fails; empty if it fits."""
    if node.unschedulable and not tolerates(pod.tolerations, _UNSCHEDULABLE):
        return ["node(s) were unschedulable"]
    if untolerated(node.taints, pod.tolerations) is not None:
        return ["node(s) had untolerated taint(s)"]
    fields = {"metadata.name": node.name}
    fits = pod.terms is None or any(term.matches(node.labels, fields) for term in pod.terms)
    if not fits or not pod.selector.matches(node.labels):
        return ["node(s) didn't match Pod's node affinity/selector"]
    short = [name for name, amount in pod.requests.items() if amount and amount > _free(node, name)]
    return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in short]


def _free(node: NodeInfo, resource: str) -> int:
    return node.allocatable.get(resource, 0) - node.requested.get(resource, 0)


def _score(pod: PodInfo, node: NodeInfo) -> float:
    """The free share of the node's scarcest resource with the pod on it."""
    parts = [
        (_free(node, name) - pod.requests.get(name, 0)) / node.allocatable[name]
        for name in ("cpu", "memory", "pods")
        if node.allocatable.get(name)
    ]
    return min(parts, default=0.0)
