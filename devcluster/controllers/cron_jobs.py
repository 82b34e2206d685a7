# SPDX-License-Identifier: Apache-2.0
"""The CronJob controller: executes the plans of `cron_sync`.

Owns the order of writes: first the Job, whose name prevents a second one for the same time, then the status. A Job of
this CronJob that already exists was created before a crash and is added to the status.
"""

from __future__ import annotations

from typing import Final

import orjson

from devcluster.controllers import cron_sync
from devcluster.controllers.caches import BACKOFF, BY_CONTROLLER, ControllerCaches, controllers
from devcluster.controllers.cron_sync import CronPlan, RemovedJobs, Start
from devcluster.controllers.recent_writes import RecentWrites
from devcluster.resources import CRON_JOBS
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import JOBS
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.events import EventRecorder, Reference
from multikueue.kube.runtime.workqueue import WorkQueue

_WORKERS: Final = 4


class CronJobs:
    """The CronJob controller of one cluster."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._clock = clock
        self._informer = Informer(client, CRON_JOBS, clock=clock, backoff=BACKOFF)
        self._crons = RecentWrites(self._informer, clock=clock)
        self._jobs = RecentWrites(caches.jobs, clock=clock, indexer=controllers)
        self._controller: Controller[Key] = Controller(
            "cron-jobs", self.reconcile, workers=_WORKERS, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        self._informer.add_handler(lambda change: self._controller.enqueue(change.key))
        caches.jobs.add_handler(self._job_changed)

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The informers that only this controller uses."""
        return (self._informer,)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._caches.jobs.synced.wait()
        await self._informer.synced.wait()
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Reconcile one CronJob."""
        # 1. Load.
        cron = self._crons.object(key)
        if cron is None:
            return None
        jobs = self._jobs.objects(BY_CONTROLLER, cron["metadata"]["uid"])
        # 2. Gather facts. Jobs beyond the history limits are deleted first, as on a real cluster.
        old = cron_sync.outdated(cron, jobs)
        deleted = {job["metadata"]["uid"] for job in old if await self._delete(cron, job["metadata"]) is None}
        missing = await self._missing(cron, {job["metadata"]["uid"] for job in jobs})
        # 3. Decide.
        removed = RemovedJobs(deleted=deleted, missing=missing)
        found = cron_sync.plan(cron, jobs, removed=removed, now=self._clock.now())
        for event in found.events:
            self._emit(cron, event.type, event.reason, event.message)
        # 4. Act. The status is also written if no Job was started: it shows which Jobs ended.
        refusal = await self._start(cron, found)
        await self._write(cron, found)
        if refusal is not None:
            raise refusal
        return Result(after=found.after) if found.after is not None else None

    async def _missing(self, cron: JsonObject, known: set[str]) -> set[str]:
        """The uids of active Jobs that do not exist; they are read, as the cache may lag."""
        missing: set[str] = set()
        for entry in (cron.get("status") or {}).get("active") or ():
            if entry.get("uid") in known:
                continue
            try:
                await self._client.get(JOBS, entry["name"], namespace=cron["metadata"]["namespace"])
            except NotFound:
                missing.add(entry["uid"])
        return missing

    async def _start(self, cron: JsonObject, found: CronPlan) -> ApiError | None:
        for reference in found.replaced:
            refusal = await self._delete(cron, reference)
            if refusal is not None:
                return refusal
            cron_sync.deactivate(found.status, reference["uid"])
        if found.start is None:
            return None
        try:
            job = await self._create(cron, found.start)
        except ApiError as error:
            if "being terminated" not in error.message:
                self._emit(cron, "Warning", "FailedCreate", f"Error creating job: {error.message}")
            return error
        if job is not None:
            cron_sync.activate(found.status, job, found.start.scheduled)
        return None

    async def _create(self, cron: JsonObject, start: Start) -> JsonObject | None:
        """The stored Job; None if the existing Job has another owner or is already active in the status."""
        namespace, name = cron["metadata"]["namespace"], start.body["metadata"]["name"]
        try:
            job: JsonObject = orjson.loads(await self._client.create(JOBS, start.body, namespace=namespace))
        except AlreadyExists:
            job = await self._client.get_object(JOBS, name, namespace=namespace)
            owner = controller_of(job)
            own = owner is not None and owner["uid"] == cron["metadata"]["uid"]
            counted = cron_sync.is_active(cron.get("status") or {}, job["metadata"]["uid"])
            return job if own and not counted else None
        self._jobs.put(job)
        self._emit(cron, "Normal", "SuccessfulCreate", f"Created job {name}")
        return job

    async def _delete(self, cron: JsonObject, named: JsonObject) -> ApiError | None:
        """Delete a Job by its metadata or a reference; returns the error if the request was refused."""
        name, uid = named["name"], named["uid"]
        try:
            await self._client.delete(
                JOBS, name, namespace=cron["metadata"]["namespace"], propagation="Background", uid=uid
            )
        except (NotFound, Conflict):
            return None  # deleted, or replaced by another Job of that name
        except ApiError as error:
            self._emit(cron, "Warning", "FailedDelete", f"Deleted job: {error.message}")
            return error
        self._jobs.mark_deleted(uid)
        self._emit(cron, "Normal", "SuccessfulDelete", f"Deleted job {name}")
        return None

    async def _write(self, cron: JsonObject, found: CronPlan) -> None:
        if found.status == (cron.get("status") or {}):
            return
        metadata = cron["metadata"]
        body = {**cron, "apiVersion": CRON_JOBS.api_version, "kind": CRON_JOBS.kind, "status": found.status}
        try:
            stored = await self._client.replace(
                CRON_JOBS, metadata["name"], body, namespace=metadata["namespace"], subresource="status"
            )
        except NotFound:
            return
        self._crons.put(orjson.loads(stored))

    def _emit(self, cron: JsonObject, type_: str, reason: str, message: str) -> None:
        about = Reference.of(cron, api_version=CRON_JOBS.api_version, kind=CRON_JOBS.kind)
        self._recorder.event(about, type_, reason, message)

    def _job_changed(self, change: Change) -> None:
        owner = controller_of(change.row.object())
        if owner is not None and owner["kind"] == CRON_JOBS.kind:
            self._controller.enqueue(Key(change.key.namespace, owner["name"]))
