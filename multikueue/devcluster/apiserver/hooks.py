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

import aiohttp

from multikueue.devcluster.apiserver import documents, objects
from multikueue.devcluster.apiserver.documents import JsonObject


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
        """The webhook's answer. Raises `HookFailed`."""
        url = self._url(config)
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
                body = await answer.read()
                if answer.status != 200:
                    raise HookFailed(f"the server responded with status {answer.status}")
            found = documents.load(body)
        except TimeoutError as error:
            raise HookFailed(f'Post "{url}?timeout={seconds:g}s": context deadline exceeded') from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise HookFailed(f'Post "{url}?timeout={seconds:g}s": {error}') from error
        if not isinstance(found, dict):
            raise HookFailed("the answer is no object")
        return found

    async def close(self) -> None:
        """Give back the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await asyncio.sleep(0)  # closed transports give their sockets back one turn later

    def _url(self, config: JsonObject) -> str:
        url = config.get("url")
        if isinstance(url, str):
            return url
        service = documents.child(config, "service")
        name = f"{service.get('namespace', '')}/{service.get('name', '')}"
        address = self.services.get(name)
        if address is None:
            raise HookFailed(f'service "{service.get("name", "")}" not found')
        path = str(service.get("path") or "/")
        return f"https://{address}/{path.lstrip('/')}"

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
