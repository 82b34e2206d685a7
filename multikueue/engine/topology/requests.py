# SPDX-License-Identifier: Apache-2.0
"""What the pod sets of a workload ask of a topology (`docs/spec/engine.md §6.2` and §6.3).

Owns which pod sets are placed together, the level and the slices of each request, and what one pod takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from multikueue.api.constants import CheckState
from multikueue.engine.pod_requests import adjust, pod_request
from multikueue.engine.resources import PODS, Requests, amount
from multikueue.engine.topology.values import PlacementMode, PlacementRequest
from multikueue.engine.workloads import CheckStatus, PodSet, PodShape, TopologyRequest

_UNCONSTRAINED = TopologyRequest(unconstrained=True)


@dataclass(frozen=True, slots=True)
class PlacedTogether:
    """Pod sets that are placed together: the workers, and the one pod that leads them, if there is one."""

    workers: PodSet
    leader: PodSet | None = None

    @property
    def pod_sets(self) -> tuple[PodSet, ...]:
        """Both."""
        return (self.workers,) if self.leader is None else (self.workers, self.leader)


def placed_together(pod_sets: Sequence[PodSet]) -> Iterator[PlacedTogether]:
    """The pod sets in their order, those of one group at the place of the first; the smaller one leads."""
    groups: dict[str, list[PodSet]] = {}
    for pod_set in pod_sets:
        group = pod_set.topology.group if pod_set.topology is not None else ""
        if group:
            groups.setdefault(group, []).append(pod_set)
    for pod_set in pod_sets:
        group = pod_set.topology.group if pod_set.topology is not None else ""
        if not group or len(groups[group]) != 2:
            yield PlacedTogether(pod_set)
        elif pod_set is groups[group][0]:
            first, second = groups[group]
            yield PlacedTogether(second, first) if first.count < second.count else PlacedTogether(first, second)


def with_check_updates(spec: PodSet, checks: Iterable[CheckStatus]) -> PodSet:
    """The pod set with what its checks that are ready have added (§6.4): nodes are provisioned with a label, say."""
    ready = (check for check in checks if check.state is CheckState.READY)
    updates = [update for check in ready for update in check.updates if update.name == spec.name]
    if not updates:
        return spec
    added = {key: value for update in updates for key, value in update.node_selector.items()}
    tolerations = (toleration for update in updates for toleration in update.tolerations)
    shape = replace(
        spec.shape,
        node_selector={**spec.shape.node_selector, **added},
        tolerations=(*spec.shape.tolerations, *tolerations),
    )
    return replace(spec, shape=shape)


def single_pod(shape: PodShape) -> Requests:
    """What one pod takes of a leaf; a leaf holds so many pods as well."""
    requests = {name: amount(name, value) for name, value in pod_request(adjust(shape, {}, ())).items()}
    return {**{name: value for name, value in requests.items() if value > 0}, PODS: 1}


def placement_request(
    request: TopologyRequest | None, *, count: int, levels: tuple[str, ...], leader: bool
) -> PlacementRequest | str:
    """What a pod set asks for, or why that cannot be; without a request any place will do."""
    asked = request if request is not None and request.explicit else _UNCONSTRAINED
    slices = asked.layers
    key = asked.required or asked.preferred or (levels[0] if slices else levels[-1])
    for wanted in (key, *(level for level, _ in slices)):
        if wanted not in levels:
            return f"no requested topology level: {wanted}"
    level = levels.index(key)
    sizes = [(levels.index(wanted), size) for wanted, size in slices]
    slice_level, slice_size = sizes[0] if sizes else (len(levels) - 1, 1)
    if slice_level < level:
        return f'slices of level "{levels[slice_level]}" are above the requested level "{key}"'
    for (outer, size), (inner, part) in pairwise(sizes):
        if inner <= outer or part < 1 or size % part:
            return (
                f'slices of {part} at level "{levels[inner]}" are no parts of slices of {size} at level'
                f' "{levels[outer]}"'
            )
    if slice_size < 1 or count % slice_size:
        return f"{count} pods cannot be divided into slices of {slice_size}"
    mode = PlacementMode.UNCONSTRAINED
    if asked.required:
        mode = PlacementMode.REQUIRED
    elif asked.preferred:
        mode = PlacementMode.PREFERRED
    return PlacementRequest(
        count=count,
        level=level,
        mode=mode,
        leader=leader,
        slice_size=slice_size,
        slice_level=slice_level,
        inner=tuple(sizes[1:]),
    )
