# SPDX-License-Identifier: Apache-2.0
"""The composition root of the manager: builds the parts and gives each a place in a task group.

Owns what runs when: servers and caches on every replica, webhook installation, engine, reconcilers and dispatch on
the leader only. Promises that everything a leader started has ended when it leads no more, and that what is wrong
outside (a server that is away, a CRD that is missing, a lease somebody holds) is one line in the log while the rest
goes on. Decides nothing about workloads.
"""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

import anyio
from aiohttp import web

from manager.caches import Caches, followed
from manager.context import ManagerContext
from manager.dispatch.cluster_profiles import PROFILE_GATE
from manager.metrics import FOLLOWER, LEADER, STANDALONE, Metrics
from manager.namespaces import ManagedNamespaces
from manager.options import DISABLED, Options
from manager.reconcilers.jobs import JobReconciler
from manager.reconcilers.queues import QueueReconcilers
from manager.reconcilers.workloads import WorkloadReconciler
from manager.scheduler import Scheduler
from manager.set_aside import SetAside, Undecidable
from manager.transitions import Transitions
from manager.webhooks.certificates import Bundle
from manager.webhooks.configurations import Reach
from manager.webhooks.handlers import Handlers
from manager.webhooks.install import Installer
from manager.webhooks.rotation import SharedBundle, ensure_namespace
from manager.webhooks.server import application
from manager.workload_status import StatusWriter
from multikueue.api.configuration import Configuration
from multikueue.api.resource import CLUSTER_PROFILES, NAMESPACES, WORKLOADS, Resource
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput, PutBack
from multikueue.engine import intake
from multikueue.engine.settings import Settings
from multikueue.integrations.registry import Registry
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import KubeError
from multikueue.kube.events import EventRecorder
from multikueue.kube.leader import LeaderElector, Lineage
from multikueue.kube.limiter import Limiter
from multikueue.kube.serve import ServingCertificate, add_metrics, add_probes, serving

_log = logging.getLogger(__name__)

T = TypeVar("T")

_SYSTEM_NAMESPACE: Final = "kube-system"
_METRICS_ADDRESS: Final = ":8080"
_COMPONENT: Final = "kueue-controller-manager"
_CONNECT: Final = Backoff(base=0.2, cap=5.0)
_PATIENCE_SECONDS: Final = 30.0  # how long a first list may take before somebody should hear of it


class Leading(Protocol):
    """What runs while this replica leads."""

    async def run(self) -> None:
        """Work until cancelled."""


Dispatch = Callable[[ManagerContext], Leading]


@dataclass(slots=True)
class _Serving:
    """The webhook side of one replica."""

    shared: SharedBundle
    certificate: ServingCertificate
    bundle: Bundle
    reach: Callable[[Bundle], Reach]
    handlers: Handlers
    installer: Installer | None = None

    def replace(self, bundle: Bundle) -> None:
        self.certificate.replace(bundle.certificate + bundle.key)
        self.bundle = bundle
        if self.installer is not None:
            self.installer.nudge()


class Manager:
    """One manager process, or one of several in a test."""

    def __init__(
        self,
        configuration: Configuration,
        client: KubeClient,
        *,
        options: Options,
        clock: Clock,
        random: Random,
        dispatch: Dispatch | None = None,
    ) -> None:
        """`dispatch` makes the part that sends admitted workloads to worker clusters; without it they stay here.

        Raises `BadInput` for a setting that cannot be.
        """
        self._configuration = configuration
        self._client = client
        self._options = options
        self._clock = clock
        self._random = random
        self._dispatch = dispatch
        self._namespace = options.namespace or configuration.namespace
        elected = options.leader_election
        self._elects = configuration.leader_election.leader_elect if elected is None else elected
        self.identity = options.identity or f"{socket.gethostname()}_{random.getrandbits(48):012x}"
        self._registry = Registry(configuration.integrations.frameworks if options.job_integrations else ())
        self._settings = _engine_settings(configuration)
        self.metrics = Metrics(role=FOLLOWER if self._elects else STANDALONE)
        jobs: list[Resource] = [integration.resource for integration in self._registry]
        profiles = (CLUSTER_PROFILES,) if configuration.gate(PROFILE_GATE) else ()
        kinds = followed(namespace=self._namespace, jobs=jobs, cluster_profiles=profiles)
        self.caches = Caches(client, kinds, clock=clock, random=random)
        self.statuses = StatusWriter(client, self.caches.view(WORKLOADS))
        self.namespaces = ManagedNamespaces(configuration, self.caches.view(NAMESPACES))
        budget = Limiter(qps=options.event_qps, burst=options.event_burst, clock=clock) if options.event_qps else None
        self.recorder = EventRecorder(client, _COMPONENT, instance=self.identity, budget=budget, clock=clock)
        self.statuses.tell(Transitions(self.metrics, self.recorder, clock=clock).written)
        self.leading = False
        self._aside = SetAside()
        self.metrics_port = 0
        self.health_port = 0
        self.webhook_port = 0

    async def run(self) -> None:
        """Run until cancelled. Raises `PortInUse` and `BadInput` at once; everything else is waited out."""
        servers = AsyncExitStack()
        try:
            await self._serve_probes(servers)
            await self._connected(lambda: ensure_namespace(self._client, self._namespace))
            manager_uid = await self._connected(self._manager_uid)
            webhooks = await self._serve_webhooks(servers) if self._options.webhooks else None
            context = ManagerContext(
                configuration=self._configuration,
                options=self._options,
                namespace=self._namespace,
                manager_uid=manager_uid,
                client=self._client,
                caches=self.caches,
                statuses=self.statuses,
                recorder=self.recorder,
                metrics=self.metrics,
                clock=self._clock,
                random=self._random,
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.caches.run, name="caches")
                tasks.start_soon(self.recorder.run, name="events")
                tasks.start_soon(self._end_when_put_back, name="put-back")
                tasks.start_soon(self._tell_of_slow_caches, name="cache-patience")
                if webhooks is not None:
                    tasks.start_soon(
                        lambda: webhooks.shared.follow(webhooks.replace, current=webhooks.bundle),
                        name="webhook-certificate",
                    )
                await self._compete(lambda: self._lead_on(context, webhooks))
        finally:
            # A cancelled scope would interrupt the closing of connections at its first await.
            with anyio.CancelScope(shield=True):
                await servers.aclose()

    async def _end_when_put_back(self) -> None:
        """Nothing that was decided, sent or counted since the backup is so any more: another process begins anew."""
        await self.caches.put_back.wait()
        raise PutBack(
            "the management cluster was restored from a backup, or made anew: ending, to begin with what it knows now"
        )

    async def _compete(self, lead: Callable[[], Awaitable[None]]) -> None:
        if not self._elects:
            await lead()
            return
        election = self._configuration.leader_election
        lineage = Lineage(put_back=self.caches.put_back.set)
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
                lineage=lineage,
            )
            await elector.run(lead)

    async def _lead_on(self, context: ManagerContext, webhooks: _Serving | None) -> None:
        """Lead, and begin anew without a workload at which the engine broke."""
        while True:
            try:
                await self._lead(context, webhooks)
                return
            except BaseExceptionGroup as group:
                broken, rest = group.split(Undecidable)
                if broken is None or rest is not None:
                    raise
                await self._aside.add(broken, context)

    async def _lead(self, context: ManagerContext, webhooks: _Serving | None) -> None:
        """Everything that only one manager may do; ends when cancelled, leaving no subscription behind."""
        if self._elects:
            self.metrics.role = LEADER
        try:
            async with anyio.create_task_group() as tasks:
                if webhooks is not None:
                    # Before the caches: objects stored in an older version can only be listed through the conversion.
                    webhooks.installer = installer = self._installer(webhooks)
                    tasks.start_soon(installer.run, name="webhook-installer")
                    await installer.installed.wait()
                await self.caches.synced()
                for name, part in await self._parts(context):
                    tasks.start_soon(part, name=name)
                if self._dispatch is not None:
                    tasks.start_soon(self._dispatch(context).run, name="dispatch")
                # What was built to stay is out of the collector's way from here on.
                gc.collect()
                gc.freeze()
                self.leading = True
                _log.info("%s manages %s", self.identity, self._client.config.name)
        finally:
            self.leading = False
            self.caches.unsubscribe_all()
            if self._elects:
                self.metrics.role = FOLLOWER

    async def _parts(self, context: ManagerContext) -> list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]:
        """Engine, scheduler loop and reconcilers, attached to the caches in the order in which they must hear."""
        queues = QueueReconcilers(context, engine=lambda: scheduler.engine)
        scheduler = Scheduler(context, settings=self._settings, touched=queues.touched, aside=self._aside)
        workers = self._configuration.controller.group_kind_concurrency
        workloads = WorkloadReconciler(
            context,
            registry=self._registry,
            pods_ready=self._settings.pods_ready,
            engine=lambda: scheduler.engine,
            workers=workers.get("Workload.kueue.x-k8s.io", 10),
        )
        jobs = [
            JobReconciler(
                context,
                integration,
                manages_namespace=self.namespaces.manages,
                tracks_pods=self._settings.pods_ready is not None,
                workers=workers.get(f"{integration.resource.kind}.{integration.resource.group}", 5),
            )
            for integration in self._registry
        ]
        await scheduler.attach()
        queues.attach()
        workloads.attach()
        for job in jobs:
            job.attach()
        return [
            ("scheduler", scheduler.run),
            ("workloads", workloads.controller.run),
            *((f"jobs-{job.controller.name}", job.controller.run) for job in jobs),
            *((resource.plural, controller.run) for resource, controller in queues.controllers.items()),
        ]

    async def _serve_probes(self, servers: AsyncExitStack) -> None:
        metrics = self._options.metrics_bind or self._metrics_address()
        health = self._options.health_bind or self._configuration.health.health_probe_bind_address
        if metrics != DISABLED:
            app = web.Application()
            add_metrics(app, self.metrics.registry)
            self.metrics_port = await servers.enter_async_context(serving(app, metrics))
        if health != DISABLED:
            app = web.Application()
            add_probes(app, live=lambda: None, ready=self._not_ready)
            self.health_port = await servers.enter_async_context(serving(app, health))

    def _metrics_address(self) -> str:
        settings = self._configuration.metrics
        # Kueue's own default is :8443 with TLS of its own; what installs us expects plain :8080 (design.md §5).
        return settings.bind_address if "bind_address" in settings.model_fields_set else _METRICS_ADDRESS

    def _not_ready(self) -> str | None:
        waiting = self.caches.waiting_for
        return f"waiting for the first list of {', '.join(waiting)}" if waiting else None

    async def _serve_webhooks(self, servers: AsyncExitStack) -> _Serving:
        options, management = self._options, self._configuration.internal_cert_management
        service = options.webhook_service or management.webhook_service_name
        url = options.webhook_url or ""
        host = urlsplit(url).hostname
        if url and (host is None or urlsplit(url).scheme != "https"):
            raise BadInput(f"--webhook-url: {url!r} is not a URL such as https://127.0.0.1:9443")
        names = [
            f"{service}.{self._namespace}.svc",
            f"{service}.{self._namespace}.svc.cluster.local",
            *([host] if host else []),
        ]
        shared = SharedBundle(
            self._client,
            namespace=self._namespace,
            name=management.webhook_secret_name,
            hosts=names,
            clock=self._clock,
        )
        bundle = await self._connected(shared.ensure)
        certificate = ServingCertificate(bundle.certificate + bundle.key)
        handlers = Handlers(
            configuration=self._configuration,
            caches=self.caches,
            registry=self._registry,
            namespaces=self.namespaces,
            jobs=self._options.job_integrations,
        )
        app = application(handlers.by_path(), ready=self.caches.synced, knows=handlers.knows)
        self.webhook_port = await servers.enter_async_context(
            serving(app, self._webhook_address(url), certificate=certificate)
        )
        return _Serving(
            handlers=handlers,
            shared=shared,
            certificate=certificate,
            bundle=bundle,
            reach=lambda current: Reach(
                ca_bundle=current.ca_bundle, url=url, service=service, namespace=self._namespace
            ),
        )

    def _webhook_address(self, url: str) -> str:
        if self._options.webhook_bind:
            return self._options.webhook_bind
        if url:
            parts = urlsplit(url)
            host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            return f"{host}:{parts.port or 443}"
        webhook = self._configuration.webhook
        return f"{webhook.host}:{webhook.port}"

    def _installer(self, webhooks: _Serving) -> Installer:
        return Installer(
            self._client,
            hooks=webhooks.handlers.hooks,
            reach=lambda: webhooks.reach(webhooks.bundle),
            excluded=(_SYSTEM_NAMESPACE, self._namespace),
        )

    async def _manager_uid(self) -> str:
        system = await self._client.get_object(NAMESPACES, _SYSTEM_NAMESPACE)
        uid: str = system["metadata"]["uid"]
        return uid

    async def _connected(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the server answers, however long it takes to be there; said once for each kind of trouble."""
        told = ""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await call()
            except KubeError as error:
                if str(error) != told:
                    told = str(error)
                    _log.error("the management cluster does not answer as it should: %s; trying again", error)
            await anyio.sleep(_CONNECT.delay(min(attempt, 10), self._random))

    async def _tell_of_slow_caches(self) -> None:
        while self.caches.waiting_for:
            with anyio.move_on_after(_PATIENCE_SECONDS):
                await self.caches.synced()
                return
            _log.error(
                "still waiting for the first list of %s; is this manager allowed to list them?",
                ", ".join(self.caches.waiting_for),
            )


def _engine_settings(configuration: Configuration) -> Settings:
    settings = intake.settings(configuration.model_dump(mode="json", by_alias=True, exclude_none=True))
    return settings if configuration.wait_for_pods_ready is not None else replace(settings, pods_ready=None)
