# SPDX-License-Identifier: Apache-2.0
"""Which slice of an elastic job its assignment belongs to.

All slices of a job share one assignment, since they share one remote job (`assigned_as`). It belongs to the slice by
which the job runs; the others are not dispatched. Reads caches only.
"""

from __future__ import annotations

from collections.abc import Iterable

from manager.cache.caches import SLICE_INDEX, Caches, chain_term, slice_term
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent
from multikueue.api.resource import WORKLOADS
from multikueue.core.keys import Key
from multikueue.dispatch.hub.facts import Observation
from multikueue.jobs.framework.slices import (
    assigned_as,
    current_slice,
    dispatch_epoch,
    is_elastic,
    oldest_first,
    replaces,
    was_replaced,
)


class JobSlices:
    """The slices in the caches."""

    def __init__(self, caches: Caches) -> None:
        self._workloads = caches.view(WORKLOADS)

    def assigned(self, workload: Key) -> tuple[Key, str]:
        """As `assigned_as`; for a Workload that is not a slice, or is gone, its key and no uid."""
        if self._workloads.indexed(SLICE_INDEX, slice_term(workload)):
            found = self._workloads.object(workload)
            if found is not None:
                return assigned_as(found)
        return workload, ""

    def own_uid(self, workload: Key) -> str:
        """The uid of a Workload; empty if it is gone."""
        row = self._workloads.get(workload)
        return "" if row is None else row.uid

    def uid_of(self, assigned: Key) -> str:
        """The uid in assignments of that key; empty if there is no such Workload, nor a slice of such a job."""
        found = self._workloads.object(assigned)
        if found is not None:
            return assigned_as(found)[1]
        return next((uid for key, uid in self._jobs() if key == assigned), "")

    def has(self, assigned: Key, uid: str) -> bool:
        """Whether there are slices of the job with that uid that have that assignment."""
        return bool(self._workloads.indexed(SLICE_INDEX, chain_term(assigned, uid)))

    def holder(self, assigned: Key, uid: str) -> Key | None:
        """The slice that the assignment belongs to; None if the job has none with quota or in a queue."""
        found = current_slice(oldest_first(self._slices(assigned, uid)))
        return None if found is None else Key(found["metadata"]["namespace"], found["metadata"]["name"])

    def is_superseded(self, workload: JsonObject) -> bool:
        """Whether a newer slice of the job has taken its quota over: it is not planned any more."""
        if not is_elastic(workload):
            return False
        key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
        if was_replaced(workload):
            return True
        assigned, uid = assigned_as(workload)
        holder = self.holder(assigned, uid)
        if holder in (None, key):
            return False
        newer = self._workloads.object(holder) if holder is not None else None
        return newer is not None and replaces(newer) == key.name

    def runs_on(self, workload: JsonObject, observations: Iterable[Observation]) -> str:
        """The cluster on which the job runs in this epoch, by the slice that this one replaces; empty if there is none.

        Also by an assignment that was granted: the former slice may be gone.
        """
        former = replaces(workload) if is_elastic(workload) else ""
        if not former:
            return ""
        epoch, older = dispatch_epoch(workload), self._workloads.object(Key(workload["metadata"]["namespace"], former))
        if older is not None and assigned_as(older) == assigned_as(workload) and dispatch_epoch(older) == epoch:
            cluster = (older.get("status") or {}).get("clusterName")
            if cluster:
                return str(cluster)
        granted = (o.cluster for o in observations if o.epoch == epoch and o.intent in (Intent.RUN, Intent.EVICT))
        return next(granted, "")

    def _slices(self, assigned: Key, uid: str) -> Iterable[JsonObject]:
        return self._workloads.objects(SLICE_INDEX, chain_term(assigned, uid))

    def _jobs(self) -> Iterable[tuple[Key, str]]:
        return (assigned_as(each) for each in self._workloads.objects(SLICE_INDEX, ""))

    @property
    def any(self) -> bool:
        """Whether there are elastic jobs at all."""
        return bool(self._workloads.indexed(SLICE_INDEX, ""))
