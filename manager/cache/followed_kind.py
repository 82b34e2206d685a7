# SPDX-License-Identifier: Apache-2.0
"""One kind of the management cluster: followed while the server has it, and checked for while it does not.

A kind that is not installed is logged once, and its first list counts as complete. When a job kind is removed, which
`kind_removal` decides, its objects are reported as deleted, and it is a kind that is not installed again. The kinds of
the manager itself, and those of Kubernetes, are never taken to be removed: their objects stay as they were last seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import anyio

from manager.cache.kind_removal import KindRemoval, can_be_removed
from multikueue.api.meta import JsonObject
from multikueue.api.resource import Resource
from multikueue.kube.cache.informer import Informer
from multikueue.kube.cache.store import Indexer
from multikueue.kube.errors import Forbidden, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient

_log = logging.getLogger(__name__)

_MISSING_SECONDS: Final = 10.0
_REMOVED_SECONDS: Final = 10.0
_FORBIDDEN_SECONDS: Final = 0.2  # how soon a refused list of an optional kind is noticed

Shrink: TypeAlias = Callable[[JsonObject], bytes]
"""The bytes of an object with the fields that are kept in memory; it may change the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedKind:
    """A kind and how it is followed."""

    resource: Resource
    namespace: str | None = None
    field_selector: str | None = None
    indexers: Mapping[str, Indexer] = field(default_factory=dict)
    shrink: Shrink | None = None
    """What is kept of a kind of which there are as many objects as workloads."""
    on_demand: bool = False
    """Followed once `Caches.demand` asks for it: a kind of another project, which many clusters do not have."""
    label_selector: str | None = None
    optional: str = ""
    """What does not work without it: a kind that older API servers lack, or that may be forbidden; it is empty then."""
    framework: str = ""
    """The framework that serves a job kind, which waits for its CRD; empty for kinds that the manager needs."""


class KindFollowing:
    """The informer of one kind, and whether the server has the kind."""

    def __init__(
        self,
        client: KubeClient,
        kind: FollowedKind,
        informer: Informer,
        *,
        waiting: Callable[[FollowedKind, bool], None],
        removed: Callable[[FollowedKind], None],
    ) -> None:
        """`waiting` is called when the kind turns out to be missing, and again when it is installed.

        `removed` is called when it is certain that the server has no objects of the kind any more.
        """
        self.informer = informer
        self.demanded = anyio.Event()
        """Set when a kind that is followed on demand is needed."""
        self.settled = anyio.Event()
        """Set once the first list is complete, or the kind is known not to be installed."""
        self.installed = False
        """Whether the server has the kind, or has not answered whether it does."""
        self.missing = False
        """Whether the server has answered that it does not have the kind."""
        self.removed = False
        """Whether all objects of the kind are gone with it."""
        self._client = client
        self._kind = kind
        self._waiting = waiting
        self._removed = removed
        self._removal = KindRemoval(client, kind.resource)

    async def run(self) -> None:
        """Follow the kind while it is installed, until cancelled."""
        if self._kind.on_demand:
            self.settled.set()
            await self.demanded.wait()
        name = self._kind.resource.plural
        while True:
            await self._wait_until_installed()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.informer.run, name=f"follow-{name}")
                tasks.start_soon(self._settle, name=f"settle-{name}")
                await self._wait_until_removed()
                tasks.cancel_scope.cancel()
            self._set_removed()

    async def _wait_until_installed(self) -> None:
        waited = False
        while not await self._is_installed():
            self.installed, self.missing = False, True
            self.settled.set()
            if not waited:
                self._report_missing()
                waited = True
            if self._kind.framework and not self.removed and await self._removal.confirms():
                self._set_removed()  # before this process started
            await anyio.sleep(_MISSING_SECONDS)
        self.installed, self.missing, self.removed = True, False, False
        self._removal.begin_anew()
        if waited:
            _log.info("CustomResourceDefinition installed crd=%s", self._kind.resource.qualified)
            if self._kind.framework:
                self._waiting(self._kind, False)

    async def _settle(self) -> None:
        while not self.informer.synced.is_set():
            if self._kind.optional and isinstance(self.informer.last_error, Forbidden):
                _log.warning(
                    "%s: may not be listed kind=%s cluster=%s",
                    self._kind.optional,
                    self._kind.resource.qualified,
                    self._client.config.name,
                )
                break
            with anyio.move_on_after(_FORBIDDEN_SECONDS if self._kind.optional else None):
                await self.informer.synced.wait()
        self.settled.set()

    async def _wait_until_removed(self) -> None:
        if not self._kind.framework or not can_be_removed(self._kind.resource):
            await anyio.sleep_forever()
        while True:
            await anyio.sleep(_REMOVED_SECONDS)
            if not isinstance(self.informer.last_error, NotFound):
                self._removal.begin_anew()
            elif await self._removal.confirms():
                return

    def _set_removed(self) -> None:
        self.installed, self.removed = False, True
        _log.warning(
            "CustomResourceDefinition removed, its objects count as deleted crd=%s objects=%s cluster=%s",
            self._kind.resource.qualified,
            len(self.informer.store),
            self._client.config.name,
        )
        self.informer.clear()
        self._removed(self._kind)

    def _report_missing(self) -> None:
        kind, cluster = self._kind, self._client.config.name
        crd = kind.resource.qualified
        if kind.optional:
            _log.error("%s: the API server does not serve it kind=%s cluster=%s", kind.optional, crd, cluster)
            return
        if not kind.framework:
            where = "the one of its project" if kind.on_demand else "crds/"
            _log.error("CustomResourceDefinition not installed, apply %s crd=%s cluster=%s", where, crd, cluster)
            return
        _log.warning(
            "framework waits for its CustomResourceDefinition framework=%s crd=%s cluster=%s",
            kind.framework,
            crd,
            cluster,
        )
        self._waiting(kind, True)

    async def _is_installed(self) -> bool:
        """Whether the server has the kind.

        If it does not answer, that is left to the informer's back-off; a kind that was removed remains so meanwhile.
        """
        try:
            await self._client.list_page(self._kind.resource, limit=1, metadata_only=True)
        except NotFound:
            return False
        except KubeError:
            return not self.removed
        return True
