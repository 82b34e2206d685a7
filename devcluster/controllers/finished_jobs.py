# SPDX-License-Identifier: Apache-2.0
"""Deletes finished Jobs after ttlSecondsAfterFinished, and removes the tracking finalizer from orphaned pods.

A pod is orphaned if its Job does not exist, or if it has no controller, as after the deletion of a Job with
`propagationPolicy: Orphan`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from devcluster.controllers import pod_facts
from devcluster.controllers.caches import BACKOFF, BY_CONTROLLER, ControllerCaches
from devcluster.controllers.job_sync import COMPLETE, FAILED
from devcluster.controllers.jobs import release
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import JOBS
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import Conflict, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue


def removal_time(job: JsonObject) -> datetime | None:
    """When the Job is to be deleted; None if it has no TTL or has not finished."""
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    if seconds is None or "deletionTimestamp" in job["metadata"]:
        return None
    for entry in (job.get("status") or {}).get("conditions") or ():
        if entry["type"] in (COMPLETE, FAILED) and entry["status"] == "True" and entry.get("lastTransitionTime"):
            return parse_time(entry["lastTransitionTime"]) + timedelta(seconds=seconds)
    return None


class FinishedJobs:
    """Deletes finished Jobs whose TTL has passed, also those with `managedBy`."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, clock: Clock) -> None:
        self._client = client
        self._store = caches.jobs.store
        self._clock = clock
        self._controller: Controller[Key] = Controller(
            "finished-jobs", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.jobs.add_handler(lambda change: self._controller.enqueue(change.key))

    async def run(self) -> None:
        """Run until cancelled."""
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Delete one Job, or requeue it for when its TTL passes."""
        job = self._store.object(key)
        at = removal_time(job) if job is not None else None
        if job is None or at is None:
            return None
        seconds = (at - self._clock.now()).total_seconds()
        if seconds > 0:
            return Result(after=seconds)
        metadata = job["metadata"]
        try:
            await self._client.delete(
                JOBS,
                key.name,
                namespace=key.namespace,
                propagation="Foreground",
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )
        except (NotFound, Conflict):
            return None  # deleted or changed: the watch event triggers a reconcile
        return None


class OrphanedPods:
    """Removes the tracking finalizer from pods without a Job."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._controller: Controller[Key] = Controller(
            "orphaned-pods", self.reconcile, workers=4, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.pods.add_handler(self._pod_changed)
        caches.jobs.add_handler(self._job_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._caches.jobs.synced.wait()
        for row in self._caches.pods.store.list():
            self._controller.enqueue(row.key)
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Remove the finalizer of one pod if its Job does not exist."""
        pod = self._caches.pods.store.object(key)
        if pod is None or not pod_facts.tracked(pod):
            return None
        owner = controller_of(pod)
        if owner is None or await self._job_is_gone(key.namespace, owner):
            await release(self._client, pod)
        return None

    async def _job_is_gone(self, namespace: str, owner: JsonObject) -> bool:
        if self._known(namespace, owner):
            return False
        try:
            # The Job cache may lag behind the pod cache.
            job = await self._client.get_object(JOBS, owner["name"], namespace=namespace)
        except NotFound:
            return True
        return str(job["metadata"]["uid"]) != str(owner["uid"])

    def _known(self, namespace: str, owner: JsonObject) -> bool:
        row = self._caches.jobs.store.get(Key(namespace, owner["name"]))
        return row is not None and row.uid == owner["uid"]

    def _pod_changed(self, change: Change) -> None:
        if change.new is None or not self._caches.jobs.synced.is_set():
            return
        pod = change.new.object()
        owner = controller_of(pod)
        if owner is None:
            orphaned = pod_facts.tracked(pod)
        else:
            orphaned = owner["kind"] == JOBS.kind and not self._known(change.key.namespace, owner)
        if orphaned:
            self._controller.enqueue(change.key)

    def _job_changed(self, change: Change) -> None:
        if change.new is None:
            for row in self._caches.pods.store.list(BY_CONTROLLER, change.row.uid):
                self._controller.enqueue(row.key)
