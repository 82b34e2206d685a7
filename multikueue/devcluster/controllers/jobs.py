# SPDX-License-Identifier: Apache-2.0
"""Runs the Jobs of a cluster: carries out what `job_sync` plans.

Owns the order of writes: pods first, so that the status tells of those that were really made; then the status, so that
no end of a pod is forgotten; then finalizers and deletions. Leaves out the adoption of pods that match a Job's selector
and have no owner: nothing in a batch federation makes such pods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import anyio
import orjson

from multikueue.api.objects import JsonObject
from multikueue.api.resource import JOBS, PODS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.devcluster.controllers import job_sync, pod_facts
from multikueue.devcluster.controllers.caches import BACKOFF, BY_CONTROLLER, Caches, controller_of, controllers
from multikueue.devcluster.controllers.job_parallelism import NO_FAILURES, Failures
from multikueue.devcluster.controllers.job_pods import PodRequest, pod_of
from multikueue.devcluster.controllers.job_sync import Plan
from multikueue.devcluster.controllers.written import Written
from multikueue.kube.client import KubeClient, PatchKind
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import ApiError, Conflict, NotFound
from multikueue.kube.events import EventRecorder, Reference
from multikueue.kube.informer import Change
from multikueue.kube.workqueue import WorkQueue

T = TypeVar("T")

_WORKERS: Final = 8
_WRITES_AT_ONCE: Final = 16
_GATHER_SECONDS: Final = 0.02  # a look at a Job reads all its pods, and they seldom change alone


class Jobs:
    """Makes, counts and removes the pods of Jobs."""

    def __init__(
        self, client: KubeClient, caches: Caches, *, recorder: EventRecorder, pod_backoff: Backoff, clock: Clock
    ) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._pod_backoff = pod_backoff
        self._clock = clock
        self._jobs = Written(caches.jobs, clock=clock)
        self._pods = Written(caches.pods, clock=clock, indexer=controllers)
        self._failures: dict[str, Failures] = {}
        self._controller: Controller[Key] = Controller(
            "jobs", self.reconcile, workers=_WORKERS, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.jobs.add_handler(self._job_changed)
        caches.pods.add_handler(self._pod_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._caches.jobs.synced.wait()
        await self._caches.pods.synced.wait()
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Bring one Job nearer to what it wants."""
        # 1. Load. What another controller runs is left alone.
        job = self._jobs.object(key)
        if job is None or not job_sync.ours(job):
            return None
        uid: str = job["metadata"]["uid"]
        pods = self._pods.objects(BY_CONTROLLER, uid)
        if job_sync.has_ended(job):
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

    async def _write(self, job: JsonObject, plan: Plan) -> None:
        if plan.status.get("active") == 0:
            del plan.status["active"]
        if plan.status != (job.get("status") or {}):
            metadata = job["metadata"]
            body = {**job, "apiVersion": JOBS.api_version, "kind": JOBS.kind, "status": plan.status}
            stored = await self._client.replace(
                JOBS, metadata["name"], body, namespace=metadata["namespace"], subresource="status"
            )
            self._jobs.put(orjson.loads(stored))
        for notice in plan.notices:
            self._tell(job, notice.type, notice.reason, notice.message)

    async def _create(self, job: JsonObject, requests: Sequence[PodRequest]) -> tuple[int, ApiError | None]:
        refused: list[ApiError] = []
        made: list[str] = []

        async def create(request: PodRequest) -> None:
            if refused:
                return  # what refuses one pod refuses the others: a quota, an unknown class
            try:
                stored = await self._client.create(PODS, pod_of(job, request), namespace=job["metadata"]["namespace"])
            except ApiError as error:
                refused.append(error)
                self._tell(job, "Warning", "FailedCreate", f"Error creating: {error.message}")
                return
            pod = orjson.loads(stored)
            self._pods.put(pod)
            made.append(pod["metadata"]["name"])
            self._tell(job, "Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")

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
            return  # gone, or another pod of that name
        self._pods.asked_to_go(metadata["uid"])
        self._tell(job, "Normal", "SuccessfulDelete", f"Deleted pod: {metadata['name']}")

    def _tell(self, job: JsonObject, type_: str, reason: str, message: str) -> None:
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
    """Take the Jobs' finalizer off a pod; the pod as it is then, None when it is gone."""
    metadata = pod["metadata"]
    if not pod_facts.tracked(pod):
        return None
    body = {"metadata": {"uid": metadata["uid"], "$deleteFromPrimitiveList/finalizers": [pod_facts.TRACKING]}}
    try:
        stored = await client.patch(
            PODS, metadata["name"], body, namespace=metadata["namespace"], kind=PatchKind.STRATEGIC
        )
    except (NotFound, Conflict):
        return None  # gone, or another pod of that name
    found: JsonObject = orjson.loads(stored)
    return found


async def each(items: Sequence[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Do the same to all, some at a time. Raises the first failure, once all are done."""
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
