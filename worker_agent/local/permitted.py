# SPDX-License-Identifier: Apache-2.0
"""An informer that runs only while the agent has the rights to list and watch.

It stops when a right is revoked and starts with a new list when it is granted again. `usable` is whether its store
is up to date.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from multikueue.kube.cache.informer import Informer
from worker_agent.local.rights import Rights


class PermittedInformer:
    """One informer and its rights."""

    def __init__(self, informer: Informer, rights: Rights, *, changed: Callable[[], None]) -> None:
        """`changed` is called when the informer becomes usable or unusable."""
        self.informer = informer
        self.decided = anyio.Event()
        """Set after the first list, or when the agent turned out not to have the rights."""
        self._rights = rights
        self._changed = changed

    @property
    def usable(self) -> bool:
        """Whether the store has the current objects."""
        return self.informer.synced.is_set() and self.is_permitted()

    def is_permitted(self) -> bool:
        """Whether the agent may list and watch the resource, as far as is known."""
        return self._rights.may_follow(self.informer.resource)

    async def run(self) -> None:
        """Follow while permitted, until cancelled."""
        while True:
            while not self.is_permitted():
                self.decided.set()
                await self._rights.changed.wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.informer.run, name=f"informer-{self.informer.resource.plural}")
                tasks.start_soon(self._on_sync, name=f"synced-{self.informer.resource.plural}")
                while self.is_permitted():
                    await self._rights.changed.wait()
                tasks.cancel_scope.cancel()
            was_read = self.informer.synced.is_set()
            self.informer.forget()
            if was_read:
                self._changed()

    async def _on_sync(self) -> None:
        await self.informer.synced.wait()
        self.decided.set()
        self._changed()
