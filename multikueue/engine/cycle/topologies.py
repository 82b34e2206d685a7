# SPDX-License-Identifier: Apache-2.0
"""Applies topology placement to the assignment of one head (`docs/spec/engine.md §6.2` and §6.8).

Owns which pod sets are placed, when that is left to later, and what an assignment becomes whose pods have no places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from multikueue.api.constants import MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER
from multikueue.engine import messages
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.referenced_objects import ReferencedObjects
from multikueue.engine.cache.reserved_workloads import Reserved
from multikueue.engine.decisions import TopologyDecision
from multikueue.engine.flavorassigner.assignment import Assignment, AssignmentMode, Severity
from multikueue.engine.preemption.problem import PreemptionTarget, add_record, remove_record
from multikueue.engine.requests import RequestCounter
from multikueue.engine.settings import Settings
from multikueue.engine.topology.capacity import Places, TopologyCapacity
from multikueue.engine.topology.placer import Asked, Placed, TopologyPlacer
from multikueue.engine.topology.requests import with_check_updates
from multikueue.engine.topology.reserved_places import as_held, reserved_places, with_topologies, without_hosts
from multikueue.engine.topology.second_pass import SecondPass
from multikueue.engine.workloads import AssignedDomains, PodSet, Workload

_ELASTIC = "topology requests are not supported with ElasticJobsViaWorkloadSlices"


class TopologyAssigner:
    """Places the pod sets of heads on the current usage; that is the same afterwards."""

    def __init__(
        self, capacity: TopologyCapacity, *, settings: Settings, referenced: ReferencedObjects, counter: RequestCounter
    ) -> None:
        self._capacity = capacity
        self._counter = counter
        self._enabled = settings.gates.topology
        self._referenced = referenced
        self.placer = TopologyPlacer(
            capacity,
            flavors=referenced.flavors,
            topologies=referenced,
            mixed_profile=settings.gates.mixed_topology_profile,
        )
        self._second_pass = SecondPass(self.placer)

    def place(
        self, assignment: Assignment, workload: Workload, cluster_queue: CachedClusterQueue, *, grows: bool = False
    ) -> None:
        """Place the pods of an assignment; without places it needs a preemption, or does not fit.

        `grows` is whether it takes over the quota of an older slice of an elastic job.
        """
        asked = self._asked(assignment, workload, cluster_queue, even_none=grows)
        if not asked or assignment.mode is AssignmentMode.NO_FIT:
            return
        names = {each.pod_set.name for each in asked}
        if self._is_left_to_later(assignment, cluster_queue):
            for result in assignment.pod_sets:
                result.delayed = result.name in names
            return
        if grows:
            for result in assignment.pod_sets:
                result.error = _ELASTIC if result.name in names else result.error
            return
        if assignment.mode is AssignmentMode.FIT:
            found = self.placer.place(asked)
            self._adopt(assignment, found)
            if found.complete or found.errors:
                return
            for result in assignment.pod_sets:
                if result.name in found.failures:
                    result.reasons = [*result.reasons, found.failures[result.name]]
                    result.forced = AssignmentMode.PREEMPT
        found = self.placer.place(asked, empty=True)
        self._adopt(assignment, found)
        for result in assignment.pod_sets:
            if result.name in found.failures:
                if result.forced is None:  # otherwise the reason is what is free now, as Kueue's
                    result.reasons = [*result.reasons, found.failures[result.name]]
                result.forced = AssignmentMode.NO_FIT
                result.severity = Severity.TOPOLOGY_PLACEMENT_FAILED
            elif result.forced is None and result.name in names:
                result.forced = AssignmentMode.PREEMPT

    def test_of(
        self, assignment: Assignment, workload: Workload, cluster_queue: CachedClusterQueue
    ) -> Callable[[], bool] | None:
        """Whether all pods have places on the usage at the time of the call; None if none are to be placed."""
        asked = self._asked(assignment, workload, cluster_queue)
        if not asked or self._is_left_to_later(assignment, cluster_queue):
            return None
        return lambda: self.placer.place(asked).complete

    def reserve(
        self,
        assignment: Assignment,
        workload: Workload,
        cluster_queue: CachedClusterQueue,
        targets: Sequence[PreemptionTarget],
    ) -> None:
        """The places that a preemptor will have once its victims are gone, or on empty leaves if there are none yet."""
        if assignment.mode is not AssignmentMode.PREEMPT:
            return
        asked = self._asked(assignment, workload, cluster_queue)
        if not asked or self._is_left_to_later(assignment, cluster_queue):
            return
        for target in targets:
            remove_record(target.record, self._capacity)
        found = self.placer.place(asked, empty=not targets)
        for target in targets:
            add_record(target.record, self._capacity)
        self._adopt(assignment, found)

    def decide_again(self, record: Reserved) -> TopologyDecision:
        """Places for a workload that holds quota; what it gets counts from now on (§1.12)."""
        workload, held = self._counter.as_created(record.workload), record.places
        self._capacity.remove(held)
        staying = self._places(without_hosts(workload, workload.unhealthy_nodes), held)
        found = self._second_pass.place(workload, staying=staying)
        topologies = {name: AssignedDomains(each.levels, each.domains) for name, each in found.placements.items()}
        if found.complete and topologies:
            record.places_before = self._places(workload, held)
            record.places = self._places(with_topologies(workload, topologies), held)
        self._capacity.add(record.places)
        problem = "; ".join((*found.errors.values(), *found.failures.values()))
        return TopologyDecision(
            workload=workload.key,
            uid=record.uid,
            cluster_queue=record.node.name,
            unhealthy_nodes=workload.unhealthy_nodes,
            topologies=() if problem else tuple(topologies.items()),
            problem=problem,
            evict=messages.no_replacement(workload.unhealthy_nodes) if problem and workload.unhealthy_nodes else "",
        )

    def _places(self, workload: Workload, held: Places) -> Places:
        return as_held(reserved_places(workload, self._referenced.flavors), held)

    def _adopt(self, assignment: Assignment, found: Placed) -> None:
        for result in assignment.pod_sets:
            result.placement = found.placements.get(result.name)
            result.error = found.errors.get(result.name, result.error)

    def _asked(
        self,
        assignment: Assignment,
        workload: Workload,
        cluster_queue: CachedClusterQueue,
        *,
        even_none: bool = False,
    ) -> list[Asked]:
        """The pod sets to place: those that request it, and all if all flavors of the queue have a topology.

        With `even_none` also those without a pod.
        """
        implied = self._enabled and self._referenced.all_topology(cluster_queue)
        if not implied and not (self._enabled and any(_asks(spec) for spec in workload.pod_sets)):
            return []
        results = {result.name: result for result in assignment.pod_sets}
        return [
            Asked(
                with_check_updates(spec, workload.checks),
                results[spec.name].count,
                frozenset(choice.flavor for choice in results[spec.name].choices.values()),
            )
            for spec in self._counter.as_created(workload).pod_sets
            if spec.name in results and (results[spec.name].count or even_none) and (implied or _asks(spec))
        ]

    def _is_left_to_later(self, assignment: Assignment, cluster_queue: CachedClusterQueue) -> bool:
        """Whether a worker cluster places the pods, or the nodes for them have to be provisioned first."""
        value = cluster_queue.value
        flavors = {choice.flavor for pod_set in assignment.pod_sets for choice in pod_set.choices.values()}
        for rule in () if value is None else value.checks:
            check = self._referenced.checks.get(rule.name)
            if check is None or (rule.on_flavors and not rule.on_flavors & flavors):
                continue
            if check.controller in (MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER):
                return True
        return False


def _asks(spec: PodSet) -> bool:
    return spec.topology is not None and spec.topology.explicit
