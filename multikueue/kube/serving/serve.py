# SPDX-License-Identifier: Apache-2.0
"""The HTTP servers of our processes: probes, metrics, webhooks.

A port in use is `PortInUse`; a certificate can be replaced while the server runs, for new connections; leaving the
context closes every connection. What clients may use is limited by `kube.serving.limits`.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from multikueue.api.configuration import Tls
from multikueue.api.tls_names import CIPHER_SUITES, TLS_VERSIONS
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.kube.rest.tls import load_client_certificate
from multikueue.kube.serving.limits import ConnectionGuard, GuardedSite, ServingLimits, guarding
from multikueue.kube.serving.page_access import PageAccess

_SHUTDOWN_SECONDS: Final = 2.0

Check = Callable[[], str | None]
"""The problem, or None."""


class PortInUse(MultikueueError):
    """Another process listens on the port."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """What a server accepts of TLS; the defaults are those of Python."""

    minimum: ssl.TLSVersion | None = None
    ciphers: str = ""
    """Up to TLS 1.2, by OpenSSL's names, separated by colons."""

    @classmethod
    def of(cls, settings: Tls | None) -> TlsOptions:
        """From a valid Configuration."""
        if settings is None:
            return cls()
        chosen = dict.fromkeys(CIPHER_SUITES[name] for name in settings.cipher_suites if name in CIPHER_SUITES)
        only_newest = bool(settings.cipher_suites) and not chosen  # no suite of TLS 1.2 is left
        version = "TLSv1_3" if only_newest else TLS_VERSIONS.get(settings.min_version)
        return cls(ssl.TLSVersion[version] if version else None, ":".join(chosen))

    def apply(self, context: ssl.SSLContext) -> None:
        """Set them in `context`."""
        if self.minimum is not None:
            context.minimum_version = self.minimum
        if self.ciphers:
            context.set_ciphers(self.ciphers)


class ServingCertificate:
    """The certificate of a server, and whose clients' certificates it accepts; both can be replaced while it runs."""

    def __init__(self, pem: bytes, *, tls: TlsOptions | None = None, asks_clients: bool = False) -> None:
        """With `asks_clients` a client may show a certificate, which has to be signed by one of `authorities`."""
        self._pem = pem
        self._tls = tls or TlsOptions()
        self._authorities = ""
        self._asks_clients = asks_clients
        self.context = self._current = self._made()
        # A context cannot forget an authority, so that each connection gets the newest context in its handshake.
        self.context.sni_callback = self._choose

    def replace(self, pem: bytes) -> None:
        """Use this certificate and key (one PEM text) for new connections. Raises `BadInput`."""
        before, self._pem = self._pem, pem
        try:
            self._current = self._made()
        except BadInput:
            self._pem = before
            raise

    def trust(self, authorities: str) -> None:
        """Accept certificates of clients that these sign (PEM) and no others, for new connections."""
        self._authorities = authorities
        self._current = self._made()

    def _made(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        load_client_certificate(context, self._pem)
        self._tls.apply(context)
        if self._asks_clients:
            context.verify_mode = ssl.CERT_OPTIONAL
        if self._authorities:
            context.load_verify_locations(cadata=self._authorities)
        return context

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current


def parse_address(text: str) -> tuple[str, int]:
    """`:8080`, `127.0.0.1:8080` or `[::1]:8080` as host and port; port 0 picks a free one. Raises `BadInput`."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"{text!r} is not an address to listen on such as :8080 or 127.0.0.1:8080")
    return host.strip("[]"), int(port)


@asynccontextmanager
async def serving(
    app: web.Application,
    address: str,
    *,
    certificate: ServingCertificate | None = None,
    limits: ServingLimits | None = None,
) -> AsyncIterator[int]:
    """Serve `app` inside the context; yields the port. Raises `PortInUse`, and `BadInput` for a malformed address.

    `limits` are the defaults of `ServingLimits` unless given. A handler is cancelled when its client disconnects.
    """
    host, port = parse_address(address)
    guard = ConnectionGuard(limits or ServingLimits())
    app.middlewares.insert(0, guarding(guard))
    runner = web.AppRunner(
        app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, handle_signals=False, handler_cancellation=True
    )
    await runner.setup()
    try:
        context = certificate.context if certificate else None
        site = GuardedSite(runner, guard, host=host or None, port=port, context=context)
        try:
            await site.start()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(f"cannot listen on {address}: the port is in use; stop what listens there") from error
            raise MultikueueError(f"cannot listen on {address}: {error.strerror or error}") from error
        yield int(runner.addresses[0][1])
    finally:
        # Shielded: otherwise a cancelled server would keep its port and connections until the process ends.
        with anyio.CancelScope(shield=True):
            await runner.cleanup()
            guard.abort_all()


def add_probes(app: web.Application, *, live: Check, ready: Check, also: Mapping[str, Check] | None = None) -> None:
    """Add `/healthz`, `/livez` and `/readyz`, which answer 200 `ok` or 500 with the problem; `also` has other paths."""
    for path, check in {**(also or {}), "/healthz": live, "/livez": live, "/readyz": ready}.items():
        app.router.add_get(path, _probe(check))


def add_metrics(app: web.Application, registry: Collector, *, access: PageAccess | None = None) -> None:
    """Add `/metrics` in the Prometheus text format, for all users or those that `access` allows."""

    async def metrics(request: web.Request) -> web.Response:
        refused = None if access is None else await access.refusal(request)
        if refused is not None:
            return refused.response()
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app.router.add_get("/metrics", metrics)


def _probe(check: Check) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        problem = check()
        return web.Response(text=problem or "ok", status=500 if problem else 200)

    return answer
