# SPDX-License-Identifier: Apache-2.0
"""On which node a pod is to run. Pure.

Owns the filters (unschedulable, taints, node selector and required node affinity, room) and one score: the node that
is left with the most room. Leaves out what nothing in a batch federation asks of a local cluster: affinity between
pods, topology spread, preferred node affinity, volumes, host ports, dynamic resources and preemption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from multikueue.api.objects import JsonObject
from multikueue.core.taints import Taint, tolerates
from multikueue.devcluster.controllers.pod_needs import Amounts, PodNeeds, amounts_of

_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


@dataclass(slots=True, kw_only=True)
class NodeRoom:
    """A node and what its pods take of it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)

    @classmethod
    def of(cls, node: JsonObject) -> NodeRoom:
        """An empty one."""
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

    def take(self, requests: Mapping[str, int]) -> None:
        """A pod is here."""
        for name, amount in requests.items():
            self.used[name] = self.used.get(name, 0) + amount

    def give(self, requests: Mapping[str, int]) -> None:
        """A pod is here no longer."""
        for name, amount in requests.items():
            self.used[name] = self.used.get(name, 0) - amount


@dataclass(frozen=True, slots=True)
class Refusal:
    """No node will do, and why."""

    message: str


def place(pod: PodNeeds, nodes: Iterable[NodeRoom]) -> str | Refusal:
    """The node for a pod."""
    best: tuple[int, float, int, str] | None = None
    reasons: Counter[str] = Counter()
    total = 0
    for node in nodes:
        total += 1
        why = obstacles(pod, node)
        if why:
            reasons.update(why)
            continue
        dull = sum(t.effect == "PreferNoSchedule" and not tolerates(pod.tolerations, t) for t in node.taints)
        rank = (dull, -_room(pod, node), node.used.get("pods", 0), node.name)
        if best is None or rank < best:
            best = rank
    if best is not None:
        return best[3]
    if not total:
        return Refusal("no nodes available to schedule pods")
    listed = ", ".join(sorted(f"{count} {why}" for why, count in reasons.items()))
    return Refusal(f"0/{total} nodes are available: {listed}.")


def obstacles(pod: PodNeeds, node: NodeRoom) -> list[str]:
    """Why the pod cannot run there; of the first filter that it fails. Empty when it can."""
    if node.unschedulable and not tolerates(pod.tolerations, _UNSCHEDULABLE):
        return ["node(s) were unschedulable"]
    if any(
        taint.effect in ("NoSchedule", "NoExecute") and not tolerates(pod.tolerations, taint) for taint in node.taints
    ):
        return ["node(s) had untolerated taint(s)"]
    fields = {"metadata.name": node.name}
    fits = pod.terms is None or any(term.matches(node.labels, fields) for term in pod.terms)
    if not fits or not pod.selector.matches(node.labels):
        return ["node(s) didn't match Pod's node affinity/selector"]
    short = [name for name, amount in pod.requests.items() if amount and amount > _free(node, name)]
    return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in short]


def _free(node: NodeRoom, resource: str) -> int:
    return node.allocatable.get(resource, 0) - node.used.get(resource, 0)


def _room(pod: PodNeeds, node: NodeRoom) -> float:
    """What part of the node is free with the pod on it, of the resource that is the scarcest there."""
    parts = [
        (_free(node, name) - pod.requests.get(name, 0)) / node.allocatable[name]
        for name in ("cpu", "memory", "pods")
        if node.allocatable.get(name)
    ]
    return min(parts, default=0.0)
