# SPDX-License-Identifier: Apache-2.0
"""Calls to webhooks: the HTTP client, the trust in a webhook's CA, and the address of a Service's webhook."""

from __future__ import annotations

import asyncio
import random
import ssl
from base64 import b64decode
from typing import Final

import aiohttp

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.registry import objects
from devcluster.apiserver.service_addresses import ServiceAddresses, Unavailable
from multikueue.core.certificate_trust import client_context

_UNREADABLE: Final = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { "
    'APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


class HookFailed(Exception):
    """A webhook could not be called, or its answer is invalid."""


class Hooks:
    """Calls webhooks."""

    def __init__(self, *, rng: random.Random, addresses: ServiceAddresses | None = None) -> None:
        """Without `addresses`, only webhooks with a URL can be called."""
        self._rng = rng
        self._addresses = addresses
        self._session: aiohttp.ClientSession | None = None
        self._trust: dict[tuple[str, bool], ssl.SSLContext] = {}

    def new_uid(self) -> str:
        """A UID for a review."""
        return objects.new_uid(self._rng)

    async def call(self, config: JsonObject, review: JsonObject, *, seconds: float) -> JsonObject:
        """The webhook's answer. Raises `HookFailed` with a real server's text."""
        try:
            return await self._call(config, review, seconds)
        except HookFailed as error:
            raise HookFailed(f"failed to call webhook: {error}") from error

    async def _call(self, config: JsonObject, review: JsonObject, seconds: float) -> JsonObject:
        shown, url, server_name = self._url(config)
        post = f'Post "{shown}{"&" if "?" in shown else "?"}timeout={seconds:g}s"'
        if not url:
            try:
                url, server_name = self._resolved(config)
            except Unavailable as error:
                name = documents.child(config, "service").get("name", "")
                why = f'service "{name}" not found' if error.reason == "ServiceNotFound" else str(error)
                raise HookFailed(f"{post}: {why}") from error
        if self._session is None:
            # Proxies from the environment are not used for webhooks on this machine.
            self._session = aiohttp.ClientSession(trust_env=False)
        address = f"{url}{'&' if '?' in url else '?'}timeout={seconds:g}s"
        trust = self._context(config.get("caBundle", ""), named=bool(server_name))
        text = documents.dump(review)
        try:
            async with asyncio.timeout(seconds):
                try:
                    status, body = await _post(self._session, address, text, trust, server_name)
                except aiohttp.ClientConnectorError:
                    raise
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                    # A kept connection may close just as it is used again, as when the webhook's process is
                    # replaced; a real server retries once, too.
                    async with aiohttp.ClientSession(trust_env=False) as fresh:
                        status, body = await _post(fresh, address, text, trust, server_name)
        except TimeoutError as error:
            raise HookFailed(f"{post}: context deadline exceeded") from error
        except aiohttp.ClientConnectorError as error:
            raise HookFailed(f"{post}: {_connecting(error)}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise HookFailed(f"{post}: {error}") from error
        if status == 404:
            raise HookFailed("the server could not find the requested resource")
        if status >= 500:
            shown_body = body.decode("utf-8", "replace")
            raise HookFailed(f'an error on the server ("{shown_body}") has prevented the request from succeeding')
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
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await asyncio.sleep(0)  # closed transports release their sockets one turn later

    def _url(self, config: JsonObject) -> tuple[str, str, str]:
        """The address as configured, the one to call, and the name that its certificate must have.

        The second is empty for a Service that is not in the map, the third if the address has the name.
        """
        url = config.get("url")
        if isinstance(url, str):
            return url, url, ""
        service = documents.child(config, "service")
        name, namespace = service.get("name", ""), service.get("namespace", "")
        shown = f"https://{name}.{namespace}.svc:{service.get('port', 443)}/{_path(service)}"
        address = self._addresses.services.get(f"{namespace}/{name}") if self._addresses is not None else ""
        return shown, f"https://{address}/{_path(service)}" if address else "", ""

    def _resolved(self, config: JsonObject) -> tuple[str, str]:
        """The address of the process behind a Service, and the name that its certificate must have."""
        service = documents.child(config, "service")
        name, namespace = service.get("name", ""), service.get("namespace", "")
        if self._addresses is None:
            raise Unavailable("ServiceNotFound", f"service {name} is not present")
        host, port = self._addresses.find(namespace, name, service.get("port", 443))
        return f"https://{f'[{host}]' if ':' in host else host}:{port}/{_path(service)}", f"{name}.{namespace}.svc"

    def _context(self, bundle: str, *, named: bool) -> ssl.SSLContext:
        key = (bundle, named)
        found = self._trust.get(key)
        if found is None:
            found = client_context(b64decode(bundle).decode() if bundle else None)
            if bundle and not named:
                found.check_hostname = False  # the certificate names the Service, not the address
            self._trust[key] = found
        return found


async def _post(
    session: aiohttp.ClientSession, address: str, text: bytes, trust: ssl.SSLContext, server_name: str
) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json"}
    timeout = aiohttp.ClientTimeout(total=None)  # the caller has a timeout for all attempts
    async with session.post(
        address, data=text, headers=headers, ssl=trust, server_hostname=server_name or None, timeout=timeout
    ) as answer:
        return answer.status, await answer.read()


def _path(service: JsonObject) -> str:
    return str(service.get("path") or "/").lstrip("/")


def _connecting(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error.os_error, ConnectionRefusedError):
        return f"dial tcp {error.host}:{error.port}: connect: connection refused"
    return str(error)
