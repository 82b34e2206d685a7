# SPDX-License-Identifier: Apache-2.0
"""The queues of a worker cluster as its ClusterReport has them: LocalQueues, the quota behind them, and its flavors.

Owns the values and their JSON. Amounts are those of demands: thousandths for cpu, units for everything else. What was
sent to a ClusterQueue since the report is in `cluster_capacity`; whether a workload fits is decided in `queue_fit`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.core.taints import Taint, Toleration
from multikueue.dispatch.worker.demands import amounts
from multikueue.dispatch.worker.ledger import amount_text

MAX_REASON: Final = 256
"""Maximum characters of the reason why a LocalQueue is not active."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueueReport:
    """A LocalQueue of a worker; `reason` is why it is not active."""

    active: bool = True
    reason: str = ""
    cluster_queue: str = ""
    """Empty if the agent is too old to report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorQuotaReport:
    """One resource of one flavor of a ClusterQueue.

    `free` can be used now without preemption; `borrowable` is the borrowed part of it. `reserved` is the part of `used`
    that is held by assignments of this hub. `capacity` is the most it could ever have.
    """

    nominal: int = 0
    used: int = 0
    free: int = 0
    borrowable: int = 0
    reserved: int = 0
    capacity: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorReport:
    """Which pods a ResourceFlavor of a worker is for.

    That is, the labels and taints of its nodes, what it tolerates for all pods, and whether pods are placed on them by
    a topology.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueueReport:
    """A ClusterQueue of a worker.

    Queues with the same root `cohort` borrow from each other. `preempts`: it may preempt other workloads;
    `admission_checks`: it admits only when its checks are Ready, however much quota is free.
    """

    name: str
    cohort: str = ""
    preempts: bool = False
    admission_checks: bool = False
    flavors: Mapping[str, Mapping[str, FlavorQuotaReport]] = field(default_factory=dict)
    """By flavor and resource, in the order of the queue."""

    def resource(self, name: str, *, of: Container[str] | None = None) -> tuple[FlavorQuotaReport, ...]:
        """The quota of one resource by flavor, of these or all; empty if none of them covers it."""
        return tuple(
            cells[name] for flavor, cells in self.flavors.items() if name in cells and (of is None or flavor in of)
        )


def local_queues_of(status: JsonObject) -> dict[Key, LocalQueueReport]:
    """The LocalQueues of a report."""
    return {
        Key(str(queue["namespace"]), str(queue["name"])): LocalQueueReport(
            active=bool(queue.get("active", True)),
            reason=str(queue.get("reason") or ""),
            cluster_queue=str(queue.get("clusterQueue") or ""),
        )
        for queue in status.get("localQueues") or ()
    }


def cluster_queues_of(status: JsonObject) -> dict[str, ClusterQueueReport]:
    """The ClusterQueues of a report. Raises `BadInput` for an invalid amount."""
    return {str(queue["name"]): _cluster_queue(queue) for queue in status.get("clusterQueues") or ()}


def flavors_of(status: JsonObject) -> dict[str, FlavorReport]:
    """The flavors of a report by name."""
    return {
        str(flavor["name"]): FlavorReport(
            labels={str(key): str(value) for key, value in (flavor.get("nodeLabels") or {}).items()},
            taints=tuple(
                Taint(str(taint["key"]), str(taint.get("value") or ""), str(taint.get("effect") or ""))
                for taint in flavor.get("nodeTaints") or ()
            ),
            tolerations=tuple(
                Toleration(**{name: str(entry.get(name) or "") for name in _TOLERATION})
                for entry in flavor.get("tolerations") or ()
            ),
            topology=bool(flavor.get("topology")),
        )
        for flavor in status.get("flavors") or ()
    }


def flavor_wire(name: str, flavor: FlavorReport) -> JsonObject:
    """The flavor as JSON of a report; what is empty is omitted."""
    wire: JsonObject = {"name": name}
    if flavor.labels:
        wire["nodeLabels"] = dict(flavor.labels)
    if flavor.taints:
        wire["nodeTaints"] = [
            _stated({"key": taint.key, "value": taint.value, "effect": taint.effect}) for taint in flavor.taints
        ]
    if flavor.tolerations:
        wire["tolerations"] = [
            _stated({name: getattr(entry, name) for name in _TOLERATION}) for entry in flavor.tolerations
        ]
    if flavor.topology:
        wire["topology"] = True
    return wire


_TOLERATION: Final = ("key", "operator", "value", "effect")


def _stated(fields: Mapping[str, str]) -> JsonObject:
    return {name: value for name, value in fields.items() if value}


def cluster_queue_wire(queue: ClusterQueueReport) -> JsonObject:
    """The queue as JSON of a report; zero and false are omitted."""
    wire: JsonObject = {"name": queue.name}
    if queue.cohort:
        wire["cohort"] = queue.cohort
    if queue.preempts:
        wire["preempts"] = True
    if queue.admission_checks:
        wire["admissionChecks"] = True
    wire["flavors"] = [
        {"name": flavor, "resources": [_cell_wire(name, cell) for name, cell in cells.items()]}
        for flavor, cells in queue.flavors.items()
    ]
    return wire


_FIELDS: Final = ("nominal", "used", "free", "borrowable", "reserved", "capacity")


def _cell_wire(resource: str, cell: FlavorQuotaReport) -> JsonObject:
    stated = ((name, getattr(cell, name)) for name in _FIELDS)
    return {"name": resource} | {name: amount_text(resource, amount) for name, amount in stated if amount}


def _cluster_queue(wire: JsonObject) -> ClusterQueueReport:
    name = str(wire["name"])
    return ClusterQueueReport(
        name=name,
        cohort=str(wire.get("cohort") or ""),
        preempts=bool(wire.get("preempts")),
        admission_checks=bool(wire.get("admissionChecks")),
        flavors={
            str(flavor["name"]): _cells(flavor.get("resources") or (), queue=name)
            for flavor in wire.get("flavors") or ()
        },
    )


def _cells(entries: Iterable[JsonObject], *, queue: str) -> dict[str, FlavorQuotaReport]:
    return {str(entry["name"]): _cell(entry, queue=queue) for entry in entries}


def _cell(entry: JsonObject, *, queue: str) -> FlavorQuotaReport:
    resource = str(entry["name"])
    try:
        # Only a foreign agent would report negative free quota.
        found = {name: max(0, amounts({resource: entry.get(name) or 0})[resource]) for name in _FIELDS}
    except BadInput as error:
        raise BadInput(f"status.clusterQueues[{excerpt(queue)}].{excerpt(resource)}: {error}") from error
    return FlavorQuotaReport(**found)
