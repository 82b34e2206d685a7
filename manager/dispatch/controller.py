# SPDX-License-Identifier: Apache-2.0
"""The dispatch controller: wakes for everything that matters to a dispatched workload, plans, and carries out.

Owns three reconcilers (workloads, MultiKueueClusters, AdmissionChecks), what wakes them, and the memory of clusters
that refused a grant. Runs on the leader only. Promises that the books of clusters and checks are complete before the
first plan, so that a restart does not take what it has not read yet for lost.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from typing import Final

import anyio

from manager.caches import DISPATCH_INDEX
from manager.context import ManagerContext
from manager.dispatch.beliefs import beliefs
from manager.dispatch.carriers import Carrier, MailboxCarrier
from manager.dispatch.checks import Checks
from manager.dispatch.clusters import Clusters
from manager.dispatch.execution import Executor
from manager.dispatch.gather import Gathered, Gatherer
from manager.dispatch.merging import Merging
from manager.dispatch.mixed_carrier import MixedCarrier
from manager.dispatch.push_clusters import PushClusters
from manager.dispatch.push_hosts import PushSettings
from manager.dispatch.push_recovery import PushRecovery
from manager.dispatch.quota_automation import QuotaAutomation
from manager.dispatch.resync import Resync
from manager.dispatch.rooms import Rooms
from manager.registration.controller import RegistrationController
from multikueue.api.constants import MULTIKUEUE_CONTROLLER
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent, mailbox_namespace
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_PROFILES,
    CLUSTER_REGISTRATIONS,
    CLUSTER_REPORTS,
    LEASES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    SECRETS,
    WORKLOADS,
    Resource,
)
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.federation.actions import Assign, Plan, Rule, SetIntent
from multikueue.federation.occupancy import occupied
from multikueue.federation.pacing import Pacer
from multikueue.federation.phases import ENDED
from multikueue.federation.plan import plan
from multikueue.integrations.registry import Registry
from multikueue.kube.controller import Controller, Result
from multikueue.kube.informer import Change

_log = logging.getLogger(__name__)

_WORKLOAD_WORKERS: Final = 10  # as many as upstream runs, docs/spec/multikueue.md §1.2


class DispatchController:
    """Dispatch, from MultiKueueClusters to mirrored Jobs."""

    def __init__(self, context: ManagerContext, *, push: PushSettings | None = None) -> None:
        """Raises `BadInput` when the Configuration names a framework that there is no integration of."""
        self._context = context
        metrics, clock = context.metrics.controllers, context.clock
        self._workloads = Controller[Key](
            "multikueue_workload", self._reconcile, workers=_WORKLOAD_WORKERS, clock=clock, metrics=metrics
        )
        self._push = PushClusters(
            context,
            settings=push or PushSettings(),
            changed=lambda name: self._cluster_controller.enqueue(Key("", name)),
            workload_changed=self._workloads.enqueue,
        )
        self._rooms = Rooms(wake=self._workloads.enqueue, now=clock.now)
        self._clusters = Clusters(
            context,
            rooms=self._rooms,
            changed=self._cluster_changed,
            push=self._push,
            quotas_wanted=lambda name: self._quotas.wants(name),
        )
        self._cluster_controller = Controller[Key](
            "multikueuecluster", self._clusters.reconcile, clock=clock, metrics=metrics
        )
        self._checks = Checks(context, clusters=self._clusters, changed=self._check_changed)
        self._check_controller = Controller[Key](
            "multikueue_admissioncheck", self._checks.reconcile, clock=clock, metrics=metrics
        )
        self._quotas = QuotaAutomation(context, checks=self._checks, clusters=self._clusters)
        self._registry = Registry(context.configuration.integrations.frameworks)
        self._gatherer = Gatherer(context, checks=self._checks, clusters=self._clusters, registry=self._registry)
        settings = self._gatherer.settings
        self._pacer = Pacer(per_second=settings.evictions_per_second, burst=settings.eviction_burst)
        self._verdicts: dict[Key, tuple[str, ...]] = {}
        self._delivered: dict[Key, tuple[str, int]] = {}
        self._heeding: dict[Key, Key] = {}
        self._heeded: dict[Key, Key] = {}
        self._granting: set[Key] = set()
        self._carrier: Carrier | None = None
        context.statuses.stands = self._stands

    async def run(self) -> None:
        """Dispatch until cancelled; the caches must be synced."""
        caches = self._context.caches
        await self._open_books()
        pull = MailboxCarrier(self._context, changed=self._workloads.enqueue)
        self._carrier = MixedCarrier(pull, self._push.carrier)
        for workload, observation in beliefs(self._context, self._checks, self._push):
            if observation.cluster not in pull.observations(workload):
                self._push.carrier.believe(workload, observation)
        self._count_all()
        caches.subscribe(WORKLOADS, self._on_workload)
        for integration in self._registry:
            caches.subscribe(integration.resource, self._on_job)
        caches.subscribe(MULTIKUEUE_CLUSTERS, lambda change: self._cluster_controller.enqueue(change.key))
        caches.subscribe(CLUSTER_REGISTRATIONS, lambda change: self._cluster_controller.enqueue(change.key))
        for resource in (LEASES, CLUSTER_REPORTS):
            caches.subscribe(resource, self._on_mailbox)
        for resource in (SECRETS, CLUSTER_PROFILES):
            caches.subscribe(resource, lambda change: self._all_clusters())
        caches.subscribe(ADMISSION_CHECKS, self._on_check)
        caches.subscribe(MULTIKUEUE_CONFIGS, lambda change: self._all_checks())
        merging = Merging(self._context, gatherer=self._gatherer, carrier=self._carrier, decided=self._decided)
        self._context.statuses.completion = merging
        try:
            await self._serve(Resync(self._context, digests=pull.digests))
        finally:
            self._context.statuses.completion = None

    async def _serve(self, resync: Resync) -> None:
        async with anyio.create_task_group() as tasks:
            for controller in (self._cluster_controller, self._check_controller, self._workloads):
                tasks.start_soon(controller.run, name=controller.name)
            tasks.start_soon(self._push.hosts.run, name="multikueue-push")
            tasks.start_soon(PushRecovery(self._context, self._push.carrier).run, name="multikueue-push-recovery")
            tasks.start_soon(RegistrationController(self._context).run, name="multikueue-registration")
            tasks.start_soon(resync.run, name="multikueue-resync")
            tasks.start_soon(self._quotas.run, name="multikueue-quota")
            tasks.start_soon(self._collect_garbage, name="multikueue-garbage")

    async def _open_books(self) -> None:
        """Read every check and judge every cluster once before anything is planned."""
        for key in self._keys(ADMISSION_CHECKS):
            self._checks.load(key)
        for key in self._keys(MULTIKUEUE_CLUSTERS):
            try:
                await self._clusters.reconcile(key)
            except MultikueueError as error:
                _log.warning("MultiKueueCluster %s: %s; it counts as absent until that works", key, error)
                self._cluster_controller.enqueue(key)

    async def _reconcile(self, key: Key) -> Result | None:
        """One workload: load, guard, gather, decide, act."""
        assert self._carrier is not None, "run() makes the carrier before any key comes"
        now = self._context.clock.now()
        gathered = self._gather(key, now)
        if gathered is None:
            self._forget(key)
            return None
        decision = plan(gathered.facts, now)
        _log.debug("workload %s: rule %s: %s: %s", key, decision.rule.value, decision.actions, decision.verdicts)
        if decision.rule is Rule.DELIVER:
            # It was decided when the grant was written; what was said of each cluster then goes along now.
            decision = replace(decision, verdicts=self._verdicts.pop(key, ()))
        pause = self._pause(key, gathered, decision, now)
        if pause > 0:
            return Result(after=pause)
        self._decided(key, gathered, decision)
        if _grants(decision):
            self._granting.add(key)
        try:
            outcome = await Executor(self._context, self._carrier).execute(key, decision, gathered)
        finally:
            self._granting.discard(key)
        if outcome.outdated:
            return Result(after=0.0)
        # A status that could not be shown yet waits for the local job to be started; and it is in their job that users
        # change where they want what has no cluster yet.
        self._heed(key, gathered.job if outcome.deferred is not None or decision.rule is Rule.NOMINATE else None)
        waits = [seconds for seconds in (decision.requeue_after, outcome.deferred) if seconds is not None]
        return Result(after=min(waits)) if waits else None

    def _stands(self, workload: JsonObject) -> bool:
        """Whether a cluster that was told to run it, or is being told, has not said yet that nothing runs there.

        The mirrored status of a job is behind what happens on the worker, and must not give quota away that is in use.
        """
        if self._carrier is None:
            # Nobody knows before the books are open; what was never sent anywhere waits for that as well.
            return bool((workload.get("status") or {}).get("admissionChecks"))
        metadata = workload["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        return key in self._granting or any(
            seen.workload_uid == metadata["uid"]
            and seen.intent is not Intent.RESERVE
            and not (seen.answered and seen.phase in ENDED)
            for seen in self._carrier.observations(key).values()
        )

    def _pause(self, key: Key, gathered: Gathered, decision: Plan, now: datetime) -> float:
        """The seconds until it is this workload's turn to leave a lost cluster."""
        workload = gathered.facts.workload
        if decision.rule is not Rule.LOST or decision.check is None or workload is None:
            self._pacer.leave(key)
            return 0.0
        return self._pacer.turn(workload.cluster_name, key, now)

    def _decided(self, key: Key, gathered: Gathered, decision: Plan) -> None:
        """Before anything is written: room that is given is not there for the next one."""
        if decision.cluster_name and decision.verdicts:
            self._verdicts[key] = decision.verdicts
        self._count(key, gathered, granting=decision.cluster_name)
        self._line_up(key, gathered, held_back=decision.held_back)

    def _gather(self, key: Key, now: datetime) -> Gathered | None:
        assert self._carrier is not None
        observations = self._carrier.observations(key)
        gathered = self._gatherer.gather(key, self._context.statuses.current(key), observations, now=now)
        workload = None if gathered is None else gathered.facts.workload
        if gathered is None or workload is None or not workload.cluster_name:
            return gathered
        dispatched = (workload.uid, workload.epoch)
        seen = observations.get(workload.cluster_name)
        if seen is not None and (seen.workload_uid, seen.epoch) == dispatched:
            self._delivered[key] = dispatched
        delivered = self._delivered.get(key) == dispatched
        return replace(gathered, facts=replace(gathered.facts, delivered=delivered))

    def _count(self, key: Key, gathered: Gathered, *, granting: str | None) -> None:
        """Count the workload where it stands, and from now on where it is about to be sent."""
        workload = gathered.facts.workload
        standing = occupied(gathered.facts, granting=granting)
        self._rooms.settle(key, standing, () if workload is None else workload.demands)

    def _count_all(self) -> None:
        """What stood in the mailboxes before this process began is counted before anything is sent anywhere."""
        assert self._carrier is not None
        now = self._context.clock.now()
        for key in (*self._carrier.workloads(), *self._keys(WORKLOADS)):
            gathered = self._gather(key, now)
            if gathered is not None:
                self._count(key, gathered, granting=None)

    def _line_up(self, key: Key, gathered: Gathered, *, held_back: bool) -> None:
        workload = gathered.facts.workload
        if held_back and workload is not None and workload.waits_since is not None:
            spec: JsonObject = (gathered.workload or {}).get("spec") or {}
            self._rooms.queue(key, priority=int(spec.get("priority") or 0), since=workload.waits_since)
        else:
            self._rooms.leave(key)

    def _forget(self, key: Key) -> None:
        self._rooms.settle(key, (), ())
        self._rooms.leave(key)
        self._pacer.leave(key)
        self._delivered.pop(key, None)
        self._verdicts.pop(key, None)
        self._heed(key, None)

    def _heed(self, key: Key, job: Key | None) -> None:
        """Have the workload looked at with each change of that job, or of none."""
        before = self._heeding.pop(key, None)
        if before is not None and self._heeded.get(before) == key:
            del self._heeded[before]
        if job is not None:
            self._heeding[key], self._heeded[job] = job, key

    async def _collect_garbage(self) -> None:
        """Look again at every assignment, in case an event of its workload was missed."""
        assert self._carrier is not None
        interval = self._context.configuration.multikueue.gc_interval.total_seconds()
        if interval <= 0:
            return
        while True:
            await anyio.sleep(interval)
            view = self._context.caches.view(WORKLOADS)
            self._gatherer.wanted.keep({row.uid for row in view.rows()})
            assigned = set(self._carrier.workloads())
            for key in assigned.union(self._rooms.counted()):
                # What is counted without an assignment is a grant on its way, or one whose write failed for good.
                if view.get(key) is None or key not in assigned:
                    self._workloads.enqueue(key)

    def _on_workload(self, change: Change) -> None:
        if change.new is None:
            self._gatherer.wanted.forget(change.row.uid)
        if self._checks.names:
            self._workloads.enqueue(change.key)

    def _on_job(self, change: Change) -> None:
        workload = self._heeded.get(change.key)
        if workload is not None:
            self._workloads.enqueue(workload)

    def _on_mailbox(self, change: Change) -> None:
        for key in self._keys(MULTIKUEUE_CLUSTERS):
            if mailbox_namespace(key.name) == change.key.namespace:
                self._cluster_controller.enqueue(key)

    def _on_check(self, change: Change) -> None:
        spec: JsonObject = change.row.object().get("spec") or {}  # its schema lets one leave it out
        if spec.get("controllerName") == MULTIKUEUE_CONTROLLER or change.key.name in self._checks.names:
            self._check_controller.enqueue(change.key)

    def _cluster_changed(self, name: str) -> None:
        """Look at what stands on the cluster and at what has no cluster yet; work elsewhere does not ask about it."""
        self._all_checks()
        self._quotas.touched()
        waiting = self._context.caches.view(WORKLOADS)
        for key in (*waiting.indexed(DISPATCH_INDEX, name), *waiting.indexed(DISPATCH_INDEX, "")):
            self._workloads.enqueue(key)
        if self._carrier is not None:
            for key in self._carrier.workloads(name):
                self._workloads.enqueue(key)

    def _check_changed(self, name: str) -> None:
        self._all_workloads()
        # It may ask for the quotas of other clusters now.
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
            self._workloads.enqueue(key)
        if self._carrier is not None:
            for key in self._carrier.workloads():
                self._workloads.enqueue(key)


def _grants(plan: Plan) -> bool:
    return any(isinstance(action, Assign | SetIntent) and action.intent is Intent.RUN for action in plan.actions)
