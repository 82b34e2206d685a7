# SPDX-License-Identifier: Apache-2.0
"""Removes the scheduling gate of as many pods of an elastic job as its admitted slice has.

The pods are known by the label that they get with the gate when their job starts. They are followed apart from the
shared caches, and only while the feature gate is on: no other pods of a Job are of interest.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio
import orjson

from manager.cache.indexes import OWNER_INDEX, owner_term
from manager.context import ManagerContext
from multikueue.api.constants import ELASTIC_JOB_POD_LABEL
from multikueue.api.featuregates import ELASTIC_JOBS
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import PODS, WORKLOADS
from multikueue.core.conditions import is_true_in
from multikueue.core.keys import Key
from multikueue.jobs.framework.slices import (
    current_slice,
    is_elastic,
    oldest_first,
    pods_to_start,
    sizes_of,
    without_gate,
)
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.cache.packing import packed
from multikueue.kube.errors import NotFound
from multikueue.kube.runtime.controller import Controller, Result

_log = logging.getLogger(__name__)

_OWNER_INDEX: Final = "owner"
_KEPT_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
    "ownerReferences",
)


class ElasticPods:
    """Starts the pods of elastic jobs; its keys are the namespace and the uid of a job."""

    def __init__(self, context: ManagerContext) -> None:
        self._context = context
        self._workloads = context.caches.view(WORKLOADS)
        self._pods = Informer(
            context.client,
            PODS,
            label_selector=ELASTIC_JOB_POD_LABEL,
            indexers={_OWNER_INDEX: _owner_uid},
            shrink=_gates_and_phase,
            clock=context.clock,
            random=context.random,
            quarantine=context.caches.quarantine,
        )
        self.controller: Controller[Key] = Controller(
            "elastic-pods",
            self.reconcile,
            clock=context.clock,
            metrics=context.metrics.controllers,
            quarantine=context.caches.quarantine,
            resource=PODS,
        )

    async def run(self) -> None:
        """Work until cancelled; nothing is done while the feature gate is off."""
        if not self._context.configuration.gate(ELASTIC_JOBS):
            return
        self._context.caches.subscribe(WORKLOADS, self._workload_changed)
        self._pods.add_handler(self._pod_changed)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pods.run)
            tasks.start_soon(self.controller.run)

    def _pod_changed(self, change: Change) -> None:
        for uid in _owner_uid(change.row.object()):
            self.controller.enqueue(Key(change.key.namespace, uid))

    def _workload_changed(self, change: Change) -> None:
        workload = self._workloads.parse(change.row)
        owner = controller_of(workload)
        if owner is not None and is_elastic(workload):
            self.controller.enqueue(Key(change.key.namespace, str(owner["uid"])))

    async def reconcile(self, key: Key) -> Result | None:
        """Start the pods of one job that were admitted and wait."""
        pods = list(self._pods.store.objects(_OWNER_INDEX, key.name))
        owner = next((controller_of(pod) for pod in pods), None)
        if owner is None:
            return None
        term = owner_term(
            api_version=str(owner["apiVersion"]),
            kind=str(owner["kind"]),
            namespace=key.namespace,
            name=str(owner["name"]),
        )
        owned = (each for each in self._workloads.objects(OWNER_INDEX, term) if _is_of(each, key.name))
        current = current_slice(oldest_first(owned))
        if current is None or not is_true_in(current.get("status") or {}, WorkloadCondition.ADMITTED):
            return None
        if any(is_true_in(current["status"], each) for each in (WorkloadCondition.EVICTED, WorkloadCondition.FINISHED)):
            return None
        started = 0
        for pod in pods_to_start(pods, sizes_of(current["spec"].get("podSets") or ())):
            started += await self._start(pod)
        if started:
            name = Key(key.namespace, str(owner["name"]))
            _log.info("started pods of elastic job kind=%s key=%s pods=%d", owner["kind"], name, started)
        return None

    async def _start(self, pod: JsonObject) -> bool:
        metadata = pod["metadata"]
        try:
            await self._context.client.patch(
                PODS,
                metadata["name"],
                {"spec": {"schedulingGates": without_gate(pod) or None}},
                namespace=metadata["namespace"],
                # Fails if the pod has changed since; its change brings the job here again.
                resource_version=metadata["resourceVersion"],
            )
        except NotFound:
            return False
        return True


def _is_of(workload: JsonObject, uid: str) -> bool:
    owner = controller_of(workload)
    return is_elastic(workload) and owner is not None and owner["uid"] == uid


def _owner_uid(pod: JsonObject) -> tuple[str, ...]:
    owner = controller_of(pod)
    return () if owner is None else (str(owner["uid"]),)


def _gates_and_phase(pod: JsonObject) -> bytes:
    """The pod without all that is not read here."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    return packed(
        orjson.dumps(
            {
                "metadata": {name: metadata[name] for name in _KEPT_METADATA if name in metadata},
                "spec": {"schedulingGates": spec.get("schedulingGates") or []},
                "status": {"phase": status.get("phase") or ""},
            }
        )
    )
