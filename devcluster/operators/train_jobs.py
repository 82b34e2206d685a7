# SPDX-License-Identifier: Apache-2.0
"""The operator of TrainJobs: as each kind's, with the pods that the runtime of a TrainJob describes."""

from __future__ import annotations

from typing import Final

from devcluster.operators.definitions import CLUSTER_TRAINING_RUNTIMES, TRAIN_JOBS, TRAINING_RUNTIMES
from devcluster.operators.operated_kinds import at, kind_of
from devcluster.operators.templated import TemplatedOperator
from multikueue.api.objects import JsonObject
from multikueue.core.clock import Clock
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient

_STARTED: Final = "operatorRuntime"
"""The field of the status that keeps the runtime with which a TrainJob was started."""
_RUNTIMES: Final = {each.kind: each for each in (CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES)}


class TrainJobOperator(TemplatedOperator):
    """A TrainJob whose runtime is not there has only the nodes that it describes itself.

    While it runs, changes of its runtime count no more, as with Kubeflow Trainer, whose JobSet keeps its pods.
    """

    def __init__(self, client: KubeClient, *, clock: Clock | None = None) -> None:
        super().__init__(client, kind_of(TRAIN_JOBS), clock=clock)

    async def reconcile(self, obj: JsonObject, children: list[JsonObject]) -> JsonObject:
        """Create and delete pods, and count them."""
        status = obj.get("status") or {}
        if at(obj, "spec", "suspend") is True:
            if _STARTED in status:
                # Before its pods are deleted: once they are gone, it starts with the runtime of then.
                return {key: value for key, value in status.items() if key != _STARTED}
            return await super().reconcile({**obj, "runtime": await self._runtime(obj)}, children)
        if _STARTED not in status and (runtime := await self._runtime(obj)) is not None:
            # The write of this status brings the next reconcile; one that has not seen it is refused by its version.
            return {**status, _STARTED: runtime}
        return await super().reconcile({**obj, "runtime": status.get(_STARTED)}, children)

    async def _runtime(self, obj: JsonObject) -> JsonObject | None:
        reference = at(obj, "spec", "runtimeRef") or {}
        resource = _RUNTIMES.get(reference.get("kind") or CLUSTER_TRAINING_RUNTIMES.kind)
        if resource is None:
            return None
        namespace = obj["metadata"]["namespace"] if resource.namespaced else None
        try:
            return await self.client.get_object(resource, str(reference.get("name")), namespace=namespace)
        except NotFound:
            return None
