# SPDX-License-Identifier: Apache-2.0
"""The LocalQueues of the worker cluster, if it runs Kueue or this manager.

Owns whether the cluster has queues that the agent may use, which LocalQueues there are, and whether an assignment is
admitted by them or by the agent's ledger of node capacity. The clones in the queues are those of `clones`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

import anyio

from multikueue.api.clusterreport import MAX_QUEUES
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION
from multikueue.api.resource import LOCAL_QUEUES, WORKLOADS
from multikueue.core.clock import Clock
from multikueue.core.conditions import FALSE, find_in
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.queue_quota import MAX_REASON
from multikueue.dispatch.worker.assignment_state import QUEUE_MISSING, Obstacle
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import Forbidden, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine
from worker_agent.local.queueing.clones import Clones
from worker_agent.local.queueing.queued_work import CloneSpec, is_queued, queued_manifest, unqueued_manifest
from worker_agent.local.rights import PermittedInformer, Rights
from worker_agent.reconnect import RECONNECT, reconnecting

ENGINE: Final = "kueue"
_DISCOVERY_SECONDS: Final = 60.0  # between two discoveries while there are no queues, or none that may be read


@dataclass(frozen=True, slots=True)
class QueueDiscovery:
    """Whether the cluster has queues; `refused` is the message of the API server if they may not be read."""

    present: bool = False
    refused: str = ""


class Queues:
    """The LocalQueues of one cluster, and its clones."""

    def __init__(
        self,
        client: KubeClient,
        *,
        cluster: str,
        origin: str,
        clock: Clock,
        random: Random,
        rights: Rights,
        changed: Callable[[str], None],
        reported: Callable[[], None],
        queue_changed: Callable[[Key], None] = lambda key: None,
        cluster_queue_inactive: Callable[[str], str] = lambda cluster_queue: "",
        quarantine: Quarantine | None = None,
    ) -> None:
        """`changed` is called with each assignment whose clone changed, `reported` when the report changed.

        `queue_changed` is called with each LocalQueue that was created or deleted. `cluster_queue_inactive` gives why a
        ClusterQueue is not active; empty if it is, or if that is unknown.
        """
        self._client = client
        self._rights = rights
        self._cluster = cluster
        self._reported = reported
        self._queue_changed = queue_changed
        self._cluster_queue_inactive = cluster_queue_inactive
        self._random = random
        self.present = False
        """Whether the cluster has an engine that the agent may use, or could use before."""
        self.refused = ""
        """The message of the API server if the agent may not read the queues; empty if it may, or there are none."""
        self.decided = anyio.Event()
        """Set when it is known whether there are queues, and if so what is in them."""
        self.clones = Clones(
            client,
            cluster=cluster,
            origin=origin,
            clock=clock,
            random=random,
            rights=rights,
            changed=changed,
            quarantine=quarantine,
        )
        self._queues = Informer(
            client, LOCAL_QUEUES, clock=clock, random=random, backoff=RECONNECT, quarantine=quarantine
        )
        self._queues.add_handler(self._on_queue)

    async def run(self, permission_changed: Callable[[], None]) -> None:
        """Follow the queues until cancelled; `permission_changed` is called when they become usable or unusable.

        While there are none the discovery is repeated: Kueue may be installed later, or its rights be granted later.
        """
        while not (found := await discover_queues(self._client, random=self._random)).present:
            self.refused = found.refused
            self.decided.set()
            with anyio.move_on_after(_DISCOVERY_SECONDS):
                await self._rights.changed.wait()
        self.present, self.refused = True, ""
        followed = [
            PermittedInformer(each, self._rights, changed=permission_changed)
            for each in (self.clones.informer, self._queues)
        ]
        async with anyio.create_task_group() as tasks:
            for each in followed:
                tasks.start_soon(each.run, name=f"follow-{each.informer.resource.plural}")
            for each in followed:
                await each.decided.wait()
            self.decided.set()

    @property
    def usable(self) -> bool:
        """Whether new work may be put into the queues and their contents are known."""
        synced = self.clones.informer.synced.is_set() and self._queues.synced.is_set()
        return self.present and synced and self._rights.may_use_queues

    def report(self) -> JsonObject:
        """The queues in a ClusterReport."""
        if not self.usable:
            return {}
        keys = sorted(self._queues.store.keys())
        return {"engine": ENGINE, "localQueues": [self._queue_wire(key) for key in keys[:MAX_QUEUES]]}

    def by_cluster_queue(self) -> dict[str, list[Key]]:
        """The LocalQueues of each ClusterQueue."""
        found: dict[str, list[Key]] = {}
        for row in sorted(self._queues.store.list(), key=lambda row: row.key):
            found.setdefault(cluster_queue_of(row.object()), []).append(row.key)
        return found

    def serves(self, desired: CloneSpec, job: JsonObject | None = None) -> bool:
        """Whether the queues admit this work: its LocalQueue exists, or its clone was created while it did.

        They do not admit a `job` that was created outside them, as before they could be used.
        """
        if not self.present or not desired.spec:
            return False
        if self.clones.has(desired.assignment):
            return True
        exists = self.usable and Key(desired.workload.namespace, desired.queue) in self._queues.store
        return exists and (job is None or is_queued(job, workload=desired.workload.name))

    def missing_queue(self, desired: CloneSpec) -> Obstacle | None:
        """The obstacle of a missing LocalQueue.

        An engine keeps every job that names a queue suspended until the queue admits it: without the LocalQueue the job
        would never run. The hub gets the obstacle, as with Kueue on the worker the Workload would stay pending. A job
        without the queue name would run outside the quota of this cluster.
        """
        if not self.usable or not desired.spec or not desired.queue or self.serves(desired):
            return None
        queue = Key(desired.workload.namespace, desired.queue)
        return Obstacle(QUEUE_MISSING, f"LocalQueue {queue} does not exist on {self._cluster}")

    def manifest(self, manifest: JsonObject, desired: CloneSpec, *, integration: JobIntegration) -> JsonObject:
        """The job as the worker's engine starts it, for the pod sets of its clone. Raises `BadInput`."""
        return queued_manifest(
            manifest,
            integration=integration,
            workload=desired.workload.name,
            pod_sets=self.clones.spec_of(desired).get("podSets") or [],
        )

    def unqueued(self, manifest: JsonObject) -> JsonObject:
        """The job as it is created without queues: outside the queues of a cluster whose queues may not be used."""
        refused = not self.usable and (self.present or self.refused)
        return unqueued_manifest(manifest) if refused else manifest

    def _queue_wire(self, key: Key) -> JsonObject:
        queue = self._queues.store.object(key) or {}
        cluster_queue = cluster_queue_of(queue)
        why = (why_inactive(queue) or self._cluster_queue_inactive(cluster_queue))[:MAX_REASON]
        wire = {"namespace": key.namespace, "name": key.name, "active": not why, "clusterQueue": cluster_queue}
        return {**wire, "reason": why} if why else wire

    def _on_queue(self, change: Change) -> None:
        before = None if change.old is None else change.old.object()
        after = None if change.new is None else change.new.object()
        if before is None or after is None:
            self._queue_changed(change.key)
        elif (cluster_queue_of(before), why_inactive(before)) == (cluster_queue_of(after), why_inactive(after)):
            return  # a changed number of pending workloads, which is not reported
        self._reported()


async def discover_queues(client: KubeClient, *, random: Random) -> QueueDiscovery:
    """Whether the cluster has Workloads and LocalQueues that the agent may list; retries until the server answers."""

    async def attempt() -> QueueDiscovery:
        try:
            for resource in (WORKLOADS, LOCAL_QUEUES):
                await client.list_page(resource, limit=1, metadata_only=True)
        except NotFound:
            return QueueDiscovery()
        except Forbidden as error:
            return QueueDiscovery(refused=error.message)
        return QueueDiscovery(present=True)

    return await reconnecting(attempt, what="queue discovery", random=random)


def cluster_queue_of(local_queue: JsonObject) -> str:
    """The ClusterQueue of a LocalQueue."""
    return str((local_queue.get("spec") or {}).get("clusterQueue") or "")


def why_inactive(queue: JsonObject) -> str:
    """The message of Active=False of a queue of either kind; empty if the queue has no such condition."""
    found = find_in(queue.get("status"), ACTIVE_CONDITION)
    if found is None or found.get("status") != FALSE:
        return ""
    return str(found.get("message") or found.get("reason") or "not active")
