# SPDX-License-Identifier: Apache-2.0
"""Telling the API server about the webhooks, and keeping it told.

Owns the two webhook configurations and the conversion stanza of the CRDs. Only the leader installs: by URL there is
one manager that can be asked. Promises that what stands right already is not written, and that a CRD which is not
there, or may not be changed, is one line and stops nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import anyio

from manager.webhooks.configurations import Hook, Reach, configurations, conversion_patch
from multikueue.api.crds import CONVERTED_KINDS
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, KUEUE_RESOURCES, Resource
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.patch import apply_unless_same, contains

_log = logging.getLogger(__name__)

MANAGER: Final = "kueue-webhook-installer"
CHECK_SECONDS: Final = 30.0
"""Applying crds/ again resets their conversion; this is how long v1beta1 may be unreadable then."""


class Installer:
    """Installs and re-installs; `reach` is asked each time, since its CA may have been rotated."""

    def __init__(
        self, client: KubeClient, *, hooks: Sequence[Hook], reach: Callable[[], Reach], excluded: Sequence[str]
    ) -> None:
        self._client = client
        self._hooks = hooks
        self._reach = reach
        self._excluded = excluded
        self._told: set[str] = set()
        self._nudged = anyio.Event()
        self.installed = anyio.Event()

    def nudge(self) -> None:
        """Install at once: the CA is another one, and connections fail until the API server knows it."""
        self._nudged.set()

    async def run(self) -> None:
        """Install now and look again from time to time, until cancelled."""
        while True:
            await self.install()
            self.installed.set()
            with anyio.move_on_after(CHECK_SECONDS):
                await self._nudged.wait()
            self._nudged = anyio.Event()

    async def install(self) -> None:
        """Bring everything to what it should be; what cannot be is logged once."""
        reach = self._reach()
        for resource in KUEUE_RESOURCES:
            if resource.kind in CONVERTED_KINDS:
                await self._try(resource.qualified, partial(self._convert, resource.qualified, reach))
        for resource, body in configurations(self._hooks, reach, excluded=self._excluded):
            await self._try(body["metadata"]["name"], partial(self._configure, resource, body))

    async def _try(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except KubeError as error:
            if name not in self._told:
                self._told.add(name)
                _log.error("webhooks: %s is not installed: %s; trying again each %.0f s", name, error, CHECK_SECONDS)
        else:
            self._told.discard(name)

    async def _convert(self, name: str, reach: Reach) -> None:
        try:
            current = await self._client.get_object(CUSTOM_RESOURCE_DEFINITIONS, name)
        except NotFound:
            return  # the caches tell of CRDs that are not installed
        wanted = conversion_patch(reach)
        if contains(current, _without_nulls(wanted)):
            return
        await self._client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, wanted, manager=MANAGER)
        _log.info("conversion of %s goes through this manager", name)

    async def _configure(self, resource: Resource, wanted: JsonObject) -> None:
        name = wanted["metadata"]["name"]
        try:
            current: JsonObject | None = await self._client.get_object(resource, name)
        except NotFound:
            current = None
        if await apply_unless_same(self._client, resource, wanted, current=current, manager=MANAGER) is not None:
            _log.info("%s %s installed", resource.kind, name)


def _without_nulls(value: JsonObject) -> JsonObject:
    return {
        name: _without_nulls(item) if isinstance(item, dict) else item
        for name, item in value.items()
        if item is not None
    }
