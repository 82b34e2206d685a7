# SPDX-License-Identifier: Apache-2.0
"""What is left of a Job: finished ones go after their ttlSecondsAfterFinished, pods whose Job is gone are let go."""

from __future__ import annotations

from datetime import datetime, timedelta

from multikueue.api.objects import JsonObject
from multikueue.api.resource import JOBS
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.devcluster.controllers import pod_facts
from multikueue.devcluster.controllers.caches import BACKOFF, BY_CONTROLLER, Caches, controller_of
from multikueue.devcluster.controllers.job_sync import COMPLETE, FAILED
from multikueue.devcluster.controllers.jobs import release
from multikueue.kube.client import KubeClient
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import Conflict, NotFound
from multikueue.kube.informer import Change
from multikueue.kube.workqueue import WorkQueue


def removal_time(job: JsonObject) -> datetime | None:
    """When the Job is to be removed; None while nobody says so."""
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    if seconds is None or "deletionTimestamp" in job["metadata"]:
        return None
    for entry in (job.get("status") or {}).get("conditions") or ():
        if entry["type"] in (COMPLETE, FAILED) and entry["status"] == "True" and entry.get("lastTransitionTime"):
            return parse_time(entry["lastTransitionTime"]) + timedelta(seconds=seconds)
    return None


class FinishedJobs:
    """Removes Jobs whose time is over, whoever ran them."""

    def __init__(self, client: KubeClient, caches: Caches, *, clock: Clock) -> None:
        self._client = client
        self._store = caches.jobs.store
        self._clock = clock
        self._controller: Controller[Key] = Controller(
            "finished-jobs", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.jobs.add_handler(lambda change: self._controller.enqueue(change.key))

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Remove one Job, or come back when it is time."""
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
            return None  # gone, or changed: the watch tells
        return None


class OrphanedPods:
    """Lets pods go whose Job is gone: nobody counts them any more."""

    def __init__(self, client: KubeClient, caches: Caches, *, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._controller: Controller[Key] = Controller(
            "orphaned-pods", self.reconcile, workers=4, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.pods.add_handler(self._pod_changed)
        caches.jobs.add_handler(self._job_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._caches.jobs.synced.wait()
        for row in self._caches.pods.store.list():
            self._controller.enqueue(row.key)
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Release one pod if its Job is gone."""
        pod = self._caches.pods.store.object(key)
        owner = controller_of(pod) if pod is not None else None
        if pod is None or owner is None or not pod_facts.tracked(pod) or self._known(key.namespace, owner):
            return None
        try:
            # The cache of Jobs may lag behind that of pods.
            job = await self._client.get_object(JOBS, owner["name"], namespace=key.namespace)
        except NotFound:
            job = None
        if job is None or job["metadata"]["uid"] != owner["uid"]:
            await release(self._client, pod)
        return None

    def _known(self, namespace: str, owner: JsonObject) -> bool:
        row = self._caches.jobs.store.get(Key(namespace, owner["name"]))
        return row is not None and row.uid == owner["uid"]

    def _pod_changed(self, change: Change) -> None:
        if change.new is None or not self._caches.jobs.synced.is_set():
            return
        owner = controller_of(change.new.object())
        if owner is not None and owner["kind"] == JOBS.kind and not self._known(change.key.namespace, owner):
            self._controller.enqueue(change.key)

    def _job_changed(self, change: Change) -> None:
        if change.new is None:
            for row in self._caches.pods.store.list(BY_CONTROLLER, change.row.uid):
                self._controller.enqueue(row.key)
