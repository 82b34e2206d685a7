# SPDX-License-Identifier: Apache-2.0
"""Carrying out a plan.

Owns the order that safety hangs on: the user's job shows the last status before the Workload is finished, and
`clusterName` is written, where the API server refuses a second winner, before a cluster is told to run. Promises that
a plan is given up when the Workload is no longer as it was when the plan was made.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

import anyio

from manager.context import ManagerContext
from manager.dispatch.assignments import Dispatch, assignment
from manager.dispatch.carriers import Carrier
from manager.dispatch.gather import Gathered, adoption_for, load_job
from manager.dispatch.status_change import PlanChange, failed_to_start
from multikueue.api.constants import AVOIDED_ANNOTATION, GATE_OPENING_ANNOTATION, ROUND_ANNOTATION, GatePosition
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadEvent
from multikueue.api.remoteassignment import Intent
from multikueue.api.resource import RESOURCE_FLAVORS, WORKLOADS
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.federation.actions import Assign, DeclareStopped, MirrorStatus, Plan, Remove, Rule, SetGate, SetIntent
from multikueue.federation.annotations import avoided_text, gate_opening_text, round_text
from multikueue.federation.preemption_gates import position
from multikueue.integrations.protocol import InjectionConflict, JobWrite
from multikueue.kube.client import PatchKind
from multikueue.kube.errors import Invalid, NotFound
from multikueue.kube.events import Reference

_log = logging.getLogger(__name__)

Call = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a plan: given up because the Workload changed, or when to look again."""

    outdated: bool = False
    deferred: float | None = None


class Executor:
    """Does what plans say."""

    def __init__(self, context: ManagerContext, carrier: Carrier) -> None:
        self._context = context
        self._carrier = carrier

    async def execute(self, key: Key, plan: Plan, gathered: Gathered) -> Outcome:
        """Mirror, write the status, tell clusters. Raises what the API server answers; running it again is safe."""
        deferred = await self._write_job(plan, gathered)
        try:
            calls = self._calls(key, plan, gathered)
        except InjectionConflict as error:
            now = self._context.clock.now()
            await self._context.statuses.write(key, partial(failed_to_start, message=str(error), now=now))
            return Outcome()
        await self._note(plan, gathered)
        if plan.rule is Rule.NOMINATE:
            # Neither depends on the other: a copy that holds room without being nominated is found by the next plan.
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
        return Outcome(outdated=outdated, deferred=deferred)

    async def _write_job(self, plan: Plan, gathered: Gathered) -> float | None:
        """The job's status; gives the seconds after which a status that may not be shown yet is tried again."""
        deferred: float | None = None
        for action in plan.actions:
            if not isinstance(action, MirrorStatus | DeclareStopped):
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
                mirror = gathered.integration.mirror_status(job, observation.job_status)
                write = mirror.write
                deferred = mirror.retry_after if mirror.deferred else deferred
            if write is not None:
                await self._patch_job(job, write, gathered)
        return deferred

    async def _note(self, plan: Plan, gathered: Gathered) -> None:
        """What must outlive this process goes into the Workload first: a round, an opened gate, a cluster to avoid."""
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
                # Whoever does not know of the last opening, as a leader of before, must not add one to it.
                resource_version=None
                if plan.gate_opening is None
                else gathered.workload["metadata"]["resourceVersion"],
            )
        except NotFound:
            return
        self._context.caches.view(WORKLOADS).observe(answer)

    async def _patch_job(self, job: JsonObject, write: JobWrite, gathered: Gathered) -> None:
        assert gathered.integration is not None
        resource = gathered.integration.resource
        try:
            answer = await self._context.client.patch(
                resource,
                job["metadata"]["name"],
                write.body,
                namespace=job["metadata"]["namespace"],
                kind=PatchKind.MERGE,
                subresource=write.subresource or None,
                # The patch was made for this very version: counters must not go back, nor startTime move.
                resource_version=job["metadata"]["resourceVersion"],
            )
        except NotFound:
            return  # the user deleted the job, and with it the interest in its status
        except Invalid as error:
            # Kubernetes does not take what the worker reports. The workload must go on all the same.
            _log.warning("%s %s: its status cannot be mirrored: %s", resource.kind, gathered.job, error.message)
            return
        self._context.caches.view(resource).observe(answer)

    async def _write_status(self, key: Key, plan: Plan, gathered: Gathered) -> bool:
        """The Workload's status, in one write; False when it is not what the plan was made for any more."""
        facts, status = gathered.facts.workload, gathered.status
        if facts is None or status is None or not plan.writes_status or (facts.check is None and not plan.evict):
            return True
        check = "" if facts.check is None else facts.check.name
        change = PlanChange(plan, check=check, planned_for=status, now=self._context.clock.now())
        written = await self._context.statuses.write(key, change, uid=facts.uid)
        return written is not None and change.applied

    def _calls(self, key: Key, plan: Plan, gathered: Gathered) -> list[Call]:
        calls: list[Call] = []
        dispatch: Dispatch | None = None
        for action in plan.actions:
            match action:
                case Assign(cluster) | SetGate(cluster):
                    intent = action.intent if isinstance(action, Assign) else Intent.RESERVE
                    dispatch = dispatch or self._dispatch(plan, gathered)
                    if dispatch is not None:
                        gate, clones = self._gate(plan, gathered, cluster), _clones(gathered, cluster)
                        body = assignment(dispatch, cluster, intent=intent, clones=clones, gate=gate)
                        calls.append(partial(self._carrier.assign, cluster, key, body))
                case SetIntent(cluster, intent):
                    calls.append(partial(self._carrier.set_intent, cluster, key, intent))
                case Remove(cluster):
                    calls.append(partial(self._carrier.remove, cluster, key))
                case MirrorStatus() | DeclareStopped():
                    continue
        return calls

    def _gate(self, plan: Plan, gathered: Gathered, cluster: str) -> GatePosition | None:
        facts, workload = gathered.facts, gathered.facts.workload
        if workload is None:
            return None
        chosen, now = plan.cluster_name or workload.cluster_name, self._context.clock.now()
        return position(facts, workload, cluster, now=now, opening=plan.gate_opening, chosen=chosen)

    def _dispatch(self, plan: Plan, gathered: Gathered) -> Dispatch | None:
        """What is sent; None while the job is not there, whose absence ends the Workload by itself."""
        job, facts = load_job(self._context, gathered), gathered.facts.workload
        if job is None or facts is None or gathered.workload is None or gathered.integration is None:
            return None
        flavors = self._context.caches.view(RESOURCE_FLAVORS)
        names = {
            name
            for pod_set in gathered.workload["status"]["admission"]["podSetAssignments"]
            for name in (pod_set.get("flavors") or {}).values()
        }
        found = {name: flavors.object(Key("", name)) for name in names}
        return Dispatch(
            workload=gathered.workload,
            job=job,
            integration=gathered.integration,
            flavors={name: flavor for name, flavor in found.items() if flavor is not None},
            origin=self._context.configuration.multikueue.origin,
            manager_uid=self._context.manager_uid,
            epoch=facts.epoch,
            policy=facts.partition_policy,
            lease_seconds=int(gathered.facts.settings.lease.total_seconds()),
            adopts=adoption_for(job, gathered.workload["metadata"].get("annotations") or {}, epoch=facts.epoch),
            verdicts=plan.verdicts,
        )

    def report(self, plan: Plan, gathered: Gathered) -> None:
        """Events and metrics of what was done, once it is done."""
        if gathered.workload is None:
            return
        self.report_grant(plan, gathered)
        queue, metrics = _queue(gathered), self._context.metrics
        for action in plan.actions:
            if isinstance(action, Assign) and not _has_copy(gathered, action.cluster):
                metrics.dispatched.labels(queue, action.cluster, metrics.role).inc()

    def report_grant(self, plan: Plan, gathered: Gathered) -> None:
        """Events, and that a cluster was granted."""
        if gathered.workload is None:
            return
        about = Reference.of(gathered.workload, api_version=WORKLOADS.api_version, kind=WORKLOADS.kind)
        for event in plan.events:
            kind = "Warning" if event.warning else "Normal"
            self._context.recorder.event(about, kind, WorkloadEvent.MULTIKUEUE, event.message)
        if plan.rule in (Rule.GRANT, Rule.GRANT_AT_ONCE) and plan.cluster_name:
            metrics = self._context.metrics
            metrics.granted.labels(_queue(gathered), plan.cluster_name, metrics.role).inc()


def _queue(gathered: Gathered) -> str:
    admission = ((gathered.workload or {}).get("status") or {}).get("admission") or {}
    return str(admission.get("clusterQueue", ""))


def _has_copy(gathered: Gathered, cluster: str) -> bool:
    """Whether the cluster has been sent this very dispatch before, and is told of a change to it."""
    workload, seen = gathered.facts.workload, gathered.facts.observations.get(cluster)
    return workload is not None and seen is not None and seen.epoch == workload.epoch


def _clones(gathered: Gathered, cluster: str) -> bool:
    """Whether the cluster admits by an engine of its own, or nobody knows yet."""
    facts = gathered.facts.cluster(cluster)
    report = None if facts is None or facts.room is None else facts.room.report
    return report is None or bool(report.engine)


async def _together(calls: Iterable[Call]) -> None:
    """All of them at once; when they have all ended, the first failure is raised as it is, and not in a group."""
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
