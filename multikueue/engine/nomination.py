# SPDX-License-Identifier: Apache-2.0
"""What one head could get, looked at alone (`docs/spec/engine.md §3.2` and §3.7).

Owns the reasons to reject a head unlooked at, and the way from flavors to targets with partial admission. Usage is the
same after as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from multikueue.api.constants import CheckState
from multikueue.api.reasons import QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine import messages, partial, quota
from multikueue.engine.assignment import Assignment, AssignmentMode, Severity
from multikueue.engine.decisions import RequeueReason
from multikueue.engine.flavor_assigner import FlavorAssigner, Pins
from multikueue.engine.knowledge import Knowledge
from multikueue.engine.live import LiveQueue
from multikueue.engine.pending import Pending
from multikueue.engine.preemption.finder import Finder
from multikueue.engine.preemption.problem import Target
from multikueue.engine.quota import Amounts
from multikueue.engine.requests import PodSetRequests, RequestCounter
from multikueue.engine.settings import Settings
from multikueue.engine.standing import Reserved
from multikueue.engine.topology import NO_INFORMATION, Placer
from multikueue.engine.workloads import PodSet


class Rejection(NamedTuple):
    """Why a head is not looked at."""

    reason: QuotaReservedReason
    message: str
    requeue: RequeueReason = RequeueReason.GENERIC


@dataclass(slots=True)
class Nomination:
    """A head with what it could get, and whom it would have evicted."""

    live: LiveQueue
    pending: Pending
    assignment: Assignment = field(default_factory=Assignment)
    targets: list[Target] = field(default_factory=list)
    amounts: Amounts = field(default_factory=list)
    replaced: Reserved | None = None
    occupied: Amounts = field(default_factory=list)

    def settle(self, assignment: Assignment, targets: list[Target]) -> None:
        """Take on a result."""
        self.assignment = assignment
        self.targets = targets
        self.amounts = assignment.amounts()


class Nominator:
    """Looks at heads."""

    def __init__(
        self,
        *,
        settings: Settings,
        knowledge: Knowledge,
        lives: dict[str, LiveQueue],
        counter: RequestCounter,
        records: Mapping[Key, Reserved],
        usage_of: Callable[[Key], float] | None,
        placer: Placer | None,
    ) -> None:
        self._settings = settings
        self._knowledge = knowledge
        self._lives = lives
        self._counter = counter
        self._records = records
        self._usage_of = usage_of
        self._placer = placer

    def rejection(self, live: LiveQueue, pending: Pending, *, active: bool) -> Rejection | None:
        """The first reason not to look at a head."""
        workload = pending.workload
        if any(check.state in (CheckState.RETRY, CheckState.REJECTED) for check in workload.checks):
            return Rejection(QuotaReservedReason.PENDING_EVALUATION, messages.FAILED_CHECKS)
        if live.value is None:
            return Rejection(QuotaReservedReason.MISCONFIGURED, f"ClusterQueue {live.name} not found")
        if not active or live.node.in_cycle:
            return Rejection(QuotaReservedReason.SUSPENDED, f"ClusterQueue {live.name} is inactive")
        namespace = workload.key.namespace
        if not self._knowledge.selects(live, namespace):
            if namespace not in self._knowledge.namespaces:
                return Rejection(QuotaReservedReason.MISCONFIGURED, messages.namespace_missing(namespace))
            return Rejection(
                QuotaReservedReason.MISCONFIGURED, messages.NAMESPACE_MISMATCH, RequeueReason.NAMESPACE_MISMATCH
            )
        problem = self._counter.problem(workload)
        return Rejection(QuotaReservedReason.MISCONFIGURED, problem) if problem else None

    def nominate(self, nomination: Nomination, *, cycle: int) -> None:
        """Flavors and targets for a head, as usage is now."""
        pending = nomination.pending
        progress = pending.progress
        if progress is not None and self._stale(nomination, cycle):
            progress = pending.progress = None
        nomination.replaced = self._replaced(nomination)
        self._run(nomination, tried=progress.tried if progress is not None else ())

    def renominate(self, nomination: Nomination, gone: Collection[Key]) -> None:
        """The same on the flavors nominated before, with the workloads in `gone` out of the way."""
        nomination.pending.progress = None
        pins = Pins(
            [{name: choice.flavor for name, choice in p.choices.items()} for p in nomination.assignment.pod_sets]
        )
        self._run(nomination, pins=pins, excluded=gone)

    def _stale(self, nomination: Nomination, cycle: int) -> bool:
        progress = nomination.pending.progress
        if progress is None:
            return False
        changed = nomination.live.node.generation > progress.generation
        if not self._settings.gates.preserve_scan_progress:
            return nomination.live.node.generation != progress.generation
        return cycle - progress.cycle > 1 and changed

    def _replaced(self, nomination: Nomination) -> Reserved | None:
        """The slice that an elastic workload takes the place of."""
        replaces = nomination.pending.workload.replaces
        if not replaces or not self._settings.gates.elastic_jobs:
            return None
        key = Key.parse(replaces) if "/" in replaces else Key(nomination.pending.workload.key.namespace, replaces)
        record = self._records.get(key)
        return record if record is not None and record.node is nomination.live.node else None

    def _run(
        self,
        nomination: Nomination,
        *,
        tried: Sequence[Mapping[str, int]] = (),
        pins: Pins | None = None,
        excluded: Collection[Key] = (),
    ) -> None:
        pending, live = nomination.pending, nomination.live
        replaced = nomination.replaced
        if replaced is not None:
            # The old slice's quota is the new one's: only the difference is asked for.
            quota.give_all(replaced.usage)
            excluded = {*excluded, replaced.workload.key}
        finder = Finder(
            live,
            workload=pending.workload,
            priority=pending.priority,
            lives=self._lives,
            settings=self._settings,
            excluded=excluded,
            usage_of=self._usage_of,
        )
        assigner = FlavorAssigner(
            live,
            pod_sets=pending.workload.pod_sets,
            settings=self._settings,
            world=self._knowledge,
            oracle=finder,
            tried=tried,
            pins=pins,
            required=_required(replaced),
        )

        def attempt(requests: Sequence[PodSetRequests]) -> tuple[Assignment, list[Target]]:
            assignment = assigner.assign(requests)
            self._place(nomination, assignment, excluded)
            if assignment.mode is not AssignmentMode.PREEMPT:
                return assignment, []
            return assignment, finder.targets(
                assignment.amounts(), assignment.contested(), placed=self._placed(nomination, assignment, excluded)
            )

        def acceptable(requests: list[PodSetRequests]) -> tuple[Assignment, list[Target]] | None:
            assignment, targets = attempt(requests)
            return (assignment, targets) if targets or assignment.mode is AssignmentMode.FIT else None

        assignment, targets = attempt(pending.requests)
        if (
            assignment.mode is not AssignmentMode.FIT
            and not targets
            and self._settings.gates.partial_admission
            and replaced is None
            and partial.possible(pending.workload.pod_sets)
        ):
            reduced = partial.search(pending.workload.pod_sets, pending.requests, acceptable)
            if reduced is not None:
                assignment, targets = reduced
        if replaced is not None:
            quota.take_all(replaced.usage)
        nomination.settle(assignment, targets)

    def _place(self, nomination: Nomination, assignment: Assignment, gone: Collection[Key]) -> None:
        """Topology's word on an assignment (§6.8)."""
        if not any(pod_set.topology is not None and pod_set.topology.explicit for pod_set in _specs(nomination)):
            return
        if assignment.mode is AssignmentMode.NO_FIT:
            return
        placer = self._placer
        if placer is None:
            for result, spec in zip(assignment.pod_sets, _specs(nomination), strict=False):
                if spec.topology is not None and spec.topology.explicit and result.count:
                    result.error = NO_INFORMATION
            return
        workload = nomination.pending.workload
        if assignment.mode is AssignmentMode.FIT:
            failures = placer.failures(workload, assignment, gone=gone, empty=False)
            if not failures:
                return
            for result in assignment.pod_sets:
                if result.name in failures:
                    result.reasons = [*result.reasons, failures[result.name]]
                    result.forced = AssignmentMode.PREEMPT
        failures = placer.failures(workload, assignment, gone=gone, empty=True)
        for result in assignment.pod_sets:
            if result.name in failures:
                result.reasons = [*result.reasons, failures[result.name]]
                result.forced = AssignmentMode.NO_FIT
                result.severity = Severity.TOPOLOGY_PLACEMENT_FAILED
            elif result.forced is None and any(
                spec.name == result.name and spec.topology for spec in _specs(nomination)
            ):
                result.forced = AssignmentMode.PREEMPT

    def _placed(
        self, nomination: Nomination, assignment: Assignment, gone: Collection[Key]
    ) -> Callable[[], bool] | None:
        placer = self._placer
        if placer is None or not any(spec.topology for spec in _specs(nomination)):
            return None
        return lambda: not placer.failures(nomination.pending.workload, assignment, gone=gone, empty=False)


def _specs(nomination: Nomination) -> Sequence[PodSet]:
    return nomination.pending.workload.pod_sets


def _required(replaced: Reserved | None) -> Mapping[str, Mapping[str, str]]:
    if replaced is None or replaced.workload.admission is None:
        return {}
    return {assigned.name: assigned.flavors for assigned in replaced.workload.admission.pod_sets}
