# SPDX-License-Identifier: Apache-2.0
"""The shared informers of the manager: one per kind, for every reconciler, on leaders and followers alike.

Which kinds these are is in `indexes`. A kind whose CRD is not installed has an empty view that counts as
synced; the view of a kind that is followed on demand is empty until then. The objects of a job kind that is removed
from the server count as deleted, as `kind_removal` says. Promises that subscriptions end with `unsubscribe_all`, so
that a follower keeps its caches warm and calls no handler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

import anyio

from manager.cache.followed_kind import FollowedKind, KindFollowing
from manager.cache.views import Handler, View
from multikueue.api.meta import JsonObject
from multikueue.api.resource import (
    WORKLOADS,
    Resource,
)
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Informer
from multikueue.kube.errors import Forbidden, KubeError
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine

_log = logging.getLogger(__name__)

_VERIFY_SECONDS: Final = 10.0


class Caches:
    """One view per kind."""

    def __init__(
        self,
        client: KubeClient,
        kinds: Iterable[FollowedKind],
        *,
        clock: Clock,
        random: Random | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        self.quarantine = quarantine if quarantine is not None else Quarantine(clock=clock, random=random)
        self._client = client
        self._clock = clock
        self._random = random
        self._kinds = tuple(kinds)
        self._views = {
            kind.resource: View(
                kind.resource, clock=clock, quarantine=self.quarantine, has_spec=bool(kind.framework) or None
            )
            for kind in self._kinds
        }
        self.restored = anyio.Event()
        """Set when the management cluster turns out to have been restored from a backup."""
        self._report_framework: Callable[[FollowedKind, bool], None] | None = None
        self._removal_handlers: list[Callable[[Resource], None]] = []
        self._followings = {kind.resource: self._following(kind) for kind in self._kinds}

    def view(self, resource: Resource) -> View:
        """The view of a kind; an empty one for a kind that is not watched."""
        found = self._views.get(resource)
        if found is None:
            found = self._views[resource] = View(resource, clock=self._clock, quarantine=self.quarantine)
        return found

    def subscribe(self, resource: Resource, handler: Handler) -> None:
        """Call `handler` with each change of that kind until leadership ends, beginning with existing objects."""
        self.view(resource).subscribe(handler)

    async def replay(self, resource: Resource, handler: Handler, *, reader: str = "") -> None:
        """As `subscribe`, yielding to other tasks while many objects are replayed; `reader` names it in quarantines."""
        await self.view(resource).replay(handler, reader=reader)

    def unsubscribe_all(self) -> None:
        """End all subscriptions."""
        self._removal_handlers.clear()
        for view in self._views.values():
            view.unsubscribe_all()

    def report_frameworks(self, report: Callable[[FollowedKind, bool], None] | None) -> None:
        """Call `report` with each framework that waits for its CRD, now and later, and again when it has started."""
        self._report_framework = report
        if report is None:
            return
        for kind in self._kinds:
            following = self._followings[kind.resource]
            if kind.framework and following.settled.is_set() and not following.installed:
                report(kind, True)

    def subscribe_removals(self, handler: Callable[[Resource], None]) -> None:
        """Call `handler` with each job kind that is removed from the server, until leadership ends."""
        self._removal_handlers.append(handler)

    def is_removed(self, resource: Resource) -> bool:
        """Whether the server removed that job kind with all of its objects; False while this is not certain."""
        following = self._followings.get(resource)
        return following is not None and following.removed

    @property
    def has_removed_kinds(self) -> bool:
        """Whether `is_removed` holds for any kind."""
        return any(following.removed for following in self._followings.values())

    def informer(self, resource: Resource) -> Informer | None:
        """The informer of a kind; None while its CRD is not installed."""
        following = self._followings.get(resource)
        return following.informer if following is not None and following.installed else None

    def demand(self, resource: Resource) -> bool:
        """Follow a kind that is followed on demand; whether its first list is complete."""
        following = self._followings.get(resource)
        if following is None:
            return False
        following.demanded.set()
        return following.installed and following.informer.synced.is_set()

    def is_known(self, resource: Resource) -> bool:
        """Follow a kind that is followed on demand; whether its view has all objects that can be read.

        Also of a kind that is not installed, or may not be listed.
        """
        following = self._followings.get(resource)
        if following is None or self.demand(resource):
            return True
        return following.missing or isinstance(following.informer.last_error, Forbidden)

    def workload(self, key: Key) -> JsonObject | None:
        """The newest Workload of that key."""
        return self.view(WORKLOADS).object(key)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Kinds whose first list has not come yet."""
        return tuple(kind.qualified for kind, each in self._followings.items() if not each.settled.is_set())

    async def synced(self) -> None:
        """Wait until every kind was listed once, or is known not to be installed."""
        for following in self._followings.values():
            if not following.settled.is_set():  # waiting for a set event still lets all other tasks run
                await following.settled.wait()

    async def run(self) -> None:
        """Follow all kinds until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.quarantine.run, name="quarantine")
            for resource, following in self._followings.items():
                tasks.start_soon(following.run, name=f"informer-{resource.plural}")
            tasks.start_soon(self._verify_writes, name="verify-writes")

    async def _verify_writes(self) -> None:
        """Find objects that were deleted while no watch ran, right after a write of ours: no event tells of them."""
        while True:
            await anyio.sleep(_VERIFY_SECONDS)
            for resource, view in self._views.items():
                try:
                    await view.verify_writes(self._client)
                except KubeError as error:
                    _log.debug("cannot verify writes resource=%s error=%s", resource.qualified, error)

    def _following(self, kind: FollowedKind) -> KindFollowing:
        informer = Informer(
            self._client,
            kind.resource,
            namespace=kind.namespace,
            field_selector=kind.field_selector,
            label_selector=kind.label_selector,
            indexers=kind.indexers,
            shrink=kind.shrink,
            clock=self._clock,
            random=self._random,
            quarantine=self.quarantine,
            on_restored=self.restored.set,
        )
        self._views[kind.resource].follow(informer)
        return KindFollowing(self._client, kind, informer, waiting=self._framework_waits, removed=self._kind_removed)

    def _framework_waits(self, kind: FollowedKind, waits: bool) -> None:
        if self._report_framework is not None:
            self._report_framework(kind, waits)

    def _kind_removed(self, kind: FollowedKind) -> None:
        view = self._views[kind.resource]
        written = view.keys()  # by this process, and not seen by the informer, which has dropped all others
        for key in written:
            view.on_not_found(key)
        for handler in self._removal_handlers:
            handler(kind.resource)
