# SPDX-License-Identifier: Apache-2.0
"""What pods ask of a topology, what its leaves can hold, and where the pods are placed (`docs/spec/engine.md §6`).

Levels are counted from 0, the highest; a leaf is a domain of the lowest level.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

DomainValues = tuple[str, ...]
"""The label values of a domain, one for each level down to its own."""


class PlacementMode(StrEnum):
    """How strictly the pods are to be in one domain of the requested level."""

    REQUIRED = "required"
    PREFERRED = "preferred"
    UNCONSTRAINED = "unconstrained"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """What one pod set asks for, or a leader and its workers together: then `count` is that of the workers.

    `count` is a multiple of `slice_size`. `inner` are further slices, each a level below the one before it, with a size
    that divides that of the one before.
    """

    count: int
    level: int
    mode: PlacementMode
    leader: bool = False
    slice_size: int = 1
    slice_level: int
    inner: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LeafCapacity:
    """How many pods fit on a leaf: `pods` without a leader there, `pods_with_leader` beside it.

    If the leader does not fit, or none is asked for, both are equal and `leader` is False.
    """

    values: DomainValues
    pods: int
    pods_with_leader: int
    leader: bool = False


@dataclass(frozen=True, slots=True)
class PlacedDomains:
    """The leaves of the pods with their counts, by level values, and that of the leader."""

    workers: tuple[tuple[DomainValues, int], ...]
    leader: DomainValues | None = None


@dataclass(frozen=True, slots=True)
class PlacementFailure:
    """Why the pods cannot be placed: `fits` of `wanted` slices, or of pods if the size of slices is 1.

    `layers` has, for a request with inner slices, how many slices of each constrained level would fit of those that are
    needed: level, fitting, needed.
    """

    fits: int
    wanted: int
    layers: tuple[tuple[int, int, int], ...] = ()
