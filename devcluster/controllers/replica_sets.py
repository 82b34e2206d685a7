# SPDX-License-Identifier: Apache-2.0
"""The ReplicaSet controller: keeps as many pods as wanted, and counts them in the status.

Own writes are visible at once, so a cache that lags behind does not lead to more pods. A refused creation ends the
reconcile, which is repeated with a growing pause; the condition ReplicaFailure shows it until one succeeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import orjson

from devcluster.controllers import pod_facts, replica_set_sync
from devcluster.controllers.app_pods import from_template
from devcluster.controllers.caches import BACKOFF, BY_CONTROLLER, AppCaches
from devcluster.controllers.dependents import Dependents, is_namespace_ending
from devcluster.controllers.jobs import each
from devcluster.controllers.recent_writes import RecentWrites
from devcluster.controllers.replica_set_sync import WriteFailure, first_to_go
from devcluster.resources import REPLICA_SETS
from multikueue.api.objects import JsonObject, controller_of
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.errors import ApiError, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.events import EventRecorder, Reference
from multikueue.kube.runtime.workqueue import WorkQueue

_WORKERS: Final = 4
_GATHER_SECONDS: Final = 0.02  # batches changes of a ReplicaSet's pods


class ReplicaSets:
    """The ReplicaSet controller of one cluster."""

    def __init__(self, client: KubeClient, caches: AppCaches, *, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._clock = clock
        self._sets = RecentWrites(caches.replica_sets, clock=clock)
        self._pods = Dependents(client, caches.pods, owner=REPLICA_SETS, owners=caches.replica_sets, clock=clock)
        self._controller: Controller[Key] = Controller(
            "replica-sets", self.reconcile, workers=_WORKERS, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.replica_sets.add_handler(lambda change: self._controller.enqueue(change.key))
        self._pods.follow(lambda key: self._controller.queue.add_after(key, _GATHER_SECONDS))

    async def run(self) -> None:
        """Run until cancelled."""
        await self._caches.pods.synced.wait()
        await self._caches.replica_sets.synced.wait()
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Reconcile one ReplicaSet."""
        # 1. Load, adopt and release.
        replica_set = self._sets.object(key)
        if replica_set is None:
            return None
        pods = await self._pods.claim(replica_set)
        # 2. Create or delete pods.
        missing = replica_set_sync.missing(replica_set, pods)
        refusal = None
        if missing > 0:
            refusal = await self._create(replica_set, missing)
        elif missing < 0:
            await self._delete_excess(replica_set, pods, -missing)
        # 3. Count them. Pods that were created or deleted now are counted when the cache shows them.
        failure = WriteFailure("FailedCreate", refusal.message) if refusal is not None else None
        status, after = replica_set_sync.status_of(replica_set, pods, failure=failure, now=self._clock.now())
        await self._write(replica_set, status)
        if refusal is not None:
            raise refusal
        return Result(after=after) if after is not None else None

    async def _create(self, replica_set: JsonObject, count: int) -> ApiError | None:
        """Create pods in growing batches until one is refused; returns the refusal."""
        refused: list[ApiError] = []
        body = from_template(replica_set, REPLICA_SETS)
        body["metadata"]["generateName"] = f"{replica_set['metadata']['name']}-"

        async def create(_: int) -> None:
            try:
                pod = await self._pods.create(body)
            except ApiError as error:
                if not is_namespace_ending(error):
                    refused.append(error)
                    self._emit(replica_set, "Warning", "FailedCreate", f"Error creating: {error.message}")
                return
            self._emit(replica_set, "Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")

        for size in replica_set_sync.batches(count):
            await each(range(size), create)
            if refused:
                return refused[0]
        return None

    async def _delete_excess(self, replica_set: JsonObject, pods: Sequence[JsonObject], count: int) -> None:
        active = [pod for pod in pods if pod_facts.active(pod)]
        ordered = first_to_go(active, neighbours=self._neighbours(replica_set), now=self._clock.now())

        async def delete(pod: JsonObject) -> None:
            if await self._pods.delete(pod):
                self._emit(replica_set, "Normal", "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

        await each(ordered[:count], delete)

    def _neighbours(self, replica_set: JsonObject) -> Counter[str]:
        """Active pods of all ReplicaSets of the same Deployment, by node."""
        owner = controller_of(replica_set)
        uids = [replica_set["metadata"]["uid"]]
        if owner is not None:
            uids = [row.uid for row in self._caches.replica_sets.store.list(BY_CONTROLLER, owner["uid"])]
        pods = [pod for uid in uids for pod in self._pods.of(uid) if pod_facts.active(pod)]
        return Counter(pod["spec"].get("nodeName") or "" for pod in pods)

    async def _write(self, replica_set: JsonObject, status: JsonObject) -> None:
        if status == (replica_set.get("status") or {}):
            return
        metadata = replica_set["metadata"]
        body = {**replica_set, "apiVersion": REPLICA_SETS.api_version, "kind": REPLICA_SETS.kind, "status": status}
        try:
            stored = await self._client.replace(
                REPLICA_SETS, metadata["name"], body, namespace=metadata["namespace"], subresource="status"
            )
        except NotFound:
            return  # deleted meanwhile
        self._sets.put(orjson.loads(stored))

    def _emit(self, replica_set: JsonObject, type_: str, reason: str, message: str) -> None:
        about = Reference.of(replica_set, api_version=REPLICA_SETS.api_version, kind=REPLICA_SETS.kind)
        self._recorder.event(about, type_, reason, message)
