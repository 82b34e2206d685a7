# SPDX-License-Identifier: Apache-2.0
"""Room on a worker's nodes: what is taken, what is promised, and whether one more fits.

Owns the capacity ledger that stands in for a queueing engine on a worker without one. It counts requests against
allocatable, honours node selectors, required affinity and taints, and places promised pods on nodes so that what is
promised is not a sum that no node could hold. A promise shrinks as the pods it was made for are bound. It is an
estimate: the scheduler of the worker has the last word, the quota of the management cluster the first.

Amounts are whole numbers: thousandths for cpu, units for everything else. Not safe to be shared between tasks that
await in the middle of a change, and no method here awaits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from multikueue.core.quantity import Format, Quantity
from multikueue.core.selectors import NodeSelectorTerm
from multikueue.core.taints import Taint, Toleration, tolerates

Vector = Mapping[str, int]
PODS: Final = "pods"
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node; `ready` also says that it is not cordoned."""

    name: str
    allocatable: Vector
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """A pod that is bound to a node and has not ended; `owner` is the promise it uses up, if any."""

    node: str
    requests: Vector
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """`count` equal pods and where they may go; `affinity` of None is no required affinity."""

    count: int
    requests: Vector
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Shortage:
    """That a demand does not fit: how many of its pods do, and why not more."""

    fitting: int
    wanted: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoom:
    """A node, what is free on it, and what of the rest is held for somebody or used by whom it was held for."""

    node: NodeFacts
    free: Vector
    reserved: Vector


@dataclass(slots=True)
class _Promise:
    demands: tuple[Demand, ...]
    slots: list[tuple[str, Demand]]

    @property
    def wanted(self) -> int:
        return sum(demand.count for demand in self.demands)


class Ledger:
    """The ledger of one cluster."""

    __slots__ = ("_bound", "_nodes", "_pods", "_promised", "_promises", "_used")

    def __init__(self) -> None:
        self._nodes: dict[str, NodeFacts] = {}
        self._pods: dict[str, PodFacts] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._promised: dict[str, dict[str, int]] = {}
        self._promises: dict[str, _Promise] = {}
        self._bound: Counter[str] = Counter()

    def set_node(self, node: NodeFacts) -> None:
        """A node appeared or changed; a node that is away or cordoned loses what was promised on it."""
        self._nodes[node.name] = node
        if not node.ready:
            self._withdraw(node.name)

    def remove_node(self, name: str) -> None:
        """A node is gone, with what was promised on it."""
        if self._nodes.pop(name, None) is not None:
            self._withdraw(name)

    def set_pod(self, key: str, pod: PodFacts) -> None:
        """A pod is bound. It uses up a slot of its owner's promise, on its own node if there is one."""
        old = self._pods.get(key)
        if old == pod:
            return
        if old is not None:
            self.remove_pod(key)
        self._pods[key] = pod
        _add(self._used.setdefault(pod.node, {}), pod.requests, 1)
        if pod.owner:
            self._bound[pod.owner] += 1
            self._settle(pod.owner, prefer=pod.node)

    def remove_pod(self, key: str) -> None:
        """A pod has ended or is gone; its owner's promise is not refilled, for a successor may come or not."""
        pod = self._pods.pop(key, None)
        if pod is None:
            return
        _add(self._used[pod.node], pod.requests, -1)
        if pod.owner:
            self._bound[pod.owner] -= 1
            if not self._bound[pod.owner]:
                del self._bound[pod.owner]

    def promise(self, owner: str, demands: tuple[Demand, ...]) -> Shortage | None:
        """Hold room for all of `demands`, or for nothing. None: it is held, as it may have been before."""
        known = self._promises.get(owner)
        if known is not None:
            if known.demands == demands and self.holds(owner):
                return None
            self.release(owner)
        promise = _Promise(demands=demands, slots=[])
        missing = promise.wanted - self._bound[owner]
        for demand in demands:
            wanted = max(0, min(demand.count, missing))
            missing -= wanted
            placed = list(self._place(demand, wanted))
            promise.slots += placed
            if len(placed) < wanted:
                for node, placed_demand in promise.slots:
                    self._give_back(node, placed_demand)
                return Shortage(len(placed) + demand.count - wanted, demand.count, self._explain(demand))
        self._promises[owner] = promise
        return None

    def release(self, owner: str) -> None:
        """Hold no more room for `owner`."""
        promise = self._promises.pop(owner, None)
        if promise is not None:
            for node, demand in promise.slots:
                self._give_back(node, demand)

    def holds(self, owner: str) -> bool:
        """Whether all the room that was promised is there, held or in use."""
        promise = self._promises.get(owner)
        return promise is not None and self._bound[owner] + len(promise.slots) >= promise.wanted

    @property
    def owners(self) -> Iterable[str]:
        """Everybody who holds room."""
        return self._promises.keys()

    @property
    def ready_nodes(self) -> int:
        """How many nodes can take pods."""
        return sum(node.ready for node in self._nodes.values())

    @property
    def total_nodes(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    def rooms(self) -> Iterator[NodeRoom]:
        """Every node with its room."""
        reserved: dict[str, dict[str, int]] = {name: dict(held) for name, held in self._promised.items()}
        for pod in self._pods.values():
            if pod.owner in self._promises:
                _add(reserved.setdefault(pod.node, {}), pod.requests, 1)
        for name, node in self._nodes.items():
            free = {
                resource: max(0, amount - self._taken(name, resource)) for resource, amount in node.allocatable.items()
            }
            yield NodeRoom(node=node, free=free, reserved=reserved.get(name, _EMPTY))

    def _place(self, demand: Demand, count: int) -> Iterator[tuple[str, Demand]]:
        if count <= 0:
            return
        nodes = [node for node in self._nodes.values() if node.ready and _admits(node, demand)]
        # Emptiest first is what a scheduler with default scoring does, so that the estimate breaks up nodes as it will.
        nodes.sort(key=lambda node: (-self._room(node, demand), node.name))
        for node in nodes:
            for _ in range(min(count, self._room(node, demand))):
                count -= 1
                _add(self._promised.setdefault(node.name, {}), demand.requests, 1, pods=1)
                yield node.name, demand
            if count <= 0:
                return

    def _room(self, node: NodeFacts, demand: Demand) -> int:
        room = node.allocatable.get(PODS, _MANY) - self._taken(node.name, PODS)
        for resource, amount in demand.requests.items():
            if amount > 0:
                room = min(room, (node.allocatable.get(resource, 0) - self._taken(node.name, resource)) // amount)
        return max(0, room)

    def _taken(self, node: str, resource: str) -> int:
        return self._used.get(node, _EMPTY).get(resource, 0) + self._promised.get(node, _EMPTY).get(resource, 0)

    def _explain(self, demand: Demand) -> str:
        ready = [node for node in self._nodes.values() if node.ready]
        admitting = [node for node in ready if _admits(node, demand)]
        if not ready:
            return "no node is ready"
        if not admitting:
            return f"none of {len(ready)} ready nodes has the wanted labels and no untolerated taint"
        short = []
        for resource, amount in sorted(demand.requests.items()):
            largest = max(node.allocatable.get(resource, 0) - self._taken(node.name, resource) for node in admitting)
            if amount > largest:
                wanted, free = amount_text(resource, amount), amount_text(resource, largest)
                short.append(f"{resource}: {wanted} wanted, at most {free} free")
        return "; ".join(short) or f"not enough room on {len(admitting)} nodes for all pods at once"

    def _settle(self, owner: str, *, prefer: str) -> None:
        promise = self._promises.get(owner)
        if promise is None:
            return
        while promise.slots and self._bound[owner] + len(promise.slots) > promise.wanted:
            position = next((i for i, (node, _) in enumerate(promise.slots) if node == prefer), 0)
            self._give_back(*promise.slots.pop(position))

    def _withdraw(self, node: str) -> None:
        for promise in self._promises.values():
            kept = [slot for slot in promise.slots if slot[0] != node]
            if len(kept) != len(promise.slots):
                promise.slots = kept
        self._promised.pop(node, None)

    def _give_back(self, node: str, demand: Demand) -> None:
        promised = self._promised.get(node)
        if promised is not None:
            _add(promised, demand.requests, -1, pods=1)


_EMPTY: Final[Vector] = {}
_MANY: Final = 1 << 62  # a node that does not say how many pods it takes


def _admits(node: NodeFacts, demand: Demand) -> bool:
    if any(node.labels.get(key) != value for key, value in demand.node_selector.items()):
        return False
    if demand.affinity is not None:
        fields = {"metadata.name": node.name}
        if not any(term.matches(node.labels, fields) for term in demand.affinity):
            return False
    return all(taint.effect not in _REPELLING or tolerates(demand.tolerations, taint) for taint in node.taints)


def _add(target: dict[str, int], amounts: Vector, sign: int, *, pods: int = 1) -> None:
    for resource, amount in amounts.items():
        target[resource] = target.get(resource, 0) + sign * amount
    target[PODS] = target.get(PODS, 0) + sign * pods


def amount_text(resource: str, amount: int) -> str:
    """An amount of a demand as a quantity."""
    if resource == "cpu":
        return str(Quantity.of_milli(amount))
    binary = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    return str(Quantity.of(amount, Format.BINARY_SI if binary else Format.DECIMAL_SI))
