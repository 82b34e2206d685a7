# SPDX-License-Identifier: Apache-2.0
"""A cluster's nodes as a few groups, so that a report of any cluster is small.

Owns the grouping by labels and taints, and its JSON in a ClusterReport. Flavors are the hub's: it finds the groups that
a flavor's labels and tolerations lead to. A label that would make too many groups is left out and named as varying; a
demand on it counts as possible, for nobody but the cluster can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.api.meta import JsonObject
from multikueue.core.taints import Taint
from multikueue.federation.demands import amounts
from multikueue.federation.ledger import NodeRoom, amount_text

MAX_GROUPS: Final = 32
_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """One resource on a group of nodes: in all, free, held for assignments, and on one node at most."""

    allocatable: int = 0
    free: int = 0
    reserved: int = 0
    largest_free: int = 0
    largest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Ready nodes that the same pods may go to."""

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    nodes: int = 1
    rooms: Mapping[str, Room] = field(default_factory=dict)


def grouped(nodes: Iterable[NodeRoom]) -> tuple[tuple[NodeGroup, ...], tuple[str, ...]]:
    """The groups, and the labels that were left out."""
    ready = [room for room in nodes if room.node.ready]
    varying = {HOSTNAME_LABEL}
    while True:
        found: dict[tuple[_Labels, tuple[Taint, ...]], list[NodeRoom]] = {}
        for room in ready:
            labels = tuple(sorted(item for item in room.node.labels.items() if item[0] not in varying))
            found.setdefault((labels, room.node.taints), []).append(room)
        if len(found) <= MAX_GROUPS:
            break
        most = _most_different(label for labels, _ in found for label in labels)
        if most is None:
            break  # they differ by taints only; the first groups are told, the rest of the cluster is more than told
        varying.add(most)
    groups = tuple(
        NodeGroup(labels=dict(labels), taints=taints, nodes=len(rooms), rooms=_together(rooms))
        for (labels, taints), rooms in list(found.items())[:MAX_GROUPS]
    )
    return groups, tuple(sorted(varying))


def group_wire(group: NodeGroup) -> JsonObject:
    """The group as a report has it."""
    return {
        "labels": dict(group.labels),
        "taints": [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in group.taints],
        "nodes": group.nodes,
        "capacity": [capacity_wire(name, room) for name, room in sorted(group.rooms.items())],
    }


def capacity_wire(name: str, room: Room) -> JsonObject:
    """One resource as a report has it."""
    return {
        "name": name,
        "allocatable": amount_text(name, room.allocatable),
        "free": amount_text(name, room.free),
        "largestFree": amount_text(name, room.largest_free),
        "reserved": amount_text(name, room.reserved),
        "largest": amount_text(name, room.largest),
    }


def group_of(wire: JsonObject) -> NodeGroup:
    """The group that a report tells."""
    rooms: dict[str, Room] = {}
    for item in wire.get("capacity") or ():
        name = str(item["name"])
        room = {key: amounts({name: item.get(key) or 0})[name] for key in _FIELDS}
        rooms[name] = Room(
            allocatable=room["allocatable"],
            free=room["free"],
            reserved=room["reserved"],
            largest_free=room["largestFree"],
            largest=room["largest"],
        )
    return NodeGroup(
        labels=wire.get("labels") or {},
        taints=tuple(
            Taint(key=taint["key"], value=taint.get("value", ""), effect=taint["effect"])
            for taint in wire.get("taints") or ()
        ),
        nodes=int(wire.get("nodes") or 0),
        rooms=rooms,
    )


def total(groups: Iterable[NodeGroup]) -> dict[str, Room]:
    """Each resource over all groups."""
    summed: dict[str, Room] = {}
    for group in groups:
        for name, room in group.rooms.items():
            summed[name] = _add(summed.get(name, Room()), room)
    return summed


_FIELDS: Final = ("allocatable", "free", "largestFree", "reserved", "largest")


def _together(nodes: list[NodeRoom]) -> dict[str, Room]:
    summed: dict[str, Room] = {}
    for each in nodes:
        for name, amount in each.node.allocatable.items():
            free = each.free.get(name, 0)
            room = Room(
                allocatable=amount,
                free=free,
                reserved=each.reserved.get(name, 0),
                largest_free=free,
                largest=amount,
            )
            summed[name] = _add(summed.get(name, Room()), room)
    return summed


def _add(one: Room, other: Room) -> Room:
    return Room(
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
    # Of a label that is everywhere the same nothing is won by leaving it out.
    return max(
        (key for key, found in values.items() if len(found) > 1), key=lambda key: (len(values[key]), key), default=None
    )
