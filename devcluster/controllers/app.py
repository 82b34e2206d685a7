# SPDX-License-Identifier: Apache-2.0
"""Wires the controllers of one cluster: the shared caches, and each controller over them.

An unavailable API server is retried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio

from devcluster.controllers.caches import AppCaches, ControllerCaches
from devcluster.controllers.certificate_requests import CertificateRequests
from devcluster.controllers.cluster_roles import ClusterRoles
from devcluster.controllers.cron_jobs import CronJobs
from devcluster.controllers.daemon_sets import DaemonSets
from devcluster.controllers.deployments import Deployments
from devcluster.controllers.disruptions import NAME as DISRUPTIONS_NAME
from devcluster.controllers.disruptions import Disruptions
from devcluster.controllers.endpoints import ServiceEndpoints
from devcluster.controllers.finished_jobs import FinishedJobs, OrphanedPods
from devcluster.controllers.garbage import GarbageCollector
from devcluster.controllers.jobs import JobController
from devcluster.controllers.metadata_watch import MetadataWatch
from devcluster.controllers.namespaces import Namespaces
from devcluster.controllers.node_taints import NodeTaints
from devcluster.controllers.replica_sets import ReplicaSets
from devcluster.controllers.resource_quotas import ResourceQuotas
from devcluster.controllers.scheduler import NAME as SCHEDULER_NAME
from devcluster.controllers.scheduler import PodScheduler
from devcluster.controllers.service_accounts import RootCertificates, ServiceAccounts
from devcluster.controllers.stateful_sets import StatefulSets
from devcluster.controllers.unbound_pods import UnboundPods
from devcluster.controllers.volume_protection import VolumeProtection
from devcluster.pki import Authority
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.events import EventRecorder

POD_BACKOFF = Backoff(base=10.0, factor=2.0, cap=600.0, jitter=0.0)
"""The delay before a Job replaces a failed pod."""


class Part(Protocol):
    """One controller."""

    async def run(self) -> None:
        """Run until cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Which controllers run, and their settings.

    `authority` signs approved certificate requests. Its certificate, or `root_ca` (PEM) if the key is not available, is
    published in each namespace as `kube-root-ca.crt`.
    """

    scheduler: bool = True
    authority: Authority | None = None
    root_ca: bytes | None = None
    pod_backoff: Backoff = POD_BACKOFF


class Controllers:
    """The controllers of one cluster; `client` needs administrator rights."""

    def __init__(
        self, client: KubeClient, options: ControllerOptions | None = None, *, clock: Clock | None = None
    ) -> None:
        clock = clock or SystemClock()
        options = options or ControllerOptions()
        self._caches = ControllerCaches(client, clock=clock)
        root_ca = options.authority.certificate if options.authority is not None else options.root_ca
        jobs = EventRecorder(client, "job-controller", clock=clock)
        cron_events = EventRecorder(client, "cronjob-controller", clock=clock)
        crons = CronJobs(client, self._caches, recorder=cron_events, clock=clock)
        apps = AppCaches(client, self._caches, clock=clock)
        replica_set_events = EventRecorder(client, "replicaset-controller", clock=clock)
        deployment_events = EventRecorder(client, "deployment-controller", clock=clock)
        stateful_set_events = EventRecorder(client, "statefulset-controller", clock=clock)
        daemon_set_events = EventRecorder(client, "daemonset-controller", clock=clock)
        watch = MetadataWatch(client, clock=clock)
        disruption_events = EventRecorder(client, DISRUPTIONS_NAME, clock=clock)
        disruptions = Disruptions(client, apps, watch, recorder=disruption_events, clock=clock)
        endpoints = ServiceEndpoints(client, self._caches, clock=clock)
        roles = ClusterRoles(client, clock=clock)
        quotas = ResourceQuotas(client, self._caches, watch, clock=clock)
        volumes = VolumeProtection(client, self._caches, clock=clock)
        self._watch = watch
        self._parts: list[Part] = [
            jobs,
            JobController(client, self._caches, recorder=jobs, pod_backoff=options.pod_backoff, clock=clock),
            cron_events,
            crons,
            replica_set_events,
            ReplicaSets(client, apps, recorder=replica_set_events, clock=clock),
            deployment_events,
            Deployments(client, apps, recorder=deployment_events, clock=clock),
            stateful_set_events,
            StatefulSets(client, apps, recorder=stateful_set_events, clock=clock),
            daemon_set_events,
            DaemonSets(client, apps, recorder=daemon_set_events, clock=clock),
            disruption_events,
            disruptions,
            FinishedJobs(client, self._caches, clock=clock),
            OrphanedPods(client, self._caches, clock=clock),
            UnboundPods(client, self._caches, clock=clock),
            NodeTaints(client, self._caches, clock=clock),
            ServiceAccounts(client, self._caches, clock=clock),
            Namespaces(client, self._caches, clock=clock),
            watch,
            GarbageCollector(client, watch, clock=clock),
            endpoints,
            roles,
            quotas,
            volumes,
        ]
        for part in (apps, crons, disruptions, endpoints, roles, quotas, volumes):
            self._caches.add(part.informers)
        if options.authority is not None:
            requests = CertificateRequests(client, authority=options.authority, clock=clock)
            self._caches.add(requests.informers)
            self._parts.append(requests)
        if root_ca is not None:
            self._parts.append(RootCertificates(client, self._caches, certificate=root_ca.decode(), clock=clock))
        if options.scheduler:
            scheduler = EventRecorder(client, SCHEDULER_NAME, clock=clock)
            self._parts += [scheduler, PodScheduler(client, self._caches, recorder=scheduler, clock=clock)]

    @property
    def synced(self) -> bool:
        """Whether the initial lists of all caches are complete."""
        return self._caches.synced and self._watch.synced.is_set()

    async def run(self) -> None:
        """Run until cancelled."""
        async with anyio.create_task_group() as tasks:
            for part in self.parts:
                tasks.start_soon(part.run)

    @property
    def parts(self) -> Sequence[Part]:
        """The caches, then the controllers."""
        return (self._caches, *self._parts)
