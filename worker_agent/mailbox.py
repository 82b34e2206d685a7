# SPDX-License-Identifier: Apache-2.0
"""The hub's side of the agent: which assignments stand in the mailbox, and whose mailbox it is.

Owns the informer of assignments and the identity of the management cluster. Promises that the absence of an
assignment is only acted upon when the mailbox was seen to belong to the same manager since it was listed last: an
emptied mailbox of a rebuilt management cluster must not kill work (ADR 0003).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import anyio

from multikueue.api.clusterreport import BUCKETS
from multikueue.api.constants import MANAGER_UID_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import NAMESPACES, REMOTE_ASSIGNMENTS
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.federation.digests import Digests, within
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import NotFound
from multikueue.kube.informer import Change, Informer
from multikueue.kube.store import Row
from worker_agent.continuity import Followed
from worker_agent.reconnect import RECONNECT


class MailboxInformer(Informer):
    """An informer that counts how often it listed anew: only then can it be another hub that it looks at."""

    lists = 0
    listed: Callable[[], None] = staticmethod(lambda: None)

    async def relist(self) -> None:
        """As any informer, and counted before the first absence is told of."""
        self.lists += 1
        await super().relist()
        self.listed()


class Mailbox:
    """The mailbox of one cluster."""

    def __init__(
        self, client: KubeClient, cluster: str, *, clock: Clock, random: Random, changed: Callable[[str], None]
    ) -> None:
        self.namespace = mailbox_namespace(cluster)
        self.informer = MailboxInformer(
            client, REMOTE_ASSIGNMENTS, namespace=self.namespace, clock=clock, random=random, backoff=RECONNECT
        )
        self._client = client
        self._changed = changed
        self._asking = anyio.Lock()
        self._verified = 0
        self._owner = ""
        self._doubted: frozenset[int] = frozenset()
        self._digests = Digests()
        self.retell: Callable[[JsonObject], None] = lambda obj: None
        """Called with each assignment of which it was in doubt what the hub knows, as the hub has it."""
        self.is_behind: Callable[[Row], bool] = lambda row: False
        """Whether what was listed is older than what a write of this agent made of it: the hub was put back in time."""
        self.informer.listed = self._on_list
        self.informer.put_back = self.doubt
        self.informer.add_handler(self._on_assignment)

    def get(self, name: str) -> JsonObject | None:
        """The assignment, if it stands there."""
        return self.informer.store.object(Key(self.namespace, name))

    def names(self) -> list[str]:
        """All assignments that stand there."""
        return [key.name for key in self.informer.store.keys()]  # noqa: SIM118  (a store is no mapping)

    def digests(self) -> list[str]:
        """What of it this side sees, for the hub to compare."""
        return list(self._digests.values())

    def resync(self, buckets: Iterable[int]) -> None:
        """Read the mailbox anew, and doubt what the hub knows of the assignments in those buckets."""
        self._doubted |= frozenset(buckets)
        self.informer.restart()

    def doubt(self) -> None:
        """The hub is not what it was: read the mailbox anew, and doubt what the hub knows of any assignment."""
        self.resync(range(BUCKETS))

    def followed(self) -> Followed:
        """How far the hub was followed by now."""
        return Followed(self.informer.lists, self.informer.version)

    async def owner(self) -> str:
        """The uid of the manager whose mailbox it is, asked for since the mailbox was listed last.

        Empty when it does not say. Within one list and the watch that follows it the server is the same, so that one
        request serves every removal of it. Raises what the API server answers, `NotFound` for no mailbox.
        """
        async with self._asking:
            listed = self.informer.lists
            if self._verified != listed:
                namespace = await self._client.get_object(NAMESPACES, self.namespace)
                annotations: dict[str, str] = namespace["metadata"].get("annotations") or {}
                self._owner = annotations.get(MANAGER_UID_ANNOTATION, "")
                self._verified = listed
            return self._owner

    async def stands(self, name: str, epoch: int) -> bool:
        """Whether the assignment is of that epoch on the server. Raises what the API server answers."""
        try:
            found = await self._client.get_object(REMOTE_ASSIGNMENTS, name, namespace=self.namespace)
        except NotFound:
            return False
        return int(found["spec"]["epoch"]) == epoch

    def _on_list(self) -> None:
        doubted = frozenset(within(self.names(), self._doubted))
        for row in self.informer.store.list():
            if row.key.name in doubted or self.is_behind(row):
                self.retell(row.object())
        self._doubted = frozenset()

    def _on_assignment(self, change: Change) -> None:
        if change.new is None:
            self._digests.remove(change.key.name)
        else:
            self._digests.put(change.new.object())
        self._changed(change.key.name)
