# SPDX-License-Identifier: Apache-2.0
"""The push carrier: assignments in the manager's memory, for the agents that the manager hosts.

Owns the hosted mailboxes and what is believed of a cluster whose jobs were not read since this process began: work
that was granted to it counts as standing there, unanswered, so that a restart neither takes it for lost nor gives its
quota away. What the jobs on the worker say takes the place of that belief once they are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent, assignment_name
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.federation.facts import Observation
from multikueue.federation.wire import observation_of, workload_of
from worker_agent.hosting import HostedMailbox

_log = logging.getLogger(__name__)


class PushCarrier:
    """Hosted mailboxes as a `Carrier`."""

    def __init__(
        self,
        *,
        manager_uid: str,
        workload_uid: Callable[[Key], str],
        changed: Callable[[Key], None],
        reported: Callable[[str], None],
    ) -> None:
        """`changed` hears of workloads that something new stands about, `reported` of clusters with a new report."""
        self._manager_uid = manager_uid
        self._workload_uid = workload_uid
        self._changed = changed
        self._reported = reported
        self._mailboxes: dict[str, HostedMailbox] = {}
        self._believed: dict[Key, dict[str, Observation]] = {}

    def mailbox(self, cluster: str) -> HostedMailbox:
        """The mailbox of the cluster, made when it is asked for first."""
        found = self._mailboxes.get(cluster)
        if found is None:
            found = self._mailboxes[cluster] = HostedMailbox(
                cluster,
                manager_uid=self._manager_uid,
                workload_uid=self._workload_uid,
                told=self._told,
                reported=lambda: self._reported(cluster),
            )
        return found

    def serves(self, cluster: str) -> bool:
        """Whether the cluster has a hosted mailbox."""
        return cluster in self._mailboxes

    def drop(self, cluster: str) -> None:
        """The cluster is not reached this way any more: what stood here about it is forgotten."""
        mailbox = self._mailboxes.pop(cluster, None)
        for obj in () if mailbox is None else mailbox.objects():
            self._told(obj)

    def believe(self, workload: Key, observation: Observation) -> None:
        """Count this as standing there until the cluster's jobs are read."""
        self._believed.setdefault(workload, {})[observation.cluster] = observation

    def opened(self, cluster: str) -> None:
        """The cluster's jobs were read: beliefs about it end."""
        for workload in [key for key, clusters in self._believed.items() if cluster in clusters]:
            self._disbelieve(cluster, workload)
            self._changed(workload)

    def observations(self, workload: Key) -> Mapping[str, Observation]:
        """What stands in the mailboxes, and what is believed of those that were not read."""
        found = dict(self._believed.get(workload, ()))
        name = assignment_name(workload)
        for cluster, mailbox in self._mailboxes.items():
            obj = mailbox.get(name)
            if obj is not None and workload_of(obj) == workload:
                try:
                    found[cluster] = observation_of(obj)
                except BadInput as error:
                    _log.error("%s: %s", cluster, error)
        return found

    def workloads(self, cluster: str | None = None) -> Iterable[Key]:
        """As they are now."""
        found = {key for key, clusters in self._believed.items() if cluster is None or cluster in clusters}
        for name, mailbox in self._mailboxes.items():
            if cluster is None or cluster == name:
                found.update(workload_of(obj) for obj in mailbox.objects())
        return found

    async def assign(self, cluster: str, workload: Key, body: JsonObject) -> None:
        """Put it into the mailbox; it is there at once."""
        self._disbelieve(cluster, workload)
        self.mailbox(cluster).put(body)

    async def set_intent(self, cluster: str, workload: Key, intent: Intent) -> None:
        """Change the wish. Of what is only believed the jobs on the worker decide when they are read."""
        if cluster in self._mailboxes:
            self._mailboxes[cluster].set_intent(assignment_name(workload), intent)

    async def remove(self, cluster: str, workload: Key) -> None:
        """Take it away; the agent sees the absence when it is there."""
        self._disbelieve(cluster, workload)
        if cluster in self._mailboxes:
            self._mailboxes[cluster].remove(assignment_name(workload))

    def _told(self, obj: JsonObject) -> None:
        self._changed(workload_of(obj))

    def _disbelieve(self, cluster: str, workload: Key) -> None:
        clusters = self._believed.get(workload)
        if clusters is not None and clusters.pop(cluster, None) is not None and not clusters:
            del self._believed[workload]
