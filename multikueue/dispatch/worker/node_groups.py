# SPDX-License-Identifier: Apache-2.0
"""The nodes of a cluster as a few groups, so that the report of any cluster is small.

Owns the grouping by labels and taints, and its JSON in a ClusterReport. Flavors belong to the hub, which finds the
groups that match a flavor. A label that would create too many groups is omitted and listed as varying; a demand on it
counts as possible, since only the cluster can decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_unsigned
from multikueue.core.printable import excerpt
from multikueue.core.taints import Taint
from multikueue.dispatch.worker.demands import amounts
from multikueue.dispatch.worker.ledger import NodeCapacity, amount_text

MAX_GROUPS: Final = 32
_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCapacity:
    """One resource on a group of nodes: in total, free, reserved for assignments, and the maximum on one node."""

    allocatable: int = 0
    free: int = 0
    reserved: int = 0
    largest_free: int = 0
    largest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityGroup:
    """Ready nodes that the same pods may run on."""

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    nodes: int = 1
    capacities: Mapping[str, AggregateCapacity] = field(default_factory=dict)


def grouped(nodes: Iterable[NodeCapacity]) -> tuple[tuple[CapacityGroup, ...], tuple[str, ...]]:
    """The groups, and the labels that were omitted."""
    ready = [capacity for capacity in nodes if capacity.node.ready]
    varying = {HOSTNAME_LABEL}
    while True:
        found: dict[tuple[_Labels, tuple[Taint, ...]], list[NodeCapacity]] = {}
        for capacity in ready:
            labels = tuple(sorted(item for item in capacity.node.labels.items() if item[0] not in varying))
            found.setdefault((labels, capacity.node.taints), []).append(capacity)
        if len(found) <= MAX_GROUPS:
            break
        most = _most_different(label for labels, _ in found for label in labels)
        if most is None:
            break  # they differ only by taints: the first groups are reported
        varying.add(most)
    groups = tuple(
        CapacityGroup(labels=dict(labels), taints=taints, nodes=len(capacities), capacities=_together(capacities))
        for (labels, taints), capacities in list(found.items())[:MAX_GROUPS]
    )
    return groups, tuple(sorted(varying))


def group_wire(group: CapacityGroup) -> JsonObject:
    """The group as JSON of a report."""
    return {
        "labels": dict(group.labels),
        "taints": [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in group.taints],
        "nodes": group.nodes,
        "capacity": [capacity_wire(name, capacity) for name, capacity in sorted(group.capacities.items())],
    }


def capacity_wire(name: str, capacity: AggregateCapacity) -> JsonObject:
    """One resource as JSON of a report."""
    return {
        "name": name,
        "allocatable": amount_text(name, capacity.allocatable),
        "free": amount_text(name, capacity.free),
        "largestFree": amount_text(name, capacity.largest_free),
        "reserved": amount_text(name, capacity.reserved),
        "largest": amount_text(name, capacity.largest),
    }


def group_of(wire: JsonObject) -> CapacityGroup:
    """A group of a report."""
    capacities: dict[str, AggregateCapacity] = {}
    for item in wire.get("capacity") or ():
        name = str(item["name"])
        capacity = {key: _amount(name, key, item.get(key) or 0) for key in _FIELDS}
        capacities[name] = AggregateCapacity(
            allocatable=capacity["allocatable"],
            free=capacity["free"],
            reserved=capacity["reserved"],
            largest_free=capacity["largestFree"],
            largest=capacity["largest"],
        )
    return CapacityGroup(
        labels=wire.get("labels") or {},
        taints=tuple(
            Taint(key=taint["key"], value=taint.get("value", ""), effect=taint["effect"])
            for taint in wire.get("taints") or ()
        ),
        nodes=parse_unsigned(wire.get("nodes") or 0, field="status.groups.nodes"),
        capacities=capacities,
    )


def _amount(resource: str, field: str, value: object) -> int:
    try:
        return amounts({resource: value})[resource]
    except BadInput as error:
        raise BadInput(f"status.groups.capacity[{excerpt(resource)}].{field}: {error}") from error


def total(groups: Iterable[CapacityGroup]) -> dict[str, AggregateCapacity]:
    """Each resource over all groups."""
    summed: dict[str, AggregateCapacity] = {}
    for group in groups:
        for name, capacity in group.capacities.items():
            summed[name] = _add(summed.get(name, AggregateCapacity()), capacity)
    return summed


_FIELDS: Final = ("allocatable", "free", "largestFree", "reserved", "largest")


def _together(nodes: list[NodeCapacity]) -> dict[str, AggregateCapacity]:
    summed: dict[str, AggregateCapacity] = {}
    for each in nodes:
        for name, amount in each.node.allocatable.items():
            free = each.free.get(name, 0)
            capacity = AggregateCapacity(
                allocatable=amount,
                free=free,
                reserved=each.reserved.get(name, 0),
                largest_free=free,
                largest=amount,
            )
            summed[name] = _add(summed.get(name, AggregateCapacity()), capacity)
    return summed


def _add(one: AggregateCapacity, other: AggregateCapacity) -> AggregateCapacity:
    return AggregateCapacity(
        allocatable=one.allocatable + other.allocatable,
        free=one.free + other.free,
        reserved=one.reserved + other.reserved,
        largest_free=max(one.largest_free, other.largest_free),
        largest=max(one.largest, other.largest),
    )


def _most_different(labels: Iterable[tuple[str, str]]) -> str | None:
    values: dict[str, set[str]] = {}
    for key, value in labels:
        values.setdefault(key, set()).add(value)
    # Omitting a label that is the same everywhere merges no groups.
    return max(
        (key for key, found in values.items() if len(found) > 1), key=lambda key: (len(values[key]), key), default=None
    )
