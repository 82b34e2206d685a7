# SPDX-License-Identifier: Apache-2.0
"""Reconciles one assignment at a time: read, decide, act, report.

Owns the input of `dispatch.worker.assignment_state.step` on this cluster, how its actions are carried out, and the
removal of jobs whose assignment is gone. Level-based: it may run twice, late, or on a stale cache; a job that exists
already is recognised by its annotations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.api.resource import REMOTE_ASSIGNMENTS
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.phases import ENDED
from multikueue.dispatch.protocol.wire import assigned_epoch, status_of
from multikueue.dispatch.worker.assignment_state import (
    NO_CAPACITY,
    AssignmentStep,
    JobAction,
    Obstacle,
    RemoteJobFacts,
    ReportedStatus,
    may_start,
    step,
    wants_capacity,
)
from multikueue.kube.runtime.controller import Result
from multikueue.kube.runtime.quarantine import Guard, Quarantine
from multikueue.provisioning.delegated import RequestStage
from worker_agent.assigned_jobs import AssignedJobs
from worker_agent.creation import Creation
from worker_agent.forwarding import FieldForwarding
from worker_agent.grant_patience import GrantPatience
from worker_agent.group_members import GroupMembers
from worker_agent.hub.client import MailboxView
from worker_agent.hub.status_reporter import StatusReporter
from worker_agent.local.assignment_spec import AssignmentSpec, job_kind, read_assignment
from worker_agent.local.boundary import Boundary
from worker_agent.local.capacity import Capacity
from worker_agent.local.dependencies.job_objects import JobObjects
from worker_agent.local.failures import FailureReadings
from worker_agent.local.jobs import RemoteJobs
from worker_agent.local.log_requests import LogRequests
from worker_agent.local.obstacles import BAD_ASSIGNMENT, KIND_MISSING, REFUSAL_SECONDS, Obstacles
from worker_agent.local.pod_starts import PodStarts
from worker_agent.local.provisioning import ProvisionedWork, WorkerProvisioning
from worker_agent.local.queueing.engine_stops import EngineStop, EngineStops
from worker_agent.local.queueing.queued_work import CloneAdmission, is_queued
from worker_agent.local.queueing.queues import Queues
from worker_agent.local.remote_group import RemoteGroup
from worker_agent.pod_owners import LoggedPods, logged_pods
from worker_agent.removal import JobRemoval

_log = logging.getLogger(__name__)

UNREADABLE_JOB: Final = "UnreadableJob"
_KIND_LOST: Final = "this cluster's agent does not serve the kind of the job any more, and cannot see or stop it"
_LOOK_SECONDS: Final = 0.2
_MEMBER_SECONDS: Final = 2.0
_HOLD_CAPACITY: Final = (AssignmentPhase.RUNNING, AssignmentPhase.RESERVED, AssignmentPhase.PROVISIONED)
_ENDED: Final = (AssignmentPhase.FINISHED, AssignmentPhase.EVICTED)


class Reconciler:
    """The assignments of one mailbox on one cluster."""

    def __init__(
        self,
        *,
        mailbox: MailboxView,
        kinds: Mapping[tuple[str, str], RemoteJobs],
        capacity: Capacity,
        queues: Queues,
        boundary: Boundary,
        dependencies: JobObjects,
        pod_starts: PodStarts,
        status_reporter: StatusReporter,
        namespace_exists: Callable[[str], bool],
        permits_fenced_work: Callable[[float], bool],
        clock: Clock,
        quarantine: Quarantine | None = None,
        failures: FailureReadings | None = None,
        log_requests: LogRequests | None = None,
        provisioning: WorkerProvisioning | None = None,
    ) -> None:
        """Without `failures` the end of a failed job is reported without its exit codes.

        Without `provisioning` an assignment that asks for it is refused.
        """
        self._log_requests = log_requests
        self._failures = failures
        self._provisioning = provisioning
        self._quarantine = quarantine if quarantine is not None else Quarantine(clock=clock)
        self._mailbox = mailbox
        self._kinds = kinds
        self._capacity = capacity
        self._queues = queues
        self._objects = dependencies
        self._pod_starts = pod_starts
        self._status_reporter = status_reporter
        self._permits_fenced_work = permits_fenced_work
        self._obstacles = Obstacles(
            boundary=boundary, queues=queues, dependencies=dependencies, namespace_exists=namespace_exists, clock=clock
        )
        self._creation = Creation(boundary=boundary, queues=queues, obstacles=self._obstacles, facts=self._facts)
        self._members = GroupMembers(obstacles=self._obstacles, creation=self._creation, clones=queues.clones)
        self._forwarding = FieldForwarding(obstacles=self._obstacles)
        self._waiting: dict[str, None] = {}
        self.assigned = AssignedJobs()
        self._patience = GrantPatience(clock)
        self._engine_stops = EngineStops(queues.clones, clock=clock)
        self._removal = JobRemoval(mailbox=mailbox, kinds=kinds, provisioning=provisioning)
        self.phases: dict[str, AssignmentPhase] = {}

    def waiting(self) -> list[str]:
        """The assignments that wait for capacity, in the order in which they began to wait."""
        return list(self._waiting)

    def forget_refusals(self, namespace: str) -> None:
        """Drop the refusals of jobs in that namespace: they may be accepted now."""
        self._obstacles.forget_namespace(namespace)

    def restore(self) -> None:
        """Reserve the capacity that was reserved before a restart; call it before the first reconcile."""
        reserved = []
        for name in self._mailbox.names():
            with self._guard(name):
                obj = self._mailbox.get(name)
                if obj is not None and status_of(obj).phase in _HOLD_CAPACITY:
                    reserved.append((status_of(obj).phase is not AssignmentPhase.RUNNING, name, obj))
        for _, name, obj in sorted(reserved, key=lambda entry: entry[:2]):
            with self._guard(name):
                desired = self._read(obj)
                self.assigned.set(name, desired.named)
                if not self._queues.serves(desired.clone):
                    self._capacity.ledger.reserve(str(desired.named), desired.demands)

    def _guard(self, name: str) -> Guard:
        return self._quarantine.guard("assignments", REMOTE_ASSIGNMENTS, Key(self._mailbox.namespace, name))

    def _read(self, obj: JsonObject) -> AssignmentSpec:
        return read_assignment(obj, kinds=self._kinds, permits_fenced_work=self._permits_fenced_work)

    async def reconcile(self, name: str) -> Result | None:
        """Reconcile the job of one assignment and report its status.

        A job or clone that a user of this cluster made unreadable is reported as such, and retried.
        """
        obj = self._mailbox.get(name)
        if obj is None:
            return await self._remove(name)
        self._status_reporter.resend_if_replaced(obj)
        reported = self._status_reporter.latest(name, obj["metadata"]["uid"]) or status_of(obj)
        try:
            desired = self._read(obj)
        except BadInput as error:
            return await self._refuse_unreadable(name, obj, reported, str(error))
        try:
            result = await self._reconcile(name, obj, desired, reported)
        except BadInput as error:
            status = replace(reported, epoch=desired.facts.epoch, reason=UNREADABLE_JOB, message=str(error))
            self._status_reporter.put(name, desired.uid, status, reported=status_of(obj))
            raise
        return result

    async def _refuse_unreadable(
        self, name: str, obj: JsonObject, reported: ReportedStatus, problem: str
    ) -> Result | None:
        """Remove the job of an assignment that cannot be read, then report Refused: the hub sends it elsewhere."""
        epoch = assigned_epoch(obj)
        if reported.epoch == epoch and reported.phase in _ENDED:
            return None  # how it ended is what counts
        jobs = job_kind(obj, kinds=self._kinds)
        if _has_run(reported) and (jobs is None or not jobs.known):
            return None  # as in _may_run_unseen
        if await self._removal.remove(name, unreadable=True):
            return Result(after=_LOOK_SECONDS)
        status = ReportedStatus(epoch=epoch, phase=AssignmentPhase.REFUSED, reason=BAD_ASSIGNMENT, message=problem)
        self._status_reporter.put(name, obj["metadata"]["uid"], status, reported=status_of(obj))
        return None

    async def _reconcile(
        self, name: str, obj: JsonObject, desired: AssignmentSpec, reported: ReportedStatus
    ) -> Result | None:
        if not desired.facts.epoch and desired.facts.intent is not Intent.EVICT:
            return None  # Kueue has sent the job, and the hub will say what becomes of it
        if _may_run_unseen(desired, reported):
            # Its jobs are about to be read, or the agent lost the right to, or serves the kind no more.
            if desired.jobs is None and reported.epoch == desired.facts.epoch:
                status = replace(reported, reason=KIND_MISSING, message=_KIND_LOST)
                self._status_reporter.put(name, desired.uid, status, reported=status_of(obj))
            return None
        group, job = self._members.find(desired, reported)
        if await self._members.take_over(desired) or await self._members.take_back(desired, group, reported):
            return Result(after=_LOOK_SECONDS)
        if await self._creation.restore_marks(desired, job, reported):
            return Result(after=_LOOK_SECONDS)
        if job is None and may_start(desired.facts, reported) and not self._holds_request(name, desired):
            await self._obstacles.look_for_dependencies(desired)
        admission = None if self._keeps_admission(desired, job) else await self._admission(desired, reported, job)
        provisioned = await self._provision(desired, reported, job)
        if job is not None and group is not None and _halt(admission, provisioned) is not None:
            # Pods that the hub has no longer are stopped with the others, and no pod is made in their place.
            group, job = self._members.find(desired, reported, halted=True)
        taken = self._step(desired, job, reported, admission, provisioned)
        if taken.action is JobAction.CREATE and desired.jobs is not None:
            missing = () if group is None else group.missing
            await self._creation.create(desired, missing, queued=admission is not None, provisioned=provisioned)
            reported = taken.status
            group, job = self._members.find(desired, reported)
            if await self._members.take_back(desired, group, reported):
                return Result(after=_LOOK_SECONDS)
            taken = self._step(desired, job, reported, admission, provisioned)
            if taken.action is JobAction.CREATE:
                # The job existed and is gone again, or the agent cannot see it yet.
                return Result(after=_LOOK_SECONDS)
        self._track(name, desired, taken)
        await self._members.follow(desired, group, taken, queued=admission is not None, provisioned=provisioned)
        if self._provisioning is not None:
            if desired.adopts is not None:
                self._provisioning.adopt(name, desired.adopts)
            if taken.status.phase in _ENDED and self._provisioning.has(name):
                await self._provisioning.ensure(desired, stage=RequestStage.OVER)
            if taken.status.phase in _ENDED and job is not None:
                await self._provisioning.release(name, job)
        status = self._pod_starts.complete(name, desired.jobs, job, taken.status, reported=reported)
        status = self._forwarding.complete(desired, job, taken, status)
        status = await self._objects.bring(desired, job, group, status)
        if self._failures is not None and (job is not None or status.failure is not None):
            selector = "" if job is None or desired.jobs is None else desired.jobs.integration.pod_selector(job)
            status, hold = self._failures.complete(name, desired.job, status, selector=selector)
            if hold > 0:
                return Result(after=hold)
        awaits_start = desired.awaits_start
        self._status_reporter.put(name, desired.uid, status, reported=status_of(obj), awaits_start=awaits_start)
        self._serve_logs(name, obj, desired, job, status)
        await self._forwarding.follow(desired, job, taken, status)
        if taken.action is not None and job is not None and desired.jobs is not None:
            stop, queued = EngineStop(), self._queues.serves(desired.clone, job)
            if taken.action is JobAction.SUSPEND and queued and (admission is None or admission.end is None):
                stop = await self._engine_stops.stop(desired.clone, suspended=self._facts(desired, job).suspended)
            if stop.seconds > 0:
                return Result(after=stop.seconds)
            await self._act(desired, job, group, taken, stop_by_deletion=stop.by_deletion)
        if admission is not None and admission.stuck:
            return Result(after=REFUSAL_SECONDS)
        if group is not None and group.missing and taken.status.phase is AssignmentPhase.RUNNING:
            return Result(after=_MEMBER_SECONDS)
        return self._requeue(desired, taken)

    def _serve_logs(
        self, name: str, obj: JsonObject, desired: AssignmentSpec, job: JsonObject | None, status: ReportedStatus
    ) -> None:
        """Read logs of the job for users who have requested them, if it is the job of the assignment."""
        if self._log_requests is None or not (obj["spec"].get("logs") or self._log_requests.reads(name)):
            return
        pods: LoggedPods | None = None
        if job is not None and desired.jobs is not None and status.job_uid == job["metadata"]["uid"]:
            pods = logged_pods(desired.jobs.integration, desired.job.namespace, job)
        self._log_requests.update(name, obj, pods=pods, over=status.phase in ENDED)

    def _holds_request(self, name: str, desired: AssignmentSpec) -> bool:
        """Whether it waits here with a clone or a ProvisioningRequest, which a refusal would leave behind.

        Its dependencies were there when that was made, and are looked for again when it is granted.
        """
        if not desired.facts.intent.precedes_grant or self._obstacles.of(desired, has_job=False) is not None:
            return False
        return self._queues.clones.has(name) or (self._provisioning is not None and self._provisioning.has(name))

    def _keeps_admission(self, desired: AssignmentSpec, job: JsonObject | None) -> bool:
        """Whether the queues are not asked, since the job runs with the admission that it has.

        An adopted job was admitted here before: another request would create a second clone. The job of an epoch that a
        restored hub has lost keeps its capacity until it is removed, and its clone is removed after it. A job that was
        created before there was a LocalQueue has no clone.
        """
        if job is None:
            return False
        facts = self._facts(desired, job)
        if facts.ours and facts.epoch == desired.facts.epoch:
            return not is_queued(job, workload=desired.clone.workload.name)
        return facts.adoptable or (facts.ours and facts.epoch > desired.facts.epoch)

    async def _admission(
        self, desired: AssignmentSpec, reported: ReportedStatus, job: JsonObject | None
    ) -> CloneAdmission | None:
        """The admission by the queues of this cluster; None if the ledger admits."""
        has_job = job is not None
        if not self._queues.serves(desired.clone, job):
            return None
        clones = self._queues.clones
        starts = has_job or may_start(desired.facts, reported) or clones.has(desired.facts.name)
        if not (starts and wants_capacity(desired.facts, reported)):
            return CloneAdmission()  # a grant that was refused, for one, may be elsewhere by now
        if self._obstacles.of(desired, has_job=has_job) is not None:
            return None
        admission = await clones.ensure(desired.clone)
        if admission.obstacle is not None:
            self._obstacles.add_refusal(desired.named, admission.obstacle)
        if admission.halt is not None and has_job and admission.end is None:
            # The hub decides where it runs next; a clone without a job may stay in the queue of this cluster.
            await clones.deactivate(desired.clone)
        return admission

    async def _provision(
        self, desired: AssignmentSpec, reported: ReportedStatus, job: JsonObject | None
    ) -> ProvisionedWork | None:
        """How far the capacity is that the assignment asks to provision; None if it asks for none."""
        provisioning, name = self._provisioning, desired.facts.name
        if provisioning is None or not (desired.provisioning or provisioning.has(name)):
            return None
        if job is not None or desired.facts.intent is Intent.EVICT:
            ours = job is not None and self._facts(desired, job).ours
            return await provisioning.ensure(desired, stage=RequestStage.RUNS) if ours else None
        if not desired.provisioning:
            await provisioning.ensure(desired, stage=RequestStage.OVER)  # it is to run without
            return None
        starts = may_start(desired.facts, reported) or provisioning.has(name)
        if not starts or self._obstacles.of(desired, has_job=False) is not None:
            return None
        return await provisioning.ensure(desired, stage=RequestStage.WANTED)

    def _facts(self, desired: AssignmentSpec, job: JsonObject) -> RemoteJobFacts:
        assert desired.jobs is not None, "a job that was found has a supported kind"
        facts = desired.jobs.facts(
            job,
            assignment=desired.facts.name,
            manager_uid=desired.manager_uid,
            adopts=desired.adopts,
            workload=desired.clone.workload.name,
            is_same_work=desired.is_same_work,
        )
        other = self.assigned.job_of(desired.jobs.assignment_of(job))
        if facts.former and other not in (None, desired.named):
            # It has the assignment of a Job with another name: a user copied the annotations, and it is left alone.
            return replace(facts, former=False)
        return facts

    def _step(
        self,
        desired: AssignmentSpec,
        job: JsonObject | None,
        reported: ReportedStatus,
        admission: CloneAdmission | None,
        provisioned: ProvisionedWork | None = None,
    ) -> AssignmentStep:
        facts = None if job is None else self._facts(desired, job)
        obstacle = self._obstacles.of(desired, has_job=job is not None)
        shortage = ""
        blocked_since = None if admission is None else admission.blocked_since
        if admission is not None:
            shortage = admission.shortage
            if facts is not None:
                # A job that waits for the worker's engine is suspended, and was not stopped.
                wanted = wants_capacity(desired.facts, reported)
                waits = facts.suspended and admission.halt is None
                waits = waits and job is not None and self._queues.clones.may_start(job, desired.clone, wanted=wanted)
                # The end of the clone is the last status, and is reported once the pods are gone.
                end = facts.end or (None if facts.active else admission.end)
                facts = replace(facts, suspended=facts.suspended and not waits, end=end)
        elif obstacle is None and wants_capacity(desired.facts, reported) and _is_here(provisioned):
            shortage = self._capacity.shortage(str(desired.named), desired.demands)
        progress = None if provisioned is None else provisioned.progress
        return step(
            replace(desired.facts, halt=_halt(admission, provisioned)),
            facts,
            reported=reported,
            shortage=shortage,
            obstacle=obstacle,
            patient=not shortage or self._patience.left(desired.facts) > 0,
            blocked_since=blocked_since,
            provisioning=progress,
        )

    def _track(self, name: str, desired: AssignmentSpec, taken: AssignmentStep) -> None:
        """Record the phase, release capacity that is not needed any more, and whether the assignment waits for some."""
        self.phases[name] = taken.status.phase
        self.assigned.set(name, desired.named)
        if not taken.keeps_capacity:
            self._capacity.release(str(desired.named))
        if taken.status.phase is AssignmentPhase.PENDING and taken.status.reason == NO_CAPACITY:
            self._waiting.setdefault(name)
        else:
            self._waiting.pop(name, None)

    async def _act(
        self,
        desired: AssignmentSpec,
        job: JsonObject,
        group: RemoteGroup | None,
        taken: AssignmentStep,
        *,
        stop_by_deletion: bool,
    ) -> None:
        assert desired.jobs is not None, "a job that was found has a supported kind"
        jobs, key, facts = desired.jobs, desired.job, self._facts(desired, job)
        objects = ((key, facts.uid),) if group is None else group.present
        match taken.action:
            case JobAction.SUSPEND:
                _log.info("stopping job job=%s", key)
                for each, uid in objects:
                    await jobs.stop(each, uid, by_deletion=stop_by_deletion)
            case JobAction.DELETE:
                assignment = desired.facts
                if facts.epoch > assignment.epoch and not await self._mailbox.has_epoch(
                    assignment.name, assignment.epoch
                ):
                    return  # the cache is stale: another agent of this cluster created that job
                _log.info("deleting job of another epoch job=%s epoch=%d", key, facts.epoch)
                for each, uid in objects:
                    await jobs.delete(each, uid, ended=facts.end is not None)
            case JobAction.ADOPT:
                _log.info("adopting job job=%s assignment=%s", key, desired.facts.name)
                if desired.adopts is None:
                    await self._queues.clones.take_over(desired.clone)
                else:
                    await self._queues.clones.adopt(desired.clone, jobs.workload(job), manager_uid=desired.adopts[0])
                await jobs.adopt(key, facts.uid, self._creation.manifest(desired, desired.manifest))
            case _:
                return

    def _requeue(self, desired: AssignmentSpec, taken: AssignmentStep) -> Result | None:
        if (
            taken.status.phase is AssignmentPhase.PENDING
            and taken.status.reason == NO_CAPACITY
            and desired.facts.intent is Intent.RUN
        ):
            return Result(after=max(0.05, self._patience.left(desired.facts)))
        refused = taken.status.phase is AssignmentPhase.REFUSED
        after = self._obstacles.retry_after(desired.named) if refused else self._objects.bring_after(desired.named)
        return None if after is None else Result(after=after)

    async def _remove(self, name: str) -> Result | None:
        """Remove the job and the clone of an assignment that is gone, if they belong to the manager of the mailbox."""
        if self._failures is not None:
            self._failures.forget(name)
        if self._log_requests is not None:
            self._log_requests.forget(name)
        self._status_reporter.forget(name)
        self._pod_starts.forget(name)
        self._forwarding.forget(name)
        self._engine_stops.forget(name)
        self._waiting.pop(name, None)
        self._patience.forget(name)
        self.phases.pop(name, None)
        job = self.assigned.job_of(name)
        if job is not None:
            self.assigned.forget(name)
            if not self.assigned.assignments_of(job):  # otherwise a newer assignment uses the capacity
                self._obstacles.forget(job)
                self._capacity.release(str(job))
        await self._removal.remove(name)
        if self._provisioning is not None and not any(jobs.of_assignment(name) for jobs in self._kinds.values()):
            self._provisioning.forget_adoption(name)
        if name in self._queues.clones.assignments() and self._mailbox.informer.synced.is_set():
            owner = await self._removal.mailbox_owner()
            if owner and self._mailbox.get(name) is None:
                await self._queues.clones.remove(name, manager_uid=owner)
        if self._provisioning is not None and self._provisioning.has(name) and self._mailbox.informer.synced.is_set():
            owner = await self._removal.mailbox_owner()
            if owner and self._mailbox.get(name) is None:
                kept = await self._provisioning.remove(name, manager_uid=owner)
                return None if kept is None else Result(after=kept)
        return None


def _may_run_unseen(desired: AssignmentSpec, reported: ReportedStatus) -> bool:
    """Whether its job may run and cannot be seen: then it is neither known to be gone, nor refused.

    A job that was granted may have been created before this agent, or the manager that hosts it, was started. Of a kind
    that it does not serve, only a former agent that did can have reported that it runs.
    """
    if desired.jobs is None:
        return _has_run(reported)
    granted = not desired.facts.intent.precedes_grant
    return (granted or _has_run(reported)) and not desired.jobs.known


def _has_run(reported: ReportedStatus) -> bool:
    return bool(reported.job_uid) or reported.phase is AssignmentPhase.RUNNING


def _halt(admission: CloneAdmission | None, provisioned: ProvisionedWork | None) -> Obstacle | None:
    """Why the job is to be stopped: by the queues of this cluster, or since its capacity is gone."""
    stopped = None if admission is None else admission.halt
    return stopped or (None if provisioned is None else provisioned.progress.failure)


def _is_here(provisioned: ProvisionedWork | None) -> bool:
    """Whether the ledger is asked for capacity: what is provisioned is not there before."""
    return provisioned is None or provisioned.progress.provisioned
