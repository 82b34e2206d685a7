# SPDX-License-Identifier: Apache-2.0
"""The composition root of the manager: builds the parts and gives each a place in a task group.

Owns what runs when: servers and caches on every replica; webhooks, engine, reconcilers and dispatch on the leader only,
which have ended when it no longer leads. An external failure (a server that does not answer, a missing CRD, a held
lease) is one line in the log. An object that cannot be used is quarantined, and what fails starts again after a pause.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from typing import Any, Final, Protocol, TypeVar

import anyio
from aiohttp import web

from manager.cache.caches import Caches
from manager.cache.configured_kinds import configured_kinds
from manager.cache.followed_kind import FollowedKind
from manager.cache.indexes import followed
from manager.cache.quarantine_events import QuarantineEvents
from manager.collector import TermCollector
from manager.context import ManagerContext
from manager.controllers.elastic_pods import ElasticPods
from manager.controllers.jobs import JobReconciler
from manager.controllers.queue_hints import LabelledPods, QueueHints
from manager.controllers.queues import QueueReconcilers
from manager.controllers.workload_removal import RemovedKindReconciler
from manager.controllers.workloads import WorkloadReconciler
from manager.custom_labels import CustomLabels
from manager.measured_queues import MeasuredQueues
from manager.metrics import FOLLOWER, LEADER, STANDALONE, ManagerMetrics
from manager.metrics_serving import METRICS_SERVICE, PATH, MetricsServing, certificate_of
from manager.namespaces import ManagedNamespaces
from manager.options import DISABLED, ManagerOptions
from manager.owners.running_pods import RunningPodReview
from manager.provisioning.controller import ProvisioningController
from manager.scheduler.pending_writes import PendingWrites
from manager.scheduler.scheduler import Scheduler
from manager.seals import Seals
from manager.topology.controllers import TopologyControllers
from manager.visibility.serving import VisibilityAddress, VisibilityServing, serving_visibility
from manager.webhooks.access import AccessReviews
from manager.webhooks.external_kinds import DiscoveredKinds
from manager.webhooks.handlers import Handlers
from manager.webhooks.owner_rights import OwnerRights
from manager.webhooks.rotation import ensure_namespace
from manager.webhooks.server import LIMITS, application
from manager.webhooks.serving import WebhookAddress, WebhookServing, certificate_source
from manager.workload.foreign_checks import foreign_of
from manager.workload.status_writer import AdmissionHook, StatusWriter
from manager.workload.transitions import Transitions
from multikueue.api.configuration import Configuration
from multikueue.api.reasons import ORDINARY_STEPS, FrameworkEvent
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    LOCAL_QUEUES,
    NAMESPACES,
    PODS,
    WORKLOADS,
)
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.errors import HubRestored
from multikueue.engine import decode
from multikueue.engine.settings import Settings
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.limiter import Limiter
from multikueue.kube.runtime.event_budget import EventBudget
from multikueue.kube.runtime.events import NORMAL, WARNING, EventRecorder, Reference
from multikueue.kube.runtime.leader import LeaderElector, LeaseRestoreDetector
from multikueue.kube.runtime.quarantine import Quarantine, QuarantineMetrics
from multikueue.kube.runtime.supervisor import Supervisor
from multikueue.kube.serving.page_access import PageAccess
from multikueue.kube.serving.serve import ServingCertificate, TlsOptions, add_metrics, add_probes, serving

_log = logging.getLogger(__name__)

T = TypeVar("T")

_SYSTEM_NAMESPACE: Final = "kube-system"
_COMPONENT: Final = "kueue-controller-manager"
_CONNECT: Final = Backoff(base=0.2, cap=5.0)
_SLOW_CACHE_SECONDS: Final = 30.0  # how long a first list may take before it is logged


class DispatchLoop(AdmissionHook, Protocol):
    """What sends admitted workloads to worker clusters while this replica leads."""

    async def run(self) -> None:
        """Work until cancelled."""


Dispatch = Callable[[ManagerContext], DispatchLoop]


class Manager:
    """One manager process, or one of several in a test."""

    def __init__(
        self,
        configuration: Configuration,
        client: KubeClient,
        *,
        options: ManagerOptions,
        clock: Clock,
        random: Random,
        dispatch: Dispatch | None = None,
        own_process: bool = False,
    ) -> None:
        """`dispatch` creates the part that sends admitted workloads to worker clusters; without it they run here.

        `own_process` is for a process without other work, whose garbage collector is set for the manager.
        Raises `BadInput` for an invalid setting.
        """
        self._configuration = configuration
        self._client = client
        self._options = options
        self._clock = clock
        self._random = random
        self._dispatch = dispatch
        self._collector = TermCollector(own_process=own_process)
        self._namespace = options.namespace or configuration.namespace
        self._metrics_serving = MetricsServing.of(options, configuration)
        self._tls = TlsOptions.of(configuration.tls)
        self._webhook_address = (
            WebhookAddress.of(options, configuration, namespace=self._namespace) if options.webhooks else None
        )
        self._visibility_address = VisibilityAddress.of(options, configuration, namespace=self._namespace)
        elected = options.leader_election
        self._elects = configuration.leader_election.leader_elect if elected is None else elected
        self.identity = options.identity or f"{socket.gethostname()}_{random.getrandbits(48):012x}"
        self._registry = JobRegistry.configured(configuration) if options.job_integrations else JobRegistry(())
        self._settings = _engine_settings(configuration)
        self.metrics = ManagerMetrics(role=FOLLOWER if self._elects else STANDALONE)
        configured = configured_kinds(configuration, namespace=self._namespace)
        kinds = followed(namespace=self._namespace, jobs=self._registry.followed, configured=configured)
        quarantine = Quarantine(clock=clock, random=random, metrics=QuarantineMetrics(self.metrics.registry))
        self.caches = Caches(client, kinds, clock=clock, random=random, quarantine=quarantine)
        self._supervisor = Supervisor(clock=clock, random=random, registry=self.metrics.registry)
        self.namespaces = ManagedNamespaces(configuration, self.caches.view(NAMESPACES))
        qps, burst = options.event_qps, options.event_burst
        budget = EventBudget(qps=qps, burst=burst, steps=ORDINARY_STEPS, clock=clock) if qps else None
        self.recorder = EventRecorder(client, _COMPONENT, instance=self.identity, budget=budget, clock=clock)
        self.measured = MeasuredQueues(configuration, self.caches.view)
        transitions = Transitions(self.metrics, self.recorder, clock=clock, measured=self.measured)
        self.statuses = StatusWriter(
            client,
            self.caches.view(WORKLOADS),
            quarantine,
            foreign=foreign_of(self.caches.view(ADMISSION_CHECKS)),
            former_reasons=not self._settings.gates.observability,
            written=transitions.written,
        )
        self.leading = False
        self.metrics_port = self.health_port = self.webhook_port = self.visibility_port = 0

    async def run(self) -> None:
        """Run until cancelled. Raises `PortInUse` and `HubRestored`; other failures are retried."""
        servers = AsyncExitStack()
        try:
            await self._serve_probes(servers)
            await self._connected(lambda: ensure_namespace(self._client, self._namespace))
            manager_uid = await self._connected(self._manager_uid)
            seals = await self._connected(lambda: Seals.load(self._client, namespace=self._namespace))
            address = self._webhook_address
            webhooks = None if address is None else await self._serve_webhooks(servers, seals, address)
            context = ManagerContext(
                configuration=self._configuration,
                options=self._options,
                namespace=self._namespace,
                manager_uid=manager_uid,
                seals=seals,
                client=self._client,
                caches=self.caches,
                statuses=self.statuses,
                recorder=self.recorder,
                metrics=self.metrics,
                measured=self.measured,
                supervisor=self._supervisor,
                clock=self._clock,
                random=self._random,
            )
            visibility = None if webhooks is None else await self._serve_visibility(servers, context, webhooks)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.caches.run, name="caches")
                tasks.start_soon(self.recorder.run, name="events")
                tasks.start_soon(self._end_when_restored, name="restored")
                tasks.start_soon(self._log_slow_caches, name="slow-caches")
                if webhooks is not None:
                    tasks.start_soon(
                        self._supervisor.keep,
                        "webhook-certificate",
                        webhooks.follow_certificate,
                        name="webhook-certificate",
                    )
                if visibility is not None:
                    tasks.start_soon(visibility.proxies.follow, name="front-proxies")
                await self._compete(
                    lambda: self._supervisor.keep("leading", lambda: self._lead(context, webhooks, visibility))
                )
        finally:
            # A cancelled scope would interrupt the closing of connections at its first await.
            with anyio.CancelScope(shield=True):
                await servers.aclose()

    async def _end_when_restored(self) -> None:
        """End the process: nothing that was decided, sent or counted since the backup is true any more."""
        await self.caches.restored.wait()
        raise HubRestored("the management cluster was restored from a backup or rebuilt; restarting to rebuild state")

    async def _compete(self, lead: Callable[[], Awaitable[None]]) -> None:
        if not self._elects:
            await lead()
            return
        election = self._configuration.leader_election
        restore_detector = LeaseRestoreDetector(restored=self.caches.restored.set)
        while True:
            elector = LeaderElector(
                self._client,
                namespace=election.resource_namespace or self._namespace,
                name=election.resource_name,
                identity=self.identity,
                lease_seconds=election.lease_duration.total_seconds(),
                renew_seconds=election.renew_deadline.total_seconds(),
                retry_seconds=election.retry_period.total_seconds(),
                clock=self._clock,
                random=self._random,
                restore_detector=restore_detector,
            )
            await elector.run(lead)

    async def _lead(
        self, context: ManagerContext, webhooks: WebhookServing | None, visibility: VisibilityServing | None
    ) -> None:
        """Run everything that only one manager may do, until cancelled; no subscription is left behind."""
        self._collector.term_begins()
        if self._elects:
            self.metrics.role = LEADER
        report = QuarantineEvents(self.caches, self.recorder).report
        self.caches.report_frameworks(self._report_framework)
        self.caches.quarantine.add_reporter(report)
        for entry in self.caches.quarantine.entries():
            report(entry)
        keep = self._supervisor.keep
        try:
            async with anyio.create_task_group() as tasks:
                if webhooks is not None:
                    # Before the caches: objects stored in an older version can only be listed through the conversion.
                    installer = webhooks.installer(self._client, excluded=(_SYSTEM_NAMESPACE, self._namespace))
                    tasks.start_soon(keep, "webhook-installer", installer.run, name="webhook-installer")
                    await installer.installed.wait()
                await self.caches.synced()
                self._collector.caches_filled()
                for name, part in await self._parts(context, visibility):
                    tasks.start_soon(part, name=name)
                if visibility is not None and webhooks is not None and webhooks.source.is_own:
                    registration = visibility.registration(context, ca_bundle=lambda: webhooks.bundle.ca_bundle)
                    tasks.start_soon(keep, "visibility-registration", registration.run, name="visibility-registration")
                if self._dispatch is not None:
                    dispatcher = self._dispatch(context)
                    self.statuses.use_hook(dispatcher)
                    tasks.start_soon(dispatcher.run, name="dispatch")
                self._collector.parts_started()
                self.leading = True
                _log.info("leading identity=%s cluster=%s", self.identity, self._client.config.name)
        finally:
            self.leading = False
            if visibility is not None:
                visibility.engines.follow()
            self.statuses.use_hook(None)
            self.caches.quarantine.remove_reporter(report)
            self.caches.report_frameworks(None)
            self.caches.unsubscribe_all()
            if self._elects:
                self.metrics.role = FOLLOWER

    def _report_framework(self, kind: FollowedKind, waits: bool) -> None:
        """An event about the manager's namespace, since the kind itself does not exist."""
        about = Reference(NAMESPACES.api_version, NAMESPACES.kind, self._namespace)
        crd = kind.resource.qualified
        if waits:
            message = f"Framework {kind.framework} waits for the CustomResourceDefinition {crd}; install its operator"
            self.recorder.event(about, WARNING, FrameworkEvent.WAITING, message)
        else:
            message = f"CustomResourceDefinition {crd} is installed: framework {kind.framework} started"
            self.recorder.event(about, NORMAL, FrameworkEvent.STARTED, message)

    async def _parts(
        self, context: ManagerContext, visibility: VisibilityServing | None
    ) -> list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]:
        """Engine, scheduler loop and reconcilers, attached to the caches in the order in which they must be called."""
        queues = QueueReconcilers(context, engine=lambda: scheduler.engine)
        budget = self._configuration.pending_reasons
        qps = budget.writes_per_second
        pending_writes = PendingWrites(
            clock=self._clock,
            limiter=Limiter(qps=qps, burst=budget.burst, clock=self._clock) if qps else None,
            others_under_way=lambda own: scheduler.writes_decisions or self.statuses.under_way > own,
            server_overloaded=lambda: scheduler.server_overloaded,
            quarantine=self.caches.quarantine,
            figures_seconds=budget.figures_interval.total_seconds(),
        )
        topology = TopologyControllers(context)
        scheduler = Scheduler(
            context,
            settings=self._settings,
            pending_writes=pending_writes,
            topology=topology.objects,
            preemption_delay=self._configuration.preemption_delay.total_seconds(),
            touched=queues.touched,
        )
        workers = self._configuration.controller.group_kind_concurrency
        workloads = WorkloadReconciler(
            context,
            registry=self._registry,
            pods_ready=self._settings.pods_ready,
            engine=lambda: scheduler.engine,
            pending_writes=pending_writes,
            workers=workers.get("Workload.kueue.x-k8s.io", 10),
        )
        hints = QueueHints(
            self.recorder,
            self.caches.view(LOCAL_QUEUES),
            manages_namespace=self.namespaces.manages,
            namespace=self._namespace,
            frameworks=[integration.framework for integration in self._registry],
            clock=self._clock,
        )
        pods = LabelledPods(
            self._client, hints, clock=self._clock, random=self._random, quarantine=self.caches.quarantine
        )
        jobs = [
            JobReconciler(
                context,
                integration,
                registry=self._registry,
                manages_namespace=self.namespaces.manages,
                hints=hints,
                pending_writes=pending_writes,
                tracks_pods=self._settings.pods_ready is not None,
                workers=workers.get(f"{integration.resource.kind}.{integration.resource.group}", 5),
            )
            for integration in self._registry
            if not integration.traits.pods_are_jobs
        ]
        provisioning = ProvisioningController(context)
        removed_kinds = RemovedKindReconciler(context, registry=self._registry)
        if visibility is not None:
            visibility.engines.begin_leading()
            self.caches.unsubscribe_all()
        await scheduler.attach()
        if visibility is not None:
            visibility.engines.lead(lambda: scheduler.engine)
        for attach in (queues.attach, workloads.attach, provisioning.attach, removed_kinds.attach, topology.attach):
            attach()
        for job in jobs:
            await job.attach()
        return [
            ("scheduler", scheduler.run),
            ("pending-writes", pending_writes.run),
            ("workloads", workloads.controller.run),
            ("queue-figures", queues.run),
            ("provisioning", provisioning.run),
            *topology.runs,
            ("removed-kinds", removed_kinds.controller.run),
            *([("labelled-pods", pods.run)] if self._registry.for_kind(PODS.api_version, PODS.kind) is None else []),
            ("elastic-pods", ElasticPods(context).run),
            ("running-pods", RunningPodReview(context, self._registry, manages_namespace=self.namespaces.manages).run),
            *((f"jobs-{job.controller.name}", job.controller.run) for job in jobs),
            *((resource.plural, controller.run) for resource, controller in queues.controllers.items()),
        ]

    async def _serve_probes(self, servers: AsyncExitStack) -> None:
        health = self._options.health_bind or self._configuration.health.health_probe_bind_address
        folder = self._metrics_serving.certificate_folder
        if folder and self._metrics_serving.address != DISABLED:
            await self._serve_metrics(servers, await servers.enter_async_context(certificate_of(folder, tls=self._tls)))
        elif not self._metrics_serving.secure:
            await self._serve_metrics(servers, None)
        if health != DISABLED:
            app = web.Application()
            settings = self._configuration.health
            also = {
                f"/{settings.liveness_endpoint_name}": _no_problem,
                f"/{settings.readiness_endpoint_name}": self._not_ready,
            }
            add_probes(app, live=_no_problem, ready=self._not_ready, also=also)
            self.health_port = await servers.enter_async_context(serving(app, health))

    async def _serve_metrics(self, servers: AsyncExitStack, certificate: ServingCertificate | None) -> None:
        chosen = self._metrics_serving
        if chosen.address == DISABLED:
            return
        app = web.Application()
        access = PageAccess(self._client, PATH, clock=self._clock) if chosen.authorized else None
        add_metrics(app, CustomLabels(self.metrics.registry, self._configuration, self.caches.view), access=access)
        self.metrics_port = await servers.enter_async_context(serving(app, chosen.address, certificate=certificate))

    def _not_ready(self) -> str | None:
        waiting = self.caches.waiting_for
        return f"waiting for the first list of {', '.join(waiting)}" if waiting else None

    async def _serve_webhooks(self, servers: AsyncExitStack, seals: Seals, address: WebhookAddress) -> WebhookServing:
        of_metrics = [f"{METRICS_SERVICE}.{self._namespace}.svc"] if self._metrics_serving.shares_certificate else []
        of_visibility = [] if self._visibility_address is None else self._visibility_address.hosts
        hosts = [*address.hosts, *of_metrics, *of_visibility]
        source = certificate_source(
            self._configuration, self._client, namespace=self._namespace, hosts=hosts, clock=self._clock
        )
        bundle = await self._connected(source.ensure)
        certificate = ServingCertificate(bundle.pem, tls=self._tls)
        if self._metrics_serving.shares_certificate:
            await self._serve_metrics(servers, certificate)
        access = AccessReviews(self._client)
        handlers = Handlers(
            configuration=self._configuration,
            caches=self.caches,
            registry=self._registry,
            namespaces=self.namespaces,
            jobs=self._options.job_integrations,
            seals=seals,
            access=access,
            owners=OwnerRights(access, self._configuration.integrations.owner_references, self._clock),
            kinds=DiscoveredKinds(self._client),
        )
        app = application(handlers.by_path(), ready=self.caches.synced, is_cached=handlers.is_cached)
        self.webhook_port = await servers.enter_async_context(
            serving(app, address.bind, certificate=certificate, limits=LIMITS)
        )
        return WebhookServing(
            address=address,
            source=source,
            certificate=certificate,
            bundle=bundle,
            handlers=handlers,
            user=await self._connected(self._own_user),
        )

    async def _serve_visibility(
        self, servers: AsyncExitStack, context: ManagerContext, webhooks: WebhookServing
    ) -> VisibilityServing | None:
        address = self._visibility_address
        if address is None:
            return None
        visibility = await servers.enter_async_context(
            serving_visibility(context, address, bundle=webhooks.bundle, tls=self._tls, settings=self._settings)
        )
        webhooks.also = visibility.certificate
        self.visibility_port = visibility.port
        return visibility

    async def _manager_uid(self) -> str:
        system = await self._client.get_object(NAMESPACES, _SYSTEM_NAMESPACE)
        return str(system["metadata"]["uid"])

    async def _own_user(self) -> str:
        """The user that this manager is on the management cluster; empty if the API server has no SelfSubjectReview."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            answer = await self._client.request("POST", f"/apis/{body['apiVersion']}/selfsubjectreviews", body=body)
        except NotFound:
            return ""
        return str(answer.json()["status"]["userInfo"].get("username") or "")

    async def _connected(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of `call`, retried until the server answers; each error is logged once."""
        logged, attempt = "", 0
        while True:
            attempt += 1
            try:
                return await call()
            except KubeError as error:
                if str(error) != logged:
                    logged = str(error)
                    _log.error("management cluster not available, retrying error=%s", error)
            await anyio.sleep(_CONNECT.delay(min(attempt, 10), self._random))

    async def _log_slow_caches(self) -> None:
        while self.caches.waiting_for:
            with anyio.move_on_after(_SLOW_CACHE_SECONDS):
                await self.caches.synced()
                return
            _log.error("first list still missing, check RBAC kinds=%s", ",".join(self.caches.waiting_for))


def _no_problem() -> None:
    """A process that answers is alive."""


def _engine_settings(configuration: Configuration) -> Settings:
    settings = decode.settings(configuration.model_dump(mode="json", by_alias=True, exclude_none=True))
    return settings if configuration.wait_for_pods_ready is not None else replace(settings, pods_ready=None)
