# SPDX-License-Identifier: Apache-2.0
"""Removes the Workloads of jobs that are gone with their kind.

The garbage collector of Kubernetes cannot look up owners of a kind that is not served, and no reconciler follows the
jobs whose Workloads another controller makes. What counts as removed is decided in `manager.cache.kind_removal`.
"""

from __future__ import annotations

import logging

from manager.context import ManagerContext
from manager.controllers.workload_removal import remove_orphan
from multikueue.api.objects import controller_of
from multikueue.api.resource import WORKLOADS, Resource
from multikueue.core.keys import Key
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.cache.informer import Change
from multikueue.kube.runtime.controller import Controller, Result

_log = logging.getLogger(__name__)


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
        await remove_orphan(self._context, workload, job=Key(key.namespace, owner["name"]), resource=kind.resource)
        return None
