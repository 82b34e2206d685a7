# SPDX-License-Identifier: Apache-2.0
"""Carries out a plan.

Owns the order that safety depends on: the user's job shows the last status before the Workload is finished, and
`clusterName` is written, where the API server rejects a second winner, before a cluster is instructed to run. Promises
that a plan is dropped when the Workload has changed since it was made.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio

from manager.cache.views import View
from manager.context import ManagerContext
from manager.dispatch.assignments import Dispatch, as_sent, assignment, limited_to_slice
from manager.dispatch.gather import Gathered, adoption_for, load_job, owners_of
from manager.dispatch.reported.failure_records import FailureRecords
from manager.dispatch.transport.mailbox_transport import Transport
from manager.dispatch.transport.object_sending import ObjectSending
from manager.dispatch.workload_status import PlanChange, failed_to_start
from manager.provisioning.checks import DelegatedChecks
from multikueue.api.constants import AVOIDED_ANNOTATION, GATE_OPENING_ANNOTATION, ROUND_ANNOTATION, GatePosition
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadEvent
from multikueue.api.remoteassignment import Intent
from multikueue.api.resource import RESOURCE_FLAVORS, WORKLOADS
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.keys import Key
from multikueue.dispatch.hub import messages
from multikueue.dispatch.hub.actions import (
    Action,
    Assign,
    DeclareStopped,
    DispatchPlan,
    RecordFailure,
    RemoveAssignment,
    Rule,
    SetGate,
    SetIntent,
    StartUpdate,
    SyncStatus,
)
from multikueue.dispatch.hub.availability import policy_on
from multikueue.dispatch.hub.facts import Observation
from multikueue.dispatch.hub.preemption_gates import position
from multikueue.dispatch.protocol.annotations import avoided_text, gate_opening_text, round_text
from multikueue.dispatch.protocol.phases import ENDED
from multikueue.jobs.framework.capabilities import SentGroups
from multikueue.jobs.framework.protocol import InjectionConflict, JobWrite
from multikueue.jobs.framework.workloads import is_of_group
from multikueue.kube.errors import Invalid, NotFound
from multikueue.kube.rest.client import PatchKind
from multikueue.kube.runtime.events import WARNING, Reference

_log = logging.getLogger(__name__)

Call = Callable[[], Awaitable[None]]

_ABOUT_JOB: Final = (Assign, SetGate, SyncStatus, DeclareStopped)  # actions that do nothing without the job


@dataclass(frozen=True, slots=True)
class ExecutionOutcome:
    """The result of a plan: dropped because it was made for something outdated, or when to plan again."""

    outdated: bool = False
    deferred: float | None = None


class Executor:
    """Carries out plans."""

    def __init__(
        self,
        context: ManagerContext,
        transport: Transport,
        failures: FailureRecords | None = None,
        sending: ObjectSending | None = None,
    ) -> None:
        """Without `sending` no objects are sent with jobs."""
        self._context = context
        self._sending = sending
        self._failures = failures or FailureRecords(context)
        self._transport = transport

    async def execute(self, key: Key, plan: DispatchPlan, gathered: Gathered) -> ExecutionOutcome:
        """Sync the job, write the status, assign. Raises what the API server answers; running it again is safe."""
        if await self._found_newer_workload(key, plan, gathered) or await self._found_job(plan, gathered):
            return ExecutionOutcome(outdated=True)
        deferred = await self._write_job(plan, gathered)
        try:
            calls = self._calls(key, plan, gathered)
        except InjectionConflict as error:
            now = self._context.clock.now()
            await self._context.statuses.write(key, partial(failed_to_start, message=str(error), now=now))
            return ExecutionOutcome()
        await self._note(plan, gathered)
        if plan.rule is Rule.NOMINATE:
            # They are independent: an assignment that reserves without a nomination is found by the next plan.
            written: list[bool] = []

            async def write() -> None:
                written.append(await self._write_status(key, plan, gathered))

            await _together([write, *calls])
            outdated = not all(written)
        else:
            outdated = not await self._write_status(key, plan, gathered)
            if not outdated:
                await _together(calls)
        if not outdated:
            self.report(plan, gathered)
        return ExecutionOutcome(outdated=outdated, deferred=deferred)

    async def _found_newer_workload(self, key: Key, plan: DispatchPlan, gathered: Gathered) -> bool:
        """Whether the plan stops running work because of a version of its Workload that the server has replaced.

        After a partition, or in a new leader, the cache of Workloads may lag behind that of assignments: what another
        leader has admitted since would look left behind.
        """
        if not any(_stops(each, gathered.facts.observations) for each in plan.actions):
            return False
        view = self._context.caches.view(WORKLOADS)
        await view.refresh(self._context.client, key)
        row = view.get(key)
        planned_for = None if gathered.workload is None else gathered.workload["metadata"]["resourceVersion"]
        return row is not None and row.resource_version != planned_for

    async def _found_job(self, plan: DispatchPlan, gathered: Gathered) -> bool:
        """Whether the plan lacked a job, or a member of a group, that exists.

        After a partition, or in a new leader, the cache of jobs may lag behind those of Workloads and assignments. The
        end of a remote job is written once, so that a job that is not found would never get its status.
        """
        workload, kind = gathered.workload, gathered.integration
        if workload is None or kind is None:
            return False
        ends = plan.finish is not None
        if not ends and (is_of_group(workload) or not any(isinstance(each, _ABOUT_JOB) for each in plan.actions)):
            return False  # the members that are missing may have been deleted long ago: they are looked for once
        view, found = self._context.caches.view(kind.resource), False
        for reference in owners_of(workload):
            owner = Key(workload["metadata"]["namespace"], reference["name"])
            if not _holds(view, owner, reference["uid"]):
                await view.refresh(self._context.client, owner)
                found = found or _holds(view, owner, reference["uid"])
        return found

    async def _write_job(self, plan: DispatchPlan, gathered: Gathered) -> float | None:
        """Write the job's status; returns the seconds after which a deferred status is tried again."""
        deferred: float | None = None
        for action in plan.actions:
            if not isinstance(action, SyncStatus | DeclareStopped):
                continue
            job = load_job(self._context, gathered)
            if job is None or gathered.integration is None:
                continue
            if isinstance(action, DeclareStopped):
                write = gathered.integration.stopped_status(job, now=self._context.clock.now())
            else:
                observation = gathered.facts.observations[action.cluster]
                if observation.job_status is None:
                    continue
                workload = gathered.facts.workload
                key = gathered.job if workload is None else workload.key
                assert key is not None, "the job was found"
                quarantine = self._context.caches.quarantine
                try:
                    synced = gathered.integration.sync_status(job, observation.job_status)
                except BadInput as error:
                    # The worker reports no valid status. The workload must continue all the same.
                    unreadable = BadInput(f"cluster {action.cluster}: jobStatus: {error}")
                    quarantine.add("status_sync", WORKLOADS, key, unreadable)
                    continue
                quarantine.release("status_sync", WORKLOADS, key)
                write = synced.write
                deferred = synced.retry_after if synced.deferred else deferred
            if write is not None:
                await self._patch_job(job, write, gathered)
        return deferred

    async def _note(self, plan: DispatchPlan, gathered: Gathered) -> None:
        """Write annotations that must outlive this process first: a round, an opened gate, a cluster to avoid."""
        facts, now = gathered.facts.workload, self._context.clock.now()
        if facts is None or gathered.workload is None:
            return
        notes: dict[str, str] = {}
        if plan.round is not None:
            notes[ROUND_ANNOTATION] = round_text(plan.round)
        if plan.gate_opening is not None:
            notes[GATE_OPENING_ANNOTATION] = gate_opening_text(plan.gate_opening)
        if plan.avoid:
            notes[AVOIDED_ANNOTATION] = avoided_text({**gathered.facts.avoided, plan.avoid: now + plan.avoid_for})
        if not notes:
            return
        try:
            answer = await self._context.client.patch(
                WORKLOADS,
                facts.key.name,
                {"metadata": {"uid": facts.uid, "annotations": notes}},
                namespace=facts.key.namespace,
                kind=PatchKind.MERGE,
                # A former leader that has not seen the last opening must not add another one.
                resource_version=None
                if plan.gate_opening is None
                else gathered.workload["metadata"]["resourceVersion"],
            )
        except NotFound:
            return
        self._context.caches.view(WORKLOADS).on_write(answer)

    async def _patch_job(self, job: JsonObject, write: JobWrite, gathered: Gathered) -> None:
        assert gathered.integration is not None
        for each in (write, *write.also):
            resource = each.resource or gathered.integration.resource
            metadata = (each.target or job)["metadata"]
            try:
                answer = await self._context.client.patch(
                    resource,
                    metadata["name"],
                    each.body,
                    namespace=metadata["namespace"],
                    kind=PatchKind.MERGE,
                    subresource=each.subresource or None,
                    # The patch was made for exactly this version: counters must not decrease, nor startTime change.
                    resource_version=metadata["resourceVersion"],
                )
            except NotFound:
                continue  # the user deleted the job, or the member of a group
            except Invalid as error:
                # Kubernetes rejects what the worker reports. The workload must continue all the same.
                key = Key(metadata["namespace"], metadata["name"])
                _log.warning("job status not synced kind=%s key=%s error=%s", resource.kind, key, error.message)
                continue
            self._context.caches.view(resource).on_write(answer)

    async def _write_status(self, key: Key, plan: DispatchPlan, gathered: Gathered) -> bool:
        """Write the Workload's status once; False when it is no longer the one that the plan was made for."""
        facts, status = gathered.facts.workload, gathered.status
        if facts is None or status is None or not plan.writes_status or (facts.check is None and not plan.evict):
            return True
        check = "" if facts.check is None else facts.check.name
        change = PlanChange(plan, check=check, planned_for=status, now=self._context.clock.now())
        written = await self._context.statuses.write(key, change, uid=facts.uid, planned=True)
        return written is not None and change.applied

    def _calls(self, key: Key, plan: DispatchPlan, gathered: Gathered) -> list[Call]:
        calls: list[Call] = []
        dispatch: Dispatch | None = None
        for action in plan.actions:
            match action:
                case Assign(cluster) | SetGate(cluster):
                    intent = action.intent if isinstance(action, Assign) else Intent.RESERVE
                    dispatch = dispatch or self._dispatch(plan, gathered)
                    if dispatch is not None:
                        gate, clones = self._gate(plan, gathered, cluster), _clones(gathered, cluster)
                        provisions = bool(dispatch.provisioning) and _provisions(plan, gathered, cluster, intent)
                        body = assignment(
                            dispatch,
                            cluster,
                            policy=policy_on(gathered.facts, cluster),
                            intent=intent,
                            clones=clones,
                            gate=gate,
                            provisions=provisions,
                        )
                        calls.append(partial(self._assign, cluster, key, dispatch, body))
                case SetIntent(cluster, intent):
                    calls.append(partial(self._transport.set_intent, cluster, key, intent))
                case RemoveAssignment(cluster):
                    calls.append(partial(self._transport.remove, cluster, key))
                case RecordFailure(cluster):
                    calls.append(partial(self._failures.record, gathered, gathered.facts.observations[cluster]))
                case SyncStatus() | DeclareStopped():
                    continue
        return calls

    async def _assign(self, cluster: str, key: Key, dispatch: Dispatch, body: JsonObject) -> None:
        """Assign, with the objects of the hub that its pods name, where these are sent."""
        if self._sending is not None:
            body = await self._sending.completed(cluster, key, dispatch.workload, body)
        await self._transport.assign(cluster, key, body, kept=partial(as_sent, kind=dispatch.integration))
        if self._sending is not None:
            self._sending.written(cluster, key)

    def _gate(self, plan: DispatchPlan, gathered: Gathered, cluster: str) -> GatePosition | None:
        facts, workload = gathered.facts, gathered.facts.workload
        if workload is None:
            return None
        chosen, now = plan.cluster_name or workload.cluster_name, self._context.clock.now()
        return position(facts, workload, cluster, now=now, opening=plan.gate_opening, chosen=chosen)

    def _dispatch(self, plan: DispatchPlan, gathered: Gathered) -> Dispatch | None:
        """What is sent; None while the job does not exist, whose absence ends the Workload by itself.

        None also while it has no pod that could be sent: the next one brings the Workload here again.
        """
        job, facts = load_job(self._context, gathered), gathered.facts.workload
        if job is None or facts is None or gathered.workload is None or gathered.integration is None:
            return None
        job = limited_to_slice(job, gathered.workload, gathered.integration)
        if job is None:
            return None  # the slice of its new size is sent
        if isinstance(gathered.integration, SentGroups) and gathered.integration.awaits_members(job):
            return None
        flavors = self._context.caches.view(RESOURCE_FLAVORS)
        names = {
            name
            for pod_set in gathered.workload["status"]["admission"]["podSetAssignments"]
            for name in (pod_set.get("flavors") or {}).values()
        }
        found = {name: flavors.object(Key("", name)) for name in names}
        ready = self._context.configuration.wait_for_pods_ready
        return Dispatch(
            workload=gathered.workload,
            job=job,
            integration=gathered.integration,
            flavors={name: flavor for name, flavor in found.items() if flavor is not None},
            origin=self._context.configuration.multikueue.origin,
            manager_uid=self._context.manager_uid,
            epoch=facts.epoch,
            lease_seconds=int(gathered.facts.settings.lease.total_seconds()),
            awaits_start=ready is not None and ready.awaits_starts,
            adopts=adoption_for(self._context.seals, gathered.workload, job, epoch=facts.epoch),
            verdicts=plan.verdicts,
            provisioning=tuple(DelegatedChecks(self._context.caches).sent(gathered.workload)),
        )

    def report(self, plan: DispatchPlan, gathered: Gathered) -> None:
        """Record events and metrics of a plan that was carried out."""
        if gathered.workload is None:
            return
        self.report_grant(plan, gathered)
        if plan.pods_started is not None and plan.pods_started.reason:
            self._report_not_started(plan.pods_started, gathered)
        if plan.change_forwarded is not None and plan.change_forwarded.reason:
            about = Reference.of(gathered.workload, api_version=WORKLOADS.api_version, kind=WORKLOADS.kind)
            message = plan.change_forwarded.message
            self._context.recorder.event(about, "Warning", WorkloadEvent.MULTIKUEUE, message)
        queue, metrics = _queue(gathered), self._context.metrics
        for action in plan.actions:
            if isinstance(action, Assign) and not _has_copy(gathered, action.cluster):
                metrics.dispatched.labels(queue, action.cluster, metrics.role).inc()

    def _report_not_started(self, shown: StartUpdate, gathered: Gathered) -> None:
        """Record why the pods do not start, at the Workload and at its job, which users look at first."""
        assert gathered.workload is not None, "its condition was written"
        about = [Reference.of(gathered.workload, api_version=WORKLOADS.api_version, kind=WORKLOADS.kind)]
        job, integration = load_job(self._context, gathered), gathered.integration
        if job is not None and integration is not None:
            resource = integration.resource
            about.append(Reference.of(job, api_version=resource.api_version, kind=resource.kind))
        for each in about:
            text = f"{shown.reason}: {shown.message}"
            self._context.recorder.event(each, WARNING, WorkloadEvent.PODS_NOT_STARTED, text)

    def report_grant(self, plan: DispatchPlan, gathered: Gathered) -> None:
        """Record the events, and the grant if there is one."""
        if gathered.workload is None:
            return
        about = Reference.of(gathered.workload, api_version=WORKLOADS.api_version, kind=WORKLOADS.kind)
        for event in plan.events:
            kind = "Warning" if event.warning else "Normal"
            self._context.recorder.event(about, kind, WorkloadEvent.MULTIKUEUE, event.message)
        if plan.rule in (Rule.GRANT, Rule.GRANT_AT_ONCE, Rule.TAKE_OVER) and plan.cluster_name:
            metrics = self._context.metrics
            metrics.granted.labels(_queue(gathered), plan.cluster_name, metrics.role).inc()


def _stops(action: Action, observations: Mapping[str, Observation]) -> bool:
    """Whether the action stops work that may run."""
    match action:
        case RemoveAssignment(cluster) | SetIntent(cluster, Intent.EVICT):
            observation = observations.get(cluster)
            if observation is None or observation.intent.precedes_grant:
                return False
            return not (observation.answered and observation.phase in ENDED)
        case _:
            return False


def _holds(view: View, key: Key, uid: str) -> bool:
    row = view.get(key)
    return row is not None and row.uid == uid


def _queue(gathered: Gathered) -> str:
    admission = ((gathered.workload or {}).get("status") or {}).get("admission") or {}
    return str(admission.get("clusterQueue", ""))


def _has_copy(gathered: Gathered, cluster: str) -> bool:
    """Whether the cluster has an assignment of this dispatch, which is only updated."""
    workload, seen = gathered.facts.workload, gathered.facts.observations.get(cluster)
    return workload is not None and seen is not None and seen.epoch == workload.epoch


def _provisions(plan: DispatchPlan, gathered: Gathered, cluster: str, intent: Intent) -> bool:
    """Whether the assignment asks for provisioned capacity; a cluster that was granted for free capacity is not."""
    if intent is not Intent.RUN or plan.rule is Rule.GRANT_AT_ONCE:
        return intent is Intent.PROVISION
    seen = gathered.facts.observations.get(cluster)
    if seen is not None and plan.rule is not Rule.DELIVER:
        return seen.provisions
    # The assignment is gone, as with a hub that pushes and was restarted: the checks show why it was granted.
    checks = () if gathered.status is None else gathered.status.checks
    return any(check.message.startswith(messages.PROVISIONED_ON) for check in checks)


def _clones(gathered: Gathered, cluster: str) -> bool:
    """Whether the cluster has a queueing engine, or has not reported yet."""
    facts = gathered.facts.cluster(cluster)
    report = None if facts is None or facts.capacity is None else facts.capacity.report
    return report is None or bool(report.engine)


async def _together(calls: Iterable[Call]) -> None:
    """Run all concurrently; when they have ended, raise the first failure itself, not in a group."""
    failures: list[MultikueueError] = []

    async def guarded(call: Call) -> None:
        try:
            await call()
        except MultikueueError as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(guarded, call)
    if failures:
        raise failures[0]
