# SPDX-License-Identifier: Apache-2.0
"""The annotations of dispatch, read and written.

Those of users (pins, affinity, placement), the weight of a cluster, and the state that must outlive a leader: the round
of the incremental dispatcher, the last opening of a preemption gate, avoided clusters, and adoptions. An invalid value
of our own counts as absent; an invalid annotation of a user is a problem that is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

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
from multikueue.core.parsing import parse_unsigned
from multikueue.core.selectors import parse_selector
from multikueue.core.timestamps import format_micro_time, format_time, parse_time
from multikueue.dispatch.hub.facts import Adoption, GateOpening, Placement, Preferences, Round

MAX_WEIGHT = 1000.0
_MAX_WEIGHT_TEXT = 32


def preferences_of(annotations: Mapping[str, str]) -> Preferences:
    """The cluster preferences of a job or Workload."""
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
    """The weight of a cluster, at least 0; 1 if absent or invalid."""
    text = annotations.get(WEIGHT_ANNOTATION, "")
    if not text or len(text) > _MAX_WEIGHT_TEXT or not text.isascii():
        return 1.0
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return min(max(weight, 0.0), MAX_WEIGHT) if weight == weight else 1.0


def round_of(annotations: Mapping[str, str]) -> Round | None:
    """The stored round; None without a valid one."""
    parts = annotations.get(ROUND_ANNOTATION, "").split(" ", 3)
    if len(parts) != 3:
        return None
    epoch, clusters, began = _number(parts[0]), _number(parts[1]), _time(parts[2])
    return None if epoch is None or clusters is None or began is None else Round(epoch, clusters, began)


def round_text(stored: Round) -> str:
    """The annotation's value."""
    return f"{stored.epoch} {stored.clusters} {format_time(stored.began)}"


def gate_opening_of(annotations: Mapping[str, str]) -> GateOpening | None:
    """The last opening, of this or an older epoch; None without a valid one."""
    parts = annotations.get(GATE_OPENING_ANNOTATION, "").split(" ", 3)
    if len(parts) != 3:
        return None
    epoch, at = _number(parts[0]), _time(parts[2])
    return None if epoch is None or at is None else GateOpening(epoch, parts[1], at)


def gate_opening_text(opening: GateOpening) -> str:
    """The annotation's value, in microseconds, since a truncated time would let the next turn begin early."""
    return f"{opening.epoch} {opening.cluster} {format_micro_time(opening.at)}"


def avoided_of(annotations: Mapping[str, str], now: datetime) -> dict[str, datetime]:
    """The clusters that failed the workload, each with the end of the time for which it is avoided.

    Those whose time was over before `now` are omitted.
    """
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
    """The remote job to take over, as requested; None without a valid request.

    Only a request returned by `seals.sealed_adoption` is authorized.
    """
    parts = annotations.get(ADOPTS_ANNOTATION, "").split(" ", 4)
    if len(parts) != 4 or not all(parts):
        return None
    epoch = _number(parts[3])
    return None if epoch is None else Adoption(parts[0], parts[1], parts[2], epoch)


def adoption_text(adoption: Adoption) -> str:
    """The annotation's value."""
    return f"{adoption.cluster} {adoption.manager_uid} {adoption.job_uid} {adoption.epoch}"


def _number(text: str) -> int | None:
    try:
        return parse_unsigned(text, field="annotation")
    except BadInput:
        return None


def _time(text: str) -> datetime | None:
    try:
        return parse_time(text)
    except BadInput:
        return None
