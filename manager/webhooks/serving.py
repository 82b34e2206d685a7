# SPDX-License-Identifier: Apache-2.0
"""The webhooks of one replica: where they are served and as whom, their certificate, and what installs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import anyio

from manager.options import ManagerOptions
from manager.webhooks.certificate_files import CertificateFiles
from manager.webhooks.certificates import Bundle
from manager.webhooks.configurations import WebhookClientConfig
from manager.webhooks.handlers import Handlers
from manager.webhooks.install import Installer
from manager.webhooks.rotation import SharedBundle
from multikueue.api.configuration import Configuration
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.serving.serve import ServingCertificate

_HTTPS_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    """How the API server reaches the webhooks: a Service of the manager's namespace, or a URL without one."""

    namespace: str
    service: str
    url: str = ""
    bind: str = ""
    """`host:port` to listen on."""

    @classmethod
    def of(cls, options: ManagerOptions, configuration: Configuration, *, namespace: str) -> WebhookAddress:
        """Options before the Configuration. Raises `BadInput` for a URL that is not https."""
        url, webhook = options.webhook_url or "", configuration.webhook
        at = _host_and_port(url) if url else f"{webhook.host}:{webhook.port}"
        return cls(
            namespace=namespace,
            service=options.webhook_service or configuration.internal_cert_management.webhook_service_name,
            url=url,
            bind=options.webhook_bind or at,
        )

    @property
    def hosts(self) -> list[str]:
        """The names that a certificate needs."""
        of_service = [f"{self.service}.{self.namespace}.svc", f"{self.service}.{self.namespace}.svc.cluster.local"]
        host = urlsplit(self.url).hostname
        return [*of_service, host] if host else of_service

    def client_config(self, ca_bundle: str) -> WebhookClientConfig:
        """What webhook configurations say about it."""
        return WebhookClientConfig(ca_bundle=ca_bundle, url=self.url, service=self.service, namespace=self.namespace)


class CertificateSource(Protocol):
    """Where the certificate comes from: a Secret that all replicas share, or files."""

    @property
    def is_own(self) -> bool:
        """Whether the manager issues it: the names in another one, and who registers what it serves, are not known."""

    async def ensure(self) -> Bundle:
        """The certificate now. Raises `KubeError` or `BadInput`."""

    async def follow(self, changed: Callable[[Bundle], None], *, current: Bundle) -> None:
        """Call `changed` with each new one, until cancelled."""


@dataclass(slots=True)
class WebhookServing:
    """The served webhooks, whose certificate may be replaced while they run."""

    address: WebhookAddress
    source: CertificateSource
    certificate: ServingCertificate
    bundle: Bundle
    handlers: Handlers
    user: str
    """The manager on the API server; empty if unknown."""
    also: ServingCertificate | None = None
    """The certificate of the visibility API, which has the same content."""
    _rotated: anyio.Event = field(default_factory=anyio.Event)

    async def follow_certificate(self) -> None:
        """Serve each new certificate of the source, until cancelled."""
        await self.source.follow(self._replace, current=self.bundle)

    def installer(self, client: KubeClient, *, excluded: Sequence[str]) -> Installer:
        """What keeps the configurations installed while this replica leads, but not for `excluded` namespaces."""
        return Installer(
            client,
            hooks=self.handlers.hooks,
            client_config=lambda: self.address.client_config(self.bundle.ca_bundle),
            rotated=lambda: self._rotated,
            excluded=excluded,
            user=self.user,
        )

    def _replace(self, bundle: Bundle) -> None:
        for certificate in filter(None, (self.certificate, self.also)):
            certificate.replace(bundle.pem)
        self.bundle = bundle
        self._rotated.set()
        self._rotated = anyio.Event()


def certificate_source(
    configuration: Configuration, client: KubeClient, *, namespace: str, hosts: Sequence[str], clock: Clock
) -> CertificateSource:
    """The certificate of all servers of the manager, by `internalCertManagement`."""
    management = configuration.internal_cert_management
    if not management.enable:
        return CertificateFiles(Path(configuration.webhook.cert_dir), setting="webhook.certDir")
    return SharedBundle(client, namespace=namespace, name=management.webhook_secret_name, hosts=hosts, clock=clock)


def _host_and_port(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _HTTPS_PORT
    except ValueError:  # an unbalanced bracket, or a port above 65535
        host, port = None, 0
    if host is None or parts.scheme != "https":
        raise BadInput(f"--webhook-url: {url!r} is not a URL such as https://127.0.0.1:9443")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
