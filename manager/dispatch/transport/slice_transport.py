# SPDX-License-Identifier: Apache-2.0
"""Assignments by Workload, where the slices of an elastic job share one.

To the rest of dispatch the assignment of the job is that of the slice by which the job runs, with the uid of that
slice; when another one takes the quota over, it is that one's. Everything else passes through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from manager.dispatch.transport.job_slices import JobSlices
from manager.dispatch.transport.mailbox_transport import Kept, Transport, replaced
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent
from multikueue.core.keys import Key
from multikueue.dispatch.hub.facts import Observation


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
