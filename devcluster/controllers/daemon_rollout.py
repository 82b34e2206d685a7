# SPDX-License-Identifier: Apache-2.0
"""The next step of a DaemonSet's rolling update. Pure.

Without surge old pods are deleted, and their nodes get new ones in the next reconcile. With surge nodes get new pods
first, and an old pod is deleted once the new one of its node is available.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from devcluster.controllers import pod_facts
from devcluster.controllers.daemon_facts import DaemonFacts
from devcluster.controllers.rollout_sizes import scaled
from multikueue.api.objects import JsonObject


@dataclass(slots=True)
class RolloutStep:
    """The nodes that get a new pod, and the old pods to delete."""

    create: list[str] = field(default_factory=list)
    delete: list[JsonObject] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _NodePods:
    """The pods of a node that are not being deleted."""

    node: str
    new: list[JsonObject]
    old: list[JsonObject]

    @property
    def is_regular(self) -> bool:
        """Whether it has one pod of each template at most."""
        return len(self.new) <= 1 and len(self.old) <= 1


def surges(daemon_set: JsonObject) -> bool:
    """Whether a node may have a new pod beside an old one."""
    return _limit(daemon_set, "maxSurge", 1) > 0


def next_step(facts: DaemonFacts) -> RolloutStep:
    """What a rolling update does now; nothing with the strategy OnDelete."""
    strategy = facts.daemon_set["spec"].get("updateStrategy") or {}
    if strategy.get("type") != "RollingUpdate":
        return RolloutStep()
    desired = [name for name, node in facts.nodes.items() if node.runs]
    surge = _limit(facts.daemon_set, "maxSurge", len(desired))
    unavailable = _limit(facts.daemon_set, "maxUnavailable", len(desired))
    if desired and not surge and not unavailable:
        unavailable = 1
    nodes = [_sorted(facts, name) for name in dict.fromkeys((*facts.pods, *desired))]
    return _surge(facts, nodes, most=surge) if surge else _replace(facts, nodes, most=unavailable)


def _replace(facts: DaemonFacts, nodes: Iterable[_NodePods], *, most: int) -> RolloutStep:
    """Delete old pods that are not available, and others while at most `most` nodes are without an available one."""
    unavailable = 0
    broken: list[JsonObject] = []
    candidates: list[JsonObject] = []
    for node in nodes:
        if not node.is_regular or len(node.new) == len(node.old):
            unavailable += 1  # its pods are yet to be deleted or created
        elif node.new:
            unavailable += not facts.available(node.new[0])
        elif not facts.available(node.old[0]):
            unavailable += 1
            broken.append(node.old[0])
        else:
            candidates.append(node.old[0])
    return RolloutStep(delete=[*broken, *candidates[: max(0, most - unavailable)]])


def _surge(facts: DaemonFacts, nodes: Iterable[_NodePods], *, most: int) -> RolloutStep:
    """Create new pods beside old ones on `most` nodes, and beside all old ones that are not available."""
    surging = 0
    broken: list[str] = []
    candidates: list[str] = []
    step = RolloutStep()
    for node in nodes:
        if not node.is_regular:
            surging += 1
        elif node.old and not node.new:
            (candidates if facts.available(node.old[0]) else broken).append(node.node)
        elif node.old and node.new:
            if facts.available(node.new[0]):
                step.delete.append(node.old[0])
            else:
                surging += 1
    step.create = [*broken, *candidates[: max(0, most - surging)]]
    return step


def _sorted(facts: DaemonFacts, node: str) -> _NodePods:
    pods = [pod for pod in facts.pods.get(node, ()) if not pod_facts.deleting(pod)]
    new = [pod for pod in pods if facts.updated(pod)]
    return _NodePods(node, new, [pod for pod in pods if not facts.updated(pod)])


def _limit(daemon_set: JsonObject, name: str, total: int) -> int:
    """A limit of the strategy RollingUpdate for so many nodes, rounded up."""
    strategy = daemon_set["spec"].get("updateStrategy") or {}
    if strategy.get("type") != "RollingUpdate":
        return 0
    return scaled((strategy.get("rollingUpdate") or {}).get(name, 0), total, up=True)
