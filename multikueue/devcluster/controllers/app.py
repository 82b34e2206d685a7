# SPDX-License-Identifier: Apache-2.0
"""All controllers of one cluster as one thing to run.

Owns the composition: the shared caches, and each controller over them. Promises to go on whatever the API server does:
one that is away is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio

from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.devcluster.controllers.caches import Caches
from multikueue.devcluster.controllers.certificate_requests import CertificateRequests
from multikueue.devcluster.controllers.cluster_roles import ClusterRoles
from multikueue.devcluster.controllers.finished_jobs import FinishedJobs, OrphanedPods
from multikueue.devcluster.controllers.garbage import GarbageCollector
from multikueue.devcluster.controllers.jobs import Jobs
from multikueue.devcluster.controllers.metadata_watch import MetadataWatch
from multikueue.devcluster.controllers.namespaces import Namespaces
from multikueue.devcluster.controllers.node_taints import NodeTaints
from multikueue.devcluster.controllers.resource_quotas import ResourceQuotas
from multikueue.devcluster.controllers.scheduler import NAME as SCHEDULER_NAME
from multikueue.devcluster.controllers.scheduler import Scheduler
from multikueue.devcluster.controllers.service_accounts import RootCertificates, ServiceAccounts
from multikueue.devcluster.controllers.unbound_pods import UnboundPods
from multikueue.devcluster.pki import Authority
from multikueue.kube.client import KubeClient
from multikueue.kube.events import EventRecorder

POD_BACKOFF = Backoff(base=10.0, factor=2.0, cap=600.0, jitter=0.0)
"""How long a Job waits before it replaces a pod that failed."""


class Part(Protocol):
    """One controller."""

    async def run(self) -> None:
        """Work until cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What runs and how.

    `authority` signs approved certificate requests; its certificate, or `root_ca` (PEM) where the key is not at hand,
    is put into each namespace as `kube-root-ca.crt`.
    """

    scheduler: bool = True
    authority: Authority | None = None
    root_ca: bytes | None = None
    pod_backoff: Backoff = POD_BACKOFF


class Controllers:
    """The controllers of the cluster that `client` reaches; `client` is an administrator."""

    def __init__(self, client: KubeClient, options: Options | None = None, *, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        options = options or Options()
        self._caches = Caches(client, clock=clock)
        root_ca = options.authority.certificate if options.authority is not None else options.root_ca
        jobs = EventRecorder(client, "job-controller", clock=clock)
        watch = MetadataWatch(client, clock=clock)
        roles = ClusterRoles(client, clock=clock)
        quotas = ResourceQuotas(client, self._caches, watch, clock=clock)
        self._watch = watch
        self._parts: list[Part] = [
            jobs,
            Jobs(client, self._caches, recorder=jobs, pod_backoff=options.pod_backoff, clock=clock),
            FinishedJobs(client, self._caches, clock=clock),
            OrphanedPods(client, self._caches, clock=clock),
            UnboundPods(client, self._caches, clock=clock),
            NodeTaints(client, self._caches, clock=clock),
            ServiceAccounts(client, self._caches, clock=clock),
            Namespaces(client, self._caches, clock=clock),
            watch,
            GarbageCollector(client, watch, clock=clock),
            roles,
            quotas,
        ]
        self._caches.add((*roles.informers, *quotas.informers))
        if options.authority is not None:
            requests = CertificateRequests(client, authority=options.authority, clock=clock)
            self._caches.add(requests.informers)
            self._parts.append(requests)
        if root_ca is not None:
            self._parts.append(RootCertificates(client, self._caches, certificate=root_ca.decode(), clock=clock))
        if options.scheduler:
            scheduler = EventRecorder(client, SCHEDULER_NAME, clock=clock)
            self._parts += [scheduler, Scheduler(client, self._caches, recorder=scheduler, clock=clock)]

    @property
    def synced(self) -> bool:
        """Whether each controller knows its part of the cluster."""
        return self._caches.synced and self._watch.synced.is_set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with anyio.create_task_group() as tasks:
            for part in self.parts:
                tasks.start_soon(part.run)

    @property
    def parts(self) -> Sequence[Part]:
        """What runs: the caches first."""
        return (self._caches, *self._parts)
