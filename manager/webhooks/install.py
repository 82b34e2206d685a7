# SPDX-License-Identifier: Apache-2.0
"""Installs the webhook configurations and the conversion stanza of the CRDs, and keeps them installed.

Only the leader installs: by URL only one manager can be reached. What is right already is not written; a CRD that is
missing, or may not be changed, is logged once and stops nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import anyio

from manager.webhooks.configurations import Hook, WebhookClientConfig, configurations, conversion_patch
from multikueue.api.crds import CONVERTED_KINDS
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, KUEUE_RESOURCES, Resource
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.patch import apply_unless_same, contains

_log = logging.getLogger(__name__)

MANAGER: Final = "kueue-webhook-installer"
CHECK_SECONDS: Final = 30.0
"""Applying crds/ again resets their conversion; this is how long v1beta1 may be unreadable then."""


class Installer:
    """Installs and re-installs; `client_config` is read each time, since its CA may have been rotated."""

    def __init__(
        self,
        client: KubeClient,
        *,
        hooks: Sequence[Hook],
        client_config: Callable[[], WebhookClientConfig],
        rotated: Callable[[], anyio.Event],
        excluded: Sequence[str],
        user: str = "",
    ) -> None:
        """`rotated` returns the event of the next rotation of the CA; `user` is the manager on the API server."""
        self._client = client
        self._hooks = hooks
        self._client_config = client_config
        self._rotated = rotated
        self._excluded = excluded
        self._user = user
        self._logged: set[str] = set()
        self.installed = anyio.Event()

    async def run(self) -> None:
        """Install now, after each rotation of the CA and periodically, until cancelled."""
        while True:
            rotated = self._rotated()  # a rotation while this installs must not be missed
            await self.install()
            self.installed.set()
            with anyio.move_on_after(CHECK_SECONDS):
                # Calls of the API server fail until it knows the new CA.
                await rotated.wait()

    async def install(self) -> None:
        """Install whatever is missing or differs; a failure is logged once."""
        target = self._client_config()
        for resource in KUEUE_RESOURCES:
            if resource.kind in CONVERTED_KINDS:
                await self._try(resource.qualified, partial(self._convert, resource.qualified, target))
        for resource, body in configurations(self._hooks, target, excluded=self._excluded, user=self._user):
            await self._try(body["metadata"]["name"], partial(self._configure, resource, body))

    async def _try(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except KubeError as error:
            if name not in self._logged:
                self._logged.add(name)
                _log.error("webhook not installed name=%s retry_after=%.0f error=%s", name, CHECK_SECONDS, error)
        else:
            self._logged.discard(name)

    async def _convert(self, name: str, target: WebhookClientConfig) -> None:
        try:
            current = await self._client.get_object(CUSTOM_RESOURCE_DEFINITIONS, name)
        except NotFound:
            return  # the caches report a missing CRD
        wanted = conversion_patch(target)
        if contains(current, _without_nulls(wanted)):
            return
        await self._client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, wanted, manager=MANAGER)
        _log.info("conversion webhook installed crd=%s", name)

    async def _configure(self, resource: Resource, wanted: JsonObject) -> None:
        name = wanted["metadata"]["name"]
        try:
            current: JsonObject | None = await self._client.get_object(resource, name)
        except NotFound:
            current = None
        if await apply_unless_same(self._client, resource, wanted, current=current, manager=MANAGER) is not None:
            _log.info("webhooks installed kind=%s name=%s", resource.kind, name)


def _without_nulls(value: JsonObject) -> JsonObject:
    return {
        name: _without_nulls(item) if isinstance(item, dict) else item
        for name, item in value.items()
        if item is not None
    }
