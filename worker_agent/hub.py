# SPDX-License-Identifier: Apache-2.0
"""What an agent needs of the management cluster, whichever way it is reached.

Owns two interfaces: a place to send patches to, and the assignments that stand in the mailbox. Pull is a `KubeClient`
with an informer (`worker_agent.mailbox`), push a mailbox in the manager's memory (`worker_agent.hosting`).
"""

from __future__ import annotations

from typing import Any, Protocol

import anyio

from multikueue.api.meta import JsonObject
from multikueue.api.resource import Resource
from multikueue.kube.client import Body, PatchKind
from multikueue.kube.errors import KubeError


class HubClient(Protocol):
    """Takes what the agent writes: statuses of assignments, its Lease, its report."""

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
        """Change part of an object. Raises `KubeError`, `NotFound` for one that is gone."""


class Following(Protocol):
    """The part of an informer that says how far it is."""

    @property
    def synced(self) -> anyio.Event:
        """Set once everything was read."""

    @property
    def last_error(self) -> KubeError | None:
        """What keeps it from reading on."""

    async def run(self) -> None:
        """Follow until cancelled."""


class MailboxView(Protocol):
    """The assignments of one cluster."""

    @property
    def namespace(self) -> str:
        """The namespace that the mailbox is, or would be."""

    @property
    def informer(self) -> Following:
        """How far the mailbox is read."""

    def get(self, name: str) -> JsonObject | None:
        """The assignment, if it stands there."""

    def names(self) -> list[str]:
        """All assignments that stand there."""

    async def owner(self) -> str:
        """The uid of the manager whose mailbox it is. Raises what the API server answers."""

    async def stands(self, name: str, epoch: int) -> bool:
        """Whether the assignment is of that epoch now, whatever was followed so far. Raises what the server answers."""
