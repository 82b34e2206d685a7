# SPDX-License-Identifier: Apache-2.0
"""What the nodes of topologies can hold, and what is used of it (`docs/spec/engine.md §6.1`).

Owns the nodes, the requests of pods that were not placed by a topology, and the places of workloads that hold quota. A
search takes places away and puts them back, as it does with quota. On a leaf that is one host the places of all flavors
count, on any other only those of its own flavor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.core.keys import Key
from multikueue.core.taints import Taint
from multikueue.engine.devices.claims import CLASS_RESOURCES
from multikueue.engine.resources import MAX_INT64, Requests
from multikueue.engine.topology.values import DomainValues
from multikueue.engine.values import Flavor

_NO_FLAVOR: Final = ""
K = TypeVar("K")


class LeafKey(NamedTuple):
    """A leaf: of a flavor, or of any flavor if it is one host; the values of its levels, or its host alone."""

    flavor: str
    values: DomainValues


class Place(NamedTuple):
    """So many pods of a workload on a leaf, each with these requests."""

    leaf: LeafKey
    pods: int
    single: Requests


Places = tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node; `usable` is whether it is Ready and takes new pods."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    allocatable: Requests = field(default_factory=dict)
    ready: bool = True
    usable: bool = True


class Leaf(NamedTuple):
    """A leaf with its nodes; `values` has one for each level."""

    key: LeafKey
    values: DomainValues
    nodes: tuple[Node, ...]


def leaf_key(flavor: str, levels: tuple[str, ...], values: DomainValues) -> LeafKey:
    """The key of the leaf with these values, which may be shortened to those of the lowest levels."""
    return LeafKey(_NO_FLAVOR, values[-1:]) if levels[-1:] == (HOSTNAME_LABEL,) else LeafKey(flavor, values)


class TopologyCapacity:
    """All nodes, and what is used on them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._bound: dict[str, dict[str, int]] = {}
        self._pods: dict[Key, tuple[str, Requests]] = {}
        self._placed: dict[LeafKey, dict[str, int]] = {}
        self._leaves: dict[tuple[str, tuple[str, ...]], tuple[Leaf, ...]] = {}
        self._by_key: dict[LeafKey, Leaf] = {}
        self.device_resources: Collection[str] = ()
        """Resources that classes of devices serve: of these a node has what it reports, and else any amount."""

    def set_node(self, name: str, node: Node | None) -> bool:
        """Store a node; None removes it. Whether that changes anything."""
        if self.nodes.get(name) == node:
            return False
        if node is None:
            del self.nodes[name]
        else:
            self.nodes[name] = node
        self.forget_leaves()
        return True

    def forget_leaves(self) -> None:
        """A node, a flavor or a topology has changed."""
        self._leaves.clear()
        self._by_key.clear()

    def set_pod(self, pod: Key, node: str, requests: Requests | None) -> bool:
        """Store what a pod on a node uses that no topology has placed; None removes it. Whether that frees anything."""
        known = self._pods.pop(pod, None)
        if known is not None:
            _shift(self._bound, known[0], known[1], -1)
        if requests is not None:
            self._pods[pod] = (node, requests)
            _shift(self._bound, node, requests, 1)
        if known is None or requests is None:
            return known is not None
        return known[0] != node or any(requests.get(name, 0) < amount for name, amount in known[1].items())

    def add(self, places: Places) -> None:
        """Use these places."""
        for place in places:
            _shift(self._placed, place.leaf, place.single, place.pods)

    def remove(self, places: Places) -> None:
        """Free these places."""
        for place in places:
            _shift(self._placed, place.leaf, place.single, -place.pods)

    def fits(self, places: Places) -> bool:
        """Whether all of these places are free together."""
        wanted: dict[LeafKey, dict[str, int]] = {}
        for place in places:
            _shift(wanted, place.leaf, place.single, place.pods)
        return all(self._has(leaf, amounts) for leaf, amounts in wanted.items())

    def leaves(self, flavor: Flavor, levels: tuple[str, ...]) -> tuple[Leaf, ...]:
        """The leaves of a flavor: of the usable nodes with its labels and a value for each level."""
        known = self._leaves.get((flavor.name, levels))
        if known is None:
            known = self._leaves[flavor.name, levels] = tuple(self._leaves_of(flavor, levels))
            self._by_key.update((leaf.key, leaf) for leaf in known)
        return known

    def remaining(self, leaf: Leaf, resources: Iterable[str], *, empty: bool = False) -> dict[str, int]:
        """What is left of these resources; with `empty` as if no place were taken."""
        placed = {} if empty else self._placed.get(leaf.key, {})
        left = {}
        for resource in resources:
            amount = -placed.get(resource, 0)
            for node in leaf.nodes:
                amount += node.allocatable.get(resource, 0) - self._bound.get(node.name, {}).get(resource, 0)
            left[resource] = MAX_INT64 if amount <= 0 and self._devices_serve(resource, leaf) else amount
        return left

    def _devices_serve(self, resource: str, leaf: Leaf) -> bool:
        if resource not in self.device_resources and not resource.startswith(CLASS_RESOURCES):
            return False
        return not any(resource in node.allocatable for node in leaf.nodes)

    def _has(self, key: LeafKey, amounts: Requests) -> bool:
        leaf = self._by_key.get(key)
        if leaf is None:
            return False
        left = self.remaining(leaf, amounts)
        return all(amount <= left[name] for name, amount in amounts.items())

    def _leaves_of(self, flavor: Flavor, levels: tuple[str, ...]) -> Iterable[Leaf]:
        found: dict[DomainValues, list[Node]] = {}
        for node in self.nodes.values():
            labels = node.labels
            if not node.usable or any(labels.get(name) != value for name, value in flavor.node_labels.items()):
                continue
            if all(key in labels for key in levels):
                found.setdefault(tuple(labels[key] for key in levels), []).append(node)
        for values, nodes in found.items():
            yield Leaf(leaf_key(flavor.name, levels, values), values, tuple(nodes))


def _shift(usage: dict[K, dict[str, int]], key: K, single: Requests, count: int) -> None:
    used = usage.setdefault(key, {})
    for name, amount in single.items():
        used[name] = used.get(name, 0) + amount * count
        if not used[name]:
            del used[name]
    if not used:
        del usage[key]
