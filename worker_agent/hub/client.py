# SPDX-License-Identifier: Apache-2.0
"""What an agent needs of the management cluster, with either transport.

With the agent transport these are a `KubeClient` and `worker_agent.hub.mailbox`; with the push transport both are the
`worker_agent.hub.in_memory_mailbox` of the manager.
"""

from __future__ import annotations

from typing import Any, Protocol

import anyio

from multikueue.api.meta import JsonObject
from multikueue.api.resource import Resource
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import Body, PatchKind


class HubClient(Protocol):
    """Takes the writes of the agent: statuses of assignments, its Lease and its ClusterReport."""

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Body | list[dict[str, Any]],
        *,
        namespace: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str | None = None,
    ) -> object:
        """Change part of an object. Raises `KubeError`, `NotFound` if the object is gone."""


class Following(Protocol):
    """The state of an informer."""

    @property
    def synced(self) -> anyio.Event:
        """Set once the first list was read."""

    @property
    def last_error(self) -> KubeError | None:
        """Why it cannot list or watch; None while it can."""

    async def run(self) -> None:
        """Follow until cancelled."""


class MailboxView(Protocol):
    """The assignments of one cluster."""

    @property
    def namespace(self) -> str:
        """The mailbox namespace; of a mailbox in memory, the name that it would have."""

    @property
    def informer(self) -> Following:
        """The informer of the assignments."""

    def get(self, name: str) -> JsonObject | None:
        """The assignment; None if there is none."""

    def names(self) -> list[str]:
        """The names of all assignments."""

    def on_write(self, obj: JsonObject) -> None:
        """Take in the assignment that the hub answered to a write of its status."""

    async def owner(self) -> str:
        """The uid of the manager that owns the mailbox. Raises what the API server answers."""

    async def has_epoch(self, name: str, epoch: int) -> bool:
        """Whether the assignment on the hub has that epoch, whatever is cached. Raises what the API server answers."""

    async def sent_object(self, resource: Resource, name: str) -> JsonObject:
        """An object that is sent with jobs. Raises what the API server answers."""
