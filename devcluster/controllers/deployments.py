# SPDX-License-Identifier: Apache-2.0
"""The Deployment controller: executes the plans of `deployment_sync`.

Owns the order of writes: first a new ReplicaSet, then the sizes of the others, then the status, which counts what the
ReplicaSets report.
"""

from __future__ import annotations

from typing import Final

import orjson

from devcluster.controllers import deployment_status, deployment_sync
from devcluster.controllers.caches import BACKOFF, BY_CONTROLLER, AppCaches
from devcluster.controllers.dependents import Dependents
from devcluster.controllers.recent_writes import RecentWrites
from devcluster.controllers.revision_sets import REVISION, RevisionSet
from devcluster.resources import DEPLOYMENTS
from multikueue.api.objects import JsonObject
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.errors import AlreadyExists, ApiError, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.events import EventRecorder, Reference
from multikueue.kube.runtime.workqueue import WorkQueue

_WORKERS: Final = 4


class Deployments:
    """The Deployment controller of one cluster."""

    def __init__(self, client: KubeClient, caches: AppCaches, *, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._clock = clock
        self._deployments = RecentWrites(caches.deployments, clock=clock)
        self._sets = Dependents(client, caches.replica_sets, owner=DEPLOYMENTS, owners=caches.deployments, clock=clock)
        self._controller: Controller[Key] = Controller(
            "deployments", self.reconcile, workers=_WORKERS, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.deployments.add_handler(lambda change: self._controller.enqueue(change.key))
        self._sets.follow(self._controller.enqueue)

    async def run(self) -> None:
        """Run until cancelled."""
        for informer in (self._caches.pods, self._caches.replica_sets, self._caches.deployments):
            await informer.synced.wait()
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Reconcile one Deployment."""
        # 1. Load, adopt and release.
        deployment = self._deployments.object(key)
        if deployment is None:
            return None
        sets = await self._sets.claim(deployment)
        # 2. Decide.
        pods = {
            each["metadata"]["uid"]: list(self._caches.pods.store.objects(BY_CONTROLLER, each["metadata"]["uid"]))
            for each in sets
        }
        found = deployment_sync.plan(deployment, sets, pods=pods, now=self._clock.now())
        # 3. Act.
        if found.create is not None and not await self._create(deployment, found.create):
            return None
        for each in found.change:
            await self._change(deployment, each)
        for each in found.delete:
            await self._sets.delete(each.value)
        await self._write(deployment, found.status, revision=found.revision)
        return Result(after=found.after) if found.after is not None else None

    async def _create(self, deployment: JsonObject, new: RevisionSet) -> bool:
        """Create the ReplicaSet; False if its name is taken, and the next one will have another name."""
        value = new.value
        body = {
            "metadata": {**value["metadata"], "annotations": new.annotations},
            "spec": {**value["spec"], "replicas": new.replicas},
        }
        if new.min_ready_seconds:
            body["spec"]["minReadySeconds"] = new.min_ready_seconds
        try:
            await self._sets.create(body)
        except AlreadyExists:
            old = deployment.get("status") or {}
            await self._write(deployment, {**old, "collisionCount": old.get("collisionCount", 0) + 1})
            return False
        except ApiError as error:
            message = f'Failed to create new replica set "{new.name}": {error.message}'
            self._emit(deployment, "Warning", "ReplicaSetCreateError", message)
            await self._report_failure(deployment, message)
            raise
        if new.replicas:
            message = f"Scaled up replica set {new.name} from 0 to {new.replicas}"
            self._emit(deployment, "Normal", "ScalingReplicaSet", message)
        return True

    async def _report_failure(self, deployment: JsonObject, message: str) -> None:
        if deployment_status.deadline_of(deployment) is None:
            return
        conditions = list((deployment.get("status") or {}).get("conditions") or ())
        conditions = deployment_status.progressing(
            conditions, "False", "ReplicaSetCreateError", message, now=self._clock.now()
        )
        await self._write(deployment, {**(deployment.get("status") or {}), "conditions": conditions})

    async def _change(self, deployment: JsonObject, each: RevisionSet) -> None:
        patch = each.patch()
        if patch is None:
            return
        version = {"resourceVersion": each.value["metadata"]["resourceVersion"]}
        await self._sets.patch(each.value, {**patch, "metadata": {**patch.get("metadata", {}), **version}})
        before = each.replicas_before
        if each.replicas != before:
            direction = "up" if each.replicas > before else "down"
            message = f"Scaled {direction} replica set {each.name} from {before} to {each.replicas}"
            self._emit(deployment, "Normal", "ScalingReplicaSet", message)

    async def _write(self, deployment: JsonObject, status: JsonObject, *, revision: str | None = None) -> None:
        if status == (deployment.get("status") or {}) and revision is None:
            return
        metadata = deployment["metadata"]
        if revision is not None:
            annotations = {**(metadata.get("annotations") or {}), REVISION: revision}
            metadata = {**metadata, "annotations": annotations}
        kind = {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind}
        body = {**deployment, **kind, "metadata": metadata, "status": status}
        try:
            stored = await self._client.replace(
                DEPLOYMENTS, metadata["name"], body, namespace=metadata["namespace"], subresource="status"
            )
        except NotFound:
            return  # deleted meanwhile
        self._deployments.put(orjson.loads(stored))

    def _emit(self, deployment: JsonObject, type_: str, reason: str, message: str) -> None:
        about = Reference.of(deployment, api_version=DEPLOYMENTS.api_version, kind=DEPLOYMENTS.kind)
        self._recorder.event(about, type_, reason, message)
