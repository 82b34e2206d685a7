# SPDX-License-Identifier: Apache-2.0
"""The mailbox namespace on the management cluster: its assignments, and the manager it belongs to.

An absent assignment is acted on only if the mailbox was seen to belong to the same manager since the last list: the
empty mailbox of a rebuilt management cluster must not stop running work (ADR 0003).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import anyio

from multikueue.api.clusterreport import BUCKETS
from multikueue.api.constants import MANAGER_UID_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import NAMESPACES, REMOTE_ASSIGNMENTS, Resource
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.parsing import version_number
from multikueue.dispatch.protocol.digests import Digests, within
from multikueue.dispatch.protocol.wire import assigned_epoch
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.cache.store import Row
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine
from worker_agent.hub.restore_detector import FollowedVersion
from worker_agent.reconnect import RECONNECT


class Mailbox:
    """The mailbox of one cluster."""

    def __init__(
        self,
        client: KubeClient,
        cluster: str,
        *,
        clock: Clock,
        random: Random,
        changed: Callable[[str], None],
        resend: Callable[[JsonObject], None] = lambda obj: None,
        is_behind: Callable[[Row], bool] = lambda row: False,
        quarantine: Quarantine | None = None,
    ) -> None:
        """`changed` is called with the name of each assignment that changed.

        `resend` is called with each assignment whose status on the hub is in doubt, as the hub has it. `is_behind`
        is whether an assignment that was read is older than a write of this agent, as after a restore of the hub.
        """
        self._quarantine = quarantine if quarantine is not None else Quarantine(clock=clock, random=random)
        self.namespace = mailbox_namespace(cluster)
        self.informer = Informer(
            client,
            REMOTE_ASSIGNMENTS,
            namespace=self.namespace,
            clock=clock,
            random=random,
            backoff=RECONNECT,
            quarantine=self._quarantine,
            on_list=self._on_list,
            on_version_too_large=self.resync_all,
            on_restored=self._doubt_all,
        )
        self._client = client
        self._changed = changed
        self._resend = resend
        self._is_behind = is_behind
        self._owner_lock = anyio.Lock()
        self._owner = ""
        self._owner_list = 0
        """The list since which `_owner` was read."""
        self._in_doubt: frozenset[int] = frozenset()
        self._digests = Digests()
        self.informer.add_handler(self._on_assignment)

    def get(self, name: str) -> JsonObject | None:
        """The assignment; None if there is none."""
        return self.informer.store.object(Key(self.namespace, name))

    def names(self) -> list[str]:
        """The names of all assignments."""
        return [key.name for key in self.informer.store.keys()]  # noqa: SIM118  (a store is no mapping)

    def digests(self) -> list[str]:
        """Checksums of the assignments as the agent sees them; the hub compares them with its own."""
        return list(self._digests.values())

    def on_write(self, obj: JsonObject) -> None:
        """Take in the assignment that the hub answered to a write of its status.

        It counts in the digests before a watch shows it: a hub that was restored from a backup meanwhile has lost the
        write, and has what the cache here still has.
        """
        metadata: JsonObject = obj["metadata"]
        row = self.informer.store.get(Key(self.namespace, metadata["name"]))
        if row is None or row.uid != metadata["uid"]:
            return  # it was deleted, or is not listed yet
        if version_number(row.resource_version) < version_number(str(metadata.get("resourceVersion") or "")):
            self._digests.put(obj)

    def resync(self, buckets: Iterable[int]) -> None:
        """List the mailbox again and resend the status of assignments in these buckets where it differs."""
        self._in_doubt |= frozenset(buckets)
        self.informer.restart()

    def resync_all(self) -> None:
        """As `resync`, for all assignments: the hub was rebuilt or restored."""
        self.resync(range(BUCKETS))

    def followed(self) -> FollowedVersion:
        """The list and the newest version that were read from the hub so far."""
        return FollowedVersion(self.informer.lists, self.informer.version)

    async def owner(self) -> str:
        """The uid of the manager that owns the mailbox, read after the last list; empty if the mailbox has none.

        Within one list and its watch the server is the same, so that one request serves every removal. Raises what the
        API server answers, `NotFound` if there is no mailbox.
        """
        async with self._owner_lock:
            current = self.informer.lists
            if self._owner_list != current:
                namespace = await self._client.get_object(NAMESPACES, self.namespace)
                annotations: dict[str, str] = namespace["metadata"].get("annotations") or {}
                self._owner = annotations.get(MANAGER_UID_ANNOTATION, "")
                self._owner_list = current
            return self._owner

    async def has_epoch(self, name: str, epoch: int) -> bool:
        """Whether the assignment on the server has that epoch. Raises what the API server answers."""
        try:
            found = await self._client.get_object(REMOTE_ASSIGNMENTS, name, namespace=self.namespace)
        except NotFound:
            return False
        return assigned_epoch(found) == epoch

    async def sent_object(self, resource: Resource, name: str) -> JsonObject:
        """An object that is sent with jobs, read from the hub each time: contents are not kept here."""
        return await self._client.get_object(resource, name, namespace=self.namespace)

    def _doubt_all(self) -> None:
        """A list has older objects than were known: what this process has read, or one before it has sent, is lost."""
        self._in_doubt = frozenset(range(BUCKETS))

    def _on_list(self) -> None:
        in_doubt = frozenset(within(self.names(), self._in_doubt))
        for row in self.informer.store.list():
            if row.key.name in in_doubt or self._is_behind(row):
                with self._quarantine.guard("mailbox", REMOTE_ASSIGNMENTS, row.key):
                    assignment = row.object()
                    self._resend(assignment)
                    self._digests.put(assignment)
        self._in_doubt = frozenset()

    def _on_assignment(self, change: Change) -> None:
        if change.new is None:
            self._digests.remove(change.key.name)
        elif not self._is_behind(change.new):
            self._digests.put(change.new.object())
        self._changed(change.key.name)
