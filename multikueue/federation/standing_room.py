# SPDX-License-Identifier: Apache-2.0
"""What room a worker cluster has for one more workload, as the management cluster can know it.

Owns the sum of a cluster's report and of what was sent there. A report tells what is free and what is held for
assignments; both together are what assignments may use, however old the report is, for every assignment is written
here. So what is in flight is counted exactly once: from the moment it is decided until the cluster says that it ended.
The rest is an estimate: the cluster has the last word, and refuses what it cannot admit.

Not safe to be shared between tasks that await in the middle of a change, and no method here awaits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.core.selectors import NodeSelectorTerm, Requirement
from multikueue.core.taints import Toleration, tolerates
from multikueue.federation.ledger import Demand
from multikueue.federation.node_groups import NodeGroup, Room, group_of

_PODS: Final = "pods"
NODES: Final = "nodes"
"""What there is too little of where no node admits the pods, whatever their size."""
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})


class Level(IntEnum):
    """When a cluster could run a workload."""

    NEVER = 0
    LATER = 1
    NOW = 2


@dataclass(frozen=True, slots=True)
class Lack:
    """How much more of a resource would do, in the units of demands; 0 where no amount is missing.

    `on_one_node`: there is enough of it in all, and on no single node.
    """

    resource: str
    amount: int = 0
    on_one_node: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """When it could run there; of what there is too little; and the share that would be left free of the scarcest."""

    level: Level
    lacks: tuple[Lack, ...] = ()
    free_after: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a ClusterReport says that decides something."""

    groups: tuple[NodeGroup, ...] = ()
    varying: frozenset[str] = frozenset()
    kinds: frozenset[tuple[str, str]] = frozenset()
    queues: frozenset[Key] = frozenset()
    namespaces: frozenset[str] = frozenset()
    engine: str = ""
    pending: int = 0


def report_of(status: JsonObject) -> Report | None:
    """The report; None while the agent has written none, or is too old to tell of groups.

    Raises `BadInput` for an amount that is none: the API server's pattern lets some through, as `1e999`.
    """
    if status.get("groups") is None:
        return None
    return Report(
        groups=tuple(group_of(group) for group in status["groups"]),
        varying=frozenset(status.get("varying") or ()),
        kinds=frozenset((str(kind["apiVersion"]), str(kind["kind"])) for kind in status.get("kinds") or ()),
        queues=frozenset(
            Key(str(queue["namespace"]), str(queue["name"]))
            for queue in status.get("localQueues") or ()
            if queue.get("active", True)
        ),
        namespaces=frozenset(status.get("namespaces") or ()),
        engine=str(status.get("engine") or ""),
        pending=int(status.get("pending") or 0),
    )


_Shape = tuple[tuple[tuple[str, str], ...], tuple[NodeSelectorTerm, ...] | None, tuple[Toleration, ...]]


@dataclass(slots=True)
class StandingRoom:
    """The room of one cluster."""

    report: Report | None = None
    moved_at: datetime | None = None
    """When work last ended or left, as far as the hub knows: then what it believes of the room was right."""
    _held: dict[Key, tuple[Demand, ...]] = field(default_factory=dict)
    _sums: dict[_Shape, dict[str, int]] = field(default_factory=dict)
    _pools: dict[_Shape, frozenset[int]] = field(default_factory=dict)

    def replace(self, report: Report | None) -> bool:
        """A newer report; says whether it tells anything new."""
        if report == self.report:
            return False
        self.report = report
        self._pools.clear()
        return True

    @property
    def held(self) -> Iterable[Key]:
        """The workloads that room is counted for."""
        return self._held.keys()

    def hold(self, workload: Key, demands: tuple[Demand, ...]) -> None:
        """Count the workload as being there."""
        if self._held.get(workload) == demands:
            return
        self.release(workload)
        self._held[workload] = demands
        for demand in demands:
            _add(self._sums.setdefault(_shape(demand), {}), demand, 1)

    def release(self, workload: Key) -> bool:
        """Count it no more; says whether it was counted."""
        demands = self._held.pop(workload, None)
        for demand in demands or ():
            _add(self._sums[_shape(demand)], demand, -1)
        return demands is not None

    def fit(self, workload: Key, demands: tuple[Demand, ...]) -> Fit:
        """When the workload could run here, apart from what is counted for itself."""
        report = self.report
        if report is None:
            return Fit(Level.LATER)
        own = self._held.get(workload, ())
        level, lacks, free_after = Level.NOW, dict[str, Lack](), 1.0
        for demand in demands:
            if demand.count <= 0:
                continue
            pool = self._pool(_shape(demand))
            groups = [report.groups[position] for position in sorted(pool)]
            wanted, taken = self._wanted(pool, demands), self._taken(pool, own)
            if not any(_on_one_node(group, demand) for group in groups):
                return Fit(Level.NEVER, tuple(_too_large(groups, demand)))
            for resource, amount in wanted.items():
                rooms = [group.rooms.get(resource, _NONE) for group in groups]
                allocatable = sum(room.allocatable for room in rooms)
                if resource == _PODS and not allocatable:
                    continue  # nodes that do not say how many pods they take
                usable = sum(room.free + room.reserved for room in rooms) - taken.get(resource, 0)
                each = demand.requests.get(resource, 0)
                if amount > allocatable:
                    level, lack = Level.NEVER, Lack(resource, amount - allocatable)
                elif amount > usable:
                    level, lack = min(level, Level.LATER), Lack(resource, amount - usable)
                elif (slot := _slot(rooms, taken.get(resource, 0))) < each:
                    level, lack = min(level, Level.LATER), Lack(resource, each - slot, on_one_node=True)
                else:
                    if amount:
                        free_after = min(free_after, (usable - amount) / allocatable)
                    continue
                if resource not in lacks or lacks[resource].amount < lack.amount:
                    lacks[resource] = lack
        ordered = tuple(lacks[resource] for resource in sorted(lacks))
        return Fit(level, ordered, free_after if level is Level.NOW else 0.0)

    def _pool(self, shape: _Shape) -> frozenset[int]:
        found = self._pools.get(shape)
        if found is None:
            assert self.report is not None
            report = self.report
            found = self._pools[shape] = frozenset(
                position for position, group in enumerate(report.groups) if _admits(group, shape, report.varying)
            )
        return found

    def _wanted(self, pool: frozenset[int], demands: tuple[Demand, ...]) -> dict[str, int]:
        wanted: dict[str, int] = {}
        for demand in demands:
            if not pool.isdisjoint(self._pool(_shape(demand))):
                _add(wanted, demand, 1)
        return wanted

    def _taken(self, pool: frozenset[int], own: tuple[Demand, ...]) -> dict[str, int]:
        """What is counted on nodes that the pool shares; pods of another shape may be on any of them."""
        taken: dict[str, int] = {}
        for shape, amounts in self._sums.items():
            if not pool.isdisjoint(self._pool(shape)):
                for resource, amount in amounts.items():
                    taken[resource] = taken.get(resource, 0) + amount
        for demand in own:
            if not pool.isdisjoint(self._pool(_shape(demand))):
                _add(taken, demand, -1)
        return taken


_NONE: Final = Room()


def _shape(demand: Demand) -> _Shape:
    return tuple(sorted(demand.node_selector.items())), demand.affinity, demand.tolerations


def _add(target: dict[str, int], demand: Demand, sign: int) -> None:
    for resource, amount in demand.requests.items():
        target[resource] = target.get(resource, 0) + sign * amount * demand.count
    target[_PODS] = target.get(_PODS, 0) + sign * demand.count


def _on_one_node(group: NodeGroup, demand: Demand) -> bool:
    return all(amount <= group.rooms.get(resource, _NONE).largest for resource, amount in demand.requests.items())


def _too_large(groups: list[NodeGroup], demand: Demand) -> Iterable[Lack]:
    if not groups:
        yield Lack(NODES)
        return
    for resource, amount in sorted(demand.requests.items()):
        largest = max(group.rooms.get(resource, _NONE).largest for group in groups)
        if amount > largest:
            yield Lack(resource, amount - largest, on_one_node=True)


def _slot(rooms: list[Room], taken: int) -> int:
    """How large a pod finds a node: the emptiest was told, and may be emptier by what ended since."""
    ended = max(0, sum(room.reserved for room in rooms) - taken)
    return max((min(room.largest, room.largest_free + ended) for room in rooms), default=0)


def _admits(group: NodeGroup, shape: _Shape, varying: frozenset[str]) -> bool:
    selector, affinity, tolerations = shape
    labels: Mapping[str, str] = group.labels
    if any(key not in varying and labels.get(key) != value for key, value in selector):
        return False
    if affinity is not None and not any(_may_match(term, labels, varying) for term in affinity):
        return False
    return all(taint.effect not in _REPELLING or tolerates(tolerations, taint) for taint in group.taints)


def _may_match(term: NodeSelectorTerm, labels: Mapping[str, str], varying: frozenset[str]) -> bool:
    known: list[Requirement] = [item for item in term.expressions if item.key not in varying]
    return bool(term.expressions or term.fields) and all(item.matches(labels) for item in known)
