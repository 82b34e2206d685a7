# SPDX-License-Identifier: Apache-2.0
"""What one head could get, evaluated alone (`docs/spec/engine.md §3.2` and §3.7).

Owns the reasons to reject a head without evaluation, and the way from flavors to preemption targets, with partial
admission. Usage is the same afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from multikueue.api.constants import CheckState, PreemptionPolicy
from multikueue.api.reasons import QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine import messages
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.quota import Amounts
from multikueue.engine.cache.referenced_objects import ReferencedObjects
from multikueue.engine.cache.reserved_workloads import Reserved
from multikueue.engine.cycle.topologies import TopologyAssigner
from multikueue.engine.decisions import RequeueReason
from multikueue.engine.flavorassigner.assigner import FlavorAssigner, Pins
from multikueue.engine.flavorassigner.assignment import Assignment, AssignmentMode
from multikueue.engine.preemption.finder import Finder
from multikueue.engine.preemption.problem import PreemptionTarget
from multikueue.engine.queue.pending import IssuedPreemptions, Pending
from multikueue.engine.requests import PodSetRequests, RequestCounter, beyond, scaled
from multikueue.engine.resources import PODS, FlavorResource, clamp
from multikueue.engine.settings import Settings
from multikueue.engine.topology.capacity import Places, TopologyCapacity
from multikueue.engine.workload_conditions import queue_inactive
from multikueue.engine.workloads import PodSet

T = TypeVar("T")


class Rejection(NamedTuple):
    """Why a head is not evaluated."""

    reason: QuotaReservedReason
    message: str
    requeue: RequeueReason = RequeueReason.GENERIC


@dataclass(slots=True)
class NominatedHead:
    """A head with the assignment that it could get, and the workloads it would evict.

    With `replaced` the quota of an older slice is taken over, and `amounts` are what is needed in addition.
    """

    cluster_queue: CachedClusterQueue
    pending: Pending
    assignment: Assignment = field(default_factory=Assignment)
    targets: list[PreemptionTarget] = field(default_factory=list)
    amounts: Amounts = field(default_factory=list)
    places: Places = ()
    replaced: Reserved | None = None

    @property
    def succeeds(self) -> bool:
        """Whether it fits, or would with its victims gone."""
        return bool(self.targets) or self.assignment.mode is AssignmentMode.FIT

    def flavors(self) -> list[dict[str, str]]:
        """The flavors of the assignment, by pod set and resource."""
        chosen = {each.name: each.choices for each in self.assignment.pod_sets}
        pod_sets = self.pending.workload.pod_sets
        return [{name: choice.flavor for name, choice in chosen.get(spec.name, {}).items()} for spec in pod_sets]

    def issued(self, victims: Iterable[Key]) -> IssuedPreemptions:
        """What it has preempted, with these victims, and for what."""
        counts = tuple(result.count for result in self.assignment.pod_sets)
        return IssuedPreemptions(self.pending.preemptions.victims.union(victims), counts, tuple(self.flavors()))

    def settle(self, assignment: Assignment, targets: list[PreemptionTarget]) -> None:
        """Adopt a result."""
        self.assignment = assignment
        self.targets = targets
        self.amounts = assignment.amounts()
        self.places = assignment.places()

    def usage(self) -> dict[FlavorResource, int]:
        """Everything that the workload uses once it is admitted."""
        if self.replaced is None:
            return {cell.key: amount for cell, amount in self.assignment.usage.items()}
        usage: dict[FlavorResource, int] = {}
        for pod_set in self.assignment.pod_sets:
            for name, choice in pod_set.choices.items():
                usage[choice.cell.key] = clamp(usage.get(choice.cell.key, 0) + pod_set.requests.get(name, 0))
        return usage


class Nominator:
    """Evaluates heads."""

    def __init__(
        self,
        *,
        settings: Settings,
        referenced: ReferencedObjects,
        cluster_queues: dict[str, CachedClusterQueue],
        counter: RequestCounter,
        records: Mapping[Key, Reserved],
        waiting: Mapping[Key, Pending],
        usage_of: Callable[[Key], float] | None,
        capacity: TopologyCapacity,
    ) -> None:
        self._settings = settings
        self._referenced = referenced
        self._cluster_queues = cluster_queues
        self._counter = counter
        self._records = records
        self._waiting = waiting
        self._usage_of = usage_of
        self._capacity = capacity
        self.topologies = TopologyAssigner(capacity, settings=settings, referenced=referenced, counter=counter)

    def rejection(self, cluster_queue: CachedClusterQueue, pending: Pending, *, active: bool) -> Rejection | None:
        """The first reason not to evaluate a head."""
        workload = pending.workload
        if any(check.state in (CheckState.RETRY, CheckState.REJECTED) for check in workload.checks):
            return Rejection(QuotaReservedReason.PENDING_EVALUATION, messages.FAILED_CHECKS)
        if cluster_queue.value is None:
            return Rejection(QuotaReservedReason.MISCONFIGURED, f"ClusterQueue {cluster_queue.name} not found")
        if not active or cluster_queue.node.cut_off:
            return Rejection(*queue_inactive("ClusterQueue", cluster_queue.name))
        namespace = workload.key.namespace
        if not self._referenced.selects(cluster_queue, namespace):
            if namespace not in self._referenced.namespaces:
                return Rejection(QuotaReservedReason.MISCONFIGURED, messages.namespace_missing(namespace))
            return Rejection(
                QuotaReservedReason.MISCONFIGURED, messages.NAMESPACE_MISMATCH, RequeueReason.NAMESPACE_MISMATCH
            )
        if workload.replaces and not self._settings.gates.elastic_jobs:
            return Rejection(QuotaReservedReason.MISCONFIGURED, messages.SLICES_OFF)
        problem = self._counter.problem(workload)
        return Rejection(QuotaReservedReason.MISCONFIGURED, problem) if problem else None

    def nominate(self, nomination: NominatedHead, *, cycle: int) -> None:
        """Flavors and targets for a head, with the current usage."""
        pending = nomination.pending
        progress = pending.progress
        if progress is not None and self._stale(nomination, cycle):
            progress = pending.progress = None
        nomination.replaced = self._replaced(nomination)
        self._run(nomination, tried=progress.tried if progress is not None else ())
        if pending.preemptions.flavors and not nomination.succeeds:
            # With its victims gone another pod set may have got the flavor, so that not all do.
            found = nomination.assignment, nomination.targets
            self._run(nomination, pins=Pins(pending.preemptions.flavors))
            if not nomination.succeeds:
                nomination.settle(*found)

    def renominate(self, nomination: NominatedHead, gone: Collection[Key]) -> None:
        """The same on the flavors nominated before, without the workloads in `gone`."""
        nomination.pending.progress = None
        self._run(nomination, pins=Pins(nomination.flavors()), excluded=gone)

    def _stale(self, nomination: NominatedHead, cycle: int) -> bool:
        progress = nomination.pending.progress
        if progress is None:
            return False
        changed = nomination.cluster_queue.node.generation > progress.generation
        if not self._settings.gates.preserve_scan_progress:
            return nomination.cluster_queue.node.generation != progress.generation
        return cycle - progress.cycle > 1 and changed

    def _may_be_reclaimed(self, pending: Pending) -> bool:
        """Whether a preemptor for a part of its pods may be the next victim of its victims if it gets them all."""
        counts = [counted.count for counted in pending.requests]
        if len(pending.preemptions.counts) != len(counts) or list(pending.preemptions.counts) == counts:
            return False
        return any(self._may_reclaim(victim, pending) for victim in map(self._waiting.get, pending.preemptions.victims))

    def _may_reclaim(self, victim: Pending | None, pending: Pending) -> bool:
        """Whether the policy of the queue in which a victim waits again lets it preempt its preemptor."""
        queue = self._cluster_queues.get(victim.queue.name) if victim is not None and victim.queue is not None else None
        if victim is None or queue is None or queue.value is None:
            return False
        policy = queue.value.preemption.reclaim_within_cohort
        return policy == PreemptionPolicy.ANY or (
            policy != PreemptionPolicy.NEVER and victim.priority > pending.priority
        )

    def _replaced(self, nomination: NominatedHead) -> Reserved | None:
        """The slice of the same job that an elastic workload replaces, unless it is being evicted."""
        workload = nomination.pending.workload
        if not workload.replaces or not self._settings.gates.elastic_jobs:
            return None
        record = self._records.get(workload.replaced_key)
        if record is None or record.node is not nomination.cluster_queue.node or record.evicted:
            return None
        return record if record.workload.job_uid == workload.job_uid else None

    def _run(
        self,
        nomination: NominatedHead,
        *,
        tried: Sequence[Mapping[str, int]] = (),
        pins: Pins | None = None,
        excluded: Collection[Key] = (),
    ) -> None:
        pending, cluster_queue = nomination.pending, nomination.cluster_queue
        replaced = nomination.replaced
        requests = pending.requests
        if replaced is not None:
            # The new slice takes over the old one's quota: only the difference is requested.
            requests = beyond(requests, replaced.workload, reclaimable=self._settings.gates.reclaimable_pods)
            excluded = {*excluded, replaced.workload.key}
        finder = Finder(
            cluster_queue,
            workload=pending.workload,
            priority=pending.priority,
            cluster_queues=self._cluster_queues,
            settings=self._settings,
            capacity=self._capacity,
            excluded=excluded,
            usage_of=self._usage_of,
        )
        assigner = FlavorAssigner(
            cluster_queue,
            pod_sets=pending.workload.pod_sets,
            settings=self._settings,
            cache=self._referenced,
            oracle=finder,
            tried=tried,
            pins=pins,
            required=_required(replaced),
        )

        def attempt(requests: Sequence[PodSetRequests]) -> tuple[Assignment, list[PreemptionTarget]]:
            assignment = assigner.assign(requests)
            self.topologies.place(assignment, pending.workload, cluster_queue, grows=replaced is not None)
            if assignment.mode is not AssignmentMode.PREEMPT:
                return assignment, []
            return assignment, finder.targets(
                assignment.amounts(),
                assignment.contested(),
                placed=self.topologies.test_of(assignment, pending.workload, cluster_queue),
            )

        def acceptable(requests: list[PodSetRequests]) -> tuple[Assignment, list[PreemptionTarget]] | None:
            assignment, targets = attempt(requests)
            return (assignment, targets) if targets or assignment.mode is AssignmentMode.FIT else None

        assignment, targets = attempt(requests)
        if (
            assignment.mode is not AssignmentMode.FIT
            and not targets
            and self._settings.gates.partial_admission
            and replaced is None
            and _reducible(pending.workload.pod_sets)
        ):
            sliced = self._settings.gates.topology
            reduced = _most_pods(pending.workload.pod_sets, pending.requests, acceptable, sliced=sliced)
            if reduced is not None:
                assignment, targets = reduced
        if assignment.mode is AssignmentMode.FIT and self._may_be_reclaimed(pending):
            smaller, _ = attempt([scaled(*each) for each in zip(requests, pending.preemptions.counts, strict=True)])
            assignment = smaller if smaller.mode is AssignmentMode.FIT else assignment
        self.topologies.reserve(assignment, pending.workload, cluster_queue, targets)
        nomination.settle(assignment, targets)
        if replaced is not None:
            _whole(assignment, pending.requests)


def _whole(assignment: Assignment, requests: Sequence[PodSetRequests]) -> None:
    """Let the pod sets of a slice show all that they get; `usage` stays the difference to the old slice."""
    totals = {counted.name: counted for counted in requests}
    for result in assignment.pod_sets:
        counted = totals[result.name]
        result.count = counted.count
        result.requests = {**counted.total, **({PODS: counted.count} if PODS in result.requests else {})}


def _required(replaced: Reserved | None) -> Mapping[str, Mapping[str, str]]:
    if replaced is None or replaced.workload.admission is None:
        return {}
    return {assigned.name: assigned.flavors for assigned in replaced.workload.admission.pod_sets}


def _reducible(pod_sets: Sequence[PodSet]) -> bool:
    """Whether some pod set accepts fewer pods."""
    return any(pod_set.min_count is not None and pod_set.min_count < pod_set.count for pod_set in pod_sets)


def _most_pods(
    pod_sets: Sequence[PodSet],
    requests: Sequence[PodSetRequests],
    attempt: Callable[[list[PodSetRequests]], T | None],
    *,
    sliced: bool,
) -> T | None:
    """The result of `attempt` for the smallest reduction that it accepts; success is assumed monotone.

    With `sliced` only numbers that can be divided into the slices of the topology request are tried.
    """
    ranges = [_range(pod_set, _slice_size(pod_set) if sliced else 1) for pod_set in pod_sets]
    whole = sum(len(counts) - 1 for counts in ranges)
    low, high = 0, whole + 1
    found: tuple[int, T] | None = None
    while low < high:
        middle = (low + high) // 2
        result = attempt(
            [
                scaled(counted, counts[(len(counts) - 1) * middle // max(1, whole)])
                for counted, counts in zip(requests, ranges, strict=True)
            ]
        )
        if result is not None:
            found, high = (middle, result), middle
        else:
            low = middle + 1
    return found[1] if found is not None and found[0] == low else None


def _range(pod_set: PodSet, slice_size: int) -> range:
    """The numbers of pods that a pod set accepts, the greatest first."""
    least = pod_set.count if pod_set.min_count is None else pod_set.min_count
    counts = range(pod_set.count // slice_size * slice_size, least - 1, -slice_size)
    return counts or range(pod_set.count, pod_set.count - 1, -1)


def _slice_size(pod_set: PodSet) -> int:
    layers = () if pod_set.topology is None else pod_set.topology.layers
    return max(1, layers[0][1]) if layers else 1
