# SPDX-License-Identifier: Apache-2.0
"""The agent, put together.

Owns the order of starting: first this cluster is known (jobs, nodes, pods, namespaces), then the mailbox, then room
that was held is taken again, and only then is a wish looked at. Promises that nothing running is touched while the hub
is away, and that everything it starts ends with it. Two clients come in from outside, so that a manager can host the
same code.
"""

from __future__ import annotations

import logging
import uuid
from random import Random
from typing import Final

import anyio

from multikueue import __version__
from multikueue.api.constants import DEFAULT_ORIGIN
from multikueue.api.meta import JsonObject
from multikueue.api.resource import NAMESPACES
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.keys import Key
from multikueue.integrations.registry import INTEGRATIONS, Registry
from multikueue.kube.client import KubeClient
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import KubeError
from multikueue.kube.informer import Change, Informer
from multikueue.kube.workqueue import WorkQueue
from worker_agent.capacity import Capacity
from worker_agent.continuity import Continuity
from worker_agent.fencing import fence_unheard
from worker_agent.heartbeat import Heartbeat, Reporter, Rhythm
from worker_agent.hosting import HostedMailbox
from worker_agent.hub import MailboxView
from worker_agent.jobs import Jobs
from worker_agent.mailbox import Mailbox
from worker_agent.orphans import Orphans
from worker_agent.outbox import Outbox
from worker_agent.queues import Queues
from worker_agent.quotas import Quotas
from worker_agent.reconciler import Reconciler
from worker_agent.reconnect import RECONNECT
from worker_agent.restoring import restore_assignments

_log = logging.getLogger(__name__)

_WORKERS: Final = 8
_MAX_NAMESPACES: Final = 512  # as many as a report takes
_SWEEP_SECONDS: Final = 0.1  # freed room is offered in batches, so that a burst of ending pods is one look
_BACKOFF: Final = Backoff(base=0.05, factor=2.0, cap=10.0, jitter=0.3)
_CLUSTER_UID_FROM: Final = Key("", "kube-system")


class Agent:
    """The agent of one worker cluster."""

    def __init__(
        self,
        hub: KubeClient | HostedMailbox,
        worker: KubeClient,
        *,
        cluster: str,
        origin: str = DEFAULT_ORIGIN,
        rhythm: Rhythm | None = None,
        frameworks: tuple[str, ...] = tuple(INTEGRATIONS),
        clock: Clock | None = None,
        random: Random | None = None,
        boot_id: str | None = None,
    ) -> None:
        clock, random, rhythm = clock or SystemClock(), random or Random(), rhythm or Rhythm()
        self.cluster = cluster
        self._rhythm = rhythm
        self.boot_id = boot_id or uuid.uuid4().hex
        self._worker = worker
        self._kubernetes_version = ""
        self._started = anyio.Event()
        self._freed = anyio.Event()
        self._resynced: str | None = None
        queue: WorkQueue[str] = WorkQueue(clock=clock, backoff=_BACKOFF, random=random)
        self._controller = Controller("assignment", self._reconcile, workers=_WORKERS, queue=queue, clock=clock)
        wake = self._controller.enqueue
        self.mailbox: MailboxView
        if isinstance(hub, HostedMailbox):
            self.mailbox = hub
            continuity = Continuity(cluster)
            hub.attach(wake, opening=lambda: restore_assignments(hub, self.jobs, self.queues, origin=origin))
        else:
            self.mailbox = Mailbox(hub, cluster, clock=clock, random=random, changed=wake)
            self.mailbox.retell = lambda obj: self.outbox.retell(obj)
            self.mailbox.is_behind = lambda row: self.outbox.is_ahead_of(row)
            continuity = Continuity(cluster, followed=self.mailbox.followed, broken=self.mailbox.doubt)
        self.capacity = Capacity(
            worker,
            clock=clock,
            random=random,
            freed=lambda: self._freed.set(),
            changed=lambda: self._reporter.changed(),
        )
        self.jobs = tuple(
            Jobs(worker, integration, cluster=cluster, origin=origin, clock=clock, random=random, changed=wake)
            for integration in Registry(frameworks)
        )
        self.namespaces = Informer(
            worker,
            NAMESPACES,
            metadata_only=True,
            shrink=lambda raw: b"",
            clock=clock,
            random=random,
            backoff=RECONNECT,
        )
        self.namespaces.add_handler(self._on_namespace)
        self.outbox = Outbox(
            hub,
            self.mailbox.namespace,
            boot_id=self.boot_id,
            window=rhythm.status_window_seconds,
            clock=clock,
            random=random,
        )
        self.heartbeat = Heartbeat(
            hub,
            worker,
            namespace=self.mailbox.namespace,
            holder=f"{cluster}/{self.boot_id}",
            rhythm=rhythm,
            clock=clock,
            flipped=self._all,
            continuity=continuity,
        )
        self._reporter = Reporter(
            hub,
            namespace=self.mailbox.namespace,
            boot_id=self.boot_id,
            rhythm=rhythm,
            clock=clock,
            continuity=continuity,
            compose=self._report,
            asked=self._on_asked,
        )
        self.queues = Queues(
            worker,
            cluster=cluster,
            origin=origin,
            clock=clock,
            random=random,
            changed=wake,
            reported=lambda: self._reporter.changed(),
        )
        self.quotas = Quotas(worker, self.queues, clock=clock, random=random, changed=lambda: self._reporter.changed())
        self.orphans = Orphans(self.mailbox, self.jobs, self.queues)
        self.reconciler = Reconciler(
            mailbox=self.mailbox,
            kinds={(jobs.integration.resource.group, jobs.integration.resource.kind): jobs for jobs in self.jobs},
            capacity=self.capacity,
            queues=self.queues,
            outbox=self.outbox,
            namespace_exists=lambda name: Key("", name) in self.namespaces.store,
            lease_valid=lambda seconds: self.heartbeat.valid(within=seconds),
            clock=clock,
        )

    async def run(self) -> None:
        """Serve the mailbox until cancelled. A hub or a cluster that is away is waited for."""
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as reading:
                reading.start_soon(self.heartbeat.admit, name="cannot-stop")
                local = (
                    self.capacity.nodes,
                    self.capacity.pods,
                    self.namespaces,
                    *(jobs.informer for jobs in self.jobs),
                    *await self.queues.discover(),
                )
                for informer in local:
                    tasks.start_soon(informer.run, name=f"informer-{informer.resource.plural}")
                for informer in local:
                    await informer.synced.wait()
                reading.cancel_scope.cancel()
            # Before the lease has been asked for, fenced work that runs would look as if it had lost it.
            tasks.start_soon(self.heartbeat.run, name="heartbeat")
            tasks.start_soon(self._fence, name="fence")
            # The mailbox is listed after the jobs: an assignment that is absent from it was absent later than they.
            tasks.start_soon(self.mailbox.informer.run, name="informer-mailbox")
            await self.mailbox.informer.synced.wait()
            self.reconciler.restore()
            await self.heartbeat.tried.wait()
            self._all()
            tasks.start_soon(self._controller.run, name="assignments")
            tasks.start_soon(self.outbox.run, name="outbox")
            tasks.start_soon(self._tell, name="report")
            tasks.start_soon(self.quotas.run, name="quotas")
            tasks.start_soon(self._sweep, name="sweep")
            tasks.start_soon(self._collect_garbage, name="garbage")
            self._started.set()
            _log.info("agent of %s serves %s, boot %s", self.cluster, self.mailbox.namespace, self.boot_id)

    @property
    def problem(self) -> str | None:
        """What keeps the agent from being ready; None when nothing does."""
        for what, informers in (
            ("this cluster", (self.capacity.nodes, self.capacity.pods, self.namespaces)),
            ("the jobs of this cluster", tuple(jobs.informer for jobs in self.jobs)),
            ("the mailbox", (self.mailbox.informer,)),
        ):
            for informer in informers:
                if not informer.synced.is_set():
                    return f"{what} has not been read yet: {informer.last_error or 'connecting'}"
        return self.heartbeat.problem or None

    async def _fence(self) -> None:
        await fence_unheard(
            self.jobs,
            lease_valid=self.heartbeat.valid,
            assignments_known=self._started.is_set,
            patience=self._rhythm.renew_seconds,
        )

    async def _reconcile(self, name: str) -> Result | None:
        return await self.reconciler.reconcile(name)

    async def _tell(self) -> None:
        while not self._kubernetes_version:
            try:
                self._kubernetes_version = await self._worker.server_version()
            except KubeError as error:
                _log.debug("the version of this cluster is not known yet: %s", error)
                await anyio.sleep(1.0)
        await self._reporter.run()

    async def _sweep(self) -> None:
        """Offer freed room to those who wait, first come first, higher priority before."""
        while True:
            await self._freed.wait()
            await anyio.sleep(_SWEEP_SECONDS)
            self._freed = anyio.Event()
            for name in self.reconciler.waiting():
                assignment = self.mailbox.get(name)
                priority = 0 if assignment is None else int(assignment["spec"].get("priority") or 0)
                self._controller.enqueue(name, priority)

    async def _collect_garbage(self) -> None:
        """Look again at what has no assignment: its removal may have been impossible when that was noticed."""
        while self._rhythm.gc_seconds > 0:
            await anyio.sleep(self._rhythm.gc_seconds)
            made = {name for jobs in self.jobs for name in jobs.assignments()}
            for name in made.union(self.queues.assignments()).difference(self.mailbox.names()):
                self._controller.enqueue(name)

    def _all(self) -> None:
        made = {name for jobs in self.jobs for name in jobs.assignments()}
        for name in {*self.mailbox.names(), *made, *self.queues.assignments()}:
            self._controller.enqueue(name)

    def _on_namespace(self, change: Change) -> None:
        # Appeared or gone: what was refused for the want of it is looked at again.
        if change.type != "MODIFIED" and self._started.is_set():
            self._all()
            self._reporter.changed()

    def _namespaces(self) -> list[str]:
        known = self.namespaces.store.keys()
        names = sorted(key.name for key in known)
        return names if len(names) <= _MAX_NAMESPACES else []

    def _on_asked(self, spec: JsonObject) -> bool:
        resync: JsonObject = spec.get("resync") or {}
        request = str(resync.get("request") or "")
        # One that was there before this process began was for its predecessor, who had read less than a fresh list.
        asked = self._resynced is not None and request not in ("", self._resynced)
        if asked and isinstance(self.mailbox, Mailbox):
            self.mailbox.resync(resync.get("buckets") or ())
        self._resynced = request
        self.quotas.ask(spec.get("quotas") is True)
        return self.orphans.asked(spec.get("recovery"))

    async def _report(self) -> JsonObject:
        system = self.namespaces.store.get(_CLUSTER_UID_FROM)
        return {
            "clusterUID": "" if system is None else system.uid,
            "agentVersion": __version__,
            "kubernetesVersion": self._kubernetes_version,
            "kinds": [
                {"apiVersion": jobs.integration.resource.api_version, "kind": jobs.integration.resource.kind}
                for jobs in self.jobs
            ],
            "namespaces": self._namespaces(),
            "pending": len(self.reconciler.waiting()),
            **self.capacity.report(),
            **self.queues.report(),
            **self.quotas.report(),
            **await self.orphans.report(),
            **({"digests": self.mailbox.digests()} if isinstance(self.mailbox, Mailbox) else {}),
        }
