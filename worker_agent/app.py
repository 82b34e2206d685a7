# SPDX-License-Identifier: Apache-2.0
"""The wiring of the agent.

Owns the order of start: read the worker cluster (jobs, and nodes, pods, namespaces and queues as far as the agent may),
then the mailbox, then reserve the capacity that was reserved before, and only then reconcile assignments. Promises that
running work is not touched while the hub is unreachable, that every task ends with the agent, and that a missing right
costs only the feature that needs it. The two clients are passed in, so that a manager can host the same code.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Final

import anyio

from multikueue import __version__
from multikueue.api.constants import DEFAULT_ORIGIN
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import PODS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.worker_rights import describe_missing
from multikueue.dispatch.sending.sent_copies import CopyMarks
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.quarantine import Quarantine
from multikueue.kube.runtime.supervisor import Supervisor
from multikueue.kube.runtime.workqueue import WorkQueue
from worker_agent.hub.client import MailboxView
from worker_agent.hub.cluster_reporter import ClusterReporter
from worker_agent.hub.heartbeat import AgentIntervals, Heartbeat
from worker_agent.hub.in_memory_mailbox import InMemoryMailbox
from worker_agent.hub.mailbox import Mailbox
from worker_agent.hub.restore_detector import RestoreDetector
from worker_agent.hub.status_reporter import StatusReporter
from worker_agent.local.boundary import Boundary, Rules, default_rules
from worker_agent.local.capacity import Capacity
from worker_agent.local.dependencies.job_objects import JobObjects
from worker_agent.local.failures import FailureReadings
from worker_agent.local.fencing import fence_without_lease
from worker_agent.local.jobs import RemoteJobKey, RemoteJobs
from worker_agent.local.log_requests import LogRequests
from worker_agent.local.orphans import Orphans
from worker_agent.local.pod_starts import PodStarts
from worker_agent.local.provisioning import WorkerProvisioning
from worker_agent.local.queueing.cluster_queues import Quotas
from worker_agent.local.queueing.queues import Queues
from worker_agent.local.restoring import restore_assignments
from worker_agent.local.rights import PermittedInformer, Rights
from worker_agent.local.served_kinds import KindFollower, pod_labels
from worker_agent.namespaces import WorkerNamespaces
from worker_agent.reconciler import Reconciler
from worker_agent.reconnect import retry_every

_log = logging.getLogger(__name__)

_WORKERS: Final = 8
_CAPACITY_BATCH_SECONDS: Final = 0.1  # so that a burst of ending pods requeues waiting assignments once
_BACKOFF: Final = Backoff(base=0.05, factor=2.0, cap=10.0, jitter=0.3)


class Agent:
    """The agent of one worker cluster."""

    def __init__(
        self,
        hub: KubeClient | InMemoryMailbox,
        worker: KubeClient,
        *,
        cluster: str,
        origin: str = DEFAULT_ORIGIN,
        intervals: AgentIntervals | None = None,
        integrations: Sequence[JobIntegration] = (BATCH_JOB,),
        clock: Clock | None = None,
        random: Random | None = None,
        boot_id: str | None = None,
        quarantine: Quarantine | None = None,
        supervisor: Supervisor | None = None,
        rules: Rules = default_rules,
    ) -> None:
        """`integrations` are the kinds of jobs that it serves where they are installed, whatever the hub sends.

        `rules` are the dispatch policy of the agent, which also holds whatever the hub sends.

        `quarantine` and `supervisor` are those of the process, if they have metrics.
        """
        clock, random, intervals = clock or SystemClock(), random or Random(), intervals or AgentIntervals()
        self.quarantine = quarantine or Quarantine(cluster=cluster, clock=clock, random=random)
        self._supervisor = supervisor or Supervisor(clock=clock, random=random)
        self.cluster = cluster
        self._intervals = intervals
        self.boot_id = boot_id or uuid.uuid4().hex
        self._worker = worker
        self._kubernetes_version = ""
        self._started = anyio.Event()
        self._capacity_freed = anyio.Event()
        self._resync_request: str | None = None
        queue: WorkQueue[str] = WorkQueue(clock=clock, backoff=_BACKOFF, random=random)
        self._controller = Controller("assignment", self._reconcile, workers=_WORKERS, queue=queue, clock=clock)
        enqueue = self._controller.enqueue
        self.rights = Rights(
            worker,
            (integration.resource for integration in integrations),
            seconds=intervals.rights_seconds,
            clock=clock,
            random=random,
            on_change=self._on_rights,
        )
        self.status_reporter = StatusReporter(
            hub,
            mailbox_namespace(cluster),
            boot_id=self.boot_id,
            window=intervals.status_window_seconds,
            clock=clock,
            random=random,
            written=lambda obj: self.mailbox.on_write(obj),
        )
        self.mailbox: MailboxView
        if isinstance(hub, InMemoryMailbox):
            self.mailbox = hub
            restore_detector = RestoreDetector(cluster)
            hub.attach(enqueue, on_open=partial(self._restore, hub, origin), on_request=self._report_soon)
        else:
            self.mailbox = Mailbox(
                hub,
                cluster,
                clock=clock,
                random=random,
                changed=enqueue,
                resend=self.status_reporter.resend,
                is_behind=self.status_reporter.is_ahead_of,
                quarantine=self.quarantine,
            )
            restore_detector = RestoreDetector(cluster, followed=self.mailbox.followed, broken=self.mailbox.resync_all)
        self.capacity = Capacity(
            worker,
            clock=clock,
            random=random,
            freed=self._on_capacity_freed,
            changed=self._report_soon,
            is_known=lambda: self._nodes.usable,
            pod_labels=pod_labels(integrations),
            quarantine=self.quarantine,
        )
        self.jobs = tuple(
            RemoteJobs(
                worker,
                integration,
                cluster=cluster,
                origin=origin,
                clock=clock,
                random=random,
                changed=enqueue,
                may_patch=partial(self.rights.has, "patch", integration.resource),
                may_run=partial(self.rights.may_run, integration.resource),
                gone=self._on_job_gone,
                listed=partial(self._on_jobs_listed, hub, origin),
                quarantine=self.quarantine,
            )
            for integration in integrations
        )
        self.kinds = tuple(
            KindFollower(worker, jobs, self.rights, changed=self._on_kind, seconds=intervals.kind_seconds)
            for jobs in self.jobs
        )
        self.namespaces = WorkerNamespaces(
            worker,
            rights=self.rights,
            changed=self._on_namespace,
            rights_changed=self._on_rights,
            clock=clock,
            random=random,
            quarantine=self.quarantine,
        )
        self._nodes, self._pods = (
            PermittedInformer(informer, self.rights, changed=self._on_rights)
            for informer in (self.capacity.nodes, self.capacity.pods)
        )
        self.heartbeat = Heartbeat(
            hub,
            worker,
            namespace=self.mailbox.namespace,
            holder=f"{cluster}/{self.boot_id}",
            intervals=intervals,
            clock=clock,
            validity_changed=self._enqueue_all,
            restore_detector=restore_detector,
        )
        self._reporter = ClusterReporter(
            hub,
            namespace=self.mailbox.namespace,
            boot_id=self.boot_id,
            intervals=intervals,
            clock=clock,
            restore_detector=restore_detector,
            compose=self._report,
            on_spec=self._on_report_spec,
        )
        self.queues = Queues(
            worker,
            cluster=cluster,
            origin=origin,
            clock=clock,
            random=random,
            rights=self.rights,
            changed=enqueue,
            reported=self._report_soon,
            queue_changed=self._on_local_queue,
            cluster_queue_inactive=lambda name: self.quotas.why_inactive(name),
            quarantine=self.quarantine,
        )
        self.quotas = Quotas(
            worker,
            self.queues,
            clock=clock,
            random=random,
            changed=self._report_soon,
            quarantine=self.quarantine,
        )
        self.pod_starts = PodStarts(
            worker,
            may_list=partial(self.rights.has, "list"),
            changed=enqueue,
            seconds=intervals.pod_start_seconds,
            clock=clock,
            random=random,
        )
        self._failures = FailureReadings(
            worker,
            may_list_pods=partial(self.rights.has, "list", PODS),
            may_read_logs=partial(self.rights.has, "get", PODS, "log"),
            read=enqueue,
            clock=clock,
            random=random,
        )
        self._log_requests = LogRequests(
            worker,
            may_list_pods=partial(self.rights.has, "list", PODS),
            may_read_logs=partial(self.rights.has, "get", PODS, "log"),
            answered=self.status_reporter.put_logs,
            owner_kinds=[integration.resource for integration in integrations],
        )
        self.provisioning = WorkerProvisioning(
            worker,
            cluster=cluster,
            origin=origin,
            clock=clock,
            random=random,
            rights=self.rights,
            changed=enqueue,
            reported=self._report_soon,
            has_queues=lambda: self.queues.present,
            quarantine=self.quarantine,
            keep_seconds=0.0 if isinstance(self.mailbox, Mailbox) else intervals.lease_seconds,
        )
        marks = CopyMarks(cluster=cluster, origin=origin)
        self.objects = JobObjects(
            worker, self.mailbox, self.jobs, rights=self.rights, marks=marks, clock=clock, random=random
        )
        self.orphans = Orphans(self.mailbox, self.jobs, self.queues, self.provisioning)
        self.reconciler = Reconciler(
            mailbox=self.mailbox,
            kinds={(jobs.integration.resource.group, jobs.integration.resource.kind): jobs for jobs in self.jobs},
            capacity=self.capacity,
            queues=self.queues,
            boundary=Boundary(cluster=cluster, origin=origin, rules=rules),
            dependencies=self.objects,
            pod_starts=self.pod_starts,
            status_reporter=self.status_reporter,
            namespace_exists=self.namespaces.exists,
            permits_fenced_work=self.heartbeat.permits_fenced_work,
            clock=clock,
            quarantine=self.quarantine,
            failures=self._failures,
            log_requests=self._log_requests,
            provisioning=self.provisioning,
        )

    async def run(self) -> None:
        """Serve the mailbox until cancelled. Waits for a hub or cluster that is unreachable."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.quarantine.run, name="quarantine")
            keep = self._supervisor.keep
            tasks.start_soon(keep, "rights", self.rights.run, name="rights")
            async with anyio.create_task_group() as reading:
                reading.start_soon(self.heartbeat.report_unreachable_cluster, name="unreachable-cluster")
                reading.start_soon(self._report_missing_rights, name="missing-rights")
                optional = (self._nodes, self._pods, self.namespaces.permitted)
                for each in optional:
                    tasks.start_soon(each.run, name=f"follow-{each.informer.resource.plural}")
                for kind in self.kinds:
                    tasks.start_soon(kind.run, name=f"kind-{kind.resource.plural}")
                tasks.start_soon(self.queues.run, self._on_rights, name="queues")
                tasks.start_soon(self.provisioning.run, self._on_rights, name="provisioning")
                for decided in (*(each.decided for each in optional), self.queues.decided, self.provisioning.decided):
                    await decided.wait()
                for kind in self.kinds:
                    await kind.decided.wait()
                reading.cancel_scope.cancel()
            # Assignments wait for the first renewal: before it, running fenced work would seem to have lost its lease.
            tasks.start_soon(keep, "heartbeat", self.heartbeat.run, name="heartbeat")
            tasks.start_soon(keep, "fence", self._fence, name="fence")
            # The mailbox is listed after the jobs, so that an absent assignment is newer information than its job.
            tasks.start_soon(self.mailbox.informer.run, name="informer-mailbox")
            await self.mailbox.informer.synced.wait()
            self.reconciler.restore()
            await self.heartbeat.tried.wait()
            self._enqueue_all()
            for name, loop in (
                ("assignments", self._controller.run),
                ("statuses", self.status_reporter.run),
                ("failures", self._failures.run),
                ("logs", self._log_requests.run),
                ("report", self._report_cluster),
                ("quotas", self.quotas.run),
                ("capacity", self._requeue_waiting),
                ("garbage", self._collect_garbage),
                ("pod-starts", self.pod_starts.run),
            ):
                tasks.start_soon(keep, name, loop, name=name)
            self._started.set()
            _log.info("agent started cluster=%s mailbox=%s boot=%s", self.cluster, self.mailbox.namespace, self.boot_id)

    @property
    def problem(self) -> str | None:
        """Why the agent is not ready; None when it is."""
        required = self.rights.missing_required()
        if required:
            return describe_missing(required)
        permitted = (self._nodes, self._pods, self.namespaces.permitted)
        for what, informers in (
            ("this cluster", tuple(each.informer for each in permitted if each.is_permitted())),
            (
                "the jobs of this cluster",
                tuple(each.jobs.informer for each in self.kinds if not each.decided.is_set()),
            ),
            ("the mailbox", (self.mailbox.informer,)),
        ):
            for informer in informers:
                if not informer.synced.is_set():
                    return f"{what} has not been read yet: {informer.last_error or 'connecting'}"
        return self.heartbeat.problem or None

    def unread_kinds(self) -> frozenset[tuple[str, str]]:
        """Group and kind of the jobs that the agent cannot see, whether there are any or not."""
        unread = (each.resource for each in self.kinds if not each.jobs.known)
        return frozenset((resource.group, resource.kind) for resource in unread)

    async def _fence(self) -> None:
        await fence_without_lease(
            self.jobs,
            deactivate=self.queues.clones.deactivate_of,
            lease_valid=self.heartbeat.valid,
            assignments_known=self._started.is_set,
            grace_seconds=self._intervals.renew_seconds,
        )

    def _restore(self, hub: InMemoryMailbox, origin: str) -> None:
        for jobs in self.jobs:
            self._on_jobs_listed(hub, origin, jobs, opening=True)

    def _on_jobs_listed(
        self, hub: KubeClient | InMemoryMailbox, origin: str, jobs: RemoteJobs, *, opening: bool = False
    ) -> None:
        """Restore the assignments of a kind that can be read only now: otherwise its jobs would be removed."""
        if not isinstance(hub, InMemoryMailbox) or not (opening or hub.opened) or not jobs.informer.synced.is_set():
            return
        if hub.is_first_list(jobs.integration.resource):
            restore_assignments(hub, (jobs,), self.queues, origin=origin, quarantine=self.quarantine)

    async def _reconcile(self, name: str) -> Result | None:
        return await self.reconciler.reconcile(name)

    async def _report_cluster(self) -> None:
        self._kubernetes_version = await retry_every(
            1.0, self._read_version, what="Kubernetes version", level=logging.DEBUG
        )
        await self._reporter.run()

    async def _read_version(self) -> str:
        try:
            return await self._worker.server_version()
        except Forbidden:
            return ""

    async def _report_missing_rights(self) -> None:
        """Report during the start if a required right is missing: the cluster cannot be read without it."""
        while not self.rights.missing_required():
            await self.rights.changed.wait()
        await self._reporter.run()

    def _report_soon(self) -> None:
        self._reporter.changed()

    def _on_capacity_freed(self) -> None:
        self._capacity_freed.set()

    def _on_rights(self) -> None:
        # An assignment that was refused or waits for capacity may be possible now, or no longer.
        self._capacity_freed.set()
        if self._started.is_set():
            self._enqueue_all()
        self._reporter.changed()

    async def _requeue_waiting(self) -> None:
        """When capacity was freed, requeue the waiting assignments by priority, then in the order of arrival."""
        while True:
            await self._capacity_freed.wait()
            await anyio.sleep(_CAPACITY_BATCH_SECONDS)
            self._capacity_freed = anyio.Event()
            for name in self.reconciler.waiting():
                assignment = self.mailbox.get(name)
                priority = 0 if assignment is None else assignment["spec"].get("priority")
                self._controller.enqueue(name, priority if isinstance(priority, int) else 0)

    async def _collect_garbage(self) -> None:
        """Reconcile remote jobs without an assignment again: an earlier removal may have been impossible."""
        while self._intervals.gc_seconds > 0:
            await anyio.sleep(self._intervals.gc_seconds)
            for name in self._local_assignments().difference(self.mailbox.names()):
                self._controller.enqueue(name)

    def _enqueue_all(self) -> None:
        for name in self._local_assignments().union(self.mailbox.names()):
            self._controller.enqueue(name)

    def _local_assignments(self) -> set[str]:
        jobs = {name for jobs in self.jobs for name in jobs.assignments()}
        return {*jobs, *self.queues.clones.assignments(), *self.provisioning.assignments()}

    def _on_namespace(self, name: str) -> None:
        # Created or deleted: assignments that were refused because it was missing are reconciled again.
        if self._started.is_set():
            self.reconciler.forget_refusals(name)
            self._enqueue_all()
            self._reporter.changed()

    def _on_local_queue(self, key: Key) -> None:
        """Reconcile the assignments of the namespace again: the ledger admitted or refused them without it."""
        if self._started.is_set():
            self.reconciler.forget_refusals(key.namespace)
            for name in self.reconciler.assigned.in_namespace(key.namespace):
                self._controller.enqueue(name)

    def _on_kind(self) -> None:
        """Reconcile all assignments: those of a kind that is served now, or no longer, were refused or not followed."""
        if self._started.is_set():
            self._enqueue_all()
        self._reporter.changed()

    def _on_job_gone(self, key: RemoteJobKey) -> None:
        """Reconcile the assignments that wait until a job of that kind and name is gone."""
        if self._started.is_set():
            for name in self.reconciler.assigned.assignments_of(key):
                self._controller.enqueue(name)

    def _on_report_spec(self, spec: JsonObject) -> bool:
        resync: JsonObject = spec.get("resync") or {}
        request = str(resync.get("request") or "")
        # A request from before the start of this process is satisfied by its first list.
        is_new = self._resync_request is not None and request not in ("", self._resync_request)
        if is_new and isinstance(self.mailbox, Mailbox):
            self.mailbox.resync(resync.get("buckets") or ())
        self._resync_request = request
        self.quotas.request_nominal(spec.get("quotas") is True)
        return self.orphans.set_request(spec.get("recovery"))

    async def _report(self) -> JsonObject:
        if not self._started.is_set():
            return {"agentVersion": __version__, **self.rights.report()}
        return {
            "clusterUID": self.namespaces.cluster_uid(),
            "agentVersion": __version__,
            "kubernetesVersion": self._kubernetes_version,
            "kinds": [
                {"apiVersion": each.resource.api_version, "kind": each.resource.kind}
                for each in self.kinds
                if each.is_served
            ],
            "namespaces": self.namespaces.reported(),
            "pending": len(self.reconciler.waiting()),
            **self.rights.report(),
            **self.capacity.report(),
            **self.queues.report(),
            **await self.quotas.report(),
            **self.provisioning.report(),
            **self.objects.report(),
            **await self.orphans.report(),
            **({"digests": self.mailbox.digests()} if isinstance(self.mailbox, Mailbox) else {}),
        }
