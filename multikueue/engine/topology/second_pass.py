# SPDX-License-Identifier: Apache-2.0
"""Places for workloads that hold quota already (`docs/spec/engine.md §1.12` and §6.10).

Either their places were left to later, until capacity was provisioned, or a node on which they have pods has failed:
then the other pods keep theirs, and those of the node move, within the domain that was required: of a leader and its
workers, if they were placed together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from multikueue.api.constants import HOSTNAME_LABEL, DelayedTopology
from multikueue.engine.topology.capacity import Place, Places
from multikueue.engine.topology.placer import Asked, Placed, PodSetPlacement, Taken, TopologyPlacer
from multikueue.engine.topology.requests import placed_together, with_check_updates
from multikueue.engine.workloads import AssignedDomains, PodSet, PodSetAdmission, Workload


@dataclass(frozen=True, slots=True)
class _OnHosts:
    """A pod set with pods on hosts: those that it keeps, and how many are lost with hosts that have failed."""

    asked: Asked
    kept: tuple[tuple[tuple[str, ...], int], ...]
    lost: int


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
        on_hosts = {
            spec.name: _on_hosts(_asked(assigned, spec), assigned.topology, workload.unhealthy_nodes)
            for assigned, spec in known
            if assigned.topology is not None and assigned.topology.levels[-1:] == (HOSTNAME_LABEL,)
        }
        for together in placed_together([each.asked.pod_set for each in on_hosts.values()]):
            members = [on_hosts[spec.name] for spec in together.pod_sets]
            self._replace(members, workload.unhealthy_nodes, found, taken)
        return found

    def _replace(self, members: list[_OnHosts], failed: tuple[str, ...], found: Placed, taken: Taken) -> None:
        """Places for the lost pods of a pod set, or of a leader and its workers, which stay together."""
        losing = [each for each in members if each.lost]
        staying = [values for each in members for values, _ in each.kept]
        if staying:
            moved = [
                self._placer.place_more(
                    each.asked, each.lost, beside=staying[0], kept=each.kept, without=failed, taken=taken
                )
                for each in losing
            ]
        else:
            # Nothing of them runs elsewhere, so that they are placed as at first.
            moved = [self._placer.place([each.asked for each in losing], without=failed, taken=taken)]
        for part in moved:
            found.failures.update(part.failures)
            found.errors.update(part.errors)
            for each in losing:
                name = each.asked.pod_set.name
                if name in part.placements:
                    found.placements[name] = _merged(each.kept, part.placements[name])


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


def _on_hosts(asked: Asked, topology: AssignedDomains, failed: tuple[str, ...]) -> _OnHosts:
    kept = tuple((values, count) for values, count in topology.domains if values[-1] not in failed)
    return _OnHosts(asked, kept, sum(count for values, count in topology.domains if values[-1] in failed))


def _asked(assigned: PodSetAdmission, spec: PodSet) -> Asked:
    count = assigned.count if assigned.count is not None else spec.count
    return Asked(spec, count, frozenset(assigned.flavors.values()))
