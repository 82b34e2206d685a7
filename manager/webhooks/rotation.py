# SPDX-License-Identifier: Apache-2.0
"""The certificates of the webhooks, shared by all replicas through one Secret.

Replicas agree, as the first writer of the Secret wins; a serving server gets a new certificate without a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

import anyio

from manager.webhooks.certificates import Bundle, renewed
from multikueue.api.meta import JsonObject
from multikueue.api.resource import NAMESPACES, SECRETS
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.errors import AlreadyExists, Conflict, Details, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 10
CHECK_SECONDS: Final = 60.0
"""How often the bundle is checked; also the time after which a replica serves what another one renewed."""


class SharedBundle:
    """One bundle in one Secret."""

    is_own: Final = True

    def __init__(self, client: KubeClient, *, namespace: str, name: str, hosts: Iterable[str], clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._hosts = frozenset(hosts)
        self._clock = clock

    async def ensure(self) -> Bundle:
        """The bundle in the Secret now, created or renewed if needed. Raises `KubeError`."""
        for _ in range(_ATTEMPTS):
            secret = await self._read()
            old = None if secret is None else Bundle.of_secret(secret.get("data") or {})
            new = renewed(old, hosts=self._hosts, now=self._clock.now())
            if new == old:
                return new
            if await self._write(secret, new):
                _log.info("webhook certificate rotated secret=%s", Key(self._namespace, self._name))
                return new
        raise Conflict(
            request=f"{self._client.config.name}: Secret {self._namespace}/{self._name}",
            status=409,
            reason="Conflict",
            message="other replicas kept changing the webhook certificate",
            details=Details(),
        )

    async def follow(self, changed: Callable[[Bundle], None], *, current: Bundle) -> None:
        """Renew in time and call `changed` with each new bundle, until cancelled."""
        while True:
            await anyio.sleep(CHECK_SECONDS)
            try:
                found = await self.ensure()
            except KubeError as error:
                _log.warning("webhook certificate not checked error=%s", error)
                continue
            if found != current:
                current = found
                changed(found)

    async def _read(self) -> JsonObject | None:
        try:
            return await self._client.get_object(SECRETS, self._name, namespace=self._namespace)
        except NotFound:
            return None

    async def _write(self, secret: JsonObject | None, bundle: Bundle) -> bool:
        """False when another client has written meanwhile."""
        body: JsonObject = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "type": "Opaque",
            "data": bundle.secret_data(),
        }
        try:
            if secret is None:
                await self._client.create(SECRETS, body, namespace=self._namespace)
            else:
                # The type of a Secret is immutable: one that a chart has created empty keeps its type.
                body = {**secret, "data": {**(secret.get("data") or {}), **bundle.secret_data()}}
                await self._client.replace(SECRETS, self._name, body, namespace=self._namespace)
        except (AlreadyExists, Conflict):
            return False
        return True


async def ensure_namespace(client: KubeClient, name: str) -> None:
    """Create the manager's namespace unless it exists."""
    try:
        await client.get(NAMESPACES, name)
    except NotFound:
        body: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        try:
            await client.create(NAMESPACES, body)
        except AlreadyExists:
            return
        _log.info("namespace created name=%s", name)
