# SPDX-License-Identifier: Apache-2.0
"""The dispatch controller: wakes for everything that matters to a dispatched workload, plans, and carries out.

Owns three reconcilers (workloads, MultiKueueClusters, AdmissionChecks), what wakes them, and the memory of clusters
that refused a grant. Runs on the leader only. Promises that the books of clusters and checks are complete before the
first plan, so that a restart does not take what it has not read yet for lost.
"""

from __future__ import annotations

import logging
from datetime import datetime

import anyio

from manager.context import ManagerContext
from manager.dispatch.carriers import MailboxCarrier
from manager.dispatch.checks import Checks
from manager.dispatch.clusters import Clusters
from manager.dispatch.execution import Executor
from manager.dispatch.gather import Gatherer
from multikueue.api.constants import MULTIKUEUE_CONTROLLER
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_REGISTRATIONS,
    CLUSTER_REPORTS,
    LEASES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    SECRETS,
    WORKLOADS,
    Resource,
)
from multikueue.core.keys import Key
from multikueue.federation.plan import plan
from multikueue.integrations.registry import Registry
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import KubeError
from multikueue.kube.informer import Change

_log = logging.getLogger(__name__)

_WORKLOAD_WORKERS = 10  # as many as upstream runs, docs/spec/multikueue.md §1.2


class DispatchController:
    """Dispatch, from MultiKueueClusters to mirrored Jobs."""

    def __init__(self, context: ManagerContext) -> None:
        """Raises `BadInput` when the Configuration names a framework that there is no integration of."""
        self._context = context
        metrics, clock = context.metrics.controllers, context.clock
        self._workloads = Controller[Key](
            "multikueue_workload", self._reconcile, workers=_WORKLOAD_WORKERS, clock=clock, metrics=metrics
        )
        self._clusters = Clusters(context, changed=self._cluster_changed)
        self._cluster_controller = Controller[Key](
            "multikueuecluster", self._clusters.reconcile, clock=clock, metrics=metrics
        )
        self._checks = Checks(context, clusters=self._clusters, changed=self._check_changed)
        self._check_controller = Controller[Key](
            "multikueue_admissioncheck", self._checks.reconcile, clock=clock, metrics=metrics
        )
        self._registry = Registry(context.configuration.integrations.frameworks)
        self._gatherer = Gatherer(context, checks=self._checks, clusters=self._clusters, registry=self._registry)
        self._avoided: dict[str, dict[str, datetime]] = {}
        self._deferred: dict[Key, Key] = {}
        self._carrier: MailboxCarrier | None = None

    async def run(self) -> None:
        """Dispatch until cancelled; the caches must be synced."""
        caches = self._context.caches
        await self._open_books()
        self._carrier = MailboxCarrier(self._context, changed=self._workloads.enqueue)
        caches.subscribe(WORKLOADS, self._on_workload)
        for integration in self._registry:
            caches.subscribe(integration.resource, self._on_job)
        caches.subscribe(MULTIKUEUE_CLUSTERS, lambda change: self._cluster_controller.enqueue(change.key))
        caches.subscribe(CLUSTER_REGISTRATIONS, lambda change: self._cluster_controller.enqueue(change.key))
        for resource in (LEASES, CLUSTER_REPORTS):
            caches.subscribe(resource, self._on_mailbox)
        caches.subscribe(SECRETS, lambda change: self._all_clusters())
        caches.subscribe(ADMISSION_CHECKS, self._on_check)
        caches.subscribe(MULTIKUEUE_CONFIGS, lambda change: self._all_checks())
        async with anyio.create_task_group() as tasks:
            for controller in (self._cluster_controller, self._check_controller, self._workloads):
                tasks.start_soon(controller.run, name=controller.name)
            tasks.start_soon(self._collect_garbage, name="multikueue-garbage")

    async def _open_books(self) -> None:
        """Judge every cluster and read every check once before anything is planned."""
        for key in self._keys(MULTIKUEUE_CLUSTERS):
            try:
                await self._clusters.reconcile(key)
            except KubeError as error:
                _log.warning("MultiKueueCluster %s: %s; it counts as absent until that works", key, error)
                self._cluster_controller.enqueue(key)
        for key in self._keys(ADMISSION_CHECKS):
            self._checks.load(key)

    async def _reconcile(self, key: Key) -> Result | None:
        """One workload: load, guard, gather, decide, act."""
        assert self._carrier is not None, "run() makes the carrier before any key comes"
        now = self._context.clock.now()
        workload = self._context.statuses.current(key)
        avoided = self._avoiding(str(workload["metadata"]["uid"]) if workload is not None else "", now)
        gathered = self._gatherer.gather(key, self._carrier.observations(key), avoided)
        if gathered is None:
            self._deferred = {job: waiting for job, waiting in self._deferred.items() if waiting != key}
            return None
        decision = plan(gathered.facts, now)
        _log.debug("workload %s: rule %s: %s", key, decision.rule.value, decision.actions)
        if decision.avoid and gathered.facts.workload is not None:
            until = now + gathered.facts.settings.avoid_for
            self._avoided.setdefault(gathered.facts.workload.uid, {})[decision.avoid] = until
        outcome = await Executor(self._context, self._carrier).execute(key, decision, gathered)
        if outcome.outdated:
            return Result(after=0.0)
        if gathered.job is not None:
            if outcome.deferred is None:
                self._deferred.pop(gathered.job, None)
            else:
                self._deferred[gathered.job] = key
        waits = [seconds for seconds in (decision.requeue_after, outcome.deferred) if seconds is not None]
        return Result(after=min(waits)) if waits else None

    def _avoiding(self, uid: str, now: datetime) -> dict[str, datetime]:
        avoided = {cluster: until for cluster, until in self._avoided.get(uid, {}).items() if now < until}
        if avoided:
            self._avoided[uid] = avoided
        else:
            self._avoided.pop(uid, None)
        return avoided

    async def _collect_garbage(self) -> None:
        """Look again at every assignment, in case an event of its workload was missed."""
        assert self._carrier is not None
        interval = self._context.configuration.multikueue.gc_interval.total_seconds()
        if interval <= 0:
            return
        while True:
            await anyio.sleep(interval)
            for uid in tuple(self._avoided):
                self._avoiding(uid, self._context.clock.now())
            for key in self._carrier.workloads():
                if self._context.statuses.current(key) is None:
                    self._workloads.enqueue(key)

    def _on_workload(self, change: Change) -> None:
        if self._checks.names:
            self._workloads.enqueue(change.key)

    def _on_job(self, change: Change) -> None:
        # A status that could not be shown yet waits for exactly this: that the local job is started.
        workload = self._deferred.get(change.key)
        if workload is not None:
            self._workloads.enqueue(workload)

    def _on_mailbox(self, change: Change) -> None:
        for key in self._keys(MULTIKUEUE_CLUSTERS):
            if mailbox_namespace(key.name) == change.key.namespace:
                self._cluster_controller.enqueue(key)

    def _on_check(self, change: Change) -> None:
        obj = change.row.object()
        if obj["spec"].get("controllerName") == MULTIKUEUE_CONTROLLER or change.key.name in self._checks.names:
            self._check_controller.enqueue(change.key)

    def _cluster_changed(self, name: str) -> None:
        self._all_checks()
        self._all_workloads()

    def _check_changed(self, name: str) -> None:
        self._all_workloads()

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
