# SPDX-License-Identifier: Apache-2.0
"""The capacity of a worker cluster for one more workload, as the hub knows it.

A report has what is free and what is reserved for assignments; together that is what assignments may use, however old
the report is, since every assignment is created here. So each one is counted exactly once, from the decision until the
cluster reports its end. The result is an estimate: the cluster decides, and refuses what it cannot admit.

Not safe for concurrent tasks that await during a change; no method here awaits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.core.printable import printable
from multikueue.core.selectors import NodeSelectorTerm, Requirement
from multikueue.core.taints import Toleration, untolerated
from multikueue.dispatch.protocol.queue_quota import (
    ClusterQueueReport,
    FlavorReport,
    LocalQueueReport,
    cluster_queues_of,
    flavors_of,
    local_queues_of,
)
from multikueue.dispatch.worker.ledger import Demand
from multikueue.dispatch.worker.node_groups import AggregateCapacity, CapacityGroup, group_of

_PODS: Final = "pods"
NODES: Final = "nodes"
"""The resource of a `Lack` if no node matches the pods, whatever their size."""
FLAVORS: Final = "flavors"
"""The resource of a `Lack` if no flavor of the queue matches the pods, whatever their size."""


class Level(IntEnum):
    """When a cluster could run a workload."""

    NEVER = 0
    LATER = 1
    NOW = 2


@dataclass(frozen=True, slots=True)
class Lack:
    """The missing amount of a resource, in the units of demands; 0 if no amount is missing.

    `on_one_node`: there is enough in total, but not on any single node.
    """

    resource: str
    amount: int = 0
    on_one_node: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """When it could run there, what is missing, and the share of the scarcest resource that would stay free.

    If a queue of the cluster decides, `queue` describes it with its free quota. `nodes_now`: the nodes have free
    capacity too; `preempts`: the queue may preempt; `asks_first`: free quota alone does not admit.
    """

    level: Level
    lacks: tuple[Lack, ...] = ()
    free_after: float = 0.0
    queue: str = ""
    nodes_now: bool = True
    preempts: bool = False
    asks_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The decoded status of a ClusterReport; `nodes` includes those that are not ready."""

    groups: tuple[CapacityGroup, ...] = ()
    varying: frozenset[str] = frozenset()
    nodes: int = 0
    kinds: frozenset[tuple[str, str]] | None = None
    """apiVersion and kind of the jobs that the agent serves; None if it is too old to list them."""
    local_queues: Mapping[Key, LocalQueueReport] = field(default_factory=dict)
    cluster_queues: Mapping[str, ClusterQueueReport] = field(default_factory=dict)
    """Those that LocalQueues point to, if their quota was reported."""
    flavors: Mapping[str, FlavorReport] = field(default_factory=dict)
    """Their flavors, if the agent may read them."""
    namespaces: frozenset[str] = frozenset()
    engine: str = ""
    pending: int = 0
    provisioning: str | None = None
    """Why the agent cannot provision capacity, empty if it can; None if it does not know of that."""
    dependency_kinds: frozenset[str] = frozenset()
    """The kinds of objects that the agent looks for before it takes a job whose pods need them."""

    @property
    def shows_nodes(self) -> bool:
        """Whether it has any nodes; none if a pool is scaled to zero, or if the agent may not list nodes."""
        return bool(self.groups) or self.nodes > 0


def report_of(status: JsonObject) -> Report | None:
    """The report; None if the agent has written none, or is too old to report kinds or groups.

    Raises `BadInput` for an invalid amount; the schema accepts some, such as `1e999`.
    """
    kinds = status.get("kinds")
    if status.get("groups") is None and kinds is None:
        return None
    nodes: JsonObject = status.get("nodes") or {}
    return Report(
        groups=tuple(group_of(group) for group in status.get("groups") or ()),
        varying=frozenset(status.get("varying") or ()),
        nodes=parse_unsigned(nodes.get("total") or 0, field="status.nodes.total", maximum=MAX_INT32),
        kinds=None if kinds is None else frozenset((str(kind["apiVersion"]), str(kind["kind"])) for kind in kinds),
        local_queues=local_queues_of(status),
        cluster_queues=cluster_queues_of(status),
        flavors=flavors_of(status),
        namespaces=frozenset(status.get("namespaces") or ()),
        engine=str(status.get("engine") or ""),
        pending=parse_unsigned(status.get("pending") or 0, field="status.pending"),
        provisioning=_provisioning_problem(status),
        dependency_kinds=frozenset(status.get("dependencyKinds") or ()),
    )


def _provisioning_problem(status: JsonObject) -> str | None:
    reported = status.get("provisioning")
    return printable(str(reported.get("problem") or "")) if isinstance(reported, dict) else None


_Shape = tuple[tuple[tuple[str, str], ...], tuple[NodeSelectorTerm, ...] | None, tuple[Toleration, ...]]


@dataclass(slots=True)
class ClusterCapacity:
    """The capacity of one cluster."""

    report: Report | None = None
    freed_at: datetime | None = None
    """When work last ended or left there, which shows that the report was right."""
    _held: dict[Key, tuple[Demand, ...]] = field(default_factory=dict)
    _queues: dict[Key, Key] = field(default_factory=dict)
    """The LocalQueue of each counted workload."""
    _by_queue: dict[Key, dict[str, int]] = field(default_factory=dict)
    _sums: dict[_Shape, dict[str, int]] = field(default_factory=dict)
    _pools: dict[_Shape, frozenset[int]] = field(default_factory=dict)

    def replace(self, report: Report | None) -> bool:
        """Take a newer report. Returns whether it differs."""
        if report == self.report:
            return False
        self.report = report
        self._pools.clear()
        return True

    @property
    def held(self) -> Iterable[Key]:
        """The workloads that are counted here."""
        return self._held.keys()

    def queue_of(self, workload: Key) -> Key | None:
        """The LocalQueue in which the workload is counted."""
        return self._queues.get(workload)

    def hold(self, workload: Key, demands: tuple[Demand, ...], *, queue: Key | None = None) -> None:
        """Count the workload, in the LocalQueue `queue` if the cluster has it."""
        if self._held.get(workload) == demands and self._queues.get(workload) == queue:
            return
        self.release(workload)
        self._held[workload] = demands
        if queue is not None:
            self._queues[workload] = queue
        for demand in demands:
            _add(self._sums.setdefault(_shape(demand), {}), demand, 1)
            if queue is not None:
                _add_quota(self._by_queue.setdefault(queue, {}), demand, 1)

    def release(self, workload: Key) -> bool:
        """Stop counting it. Returns whether it was counted."""
        demands = self._held.pop(workload, None)
        queue = self._queues.pop(workload, None)
        for demand in demands or ():
            _add(self._sums[_shape(demand)], demand, -1)
            if queue is not None:
                # It may be gone: of a queue in which no amount is left, or was ever counted.
                _add_quota(self._by_queue.setdefault(queue, {}), demand, -1)
        if queue is not None and not any(self._by_queue.get(queue, {}).values()):
            self._by_queue.pop(queue, None)
        return demands is not None

    def held_by_cluster_queue(self, *, apart_from: Key) -> dict[str, dict[str, int]]:
        """What is counted for each ClusterQueue of the report, by its name and resource."""
        found: dict[str, dict[str, int]] = {}
        if self.report is None:
            return found
        own = self._queues.get(apart_from)
        for queue, amounts in self._by_queue.items():
            local = self.report.local_queues.get(queue)
            if local is None:
                continue
            total = found.setdefault(local.cluster_queue, {})
            for resource, amount in amounts.items():
                total[resource] = total.get(resource, 0) + amount
            if queue == own:
                for demand in self._held[apart_from]:
                    _add_quota(total, demand, -1)
        return found

    def fit(self, workload: Key, demands: tuple[Demand, ...]) -> Fit:
        """When the workload could run here, ignoring what is counted for itself."""
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
                capacities = [group.capacities.get(resource, _NONE) for group in groups]
                allocatable = sum(capacity.allocatable for capacity in capacities)
                if resource == _PODS and not allocatable:
                    continue  # the nodes do not report a pod limit
                usable = sum(capacity.free + capacity.reserved for capacity in capacities) - taken.get(resource, 0)
                each = demand.requests.get(resource, 0)
                if amount > allocatable:
                    level, lack = Level.NEVER, Lack(resource, amount - allocatable)
                elif amount > usable:
                    level, lack = min(level, Level.LATER), Lack(resource, amount - usable)
                elif (slot := _slot(capacities, taken.get(resource, 0))) < each:
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
        """What is counted on nodes of the pool; pods of another shape may be on any of them."""
        taken: dict[str, int] = {}
        for shape, amounts in self._sums.items():
            if not pool.isdisjoint(self._pool(shape)):
                for resource, amount in amounts.items():
                    taken[resource] = taken.get(resource, 0) + amount
        for demand in own:
            if not pool.isdisjoint(self._pool(_shape(demand))):
                _add(taken, demand, -1)
        return taken


_NONE: Final = AggregateCapacity()


def _shape(demand: Demand) -> _Shape:
    return tuple(sorted(demand.node_selector.items())), demand.affinity, demand.tolerations


def _add(target: dict[str, int], demand: Demand, sign: int) -> None:
    for resource, amount in demand.requests.items():
        target[resource] = target.get(resource, 0) + sign * amount * demand.count
    target[_PODS] = target.get(_PODS, 0) + sign * demand.count


def _add_quota(target: dict[str, int], demand: Demand, sign: int) -> None:
    """The same with what only queues count."""
    _add(target, demand, sign)
    for resource, amount in demand.quota.items():
        target[resource] = target.get(resource, 0) + sign * amount * demand.count


def _on_one_node(group: CapacityGroup, demand: Demand) -> bool:
    return all(amount <= group.capacities.get(resource, _NONE).largest for resource, amount in demand.requests.items())


def _too_large(groups: list[CapacityGroup], demand: Demand) -> Iterable[Lack]:
    if not groups:
        yield Lack(NODES)
        return
    for resource, amount in sorted(demand.requests.items()):
        largest = max(group.capacities.get(resource, _NONE).largest for group in groups)
        if amount > largest:
            yield Lack(resource, amount - largest, on_one_node=True)


def _slot(capacities: list[AggregateCapacity], taken: int) -> int:
    """The largest pod that fits on one node; the emptiest node may have gained what ended since the report."""
    ended = max(0, sum(capacity.reserved for capacity in capacities) - taken)
    return max((min(capacity.largest, capacity.largest_free + ended) for capacity in capacities), default=0)


def _admits(group: CapacityGroup, shape: _Shape, varying: frozenset[str]) -> bool:
    selector, affinity, tolerations = shape
    labels: Mapping[str, str] = group.labels
    if any(key not in varying and labels.get(key) != value for key, value in selector):
        return False
    if affinity is not None and not any(_may_match(term, labels, varying) for term in affinity):
        return False
    return untolerated(group.taints, tolerations) is None


def _may_match(term: NodeSelectorTerm, labels: Mapping[str, str], varying: frozenset[str]) -> bool:
    known: list[Requirement] = [item for item in term.expressions if item.key not in varying]
    return bool(term.expressions or term.fields) and all(item.matches(labels) for item in known)
