# SPDX-License-Identifier: Apache-2.0
"""Where and for whom the manager serves /metrics: flags, Configuration, and certificate files that are reloaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from manager.options import DISABLED, ManagerOptions
from manager.webhooks.certificate_files import CertificateFiles
from multikueue.api.configuration import Configuration
from multikueue.core.errors import BadInput
from multikueue.kube.serving.serve import ServingCertificate, TlsOptions

METRICS_SERVICE: Final = "kueue-controller-manager-metrics-service"
PATH: Final = "/metrics"
_PLAIN_ADDRESS: Final = ":8080"
_SECURE_ADDRESS: Final = ":8443"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsServing:
    """How /metrics is served."""

    address: str
    secure: bool = False
    certificate_folder: str = ""
    """Holds `tls.crt` and `tls.key`; empty for the certificate of the webhooks."""
    authorized: bool = False

    @classmethod
    def of(cls, options: ManagerOptions, configuration: Configuration) -> MetricsServing:
        """The settings of flags and Configuration together. Raises `BadInput` for a contradiction."""
        settings = configuration.metrics
        secure = settings.secure_serving if options.metrics_secure is None else options.metrics_secure
        authorized = settings.authorization if options.metrics_authorization is None else options.metrics_authorization
        folder = settings.cert_dir if options.metrics_cert_dir is None else options.metrics_cert_dir
        # Kueue's own default is :8443 with TLS; guides for Kueue use plain :8080 (docs/operations/metrics.md).
        default = _SECURE_ADDRESS if secure else _PLAIN_ADDRESS
        configured = settings.bind_address if "bind_address" in settings.model_fields_set else default
        made = cls(
            address=options.metrics_bind or configured,
            secure=secure,
            certificate_folder=folder,
            authorized=authorized,
        )
        if made.address == DISABLED:
            return made
        if authorized and not secure:
            raise BadInput("metrics.authorization needs metrics.secureServing: tokens would be sent in the clear")
        if folder and not secure:
            raise BadInput("metrics.certDir needs metrics.secureServing")
        if made.shares_certificate and not options.webhooks:
            raise BadInput("metrics.secureServing needs metrics.certDir where webhooks are off")
        return made

    @property
    def shares_certificate(self) -> bool:
        """Whether the certificate of the webhooks is served."""
        return self.secure and not self.certificate_folder


@asynccontextmanager
async def certificate_of(folder: str, *, tls: TlsOptions | None = None) -> AsyncIterator[ServingCertificate]:
    """The certificate in `folder` while inside, reloaded each minute. Raises `BadInput` when it cannot be used."""
    files = CertificateFiles(Path(folder), setting="metrics.certDir")
    bundle = await files.ensure()
    certificate = ServingCertificate(bundle.pem, tls=tls)
    follow = files.follow(lambda found: certificate.replace(found.pem), current=bundle)
    task = asyncio.get_running_loop().create_task(follow, name="metrics-certificate")
    try:
        yield certificate
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
