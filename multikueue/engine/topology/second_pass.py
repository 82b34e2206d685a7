# SPDX-License-Identifier: Apache-2.0
"""Places for workloads that hold quota already (`docs/spec/engine.md §1.12` and §6.10).

Either their places were left to later, until capacity was provisioned, or a node on which they have pods has failed:
then the other pods keep theirs, and those of the node move, within the domain that was required.
"""

from __future__ import annotations

from collections.abc import Iterable

from multikueue.api.constants import HOSTNAME_LABEL, DelayedTopology
from multikueue.engine.topology.capacity import Place, Places
from multikueue.engine.topology.placer import Asked, Placed, PodSetPlacement, Taken, TopologyPlacer
from multikueue.engine.topology.requests import with_check_updates
from multikueue.engine.workloads import AssignedDomains, PodSet, PodSetAdmission, Workload


class SecondPass:
    """Decides for one workload at a time; the caller has freed what it holds."""

    def __init__(self, placer: TopologyPlacer) -> None:
        self._placer = placer

    def place(self, workload: Workload, *, staying: Places = ()) -> Placed:
        """Places for the pod sets that have none yet, or that have lost some, beside the pods that stay."""
        admission = workload.admission
        if admission is None:
            return Placed()
        taken = Taken()
        taken.add(staying)
        specs = {spec.name: with_check_updates(spec, workload.checks) for spec in workload.pod_sets}
        known = [(assigned, specs[assigned.name]) for assigned in admission.pod_sets if assigned.name in specs]
        if not workload.unhealthy_nodes:
            return self._placer.place(
                [
                    _asked(assigned, spec)
                    for assigned, spec in known
                    if assigned.delayed_topology == DelayedTopology.PENDING and assigned.topology is None
                ],
                taken=taken,
            )
        found = Placed()
        for assigned, spec in known:
            if assigned.topology is not None and assigned.topology.levels[-1:] == (HOSTNAME_LABEL,):
                self._replace(assigned, spec, assigned.topology, workload.unhealthy_nodes, found, taken)
        return found

    def _replace(
        self,
        assigned: PodSetAdmission,
        spec: PodSet,
        topology: AssignedDomains,
        failed: tuple[str, ...],
        found: Placed,
        taken: Taken,
    ) -> None:
        kept = tuple((values, count) for values, count in topology.domains if values[-1] not in failed)
        lost = sum(count for values, count in topology.domains if values[-1] in failed)
        if not lost:
            return
        asked = _asked(assigned, spec)
        if not kept:
            # Nothing of it runs elsewhere, so that it is placed as at first.
            moved = self._placer.place([asked], without=failed, taken=taken)
        else:
            moved = self._placer.place_more(asked, lost, beside=kept, without=failed, taken=taken)
        found.failures.update(moved.failures)
        found.errors.update(moved.errors)
        if spec.name in moved.placements:
            found.placements[spec.name] = _merged(kept, moved.placements[spec.name])


def merged_domains(
    domains: Iterable[tuple[tuple[str, ...], int]], more: Iterable[tuple[tuple[str, ...], int]]
) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Both, each domain once, by its values."""
    counts: dict[tuple[str, ...], int] = {}
    for values, count in (*domains, *more):
        counts[values] = counts.get(values, 0) + count
    return tuple(sorted(counts.items()))


def _merged(kept: tuple[tuple[tuple[str, ...], int], ...], moved: PodSetPlacement) -> PodSetPlacement:
    """The places of hosts have no flavor, so that those that are kept are known by their values."""
    domains, one = merged_domains(kept, moved.domains), moved.places[0]
    places = tuple(Place(one.leaf._replace(values=values), count, one.single) for values, count in domains)
    return PodSetPlacement(levels=moved.levels, domains=domains, places=places)


def _asked(assigned: PodSetAdmission, spec: PodSet) -> Asked:
    count = assigned.count if assigned.count is not None else spec.count
    return Asked(spec, count, frozenset(assigned.flavors.values()))
