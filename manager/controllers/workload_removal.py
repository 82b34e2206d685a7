# SPDX-License-Identifier: Apache-2.0
"""Removes our finalizer from a Workload, and Workloads whose job, or the kind of whose job, is gone.

The garbage collector of Kubernetes cannot look up owners of a kind that is not served, and no reconciler follows the
jobs whose Workloads another controller makes. What counts as removed is decided in `manager.cache.kind_removal`.
"""

from __future__ import annotations

import logging

import orjson

from manager.cache.kind_removal import can_be_removed, is_about_object
from manager.context import ManagerContext
from multikueue.api.constants import RESOURCE_IN_USE_FINALIZER
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import WORKLOADS, Resource
from multikueue.core.keys import Key
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import NotFound
from multikueue.kube.runtime.controller import Controller, Result

_log = logging.getLogger(__name__)


async def release_workload(context: ManagerContext, workload: JsonObject) -> JsonObject | None:
    """Remove our finalizer; returns the Workload as it is then, None when that deleted it. Raises `Conflict`."""
    metadata = workload["metadata"]
    left = [item for item in metadata.get("finalizers") or () if item != RESOURCE_IN_USE_FINALIZER]
    try:
        answer = await context.client.patch(
            WORKLOADS,
            metadata["name"],
            {"metadata": {"uid": metadata["uid"], "finalizers": left}},
            namespace=metadata["namespace"],
            resource_version=metadata["resourceVersion"],
        )
    except NotFound:
        return None
    if "deletionTimestamp" in metadata:
        return None
    context.caches.view(WORKLOADS).on_write(answer)
    released: JsonObject = orjson.loads(answer)
    return released


async def remove_orphan(context: ManagerContext, workload: JsonObject, resource: Resource) -> None:
    """Remove the Workload of a job or a group that is gone. Raises `Conflict`, and `NotFound` if that is not certain.

    Of a group the server is asked for one pod after the other until one exists. Others of their names may have come
    meanwhile: they get another Workload. With owners of other kinds it is left to the garbage collector.

    The garbage collector would, but it may lag by half a minute while CRDs change; meanwhile the quota would be held
    and remote jobs would run.
    """
    metadata = workload["metadata"]
    owners: list[JsonObject] = metadata.get("ownerReferences") or []
    # An owner may be named with an earlier version of its API.
    members = [each for each in owners if _is_of(each, resource)]
    jobs = [(Key(metadata["namespace"], each["name"]), each["uid"]) for each in members]
    if not jobs:
        return
    try:
        for owner, uid in jobs:
            if not await _is_gone(context, owner, resource, uid=uid):
                return
    except NotFound:
        # A kind that is not served any more: what someone deletes already need not wait until that is certain.
        if "deletionTimestamp" not in metadata:
            raise
    if RESOURCE_IN_USE_FINALIZER in (workload["metadata"].get("finalizers") or ()):
        workload = await release_workload(context, workload) or workload
    metadata = workload["metadata"]
    if "deletionTimestamp" in metadata or len(jobs) != len(owners):
        return
    try:
        await context.client.delete(
            WORKLOADS,
            metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            # With orphan propagation the owner reference was removed before the job.
            resource_version=metadata["resourceVersion"],
        )
    except NotFound:
        return


def _is_of(owner: JsonObject, resource: Resource) -> bool:
    group, _, _ = str(owner["apiVersion"]).rpartition("/")
    return (group, owner["kind"]) == (resource.group, resource.kind)


async def _is_gone(context: ManagerContext, job: Key, resource: Resource, *, uid: str) -> bool:
    """Ask the server: the cache of jobs may lag behind that of Workloads.

    Raises `NotFound` if it has no such kind and it is not certain that the objects were removed with it.
    """
    try:
        raw = await context.client.get(resource, job.name, namespace=job.namespace)
    except NotFound as error:
        certain = not can_be_removed(resource) or is_about_object(error, job.name, resource)
        if certain or context.caches.is_removed(resource):
            return True
        raise
    return bool(orjson.loads(raw)["metadata"]["uid"] != uid)


class RemovedKindReconciler:
    """Reconciles Workloads while a job kind is removed from the server."""

    def __init__(self, context: ManagerContext, *, registry: JobRegistry) -> None:
        self._context = context
        self._registry = registry
        self.controller: Controller[Key] = Controller(
            "removed-kinds",
            self.reconcile,
            clock=context.clock,
            metrics=context.metrics.controllers,
            quarantine=context.caches.quarantine,
            resource=WORKLOADS,
        )

    def attach(self) -> None:
        """Follow removals of kinds, and Workloads that appear afterwards."""
        self._context.caches.subscribe_removals(self._kind_removed)
        self._context.caches.subscribe(WORKLOADS, self._workload_changed)

    def _kind_removed(self, kind: Resource) -> None:
        keys = self._context.caches.view(WORKLOADS).keys()
        for key in keys:
            self.controller.enqueue(key)

    def _workload_changed(self, change: Change) -> None:
        if change.new is not None and self._context.caches.has_removed_kinds:
            self.controller.enqueue(change.key)

    async def reconcile(self, key: Key) -> Result | None:
        """Remove the Workload if its job is gone with its kind."""
        workload = self._context.statuses.current(key)
        owner = None if workload is None else controller_of(workload)
        if workload is None or owner is None:
            return None
        kind = self._registry.sent_kind(owner["apiVersion"], owner["kind"])
        if kind is None or not self._context.caches.is_removed(kind.resource):
            return None
        _log.info("removing Workload, its job is gone with its kind key=%s crd=%s", key, kind.resource.qualified)
        await remove_orphan(self._context, workload, kind.resource)
        return None
