# SPDX-License-Identifier: Apache-2.0
"""Calls to webhooks.

Owns the HTTP client, the trust in a webhook's CA, and where a service's webhooks are reached: a devcluster has no
network of services, so a map from `namespace/name` to an address takes the place of one.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from base64 import b64decode
from collections.abc import Mapping
from typing import Final

import aiohttp

from multikueue.devcluster.apiserver import documents, objects
from multikueue.devcluster.apiserver.documents import JsonObject

_UNREADABLE: Final = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { "
    'APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


class HookFailed(Exception):
    """A webhook could not be asked, or answered nonsense."""


class Hooks:
    """Asks webhooks."""

    def __init__(self, *, rng: random.Random, services: Mapping[str, str] | None = None) -> None:
        self._rng = rng
        self.services = dict(services or {})
        """`namespace/name` to `host:port`."""
        self._session: aiohttp.ClientSession | None = None
        self._trust: dict[str, ssl.SSLContext] = {}

    def new_uid(self) -> str:
        """An identity for a review."""
        return objects.new_uid(self._rng)

    async def call(self, config: JsonObject, review: JsonObject, *, seconds: float) -> JsonObject:
        """The webhook's answer. Raises `HookFailed`, whose text begins as a real server's does."""
        try:
            return await self._call(config, review, seconds)
        except HookFailed as error:
            raise HookFailed(f"failed to call webhook: {error}") from error

    async def _call(self, config: JsonObject, review: JsonObject, seconds: float) -> JsonObject:
        shown, url = self._url(config)
        post = f'Post "{shown}{"&" if "?" in shown else "?"}timeout={seconds:g}s"'
        if not url:
            raise HookFailed(f'{post}: service "{documents.child(config, "service").get("name", "")}" not found')
        if self._session is None:
            # Proxies of the environment are not for webhooks on this machine.
            self._session = aiohttp.ClientSession(trust_env=False)
        try:
            async with self._session.post(
                f"{url}{'&' if '?' in url else '?'}timeout={seconds:g}s",
                data=documents.dump(review),
                headers={"Content-Type": "application/json"},
                ssl=self._context(config.get("caBundle", "")),
                timeout=aiohttp.ClientTimeout(total=seconds),
            ) as answer:
                body, status = await answer.read(), answer.status
        except TimeoutError as error:
            raise HookFailed(f"{post}: context deadline exceeded") from error
        except aiohttp.ClientConnectorError as error:
            raise HookFailed(f"{post}: {_connecting(error)}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise HookFailed(f"{post}: {error}") from error
        if status == 404:
            raise HookFailed("the server could not find the requested resource")
        if status >= 500:
            text = body.decode("utf-8", "replace")
            raise HookFailed(f'an error on the server ("{text}") has prevented the request from succeeding')
        if status != 200:
            raise HookFailed(f"the server responded with the status code {status}")
        try:
            found = documents.load(body)
        except ValueError as error:
            raise HookFailed(_UNREADABLE) from error
        if not isinstance(found, dict):
            raise HookFailed(_UNREADABLE)
        return found

    async def close(self) -> None:
        """Give back the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await asyncio.sleep(0)  # closed transports give their sockets back one turn later

    def _url(self, config: JsonObject) -> tuple[str, str]:
        """The address as it is written, and the one to ask; the second is empty for a service nobody knows."""
        url = config.get("url")
        if isinstance(url, str):
            return url, url
        service = documents.child(config, "service")
        name, namespace = service.get("name", ""), service.get("namespace", "")
        path = str(service.get("path") or "/")
        shown = f"https://{name}.{namespace}.svc:{service.get('port', 443)}/{path.lstrip('/')}"
        address = self.services.get(f"{namespace}/{name}")
        return shown, f"https://{address}/{path.lstrip('/')}" if address else ""

    def _context(self, bundle: str) -> ssl.SSLContext:
        found = self._trust.get(bundle)
        if found is None:
            found = (
                ssl.create_default_context(cadata=b64decode(bundle).decode())
                if bundle
                else ssl.create_default_context()
            )
            if bundle:
                found.check_hostname = False  # an address stands for the service that the certificate names
            self._trust[bundle] = found
        return found


def _connecting(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error.os_error, ConnectionRefusedError):
        return f"dial tcp {error.host}:{error.port}: connect: connection refused"
    return str(error)
