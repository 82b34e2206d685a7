# SPDX-License-Identifier: Apache-2.0
"""Follows what owns jobs, so that the jobs below a queued owner stay within its quota.

Owns which changes of an owner, of one in between or of a Workload let which jobs be reconciled again. A job is only
stopped by its own reconcile, from the newest objects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from manager.cache.ancestors import Ancestry, may_be_left
from manager.cache.caches import Caches
from manager.cache.indexes import OWNER_INDEX, owner_term
from manager.owners.owned_jobs import OwnedJobs, known_as, named_as
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import WORKLOADS, Resource
from multikueue.core.conditions import is_true_in
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.framework.slices import was_replaced
from multikueue.kube.cache.informer import Change

_REFERENCES: Final = b'"ownerReferences"'
_ENDING_SECONDS: Final = 60.0  # how long the jobs of an owner that has finished may take to end


def workloads_of(caches: Caches, resource: Resource, key: Key) -> list[JsonObject]:
    """The Workloads of an owner."""
    term = owner_term(api_version=resource.api_version, kind=resource.kind, namespace=key.namespace, name=key.name)
    return list(caches.view(WORKLOADS).objects(OWNER_INDEX, term))


def is_admitted(workload: JsonObject) -> bool:
    """Whether it is admitted, or was when it finished."""
    return is_true_in(workload.get("status") or {}, WorkloadCondition.ADMITTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The Workloads of an owner by which its jobs may run here.

    `ends` is for how many seconds, None without an end; `lack` is why there are none.
    """

    workloads: tuple[JsonObject, ...] = ()
    ends: float | None = None
    lack: str = "is not admitted"


def coverage(workloads: Iterable[JsonObject], *, now: datetime) -> Coverage:
    """What an owner with these Workloads has for its jobs: one that runs on a worker cluster has its jobs there."""
    found = Coverage()
    for workload in workloads:
        status: JsonObject = workload.get("status") or {}
        if not is_admitted(workload) or was_replaced(workload):  # a newer slice has its quota
            continue
        if status.get("clusterName"):
            found = replace(found, lack="runs on a worker cluster")
            continue
        ends = found.ends
        if is_true_in(status, WorkloadCondition.FINISHED):
            left = _ENDING_SECONDS - _seconds_since(status, now)
            if left <= 0:
                found = replace(found, lack="has finished")
                continue
            ends = left if ends is None else min(ends, left)
        found = replace(found, workloads=(*found.workloads, workload), ends=ends)
    return found


def _seconds_since(status: JsonObject, now: datetime) -> float:
    """How long ago a Workload has finished; very long if that cannot be read."""
    for each in status.get("conditions") or ():
        if each.get("type") == WorkloadCondition.FINISHED:
            try:
                return abs((now - parse_time(each.get("lastTransitionTime"))).total_seconds())
            except BadInput:
                break
    return math.inf


class OwnerQuota:
    """Of the jobs of one kind that are left to owners."""

    def __init__(self, caches: Caches, integration: JobIntegration, registry: JobRegistry) -> None:
        self._caches = caches
        self._integration = integration
        self._registry = registry
        self._owned = OwnedJobs(integration)
        self._enqueue: Callable[[Key], None] = lambda key: None

    async def attach(self, enqueue: Callable[[Key], None]) -> None:
        """Follow jobs and owners; `enqueue` takes the jobs that are to be reconciled again."""
        self._enqueue = enqueue
        await self._caches.replay(self._integration.resource, self._job_changed)
        for owner in self._registry:
            if may_be_left(self._integration.resource, owner):
                await self._caches.replay(owner.resource, partial(self._owner_changed, owner.resource))
        await self._caches.replay(WORKLOADS, self._workload_changed)

    def excess(self, job: JsonObject, above: Ancestry, workloads: Iterable[JsonObject]) -> str:
        """What a job requests beyond the admitted Workloads of the owner above it; empty if nothing.

        Younger jobs that have no quota any more are reconciled again.
        """
        assert above.integration is not None
        assert above.key is not None
        row = self._caches.view(above.integration.resource).get(above.key)
        if row is None:
            return ""  # the deletion of the owner will be noticed
        top = known_as(above.integration.resource, above.key, row.uid)
        answer, beyond = self._owned.excess(job, top=top, workloads=workloads)
        self._enqueue_all(beyond)
        return answer

    def _job_changed(self, change: Change) -> None:
        if change.old is not None and (change.new is None or change.new.uid != change.old.uid):
            self._owned.remove(change.old.uid)
        if change.new is None:
            return
        if _REFERENCES in change.new.raw:
            self._owned.set(change.new.object())
        else:
            self._owned.remove(change.new.uid)

    def _owner_changed(self, resource: Resource, change: Change) -> None:
        """An owner that is new, gone, moved, or queued elsewhere: the jobs below it may belong to another quota."""
        old, new = change.old, change.new
        if old is not None and (new is None or new.uid != old.uid):
            gone = known_as(resource, change.key, old.uid)
            self._recheck(gone)
            self._owned.set_between(gone, "")
        if new is None:
            return
        own = known_as(resource, change.key, new.uid)
        above = ""
        if _REFERENCES in new.raw:
            above = named_as(controller_of(new.object()), namespace=change.key.namespace)
        moved = self._owned.set_between(own, above)
        if moved or old is None or old.uid != new.uid or old.labels != new.labels:
            self._recheck(own)

    def _workload_changed(self, change: Change) -> None:
        """A Workload that is new, gone, evicted or smaller."""
        if self._owned.is_empty:
            return
        workload = change.row.object()
        for owner in workload["metadata"].get("ownerReferences") or ():
            name = named_as(owner, namespace=change.key.namespace)
            if change.new is None or not _covers(workload) or not self._owned.fits(name, (workload,)):
                self._recheck(name)

    def _recheck(self, owner: str) -> None:
        self._enqueue_all(self._owned.below(owner))

    def _enqueue_all(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._enqueue(key)


def _covers(workload: JsonObject) -> bool:
    status: JsonObject = workload.get("status") or {}
    ended = is_true_in(status, WorkloadCondition.FINISHED) or bool(status.get("clusterName"))
    return is_admitted(workload) and not ended
