# SPDX-License-Identifier: Apache-2.0
"""The places that a workload holds by its admission (`docs/spec/engine.md §6.1`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.engine.resources import PODS, Requests
from multikueue.engine.topology.capacity import LeafKey, Place, Places, leaf_key
from multikueue.engine.topology.requests import single_pod
from multikueue.engine.values import Flavor
from multikueue.engine.workloads import AssignedDomains, PodSetAdmission, Workload


def reserved_places(workload: Workload, flavors: Mapping[str, Flavor]) -> Places:
    """What each pod set takes of the leaves that it was given; nothing without a topology.

    Of a workload whose pod sets could not be read that is what quota is held for, pod by pod.
    """
    if workload.admission is None or all(each.topology is None for each in workload.admission.pod_sets):
        return ()
    shapes = {pod_set.name: pod_set.shape for pod_set in workload.pod_sets}
    return tuple(
        Place(leaf_key(_flavor(assigned, flavors), assigned.topology.levels, values), count, single)
        for assigned in workload.admission.pod_sets
        if assigned.topology is not None and (assigned.name in shapes or not shapes)
        for single in (single_pod(shapes[assigned.name]) if assigned.name in shapes else _by_quota(assigned),)
        for values, count in assigned.topology.domains
    )


def as_held(places: Places, held: Places) -> Places:
    """The places, with pods that are held where they are as what they were counted when they were placed.

    Their requests stay as they are when a limit range or a runtime class changes; only pods that are created later
    have others.
    """
    if places == held:
        return held
    singles: dict[tuple[LeafKey, int], list[Requests]] = {}
    for place in reversed(held):
        singles.setdefault((place.leaf, place.pods), []).append(place.single)
    return tuple(
        place._replace(single=same.pop()) if (same := singles.get((place.leaf, place.pods))) else place
        for place in places
    )


def with_topologies(workload: Workload, topologies: Mapping[str, AssignedDomains]) -> Workload:
    """The workload with these domains of pod sets instead of theirs."""
    if workload.admission is None:
        return workload
    pod_sets = tuple(
        replace(each, topology=topologies.get(each.name, each.topology)) for each in workload.admission.pod_sets
    )
    return replace(workload, admission=replace(workload.admission, pod_sets=pod_sets))


def without_hosts(workload: Workload, hosts: Collection[str]) -> Workload:
    """The workload without the pods on these hosts."""
    if workload.admission is None or not hosts:
        return workload
    pod_sets = tuple(replace(each, topology=_without(each.topology, hosts)) for each in workload.admission.pod_sets)
    return replace(workload, admission=replace(workload.admission, pod_sets=pod_sets))


def _without(topology: AssignedDomains | None, hosts: Collection[str]) -> AssignedDomains | None:
    if topology is None or topology.levels[-1:] != (HOSTNAME_LABEL,):
        return topology
    kept = tuple((values, count) for values, count in topology.domains if values[-1] not in hosts)
    return AssignedDomains(topology.levels, kept)


def _by_quota(assigned: PodSetAdmission) -> Requests:
    placed = () if assigned.topology is None else assigned.topology.domains
    pods = max(1, assigned.count or sum(count for _, count in placed))
    return {**{name: -(-amount // pods) for name, amount in assigned.usage.items() if amount > 0}, PODS: 1}


def _flavor(assigned: PodSetAdmission, flavors: Mapping[str, Flavor]) -> str:
    """The flavor with a topology; the first by name if none is known to have one."""
    names = sorted(set(assigned.flavors.values()))
    return next((name for name in names if name in flavors and flavors[name].topology), next(iter(names), ""))
