# SPDX-License-Identifier: Apache-2.0
"""What annotations say about dispatch, and what dispatch keeps in annotations.

Owns the reading of a user's wishes (pins, affinity, placement), of the weight of a cluster, and both directions of
what must outlive a leader: the round of the incremental dispatcher, the preemption gate that was opened last, the
clusters that failed a workload, and the copy that a recovery found. What cannot be read of our own notes is as if it
were not there; of a user's wishes it is a problem that is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from multikueue.api.constants import (
    ADOPTS_ANNOTATION,
    AVOIDED_ANNOTATION,
    CLUSTER_SELECTOR_ANNOTATION,
    CLUSTERS_ANNOTATION,
    GATE_OPENING_ANNOTATION,
    PLACEMENT_ANNOTATION,
    PREFERRED_CLUSTERS_ANNOTATION,
    ROUND_ANNOTATION,
    WEIGHT_ANNOTATION,
)
from multikueue.core.errors import BadInput
from multikueue.core.selectors import parse_selector
from multikueue.core.timestamps import format_micro_time, format_time, parse_time
from multikueue.federation.facts import Adoption, GateOpening, Placement, Preferences, Round

MAX_WEIGHT = 1000.0
NOTES: Final = frozenset({AVOIDED_ANNOTATION, GATE_OPENING_ANNOTATION, ROUND_ANNOTATION})
"""What dispatch keeps for itself; of a copy it would be read by the hub that the worker may be."""


def preferences_of(annotations: Mapping[str, str]) -> Preferences:
    """The wishes of a job or Workload."""
    pins = frozenset(filter(None, (name.strip() for name in annotations.get(CLUSTERS_ANNOTATION, "").split(","))))
    placement = annotations.get(PLACEMENT_ANNOTATION, "") or Placement.SPREAD
    if placement not in set(Placement):
        return Preferences(pinned=pins, problem=f"annotation {PLACEMENT_ANNOTATION}: {placement!r} is not a placement")
    preferred = annotations.get(PREFERRED_CLUSTERS_ANNOTATION, "")
    try:
        return Preferences(
            pinned=pins,
            selector=parse_selector(annotations.get(CLUSTER_SELECTOR_ANNOTATION, "")),
            preferred=parse_selector(preferred) if preferred else None,
            placement=Placement(placement),
        )
    except BadInput as error:
        return Preferences(pinned=pins, problem=f"annotation for clusters: {error}")


def weight_of(annotations: Mapping[str, str]) -> float:
    """The weight of a cluster; 1 for none and for nonsense, never below 0."""
    try:
        weight = float(annotations.get(WEIGHT_ANNOTATION, "") or 1.0)
    except ValueError:
        return 1.0
    return min(max(weight, 0.0), MAX_WEIGHT) if weight == weight else 1.0


def round_of(annotations: Mapping[str, str]) -> Round | None:
    """The round that was kept; None without one."""
    parts = annotations.get(ROUND_ANNOTATION, "").split(" ")
    if len(parts) != 3 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    began = _time(parts[2])
    return None if began is None else Round(int(parts[0]), int(parts[1]), began)


def round_text(kept: Round) -> str:
    """The annotation's value."""
    return f"{kept.epoch} {kept.clusters} {format_time(kept.began)}"


def gate_opening_of(annotations: Mapping[str, str]) -> GateOpening | None:
    """The last opening, of this epoch or one before; None without one."""
    parts = annotations.get(GATE_OPENING_ANNOTATION, "").split(" ")
    if len(parts) != 3 or not parts[0].isdigit():
        return None
    at = _time(parts[2])
    return None if at is None else GateOpening(int(parts[0]), parts[1], at)


def gate_opening_text(opening: GateOpening) -> str:
    """The annotation's value; not cut to seconds, or the next turn would begin too early by as much."""
    return f"{opening.epoch} {opening.cluster} {format_micro_time(opening.at)}"


def avoided_of(annotations: Mapping[str, str], now: datetime) -> dict[str, datetime]:
    """The clusters that are passed over, each until when; those whose time is over are left out."""
    found: dict[str, datetime] = {}
    for entry in annotations.get(AVOIDED_ANNOTATION, "").split(" "):
        cluster, _, text = entry.partition("=")
        until = _time(text)
        if cluster and until is not None and now < until:
            found[cluster] = until
    return found


def avoided_text(avoided: Mapping[str, datetime]) -> str:
    """The annotation's value."""
    return " ".join(f"{cluster}={format_time(until)}" for cluster, until in sorted(avoided.items()))


def adoption_of(annotations: Mapping[str, str]) -> Adoption | None:
    """The copy of a job that is to be gone on with; None without one."""
    parts = annotations.get(ADOPTS_ANNOTATION, "").split(" ")
    if len(parts) != 4 or not all(parts) or not parts[3].isdigit():
        return None
    return Adoption(parts[0], parts[1], parts[2], int(parts[3]))


def adoption_text(adoption: Adoption) -> str:
    """The annotation's value."""
    return f"{adoption.cluster} {adoption.manager_uid} {adoption.job_uid} {adoption.epoch}"


def _time(text: str) -> datetime | None:
    try:
        return parse_time(text)
    except BadInput:
        return None
