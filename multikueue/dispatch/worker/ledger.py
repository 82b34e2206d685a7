# SPDX-License-Identifier: Apache-2.0
"""The capacity of a worker's nodes: what is used, what is reserved, and whether one more job fits.

Replaces a queueing engine on a worker without one. Counts requests against allocatable, respects node selectors,
required affinity and taints, and places reserved pods on nodes, so that a reservation is never a sum that no node can
hold. A reservation shrinks as its pods are bound. It is an estimate: the scheduler of the worker decides.

Amounts are integers: thousandths for cpu, units for everything else. Not safe for concurrent tasks that await during a
change; no method here awaits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from multikueue.core.quantity import Format, Quantity
from multikueue.core.selectors import NodeSelectorTerm
from multikueue.core.taints import Taint, Toleration, untolerated

Vector = Mapping[str, int]
PODS: Final = "pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node; `ready`: it is ready and not cordoned."""

    name: str
    allocatable: Vector
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """A pod that is bound to a node and has not ended; `owner` is the reservation it uses, if any."""

    node: str
    requests: Vector
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPlacement:
    """The node selector and tolerations that the template of a job has itself."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """`count` equal pods and where they may go; `affinity` of None is no required affinity.

    `asked` is the placement before flavors of the hub added theirs, since the queues of a worker choose among flavors
    of their own; None if nothing was added. `topology`: its pods request a topology. `quota` is what each of the pods
    needs of queues and not of nodes: devices that it claims, and what its requests were transformed to.
    """

    count: int
    requests: Vector
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    quota: Vector = field(default_factory=dict)
    asked: AskedPlacement | None = None
    topology: bool = False

    @property
    def of_queues(self) -> AskedPlacement:
        """What a queue of a worker sees."""
        return self.asked or AskedPlacement(node_selector=self.node_selector, tolerations=self.tolerations)


@dataclass(frozen=True, slots=True)
class Shortage:
    """A demand that does not fit: how many of its pods fit, and why not more."""

    fitting: int
    wanted: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """A node, its free capacity, and the part that is reserved or used by the owners of reservations."""

    node: NodeFacts
    free: Vector
    reserved: Vector


@dataclass(slots=True)
class _Slots:
    """Capacity for a number of equal pods on one node."""

    node: str
    demand: Demand
    count: int


@dataclass(slots=True)
class _Reservation:
    demands: tuple[Demand, ...]
    slots: list[_Slots]

    @property
    def wanted(self) -> int:
        return sum(demand.count for demand in self.demands)

    @property
    def held(self) -> int:
        """The number of pods for which capacity is held."""
        return sum(slots.count for slots in self.slots)


class Ledger:
    """The ledger of one cluster."""

    __slots__ = ("_bound", "_nodes", "_pods", "_reservations", "_reserved", "_used")

    def __init__(self) -> None:
        self._nodes: dict[str, NodeFacts] = {}
        self._pods: dict[str, PodFacts] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._reserved: dict[str, dict[str, int]] = {}
        self._reservations: dict[str, _Reservation] = {}
        self._bound: Counter[str] = Counter()

    def set_node(self, node: NodeFacts) -> None:
        """A node was added or changed; a node that is not ready loses its reservations."""
        self._nodes[node.name] = node
        if not node.ready:
            self._drop_node(node.name)

    def remove_node(self, name: str) -> None:
        """A node was removed, with its reservations."""
        if self._nodes.pop(name, None) is not None:
            self._drop_node(name)

    def set_pod(self, key: str, pod: PodFacts) -> None:
        """A pod was bound. It uses a slot of its owner's reservation, on its own node if there is one."""
        old = self._pods.get(key)
        if old == pod:
            return
        if old is not None:
            self.remove_pod(key)
        self._pods[key] = pod
        _add(self._used.setdefault(pod.node, {}), pod.requests, 1)
        if pod.owner:
            self._bound[pod.owner] += 1
            self._shrink(pod.owner, prefer=pod.node)

    def remove_pod(self, key: str) -> None:
        """A pod ended or was deleted; its owner's reservation does not grow again, since a successor is uncertain."""
        pod = self._pods.pop(key, None)
        if pod is None:
            return
        _add(self._used[pod.node], pod.requests, -1)
        if pod.owner:
            self._bound[pod.owner] -= 1
            if not self._bound[pod.owner]:
                del self._bound[pod.owner]

    def reserve(self, owner: str, demands: tuple[Demand, ...]) -> Shortage | None:
        """Reserve capacity for all of `demands`, or for nothing. Returns None if it is reserved."""
        known = self._reservations.get(owner)
        if known is not None:
            if known.demands == demands and self.holds(owner):
                return None
            self.release(owner)
        reservation = _Reservation(demands=demands, slots=[])
        missing = reservation.wanted - self._bound[owner]
        for demand in demands:
            wanted = max(0, min(demand.count, missing))
            missing -= wanted
            placed = list(self._place(demand, wanted))
            reservation.slots += placed
            fitting = sum(slots.count for slots in placed)
            if fitting < wanted:
                for slots in reservation.slots:
                    self._free(slots, slots.count)
                return Shortage(fitting + demand.count - wanted, demand.count, self._explain(demand))
        self._reservations[owner] = reservation
        return None

    def release(self, owner: str) -> None:
        """Release the reservation of `owner`."""
        reservation = self._reservations.pop(owner, None)
        if reservation is not None:
            for slots in reservation.slots:
                self._free(slots, slots.count)

    def holds(self, owner: str) -> bool:
        """Whether the whole reservation is held or in use."""
        reservation = self._reservations.get(owner)
        return reservation is not None and self._bound[owner] + reservation.held >= reservation.wanted

    @property
    def owners(self) -> Iterable[str]:
        """The owners of reservations."""
        return self._reservations.keys()

    @property
    def ready_nodes(self) -> int:
        """How many nodes can take pods."""
        return sum(node.ready for node in self._nodes.values())

    @property
    def total_nodes(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    def capacities(self) -> Iterator[NodeCapacity]:
        """Every node with its capacity."""
        reserved: dict[str, dict[str, int]] = {name: dict(held) for name, held in self._reserved.items()}
        for pod in self._pods.values():
            if pod.owner in self._reservations:
                _add(reserved.setdefault(pod.node, {}), pod.requests, 1)
        for name, node in self._nodes.items():
            free = {
                resource: max(0, amount - self._taken(name, resource)) for resource, amount in node.allocatable.items()
            }
            yield NodeCapacity(node=node, free=free, reserved=reserved.get(name, _EMPTY))

    def _place(self, demand: Demand, count: int) -> Iterator[_Slots]:
        if count <= 0:
            return
        nodes = [node for node in self._nodes.values() if node.ready and _admits(node, demand)]
        # Emptiest first, as a scheduler with default scoring does, so that the estimate fragments nodes in the same
        # way.
        nodes.sort(key=lambda node: (-self._free_slots(node, demand), node.name))
        for node in nodes:
            taken = min(count, self._free_slots(node, demand))
            if taken:
                count -= taken
                _add(self._reserved.setdefault(node.name, {}), demand.requests, taken)
                yield _Slots(node.name, demand, taken)
            if count <= 0:
                return

    def _free_slots(self, node: NodeFacts, demand: Demand) -> int:
        capacity = node.allocatable.get(PODS, _MANY) - self._taken(node.name, PODS)
        for resource, amount in demand.requests.items():
            if amount > 0:
                capacity = min(
                    capacity, (node.allocatable.get(resource, 0) - self._taken(node.name, resource)) // amount
                )
        return max(0, capacity)

    def _taken(self, node: str, resource: str) -> int:
        return self._used.get(node, _EMPTY).get(resource, 0) + self._reserved.get(node, _EMPTY).get(resource, 0)

    def _explain(self, demand: Demand) -> str:
        ready = [node for node in self._nodes.values() if node.ready]
        admitting = [node for node in ready if _admits(node, demand)]
        if not ready:
            return "no node is ready"
        if not admitting:
            return f"none of {len(ready)} ready nodes matches the node selector, affinity and tolerations"
        short = []
        for resource, amount in sorted(demand.requests.items()):
            largest = max(node.allocatable.get(resource, 0) - self._taken(node.name, resource) for node in admitting)
            if amount > largest:
                wanted, free = amount_text(resource, amount), amount_text(resource, largest)
                short.append(f"{resource}: {wanted} requested, at most {free} free")
        return "; ".join(short) or f"insufficient free capacity on {len(admitting)} nodes for all pods at once"

    def _shrink(self, owner: str, *, prefer: str) -> None:
        reservation = self._reservations.get(owner)
        if reservation is None:
            return
        while reservation.slots and self._bound[owner] + reservation.held > reservation.wanted:
            position = next((i for i, slots in enumerate(reservation.slots) if slots.node == prefer), 0)
            slots = reservation.slots[position]
            self._free(slots, 1)
            slots.count -= 1
            if not slots.count:
                reservation.slots.pop(position)

    def _drop_node(self, node: str) -> None:
        for reservation in self._reservations.values():
            kept = [slots for slots in reservation.slots if slots.node != node]
            if len(kept) != len(reservation.slots):
                reservation.slots = kept
        self._reserved.pop(node, None)

    def _free(self, slots: _Slots, count: int) -> None:
        reserved = self._reserved.get(slots.node)
        if reserved is not None:
            _add(reserved, slots.demand.requests, -count)


_EMPTY: Final[Vector] = {}
_MANY: Final = 1 << 62  # the node reports no pod limit


def _admits(node: NodeFacts, demand: Demand) -> bool:
    if any(node.labels.get(key) != value for key, value in demand.node_selector.items()):
        return False
    if demand.affinity is not None:
        fields = {"metadata.name": node.name}
        if not any(term.matches(node.labels, fields) for term in demand.affinity):
            return False
    return untolerated(node.taints, demand.tolerations) is None


def _add(target: dict[str, int], amounts: Vector, pods: int) -> None:
    """Add the amounts of `pods` pods, or subtract them if negative."""
    for resource, amount in amounts.items():
        target[resource] = target.get(resource, 0) + pods * amount
    target[PODS] = target.get(PODS, 0) + pods


def amount_text(resource: str, amount: int) -> str:
    """An amount of a demand as a quantity."""
    if resource == "cpu":
        return str(Quantity.of_milli(amount))
    binary = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    return str(Quantity.of(amount, Format.BINARY_SI if binary else Format.DECIMAL_SI))
