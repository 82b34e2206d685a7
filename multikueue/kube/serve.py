# SPDX-License-Identifier: Apache-2.0
"""The small HTTP servers of our processes: probes, metrics, webhooks.

Owns binding and an orderly end. Promises that a port in use is one clear error, that a certificate can be replaced
while the server runs (new connections get the new one), and that leaving the context closes every connection.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from multikueue.core.errors import BadInput, MultikueueError
from multikueue.kube.tls import load_client_certificate

_SHUTDOWN_SECONDS: Final = 2.0

Check = Callable[[], str | None]
"""What is wrong, or None."""


class PortInUse(MultikueueError):
    """Another process listens there."""


class ServingCertificate:
    """The TLS side of a server, whose certificate can be replaced while it runs."""

    def __init__(self, pem: bytes) -> None:
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.replace(pem)

    def replace(self, pem: bytes) -> None:
        """Serve this certificate and key (one PEM text) to new connections. Raises `BadInput`."""
        load_client_certificate(self.context, pem)


def parse_address(text: str) -> tuple[str, int]:
    """`:8080`, `127.0.0.1:8080` or `[::1]:8080` as host and port; port 0 picks a free one. Raises `BadInput`."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"{text!r} is not an address to listen on such as :8080 or 127.0.0.1:8080")
    return host.strip("[]"), int(port)


@asynccontextmanager
async def serving(
    app: web.Application, address: str, *, certificate: ServingCertificate | None = None
) -> AsyncIterator[int]:
    """Serve `app` while inside; gives the port. Raises `PortInUse`, and `BadInput` for an address that is none."""
    host, port = parse_address(address)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or None, port, ssl_context=certificate.context if certificate else None)
        try:
            await site.start()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(f"cannot listen on {address}: the port is in use; stop what listens there") from error
            raise MultikueueError(f"cannot listen on {address}: {error.strerror or error}") from error
        yield int(runner.addresses[0][1])
    finally:
        # Also when we are cancelled: else the port stays taken and connections stay open until the process ends.
        with anyio.CancelScope(shield=True):
            await runner.cleanup()


def add_probes(app: web.Application, *, live: Check, ready: Check) -> None:
    """`/healthz`, `/livez` and `/readyz`, answering 200 `ok` or 500 and what is wrong."""
    for path, check in (("/healthz", live), ("/livez", live), ("/readyz", ready)):
        app.router.add_get(path, _probe(check))


def add_metrics(app: web.Application, registry: CollectorRegistry) -> None:
    """`/metrics` in the Prometheus text format."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app.router.add_get("/metrics", metrics)


def _probe(check: Check) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        wrong = check()
        return web.Response(text=wrong or "ok", status=500 if wrong else 200)

    return answer
