# SPDX-License-Identifier: Apache-2.0
"""The domains of a topology with what each can hold of one request (`docs/spec/engine.md §6.5`).

Owns the sizes of slices by level and the sums from the leaves up. Nothing here chooses a domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from multikueue.engine.topology.values import DomainValues, LeafCapacity, PlacementMode, PlacementRequest


@dataclass(slots=True, eq=False)
class Domain:
    """A domain with the pods that fit, and the slices of its level: without the leader, and beside it."""

    values: DomainValues
    pods: int
    pods_with_leader: int
    leader: bool
    slices: int
    slices_with_leader: int
    children: list[Domain] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LevelUnit:
    """The slices of a level: of so many pods, or of single pods if it is not `sliced`.

    From the slice level up `size` is that of the request; below, that of the inner slices of the level.
    """

    size: int
    sliced: bool


def level_units(levels: int, request: PlacementRequest) -> list[LevelUnit]:
    """The unit of each level."""
    units = [LevelUnit(request.slice_size, True)] * (request.slice_level + 1)
    for level, size in request.inner:
        units += [LevelUnit(size, True)] * (level + 1 - len(units))
    return units + [LevelUnit(1, False)] * (levels - len(units))


def domain_levels(
    leaves: Sequence[LeafCapacity], request: PlacementRequest, units: Sequence[LevelUnit]
) -> list[list[Domain]]:
    """The domains of each level; none for levels that the request cannot use.

    Without a leader, leaves that hold no pod are left out: they change no count, and no choice.
    """
    levels = len(units)
    by_level: list[list[Domain]] = [[] for _ in range(levels)]
    size = units[-1].size
    for leaf in leaves:
        if leaf.pods or request.leader:
            leader = request.leader and leaf.leader
            beside = leaf.pods_with_leader if leader else leaf.pods
            by_level[-1].append(Domain(leaf.values, leaf.pods, beside, leader, leaf.pods // size, beside // size))
    # Only a preferred level is ever left upwards.
    top = 0 if request.mode is PlacementMode.PREFERRED else request.level
    for level in range(levels - 2, top - 1, -1):
        children: dict[DomainValues, list[Domain]] = {}
        for child in by_level[level + 1]:
            children.setdefault(child.values[: level + 1], []).append(child)
        above = level < request.slice_level
        # From the slice level up the pods of children are not rounded: what is rounded there are the slices.
        rounding = 1 if above else units[level + 1].size
        for values, members in children.items():
            domain = _parent(values, members, request, rounding)
            if above:
                domain.slices = sum(child.slices for child in members)
                lost = [child.slices - child.slices_with_leader for child in members if child.leader]
                domain.slices_with_leader = domain.slices - _lost(lost, domain.slices, request)
            else:
                domain.slices = domain.pods // units[level].size
                domain.slices_with_leader = domain.pods_with_leader // units[level].size
            by_level[level].append(domain)
    return by_level


def _parent(values: DomainValues, children: list[Domain], request: PlacementRequest, rounding: int) -> Domain:
    pods = sum(child.pods // rounding for child in children) * rounding
    lost = _lost(
        [
            (child.pods // rounding - child.pods_with_leader // rounding) * rounding
            for child in children
            if child.leader
        ],
        pods,
        request,
    )
    return Domain(values, pods, pods - lost, any(child.leader for child in children), 0, 0, children)


def _lost(differences: list[int], total: int, request: PlacementRequest) -> int:
    """What the leader costs a domain where it costs least; everything if it fits on no child."""
    if not request.leader:
        return 0
    return min(differences, default=total)
