# SPDX-License-Identifier: Apache-2.0
"""Which slice of an elastic job its assignment belongs to, and assignments by slice.

All slices of a job share one assignment, since they share one remote job (`assigned_as`). It belongs to the slice by
which the job runs; the others are not dispatched. To the rest of dispatch the assignment of the job is that of this
slice, with its uid; when another one takes the quota over, it is that one's. Of the slices only caches are read, and
what is no slice passes through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from manager.cache.caches import Caches
from manager.cache.indexes import SLICE_INDEX, chain_term, slice_term
from manager.dispatch.transport.mailbox_transport import Kept, Transport, replaced
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
        """The slice that the assignment belongs to; None if there is no slice.

        Of slices that were all replaced, since the one that came after them was deleted, it is the newest: it has
        finished, so that what is left of it on clusters is removed.
        """
        slices = oldest_first(self._slices(assigned, uid))
        found = current_slice(slices) or (slices[-1] if slices else None)
        return None if found is None else Key(found["metadata"]["namespace"], found["metadata"]["name"])

    def is_superseded(self, workload: JsonObject) -> bool:
        """Whether a newer slice of the job has taken its quota over: it is not planned any more."""
        if not is_elastic(workload):
            return False
        key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
        holder = self.holder(*assigned_as(workload))
        if holder is None or holder == key:
            return False
        if was_replaced(workload):
            return True
        newer = self._workloads.object(holder)
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


class SliceTransport:
    """A `Transport` over one whose keys are those of assignments."""

    def __init__(self, transport: Transport, slices: JobSlices) -> None:
        self._transport = transport
        self._slices = slices

    def owners(self, assigned: Key) -> Iterable[Key]:
        """The Workloads that the assignments of that key belong to now."""
        if not self._slices.any:
            return (assigned,)
        uids = {each.workload_uid for each in self._transport.observations(assigned).values()}
        return {self._slices.holder(assigned, uid) or assigned for uid in uids} or (assigned,)

    def observations(self, workload: Key) -> Mapping[str, Observation]:
        """Of a slice those of its job if the job runs by it, else none."""
        if not self._slices.any:
            return self._transport.observations(workload)
        assigned, uid = self._slices.assigned(workload)
        found = self._transport.observations(assigned)
        if not uid:
            # A slice that is gone leaves its name to those that have replaced it.
            return {name: o for name, o in found.items() if not self._slices.has(assigned, o.workload_uid)}
        if self._slices.holder(assigned, uid) != workload:
            return {}
        own = self._slices.own_uid(workload)
        return {
            name: replace(o, workload_uid=own) if o.workload_uid == uid else o
            for name, o in found.items()
            if o.workload_uid == uid or assigned == workload
        }

    def workloads(self, cluster: str | None = None) -> Iterable[Key]:
        """The Workloads with an assignment now."""
        found = self._transport.workloads(cluster)
        return {owner for each in found for owner in self.owners(each)} if self._slices.any else found

    async def assign(self, cluster: str, workload: Key, body: JsonObject, *, kept: Kept = replaced) -> None:
        """Create the assignment, or update it."""
        await self._transport.assign(cluster, self._assigned(workload), body, kept=kept)

    async def set_intent(self, cluster: str, workload: Key, intent: Intent) -> None:
        """Change the intent."""
        await self._transport.set_intent(cluster, self._assigned(workload), intent)

    async def remove(self, cluster: str, workload: Key) -> None:
        """Remove the assignment."""
        await self._transport.remove(cluster, self._assigned(workload))

    async def set_sent_objects(self, cluster: str, workload: Key, entries: list[JsonObject]) -> None:
        """Replace the list of objects that are sent with the job."""
        await self._transport.set_sent_objects(cluster, self._assigned(workload), entries)

    async def put_sent_object(self, cluster: str, obj: JsonObject) -> None:
        """Store an object that is sent with jobs."""
        await self._transport.put_sent_object(cluster, obj)

    async def sent_versions(self, cluster: str) -> Mapping[str, str]:
        """The version of each object that is stored for the cluster."""
        return await self._transport.sent_versions(cluster)

    async def drop_sent_object(self, cluster: str, name: str) -> None:
        """Remove an object that is stored for the cluster."""
        await self._transport.drop_sent_object(cluster, name)

    def _assigned(self, workload: Key) -> Key:
        return self._slices.assigned(workload)[0]
