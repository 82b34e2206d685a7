# SPDX-License-Identifier: Apache-2.0
"""Push: assignments in the manager's memory, for the agents that the manager hosts; and push mixed with pull.

Owns the hosted mailboxes, and the observations that are assumed of a cluster whose jobs this process has not read yet:
work that was granted to it counts as an unanswered assignment, so that a restart neither considers it lost nor releases
its quota. The jobs on the worker replace the assumption once they are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from manager.dispatch.transport.mailbox_transport import Kept, Transport, replaced
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent, assignment_name
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.hub.facts import Observation
from multikueue.dispatch.protocol.wire import observation_of, unanswered_observation, workload_of
from worker_agent.hub.in_memory_mailbox import InMemoryMailbox

_log = logging.getLogger(__name__)

GroupKind: TypeAlias = tuple[str, str]
"""The group and the kind of jobs."""


class PushTransport:
    """Hosted mailboxes as a `Transport`."""

    def __init__(
        self,
        *,
        manager_uid: str,
        workload_uid: Callable[[Key], str],
        changed: Callable[[Key], None],
        reported: Callable[[str], None],
    ) -> None:
        """`changed` is called with a workload whose assignment changed, `reported` with a cluster that reported."""
        self._manager_uid = manager_uid
        self._workload_uid = workload_uid
        self._changed = changed
        self._reported = reported
        self._mailboxes: dict[str, InMemoryMailbox] = {}
        self._assumed: dict[Key, dict[str, Observation]] = {}
        self._kinds: dict[Key, GroupKind] = {}

    def mailbox(self, cluster: str) -> InMemoryMailbox:
        """The mailbox of the cluster, created at the first call."""
        found = self._mailboxes.get(cluster)
        if found is None:
            found = self._mailboxes[cluster] = InMemoryMailbox(
                cluster,
                manager_uid=self._manager_uid,
                workload_uid=self._workload_uid,
                changed=self._on_status,
                reported=lambda: self._reported(cluster),
            )
        return found

    def serves(self, cluster: str) -> bool:
        """Whether the cluster has a hosted mailbox."""
        return cluster in self._mailboxes

    def drop(self, cluster: str) -> None:
        """Forget the mailbox of a cluster that is no longer served this way."""
        mailbox = self._mailboxes.pop(cluster, None)
        for obj in () if mailbox is None else mailbox.objects():
            self._on_status(obj)

    def assume(self, workload: Key, observation: Observation, *, kind: GroupKind) -> None:
        """Assume this observation until the cluster's jobs of that kind are read."""
        self._kinds[workload] = kind
        self._assumed.setdefault(workload, {})[observation.cluster] = observation

    def opened(self, cluster: str, *, unread: Collection[GroupKind] = ()) -> None:
        """End the assumptions about a cluster whose jobs were read, but for those of kinds that are `unread`."""
        for workload in [key for key, clusters in self._assumed.items() if cluster in clusters]:
            if self._kinds[workload] in unread:
                continue
            self._drop_assumed(cluster, workload)
            self._changed(workload)

    def observations(self, workload: Key) -> Mapping[str, Observation]:
        """The assignments in the mailboxes, and the assumed ones of mailboxes that are not open yet."""
        found = dict(self._assumed.get(workload, ()))
        name = assignment_name(workload)
        for cluster, mailbox in self._mailboxes.items():
            obj = mailbox.get(name)
            if obj is not None and workload_of(obj) == workload:
                try:
                    found[cluster] = observation_of(obj)
                except BadInput as error:
                    _log.error("cannot read status of assignment cluster=%s error=%s", cluster, error)
                    found[cluster] = unanswered_observation(obj)
        return found

    def workloads(self, cluster: str | None = None) -> Iterable[Key]:
        """As they are now."""
        found = {key for key, clusters in self._assumed.items() if cluster is None or cluster in clusters}
        for name, mailbox in self._mailboxes.items():
            if cluster is None or cluster == name:
                found.update(workload_of(obj) for obj in mailbox.objects())
        return found

    async def assign(self, cluster: str, workload: Key, body: JsonObject, *, kept: Kept = replaced) -> None:
        """Put it into the mailbox; it is there at once."""
        self._drop_assumed(cluster, workload)
        mailbox = self.mailbox(cluster)
        current = mailbox.get(body["metadata"]["name"])
        mailbox.put(body if current is None else kept(body, current))

    async def set_intent(self, cluster: str, workload: Key, intent: Intent) -> None:
        """Change the intent. Assumed assignments are decided by the jobs on the worker when they are read."""
        if cluster in self._mailboxes:
            self._mailboxes[cluster].set_intent(assignment_name(workload), intent)

    async def remove(self, cluster: str, workload: Key) -> None:
        """Remove the assignment; the agent stops its job when it sees that."""
        self._drop_assumed(cluster, workload)
        if cluster in self._mailboxes:
            self._mailboxes[cluster].remove(assignment_name(workload))

    async def set_sent_objects(self, cluster: str, workload: Key, entries: list[JsonObject]) -> None:
        """Change the list in the mailbox."""
        if cluster in self._mailboxes:
            self._mailboxes[cluster].set_sent_objects(assignment_name(workload), entries)

    async def put_sent_object(self, cluster: str, obj: JsonObject) -> None:
        """Put it into the mailbox; it is there at once."""
        self.mailbox(cluster).put_sent_object(obj)

    async def sent_versions(self, cluster: str) -> Mapping[str, str]:
        """Of the objects in the mailbox."""
        return self._mailboxes[cluster].sent_versions() if cluster in self._mailboxes else {}

    async def drop_sent_object(self, cluster: str, name: str) -> None:
        """From the mailbox."""
        if cluster in self._mailboxes:
            self._mailboxes[cluster].drop_sent_object(name)

    def _on_status(self, obj: JsonObject) -> None:
        self._changed(workload_of(obj))

    def _drop_assumed(self, cluster: str, workload: Key) -> None:
        clusters = self._assumed.get(workload)
        if clusters is not None and clusters.pop(cluster, None) is not None and not clusters:
            del self._assumed[workload]
            del self._kinds[workload]


class MixedTransport:
    """Push and pull as one `Transport`, so that a MultiKueueConfig may mix them.

    New assignments use the cluster's current transport; removals use both, because a cluster may have changed its
    transport while it had work.
    """

    def __init__(self, pull: Transport, push: PushTransport) -> None:
        self._pull = pull
        self._push = push

    def observations(self, workload: Key) -> Mapping[str, Observation]:
        """By cluster, from its current transport, else from the other one."""
        return {**self._pull.observations(workload), **self._push.observations(workload)}

    def workloads(self, cluster: str | None = None) -> Iterable[Key]:
        """Of both."""
        return {*self._pull.workloads(cluster), *self._push.workloads(cluster)}

    async def assign(self, cluster: str, workload: Key, body: JsonObject, *, kept: Kept = replaced) -> None:
        """With the cluster's current transport."""
        await self._way(cluster).assign(cluster, workload, body, kept=kept)

    async def set_intent(self, cluster: str, workload: Key, intent: Intent) -> None:
        """With the cluster's current transport."""
        await self._way(cluster).set_intent(cluster, workload, intent)

    async def remove(self, cluster: str, workload: Key) -> None:
        """With both."""
        await self._push.remove(cluster, workload)
        await self._pull.remove(cluster, workload)

    async def set_sent_objects(self, cluster: str, workload: Key, entries: list[JsonObject]) -> None:
        """With the cluster's current transport."""
        await self._way(cluster).set_sent_objects(cluster, workload, entries)

    async def put_sent_object(self, cluster: str, obj: JsonObject) -> None:
        """With the cluster's current transport."""
        await self._way(cluster).put_sent_object(cluster, obj)

    async def sent_versions(self, cluster: str) -> Mapping[str, str]:
        """With the cluster's current transport."""
        return await self._way(cluster).sent_versions(cluster)

    async def drop_sent_object(self, cluster: str, name: str) -> None:
        """With the cluster's current transport."""
        await self._way(cluster).drop_sent_object(cluster, name)

    def _way(self, cluster: str) -> Transport:
        return self._push if self._push.serves(cluster) else self._pull
