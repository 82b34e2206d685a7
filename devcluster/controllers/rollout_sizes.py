# SPDX-License-Identifier: Apache-2.0
"""The sizes of a Deployment's ReplicaSets during a rollout. Pure: changes `replicas` and annotations of `RevisionSet`.

Each function does one step and returns whether something changed; the next step follows when the pods have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor

from devcluster.controllers.revision_sets import DESIRED, MOST, RevisionSet, number_in, oldest_first
from multikueue.api.objects import JsonObject
from multikueue.core.parsing import parse_unsigned


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """How many pods a Deployment wants, and by how many a rollout may exceed that or fall below it."""

    wanted: int
    surge: int
    unavailable: int

    @classmethod
    def of(cls, deployment: JsonObject) -> RolloutLimits:
        """The limits of the spec; surge is rounded up, unavailable down, and one of them is at least 1."""
        spec = deployment["spec"]
        wanted: int = spec.get("replicas", 1)
        if (spec.get("strategy") or {}).get("type") == "Recreate":
            return cls(wanted, 0, 0)
        rolling = spec["strategy"].get("rollingUpdate") or {}
        surge = scaled(rolling.get("maxSurge", 0), wanted, up=True)
        unavailable = scaled(rolling.get("maxUnavailable", 0), wanted, up=False)
        if not surge and not unavailable:
            unavailable = 1
        return cls(wanted, surge, min(unavailable, wanted))

    @property
    def most(self) -> int:
        """The most pods at a time."""
        return self.wanted + self.surge

    @property
    def least(self) -> int:
        """The fewest available pods at a time."""
        return self.wanted - self.unavailable


def scaled(value: int | str, total: int, *, up: bool) -> int:
    """A number, or a percentage of `total`. Raises `BadInput`."""
    if isinstance(value, int):
        return value
    percent = parse_unsigned(value.removesuffix("%"), field="percentage")
    return -(-percent * total // 100) if up else percent * total // 100


def resize(each: RevisionSet, replicas: int, *, limits: RolloutLimits) -> bool:
    """Give it a size, and the annotations that later scaling is computed from; whether the size changes."""
    changed = each.replicas != replicas
    each.replicas = replicas
    each.annotations |= {DESIRED: str(limits.wanted), MOST: str(limits.most)}
    return changed


def first_size(current: RevisionSet, sets: Iterable[RevisionSet], *, limits: RolloutLimits, recreate: bool) -> int:
    """The size of the current ReplicaSet next, as far as the surge allows."""
    if recreate:
        return limits.wanted
    free = limits.most - sum(each.replicas for each in sets)
    return current.replicas + max(0, min(free, limits.wanted - current.replicas))


def grow_current(current: RevisionSet, old: Sequence[RevisionSet], *, limits: RolloutLimits, recreate: bool) -> bool:
    """Scale the current ReplicaSet towards the number of pods that is wanted."""
    if current.replicas == limits.wanted:
        return False
    if current.replicas > limits.wanted:
        return resize(current, limits.wanted, limits=limits)
    size = first_size(current, [current, *old], limits=limits, recreate=recreate)
    return resize(current, size, limits=limits)


def shrink_old(current: RevisionSet, old: Sequence[RevisionSet], *, limits: RolloutLimits) -> bool:
    """Scale old ReplicaSets down, pods that are not available first, as far as enough stay available."""
    active = [each for each in old if each.replicas > 0]
    if not active:
        return False
    pending = current.replicas - current.count("availableReplicas")
    total = sum(each.replicas for each in (current, *active))
    allowed = total - limits.least - pending
    if allowed <= 0:
        return False
    cleaned = _drop_unavailable(active, allowed, limits=limits)
    available = sum(each.count("availableReplicas") for each in (current, *active))
    rest = available - limits.least
    removed = 0
    for each in oldest_first(active):
        if removed >= rest:
            break
        count = min(each.replicas, rest - removed)
        if count:
            resize(each, each.replicas - count, limits=limits)
            removed += count
    return cleaned + removed > 0


def _drop_unavailable(old: Sequence[RevisionSet], most: int, *, limits: RolloutLimits) -> int:
    removed = 0
    for each in oldest_first(old):
        unavailable = each.replicas - each.count("availableReplicas")
        count = min(most - removed, unavailable)
        if count > 0:
            resize(each, each.replicas - count, limits=limits)
            removed += count
    return removed


def empty(sets: Iterable[RevisionSet], *, limits: RolloutLimits) -> bool:
    """Scale these ReplicaSets to zero; whether one changes."""
    changes = [resize(each, 0, limits=limits) for each in sets if each.replicas > 0]
    return any(changes)


def is_scaled(sets: Iterable[RevisionSet], *, limits: RolloutLimits) -> bool:
    """Whether the Deployment was scaled since the sizes were computed."""
    known = [number_in(each.annotations, DESIRED) for each in sets if each.replicas > 0]
    return any(desired is not None and desired != limits.wanted for desired in known)


def rescale(
    current: RevisionSet | None,
    old: Sequence[RevisionSet],
    *,
    limits: RolloutLimits,
    recreate: bool,
    replicas_before: int,
) -> None:
    """Apply a change of the Deployment's size: to one ReplicaSet, or in proportion to several.

    `replicas_before` is the Deployment's status.replicas, for ReplicaSets without annotations.
    """
    sets = [*old, *([current] if current is not None else [])]
    active = [each for each in sets if each.replicas > 0]
    if len(active) <= 1:
        single = active[0] if active else current or max(old, key=_newness, default=None)
        if single is not None and single.replicas != limits.wanted:
            resize(single, limits.wanted, limits=limits)
        return
    if current is not None and _is_saturated(current, limits=limits):
        empty([each for each in old if each.replicas > 0], limits=limits)
        return
    if recreate:
        return
    add = (limits.most if limits.wanted > 0 else 0) - sum(each.replicas for each in active)
    ordered = _by_size(active, newest_first=add > 0)
    sizes = []
    added = 0
    for each in ordered:
        share = _share(each, add, added, limits=limits, replicas_before=replicas_before) if add else 0
        sizes.append(each.replicas + share)
        added += share
    if add:
        sizes[0] = max(0, sizes[0] + add - added)
    for each, size in zip(ordered, sizes, strict=True):
        resize(each, size, limits=limits)


def _newness(each: RevisionSet) -> tuple[float, str]:
    created = each.created
    return (created.timestamp() if created is not None else float("inf"), each.name)


def _by_size(sets: Iterable[RevisionSet], *, newest_first: bool) -> list[RevisionSet]:
    """The largest first; equal ones by age."""
    by_age = oldest_first(sets)
    if newest_first:
        by_age.reverse()
    return sorted(by_age, key=lambda each: -each.replicas)


def _is_saturated(current: RevisionSet, *, limits: RolloutLimits) -> bool:
    """Whether the current ReplicaSet has all pods, and all are available."""
    desired = number_in(current.annotations, DESIRED)
    return current.replicas == desired == current.count("availableReplicas") == limits.wanted


def _share(each: RevisionSet, add: int, added: int, *, limits: RolloutLimits, replicas_before: int) -> int:
    """How many of `add` pods this ReplicaSet gets, by its part of the former total."""
    if not each.replicas or add == added:
        return 0
    if not limits.wanted:
        share = -each.replicas
    else:
        before = number_in(each.annotations, MOST) or replicas_before
        share = _rounded(each.replicas * limits.most / before) - each.replicas if before else 0
    left = add - added
    return min(share, left) if add > 0 else max(share, left)


def _rounded(value: float) -> int:
    """To the nearest number, halves up."""
    return floor(value + 0.5)
