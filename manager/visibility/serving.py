# SPDX-License-Identifier: Apache-2.0
"""The visibility API of one replica: where it is served, by which certificate, and how the API server reaches it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from manager.context import ManagerContext
from manager.options import DISABLED, ManagerOptions
from manager.visibility.api import VisibilityApi
from manager.visibility.engines import QueueEngines
from manager.visibility.install import SERVICE, ServiceTarget, VisibilityRegistration
from manager.visibility.pending import PendingWorkloads
from manager.visibility.server import LIMITS, application
from manager.webhooks.certificates import Bundle
from multikueue.api.configuration import Configuration
from multikueue.core.errors import BadInput
from multikueue.engine.settings import Settings
from multikueue.kube.serving.front_proxy import TrustedProxies, TrustedProxy
from multikueue.kube.serving.reviews import UserReviews
from multikueue.kube.serving.serve import ServingCertificate, TlsOptions, serving

GATE: Final = "VisibilityOnDemand"


@dataclass(frozen=True, slots=True)
class VisibilityAddress:
    """Where it is served, and where the API server finds it."""

    bind: str
    namespace: str
    host: str = ""
    """The host of a manager outside the cluster."""
    port: int = 0
    """The port there; 0: the one that is listened on."""

    @classmethod
    def of(cls, options: ManagerOptions, configuration: Configuration, *, namespace: str) -> VisibilityAddress | None:
        """Options before the Configuration; None if it is off. Raises `BadInput`."""
        bind = options.visibility_bind
        settings = configuration.visibility_server
        if bind == DISABLED or not configuration.gate(GATE) or (bind is None and not options.webhooks):
            return None
        if not options.webhooks:
            raise BadInput("--visibility-bind needs the webhooks, whose certificate is served")
        address = bind or f"{settings.bind_address}:{settings.bind_port}"
        url = options.visibility_url or ""
        if not url:
            return cls(address, namespace, host=urlsplit(options.webhook_url or "").hostname or "")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:  # an unbalanced bracket, or a port above 65535
            host, port = None, None
        if host is None or not port or parts.scheme != "https":
            raise BadInput(f"--visibility-url: {url!r} is not a URL such as https://127.0.0.1:8082")
        return cls(address, namespace, host=host, port=port)

    @property
    def hosts(self) -> list[str]:
        """The names that a certificate needs."""
        return [f"{SERVICE}.{self.namespace}.svc"]


@dataclass(slots=True)
class VisibilityServing:
    """The served API."""

    address: VisibilityAddress
    engines: QueueEngines
    proxies: TrustedProxies
    certificate: ServingCertificate
    port: int = 0

    def registration(self, context: ManagerContext, *, ca_bundle: Callable[[], str]) -> VisibilityRegistration:
        """What keeps it registered on the API server while this replica leads."""
        target = ServiceTarget(namespace=self.address.namespace)
        if self.address.host:
            port = self.address.port or self.port
            target = ServiceTarget(namespace=self.address.namespace, host=self.address.host, port=port)
        return VisibilityRegistration(context.client, target, ca_bundle=ca_bundle)


@asynccontextmanager
async def serving_visibility(
    context: ManagerContext, address: VisibilityAddress, *, bundle: Bundle, tls: TlsOptions, settings: Settings
) -> AsyncIterator[VisibilityServing]:
    """Serve it inside the context. Raises `PortInUse`, and `BadInput` for a malformed address."""
    certificate = ServingCertificate(bundle.pem, tls=tls, asks_clients=True)
    engines = QueueEngines(context, settings=settings)
    reviews = UserReviews(context.client, clock=context.clock)

    def changed(proxy: TrustedProxy) -> None:
        certificate.trust(proxy.authorities)

    proxies = TrustedProxies(context.client, changed=changed)
    pending = PendingWorkloads(context.caches, engines, clock=context.clock)
    app = application(VisibilityApi(pending, reviews), proxies=proxies, reviews=reviews)
    async with serving(app, address.bind, certificate=certificate, limits=LIMITS) as port:
        yield VisibilityServing(address, engines, proxies, certificate, port)
