# SPDX-License-Identifier: Apache-2.0
"""The dispatch controller: gathers the facts of a workload, plans, and carries the plan out.

Owns three reconcilers (workloads, MultiKueueClusters, AdmissionChecks) and the events that enqueue their keys. Runs on
the leader only. Promises that the facts of all clusters and checks are complete before the first plan, so that a
restart does not consider lost what it has not read yet.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel

from manager.cache.ended_workloads import has_finished
from manager.cache.indexes import DISPATCH_INDEX
from manager.context import ManagerContext
from manager.controllers.held_pods import owner_key
from manager.dispatch.assignments import forwards
from manager.dispatch.assumed_observations import assume_unread
from manager.dispatch.capacity_cache import CapacityCache
from manager.dispatch.checks import Checks, is_multikueue
from manager.dispatch.clusters import Clusters
from manager.dispatch.dispatch_on_reserve import DispatchOnReserve
from manager.dispatch.execution import Executor
from manager.dispatch.gather import Gathered, Gatherer
from manager.dispatch.log_relay import AssignedLogRequests, LogRelay
from manager.dispatch.quota_automation import QuotaAutomation
from manager.dispatch.reported.failure_records import FailureRecords
from manager.dispatch.reported.report_limits import RefusedChanges, StartReports
from manager.dispatch.transport.job_slices import JobSlices, SliceTransport
from manager.dispatch.transport.mailbox_transport import MailboxTransport
from manager.dispatch.transport.object_sending import ObjectSending
from manager.dispatch.transport.push_clusters import PushClusters
from manager.dispatch.transport.push_hosts import PushSettings
from manager.dispatch.transport.push_recovery import PushRecovery
from manager.dispatch.transport.push_transport import MixedTransport
from manager.dispatch.transport.resync import Resync
from manager.provisioning.checks import is_provisioning
from manager.registration.controller import RegistrationController
from manager.workload.status import Status
from multikueue.api.constants import CLUSTER_LABEL, MAILBOX_NAMESPACE_PREFIX
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_PROFILES,
    CLUSTER_QUEUES,
    CLUSTER_REGISTRATIONS,
    CLUSTER_REPORTS,
    LEASES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    PODS,
    SECRETS,
    WORKLOADS,
    Resource,
)
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import DispatchPlan, Rule
from multikueue.dispatch.hub.availability import Pacer
from multikueue.dispatch.hub.failed_jobs import KeptFailures, failed_there
from multikueue.dispatch.hub.plan import plan
from multikueue.jobs.framework.capabilities import GroupedKind, PodHoldingKind, ReplicatedKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.framework.slices import assigned_as, dispatch_epoch
from multikueue.jobs.framework.workloads import replica_of_workload
from multikueue.kube.cache.informer import Change
from multikueue.kube.runtime.controller import Controller, Result

_log = logging.getLogger(__name__)

_WORKLOAD_WORKERS: Final = 10  # as many as upstream runs, docs/spec/multikueue.md §1.2

JobKey = tuple[Resource, Key]
"""A job and its kind: jobs of two kinds may have one name."""


class DispatchController:
    """Dispatch, from MultiKueueClusters to the synced status of Jobs."""

    def __init__(self, context: ManagerContext, *, push: PushSettings | None = None) -> None:
        """Raises `BadInput` when the Configuration names a framework without an integration."""
        self._context = context
        metrics, clock, quarantine = context.metrics.controllers, context.clock, context.caches.quarantine
        self._workloads = Controller[Key](
            "multikueue_workload",
            self._reconcile,
            workers=_WORKLOAD_WORKERS,
            clock=clock,
            metrics=metrics,
            quarantine=quarantine,
            resource=WORKLOADS,
        )
        self._push = PushClusters(
            context,
            settings=push or PushSettings(),
            changed=lambda name: self._cluster_controller.enqueue(Key("", name)),
            workload_changed=self._observed,
        )
        self._logs = LogRelay(context, AssignedLogRequests(context, self._push.transport), self._workloads.enqueue)
        self._capacities = CapacityCache(wake=self._workloads.enqueue, now=clock.now, quarantine=quarantine)
        self._clusters = Clusters(
            context,
            capacities=self._capacities,
            changed=self._cluster_changed,
            push=self._push,
            reports_quotas=lambda name: self._quotas.uses(name),
        )
        self._cluster_controller = Controller[Key](
            "multikueuecluster",
            self._clusters.reconcile,
            clock=clock,
            metrics=metrics,
            quarantine=quarantine,
            resource=MULTIKUEUE_CLUSTERS,
        )
        self._checks = Checks(context, clusters=self._clusters, changed=self._check_changed)
        self._check_controller = Controller[Key](
            "multikueue_admissioncheck",
            self._checks.reconcile,
            clock=clock,
            metrics=metrics,
            quarantine=quarantine,
            resource=ADMISSION_CHECKS,
        )
        self._quotas = QuotaAutomation(context, checks=self._checks, clusters=self._clusters)
        self._registry = JobRegistry.configured(context.configuration)
        self._gatherer = Gatherer(
            context, checks=self._checks, clusters=self._clusters, registry=self._registry, namespace=context.namespace
        )
        settings = self._gatherer.settings
        self._pacer = Pacer(per_second=settings.evictions_per_second, burst=settings.eviction_burst)
        self._start_reports = StartReports()
        self._refused_changes = RefusedChanges()
        self._verdicts: dict[Key, tuple[str, ...]] = {}
        self._delivered: dict[Key, tuple[str, int]] = {}
        self._watched_jobs: dict[Key, JobKey] = {}
        self._job_watchers: dict[JobKey, set[Key]] = {}
        self._granting: set[Key] = set()
        self._failures = FailureRecords(context)
        self._kept_failures = KeptFailures()
        self._transport: SliceTransport | None = None
        self._sending: ObjectSending | None = None
        self._on_reserve: DispatchOnReserve | None = None

    async def run(self) -> None:
        """Dispatch until cancelled; the caches must be synced."""
        caches = self._context.caches
        await self._load()
        pull = MailboxTransport(self._context, changed=self._observed)
        mixed = MixedTransport(pull, self._push.transport)
        self._transport = SliceTransport(mixed, JobSlices(self._context.caches))
        self._sending = ObjectSending(self._context, self._transport, report=self._clusters.report)
        assume_unread(self._context, self._checks, self._push, self._registry, pull=pull)
        await self._count_all()
        await caches.replay(WORKLOADS, self._on_workload)
        for integration in self._registry.followed:
            await caches.replay(integration.resource, partial(self._on_job, integration))
            if integration.traits.holds_pods and integration.traits.dispatched:
                caches.subscribe(PODS, partial(self._on_held_pod, integration))
        caches.subscribe(MULTIKUEUE_CLUSTERS, lambda change: self._cluster_controller.enqueue(change.key))
        caches.subscribe(CLUSTER_REGISTRATIONS, lambda change: self._cluster_controller.enqueue(change.key))
        for resource in (LEASES, CLUSTER_REPORTS):
            caches.subscribe(resource, self._on_mailbox)
        caches.subscribe(NAMESPACES, self._on_namespace)
        self._logs.attach()
        for resource in (SECRETS, CLUSTER_PROFILES):
            caches.subscribe(resource, lambda change: self._all_clusters())
        caches.subscribe(ADMISSION_CHECKS, self._on_check)
        caches.subscribe(CLUSTER_QUEUES, self._on_cluster_queue)
        caches.subscribe(MULTIKUEUE_CONFIGS, lambda change: self._all_checks())
        self._on_reserve = DispatchOnReserve(
            self._context, gatherer=self._gatherer, transport=self._transport, decided=self._decided
        )
        await self._serve(Resync(self._context, digests=pull.digests), self._sending)

    def complete(self, workload: JsonObject, status: Status) -> Status:
        """`status` with the dispatch that follows from it; unchanged until dispatch has read everything."""
        return status if self._on_reserve is None else self._on_reserve.complete(workload, status)

    def ended(self, key: Key, workload: JsonObject | None) -> None:
        """A write in which `complete` may have been asked has ended."""
        if self._on_reserve is not None and self._on_reserve.ended(key, workload):
            self._workloads.enqueue(key)

    async def _serve(self, resync: Resync, sending: ObjectSending) -> None:
        loops = {
            **{each.name: each.run for each in (self._cluster_controller, self._check_controller, self._workloads)},
            **{each.name: each.run for each in self._logs.loops},
            "multikueue-push": self._push.hosts.run,
            "multikueue-push-recovery": PushRecovery(self._context, self._push.transport).run,
            "multikueue-registration": RegistrationController(self._context).run,
            "multikueue-resync": resync.run,
            "multikueue-quota": self._quotas.run,
            "multikueue-sent-objects": sending.run,
            "multikueue-garbage": self._collect_garbage,
        }
        async with anyio.create_task_group() as tasks:
            for name, loop in loops.items():
                tasks.start_soon(self._context.supervisor.keep, name, loop, name=name)

    async def _load(self) -> None:
        """Read every check and judge every cluster once before the first plan."""
        for key in self._keys(ADMISSION_CHECKS):
            with self._context.caches.quarantine.guard("multikueue_admissioncheck", ADMISSION_CHECKS, key):
                self._checks.load(key)
        for key in self._keys(MULTIKUEUE_CLUSTERS):
            # A cluster that cannot be read, or whose mailbox cannot be written, counts as absent until that works.
            await self._cluster_controller.process(key)

    async def _reconcile(self, key: Key) -> Result | None:
        """Reconcile one workload: gather, plan, carry out."""
        assert self._transport is not None, "run() creates the transport before any key is enqueued"
        now = self._context.clock.now()
        gathered = self._gather(key, now)
        current = self._context.statuses.current(key) if gathered is None else gathered.workload
        for other in self._gatherer.replicas.changed(key, current):
            self._workloads.enqueue(other)
        if gathered is None:
            if self._on_reserve is not None and self._on_reserve.is_writing(key):
                return None  # it is reconciled when that write has ended
            self._forget(key)
            self._gatherer.requests.forget("" if current is None else current["metadata"]["uid"])
            return None
        decision = plan(self._kept(key, gathered).facts, now)
        for reports in (self._start_reports, self._refused_changes):
            decision = reports.admit(key, decision, now=self._context.clock.monotonic())
        _log.debug(
            "planned workload=%s rule=%s actions=%s verdicts=%s",
            key,
            decision.rule.value,
            decision.actions,
            decision.verdicts,
        )
        if decision.rule is Rule.DELIVER:
            # Planned when the grant was written; the reasons for each cluster are sent with the assignment now.
            decision = replace(decision, verdicts=self._verdicts.get(key, ()))
        pause = self._pause(key, gathered, decision, now)
        if pause > 0:
            return Result(after=pause)
        self._decided(key, gathered, decision)
        if decision.grants:
            self._granting.add(key)
        try:
            executor = Executor(self._context, self._transport, self._failures, self._sending)
            outcome = await executor.execute(key, decision, gathered)
        finally:
            self._granting.discard(key)
        if outcome.outdated:
            return Result(after=0.0)
        # A deferred status waits for the local job to be started; and users change the preferences of a workload
        # without a cluster in its job. Of a job that holds pods these are sent as they come.
        watched = outcome.deferred is not None or decision.rule in (Rule.NOMINATE, Rule.PROVISION)
        watched = watched or isinstance(gathered.integration, PodHoldingKind) or forwards(gathered.integration)
        self._watch_job(key, gathered.job_key if watched else None)
        waits = [seconds for seconds in (decision.requeue_after, outcome.deferred) if seconds is not None]
        return Result(after=min(waits)) if waits else None

    def may_run_elsewhere(self, workload: JsonObject) -> bool:
        """Whether a cluster was, or is being, instructed to run it and has not reported yet that nothing runs there.

        The job's status here lags behind what happens on the worker; quota that is in use there must not be released.
        """
        if self._transport is None:
            # Unknown until everything was read, also for a Workload that was never dispatched.
            return bool((workload.get("status") or {}).get("admissionChecks"))
        metadata = workload["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        found = self._transport.observations(key).values()
        return key in self._granting or any(seen.workload_uid == metadata["uid"] and seen.may_run for seen in found)

    def remote_status(self, workload: JsonObject) -> JsonObject | None:
        """The status that its cluster reported of its remote job, in the epoch in which it was sent there last."""
        key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
        found = {} if self._transport is None else self._transport.observations(key)
        seen = found.get((workload.get("status") or {}).get("clusterName") or "")
        return None if seen is None else seen.job_status_in(dispatch_epoch(workload))

    def _kept(self, key: Key, gathered: Gathered) -> Gathered:
        """With whether newer failed Jobs of the namespace have taken its place, and for how long its logs are read."""
        workload = gathered.facts.workload
        failed = workload is not None and failed_there(gathered.facts, workload) is not None
        for other in self._kept_failures.settle(key, workload.failed_at if failed and workload is not None else None):
            self._workloads.enqueue(other)
        if workload is None or not workload.finished:
            return gathered
        superseded, read_for = self._kept_failures.is_superseded(key), self._logs.read_for(key)
        kept = replace(workload, superseded=superseded, logs_read_for=read_for)
        return replace(gathered, facts=replace(gathered.facts, workload=kept))

    def _pause(self, key: Key, gathered: Gathered, decision: DispatchPlan, now: datetime) -> float:
        """The seconds until this workload may leave a lost cluster."""
        workload = gathered.facts.workload
        if decision.rule is not Rule.LOST or decision.check is None or workload is None:
            self._pacer.leave(key)
            return 0.0
        return self._pacer.turn(workload.cluster_name, key, now)

    def _decided(self, key: Key, gathered: Gathered, decision: DispatchPlan) -> None:
        """Count a decision before it is written: capacity that is granted is not free for the next workload."""
        if decision.cluster_name and decision.verdicts:
            self._verdicts[key] = decision.verdicts
        replica = None if gathered.facts.workload is None else gathered.facts.workload.replica
        if replica is not None and replica.leader is None and (decision.cluster_name or decision.nominated):
            self._gatherer.replicas.choose(gathered.workload or {})
        self._count(key, gathered, granting=decision.cluster_name)
        self._queue_for_capacity(key, gathered, held_back=decision.held_back)

    def _gather(self, key: Key, now: datetime) -> Gathered | None:
        assert self._transport is not None
        observations = self._transport.observations(key)
        gathered = self._gatherer.gather(key, self._context.statuses.current(key), observations, now=now)
        workload = None if gathered is None else gathered.facts.workload
        if gathered is None or workload is None or not workload.cluster_name:
            return gathered
        dispatched = (workload.uid, workload.epoch)
        seen = observations.get(workload.cluster_name)
        if seen is not None and (seen.workload_uid, seen.epoch) == dispatched:
            self._delivered[key] = dispatched
            self._verdicts.pop(key, None)  # kept until the assignment is seen, which may take several attempts
        delivered = self._delivered.get(key) == dispatched
        return replace(gathered, facts=replace(gathered.facts, delivered=delivered))

    def _count(self, key: Key, gathered: Gathered, *, granting: str | None) -> None:
        """Count the workload where it has an assignment, and from now on where it is about to get one."""
        workload = gathered.facts.workload
        occupied_clusters = gathered.facts.occupied_clusters(granting=granting)
        demands, queue = ((), None) if workload is None else (workload.demands, workload.queue)
        self._capacities.settle(key, occupied_clusters, demands, queue=queue)

    async def _count_all(self) -> None:
        """Count what is on clusters from before this process started, before the first assignment is created."""
        assert self._transport is not None
        now, view = self._context.clock.now(), self._context.caches.view(WORKLOADS)
        granted = (key for each in self._keys(MULTIKUEUE_CLUSTERS) for key in view.indexed(DISPATCH_INDEX, each.name))
        for key in {*self._transport.workloads(), *granted}:
            await anyio.lowlevel.checkpoint()  # the lease has to be renewed meanwhile
            with self._context.caches.quarantine.guard("multikueue_workload", WORKLOADS, key):
                gathered = self._gather(key, now)
                if gathered is not None:
                    self._count(key, gathered, granting=None)

    def _queue_for_capacity(self, key: Key, gathered: Gathered, *, held_back: bool) -> None:
        workload = gathered.facts.workload
        if held_back and workload is not None and workload.waits_since is not None:
            spec: JsonObject = (gathered.workload or {}).get("spec") or {}
            priority = int(spec.get("priority") or 0)
            self._capacities.queue(key, priority=priority, since=workload.waits_since, queue=workload.queue)
        else:
            self._capacities.leave(key)

    def _forget(self, key: Key) -> None:
        self._capacities.settle(key, (), ())
        self._capacities.leave(key)
        self._pacer.leave(key)
        self._start_reports.forget(key)
        self._refused_changes.forget(key)
        self._delivered.pop(key, None)
        self._verdicts.pop(key, None)
        self._kept_failures.settle(key, None)
        self._watch_job(key, None)

    def _watch_job(self, key: Key, job: JobKey | None) -> None:
        """Enqueue the workload with each change of that job, or of no job any more."""
        before = self._watched_jobs.pop(key, None)
        if before is not None:
            self._job_watchers[before].discard(key)
            if not self._job_watchers[before]:
                del self._job_watchers[before]
        if job is not None:
            self._watched_jobs[key] = job
            self._job_watchers.setdefault(job, set()).add(key)

    async def _collect_garbage(self) -> None:
        """Reconcile every assignment periodically, in case an event of its workload was missed."""
        assert self._transport is not None
        interval = self._context.configuration.multikueue.gc_interval.total_seconds()
        if interval <= 0:
            return
        while True:
            await anyio.sleep(interval)
            view = self._context.caches.view(WORKLOADS)
            self._gatherer.requests.keep({row.uid for row in view.rows()})
            assigned = set(self._transport.workloads())
            for key in assigned.union(self._capacities.counted()):
                # Counted without an assignment: a grant that is being written, or one whose write failed for good.
                if view.get(key) is None or key not in assigned:
                    self._workloads.enqueue(key)

    def _observed(self, key: Key) -> None:
        """An assignment has changed, which names the workload or one whose place that has taken."""
        for workload in (key,) if self._transport is None else self._transport.owners(key):
            self._workloads.enqueue(workload)
            self._logs.observed(workload)

    def _on_workload(self, change: Change) -> None:
        self._logs.observed(change.key)
        if change.new is None:
            self._gatherer.requests.forget(change.row.uid)
            self._workloads.enqueue(assigned_as(change.row.object())[0])
        if self._checks.names and not (change.old is None and self._is_over(change.key)):
            self._workloads.enqueue(change.key)

    def _is_over(self, key: Key) -> bool:
        """Whether a workload has finished, and no cluster has anything of it."""
        over = has_finished(self._context.caches.view(WORKLOADS), key)
        return over and (self._transport is None or not self._transport.observations(key))

    def _on_job(self, integration: JobIntegration, change: Change) -> None:
        for workload in self._job_watchers.get((integration.resource, change.key), ()):
            self._workloads.enqueue(workload)
        group = integration.group_of(change.row.object()) if isinstance(integration, GroupedKind) else ""
        if group and self._checks.names:
            # What is sent of a group changes with its members.
            self._workloads.enqueue(Key(change.key.namespace, group))

    def _on_held_pod(self, integration: JobIntegration, change: Change) -> None:
        """What is sent of such a job are its pods."""
        pod, workloads = change.row.object(), self._context.caches.view(WORKLOADS)
        job = owner_key(pod, integration)
        if job is None:
            return
        for key in self._job_watchers.get((integration.resource, job), ()):
            if isinstance(integration, ReplicatedKind):
                workload, index = workloads.object(key), integration.replica_of_pod(pod, owner=job.name)
                owner = self._context.caches.view(integration.resource).object(job)
                if workload is not None and replica_of_workload(workload, integration.resource, owner) != index:
                    continue
            self._workloads.enqueue(key)

    def _on_mailbox(self, change: Change) -> None:
        for key in self._keys(MULTIKUEUE_CLUSTERS):
            if mailbox_namespace(key.name) == change.key.namespace:
                self._cluster_controller.enqueue(key)

    def _on_namespace(self, change: Change) -> None:
        """A namespace that is, was, or is taken for a mailbox."""
        if not change.key.name.startswith(MAILBOX_NAMESPACE_PREFIX):
            return
        self._on_mailbox(replace(change, key=Key(change.key.name, "")))
        # Only the namespace names a cluster that was removed.
        named = (change.row.object()["metadata"].get("annotations") or {}).get(CLUSTER_LABEL)
        if named:
            self._cluster_controller.enqueue(Key("", named))

    def _on_check(self, change: Change) -> None:
        if is_multikueue(change.row.object()) or change.key.name in self._checks.names:
            self._check_controller.enqueue(change.key)
        elif is_provisioning(change.row.object()) and (change.old is None or change.new is None):
            self._all_checks()

    def _on_cluster_queue(self, change: Change) -> None:
        # Its checks decide whether it matters that the clusters can provision.
        if change.old is None or change.new is None or change.old.generation != change.new.generation:
            self._all_checks()

    def _cluster_changed(self, name: str) -> None:
        """Enqueue the workloads of the cluster and those without a cluster; others do not depend on it."""
        self._all_checks()
        self._quotas.touched()
        waiting = self._context.caches.view(WORKLOADS)
        for key in (*waiting.indexed(DISPATCH_INDEX, name), *waiting.indexed(DISPATCH_INDEX, "")):
            self._workloads.enqueue(key)
        if self._transport is not None:
            for key in self._transport.workloads(name):
                self._workloads.enqueue(key)

    def _check_changed(self, name: str) -> None:
        self._all_workloads()
        # It may need the quotas of other clusters now.
        self._all_clusters()
        self._quotas.touched()

    def _keys(self, resource: Resource) -> tuple[Key, ...]:
        return self._context.caches.view(resource).keys()

    def _all_clusters(self) -> None:
        for key in self._keys(MULTIKUEUE_CLUSTERS):
            self._cluster_controller.enqueue(key)

    def _all_checks(self) -> None:
        for name in self._checks.names:
            self._check_controller.enqueue(Key("", name))

    def _all_workloads(self) -> None:
        for key in self._keys(WORKLOADS):
            if not has_finished(self._context.caches.view(WORKLOADS), key):
                self._workloads.enqueue(key)
        if self._transport is not None:
            for key in self._transport.workloads():
                self._workloads.enqueue(key)
