# SPDX-License-Identifier: Apache-2.0
"""Which domain each pod of a pod set gets: by its rank if all pods have one, else in their order.

A domain takes no more pods than the Workload says. Pods that were started keep theirs, whatever their rank is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from multikueue.engine.topology.values import DomainValues
from multikueue.engine.workloads import AssignedDomains


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod that has not ended; `waits` for its domain, or has the node selector of one."""

    name: str
    waits: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    offset: int = 0
    """The index of the first pod of its pod set."""
    node_selector: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLabels:
    """The labels that tell the rank of a pod: its index, and that of its subgroup where there are several."""

    index: str
    subgroup: str = ""
    subgroups: int = 1

    def rank(self, pod: PlacedPod, *, total: int) -> int | None:
        """The rank of a pod among `total`; None if its labels do not tell."""
        index = _number(pod.labels.get(self.index))
        if index is None or index < pod.offset:
            return None
        index -= pod.offset
        if not self.subgroup:
            return index
        group, size = _number(pod.labels.get(self.subgroup)), total // max(1, self.subgroups)
        return None if group is None or index >= size else group * size + index


def chosen_domains(
    pods: Sequence[PlacedPod], assigned: AssignedDomains, *, ranks: RankLabels | None
) -> list[tuple[PlacedPod, DomainValues]]:
    """The domains of the waiting pods for which there are some."""
    taken = Counter(_domain(pod, assigned) for pod in pods if not pod.waits)
    waiting = sorted((pod for pod in pods if pod.waits), key=lambda pod: pod.name)
    by_rank = None if ranks is None else _by_rank(pods, assigned, ranks)
    if by_rank is not None:
        return [(pod, by_rank[pod.name]) for pod in waiting]
    free = _free(assigned, taken)
    return list(zip(waiting, free, strict=False))


def _by_rank(pods: Sequence[PlacedPod], assigned: AssignedDomains, ranks: RankLabels) -> dict[str, DomainValues] | None:
    """The domain of each pod by its rank; None if ranks are missing, double, or not those of started pods."""
    places = [values for values, count in assigned.domains for _ in range(count)]
    found: dict[int, PlacedPod] = {}
    for pod in pods:
        rank = ranks.rank(pod, total=len(places))
        if rank is None or rank >= len(places) or rank in found:
            return None
        if not pod.waits and _domain(pod, assigned) != places[rank]:
            return None
        found[rank] = pod
    return {pod.name: places[rank] for rank, pod in found.items()}


def _free(assigned: AssignedDomains, taken: Mapping[DomainValues | None, int]) -> Iterator[DomainValues]:
    for values, count in assigned.domains:
        for _ in range(count - taken.get(values, 0)):
            yield values


def _domain(pod: PlacedPod, assigned: AssignedDomains) -> DomainValues | None:
    values = tuple(pod.node_selector.get(level, "") for level in assigned.levels)
    return values if all(values) else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None
