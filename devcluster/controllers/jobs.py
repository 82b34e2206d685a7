# SPDX-License-Identifier: Apache-2.0
"""The Job controller: executes the plans of `job_sync`.

Owns the order of writes: first pods, so that the status counts only created ones; then the status, so that no finished
pod is lost; then finalizers and deletions. Pods without an owner that match a Job's selector are not adopted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import anyio
import orjson

from devcluster.controllers import job_sync, pod_facts
from devcluster.controllers.caches import BACKOFF, BY_CONTROLLER, ControllerCaches, controllers
from devcluster.controllers.job_parallelism import NO_FAILURES, Failures
from devcluster.controllers.job_pods import PodRequest, pod_of
from devcluster.controllers.job_sync import JobPlan
from devcluster.controllers.recent_writes import RecentWrites
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import JOBS, PODS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import ApiError, Conflict, NotFound
from multikueue.kube.rest.client import KubeClient, PatchKind
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.events import EventRecorder, Reference
from multikueue.kube.runtime.workqueue import WorkQueue

T = TypeVar("T")

_WORKERS: Final = 8
_WRITES_AT_ONCE: Final = 16
_GATHER_SECONDS: Final = 0.02  # batches changes of a Job's pods


class JobController:
    """The Job controller of one cluster."""

    def __init__(
        self,
        client: KubeClient,
        caches: ControllerCaches,
        *,
        recorder: EventRecorder,
        pod_backoff: Backoff,
        clock: Clock,
    ) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._pod_backoff = pod_backoff
        self._clock = clock
        self._jobs = RecentWrites(caches.jobs, clock=clock)
        self._pods = RecentWrites(caches.pods, clock=clock, indexer=controllers)
        self._failures: dict[str, Failures] = {}
        self._controller: Controller[Key] = Controller(
            "jobs", self.reconcile, workers=_WORKERS, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.jobs.add_handler(self._job_changed)
        caches.pods.add_handler(self._pod_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._caches.jobs.synced.wait()
        await self._caches.pods.synced.wait()
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Reconcile one Job."""
        # 1. Load. Jobs with another `managedBy` are ignored.
        job = self._jobs.object(key)
        if job is None or not job_sync.is_managed(job):
            return None
        uid: str = job["metadata"]["uid"]
        pods = self._pods.objects(BY_CONTROLLER, uid)
        if job_sync.is_finished(job):
            self._failures.pop(uid, None)
            await each([pod for pod in pods if pod_facts.tracked(pod)], self._release)
            return None
        # 2. Decide.
        plan = job_sync.plan(
            job,
            pods,
            now=self._clock.now(),
            backoff=self._pod_backoff,
            failures=self._failures.get(uid, NO_FAILURES),
        )
        # 3. Act.
        by_uid = {pod_facts.uid(pod): pod for pod in pods}
        made, refusal = await self._create(job, plan.create)
        if made < len(plan.create):
            plan.status["active"] -= len(plan.create) - made
        await self._write(job, plan)
        self._failures[uid] = plan.failures
        await each(_chosen(plan.release, by_uid), self._release)
        await each(_chosen(plan.discard, by_uid), self._release)
        for pod in _chosen((*plan.discard, *plan.delete), by_uid):
            await self._delete(job, pod)
        if refusal is not None:
            raise refusal
        return Result(after=plan.after) if plan.after is not None else None

    async def _write(self, job: JsonObject, plan: JobPlan) -> None:
        if plan.status.get("active") == 0:
            del plan.status["active"]
        if plan.status != (job.get("status") or {}):
            metadata = job["metadata"]
            body = {**job, "apiVersion": JOBS.api_version, "kind": JOBS.kind, "status": plan.status}
            stored = await self._client.replace(
                JOBS, metadata["name"], body, namespace=metadata["namespace"], subresource="status"
            )
            self._jobs.put(orjson.loads(stored))
        for event in plan.events:
            self._emit(job, event.type, event.reason, event.message)

    async def _create(self, job: JsonObject, requests: Sequence[PodRequest]) -> tuple[int, ApiError | None]:
        refused: list[ApiError] = []
        made: list[str] = []

        async def create(request: PodRequest) -> None:
            if refused:
                return  # the others would be refused for the same reason, such as a quota
            try:
                stored = await self._client.create(PODS, pod_of(job, request), namespace=job["metadata"]["namespace"])
            except ApiError as error:
                refused.append(error)
                self._emit(job, "Warning", "FailedCreate", f"Error creating: {error.message}")
                return
            pod = orjson.loads(stored)
            self._pods.put(pod)
            made.append(pod["metadata"]["name"])
            self._emit(job, "Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")

        await each(requests, create)
        return len(made), refused[0] if refused else None

    async def _release(self, pod: JsonObject) -> None:
        stored = await release(self._client, pod)
        if stored is not None:
            self._pods.put(stored)

    async def _delete(self, job: JsonObject, pod: JsonObject) -> None:
        metadata = pod["metadata"]
        try:
            await self._client.delete(PODS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])
        except (NotFound, Conflict):
            return  # deleted, or replaced by another pod of that name
        self._pods.mark_deleted(metadata["uid"])
        self._emit(job, "Normal", "SuccessfulDelete", f"Deleted pod: {metadata['name']}")

    def _emit(self, job: JsonObject, type_: str, reason: str, message: str) -> None:
        about = Reference.of(job, api_version=JOBS.api_version, kind=JOBS.kind)
        self._recorder.event(about, type_, reason, message)

    def _job_changed(self, change: Change) -> None:
        if change.new is None:
            self._failures.pop(change.row.uid, None)
        self._controller.enqueue(change.key)

    def _pod_changed(self, change: Change) -> None:
        owner = controller_of(change.row.object())
        if owner is not None and owner["kind"] == JOBS.kind:
            self._controller.queue.add_after(Key(change.key.namespace, owner["name"]), _GATHER_SECONDS)


async def release(client: KubeClient, pod: JsonObject) -> JsonObject | None:
    """Remove the tracking finalizer of a pod. Returns the stored pod, None if it was deleted."""
    metadata = pod["metadata"]
    if not pod_facts.tracked(pod):
        return None
    body = {"metadata": {"uid": metadata["uid"], "$deleteFromPrimitiveList/finalizers": [pod_facts.TRACKING]}}
    try:
        stored = await client.patch(
            PODS, metadata["name"], body, namespace=metadata["namespace"], kind=PatchKind.STRATEGIC
        )
    except (NotFound, Conflict):
        return None  # deleted, or replaced by another pod of that name
    found: JsonObject = orjson.loads(stored)
    return found


async def each(items: Sequence[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Call `act` for all items with limited concurrency. Raises the first failure after all are done."""
    if len(items) == 1:
        await act(items[0])
        return
    limit = anyio.Semaphore(_WRITES_AT_ONCE)
    failures: list[MultikueueError] = []

    async def one(item: T) -> None:
        async with limit:
            try:
                await act(item)
            except MultikueueError as error:
                failures.append(error)

    async with anyio.create_task_group() as tasks:
        for item in items:
            tasks.start_soon(one, item)
    if failures:
        raise failures[0]


def _chosen(uids: Iterable[str], pods: Mapping[str, JsonObject]) -> list[JsonObject]:
    return [pods[uid] for uid in uids if uid in pods]
