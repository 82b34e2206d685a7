# SPDX-License-Identifier: Apache-2.0
"""The StatefulSet controller: executes the plans of `stateful_set_sync`.

Owns the order of writes: first the revision of the template, then claims before their pod, then the status, and last
the revisions that are no longer needed. Claims are created and deleted, but nothing binds them to volumes.
"""

from __future__ import annotations

from typing import Final

import orjson

from devcluster.controllers import set_revisions, stateful_pods, stateful_set_sync
from devcluster.controllers.caches import BACKOFF, AppCaches
from devcluster.controllers.dependents import Dependents, is_namespace_ending
from devcluster.controllers.recent_writes import RecentWrites
from devcluster.controllers.stateful_set_sync import StatefulSetPlan
from devcluster.resources import STATEFUL_SETS, VOLUME_CLAIMS
from multikueue.api.objects import JsonObject
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.errors import AlreadyExists, ApiError, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.events import EventRecorder, Reference
from multikueue.kube.runtime.workqueue import WorkQueue

_WORKERS: Final = 4
_GATHER_SECONDS: Final = 0.02  # batches changes of a StatefulSet's pods


class StatefulSets:
    """The StatefulSet controller of one cluster."""

    def __init__(self, client: KubeClient, caches: AppCaches, *, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._clock = clock
        self._sets = RecentWrites(caches.stateful_sets, clock=clock)
        owners = caches.stateful_sets
        self._pods = Dependents(client, caches.pods, owner=STATEFUL_SETS, owners=owners, clock=clock)
        self._revisions = Dependents(client, caches.revisions, owner=STATEFUL_SETS, owners=owners, clock=clock)
        self._controller: Controller[Key] = Controller(
            "stateful-sets",
            self.reconcile,
            workers=_WORKERS,
            queue=WorkQueue(clock=clock, backoff=BACKOFF),
            clock=clock,
        )
        caches.stateful_sets.add_handler(lambda change: self._controller.enqueue(change.key))
        self._pods.follow(lambda key: self._controller.queue.add_after(key, _GATHER_SECONDS))

    async def run(self) -> None:
        """Run until cancelled."""
        for informer in (self._caches.pods, self._caches.revisions, self._caches.stateful_sets):
            await informer.synced.wait()
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Reconcile one StatefulSet."""
        # 1. Load, adopt and release.
        stateful_set = self._sets.object(key)
        if stateful_set is None:
            return None
        loaded = stateful_set
        pods = await self._pods.claim(loaded, accepts=lambda pod: stateful_pods.ordinal_of(loaded, pod) is not None)
        revisions = await self._revisions.claim(loaded)
        # 2. Decide between which revisions it moves.
        update = await self._update_revision(loaded, revisions)
        if update is None:
            return None
        current = set_revisions.current_revision(loaded, revisions, update=update)
        found = stateful_set_sync.plan(loaded, pods, current=current, update=update, now=self._clock.now())
        # 3. Act.
        try:
            await self._change_pods(loaded, found)
        except ApiError as error:
            if is_namespace_ending(error):
                return None
            raise
        await self._write(loaded, found.status)
        used = [current["metadata"]["name"], update["metadata"]["name"], *map(stateful_pods.revision_of, pods)]
        for each in set_revisions.outdated_revisions(loaded, revisions, used=used):
            await self._revisions.delete(each)
        return Result(after=found.after) if found.after is not None else None

    async def _update_revision(self, stateful_set: JsonObject, revisions: list[JsonObject]) -> JsonObject | None:
        """The revision of the template, as stored; None if its name was taken, and the next one has another."""
        wanted = set_revisions.update_revision(stateful_set, revisions)
        if wanted.exists:
            if wanted.number == wanted.value["revision"]:
                return wanted.value
            return await self._revisions.patch(wanted.value, {"revision": wanted.number})
        try:
            return await self._revisions.create(wanted.value)
        except AlreadyExists:
            collisions = {"collisionCount": set_revisions.collisions_of(stateful_set) + 1}
            await self._write(stateful_set, {**(stateful_set.get("status") or {"replicas": 0}), **collisions})
            return None

    async def _change_pods(self, stateful_set: JsonObject, found: StatefulSetPlan) -> None:
        name = stateful_set["metadata"]["name"]
        for pod in found.relabel:
            ordinal = stateful_pods.ordinal_of(stateful_set, pod) or 0
            labels = stateful_pods.identity(pod["metadata"]["name"], ordinal)
            await self._pods.patch(pod, {"metadata": {"labels": labels}})
        for ordinal, revision in found.create:
            await self._create(stateful_set, ordinal, revision)
        if stateful_pods.deletes_claims_when_scaled(stateful_set):
            for pod in found.condemned:
                await self._give_claims(stateful_set, pod)
        for pod in (*found.replace, *found.condemned, *found.update):
            if await self._pods.delete(pod):
                text = f"Delete Pod {pod['metadata']['name']} in StatefulSet {name} successful"
                self._emit(stateful_set, "Normal", "SuccessfulDelete", text)

    async def _create(self, stateful_set: JsonObject, ordinal: int, revision: JsonObject) -> None:
        pod = stateful_pods.pod_at(stateful_set, ordinal, revision)
        what = f"Create Pod {pod['metadata']['name']} in StatefulSet {stateful_set['metadata']['name']}"
        for claim in stateful_pods.claims_of(stateful_set, ordinal):
            await self._create_claim(stateful_set, claim, pod_name=pod["metadata"]["name"])
        try:
            await self._pods.create(pod)
        except AlreadyExists:
            raise  # a pod of that name is not ours: it is tried again without an event
        except ApiError as error:
            self._emit(stateful_set, "Warning", "FailedCreate", f"{what} failed error: {error.message}")
            raise
        self._emit(stateful_set, "Normal", "SuccessfulCreate", f"{what} successful")

    async def _create_claim(self, stateful_set: JsonObject, claim: JsonObject, *, pod_name: str) -> None:
        metadata = claim["metadata"]
        what = f"Create Claim {metadata['name']} Pod {pod_name} in StatefulSet {stateful_set['metadata']['name']}"
        try:
            await self._client.create(VOLUME_CLAIMS, claim, namespace=metadata["namespace"])
        except AlreadyExists:
            return  # kept from an earlier pod of that name
        except ApiError as error:
            self._emit(stateful_set, "Warning", "FailedCreate", f"{what} failed error: {error.message}")
            raise
        self._emit(stateful_set, "Normal", "SuccessfulCreate", f"{what} success")

    async def _give_claims(self, stateful_set: JsonObject, pod: JsonObject) -> None:
        """Make the pod the owner of its claims, so that they are deleted after it."""
        metadata = pod["metadata"]
        reference = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        ordinal = stateful_pods.ordinal_of(stateful_set, pod) or 0
        for claim in stateful_pods.claims_of(stateful_set, ordinal):
            body = {"metadata": {"ownerReferences": [reference]}}
            try:
                await self._client.patch(
                    VOLUME_CLAIMS, claim["metadata"]["name"], body, namespace=metadata["namespace"]
                )
            except NotFound:
                continue  # deleted by a user

    async def _write(self, stateful_set: JsonObject, status: JsonObject) -> None:
        if status == (stateful_set.get("status") or {}):
            return
        metadata = stateful_set["metadata"]
        kind = {"apiVersion": STATEFUL_SETS.api_version, "kind": STATEFUL_SETS.kind}
        body = {**stateful_set, **kind, "status": status}
        try:
            stored = await self._client.replace(
                STATEFUL_SETS, metadata["name"], body, namespace=metadata["namespace"], subresource="status"
            )
        except NotFound:
            return  # deleted meanwhile
        self._sets.put(orjson.loads(stored))

    def _emit(self, stateful_set: JsonObject, type_: str, reason: str, message: str) -> None:
        about = Reference.of(stateful_set, api_version=STATEFUL_SETS.api_version, kind=STATEFUL_SETS.kind)
        self._recorder.event(about, type_, reason, message)
