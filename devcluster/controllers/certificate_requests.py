# SPDX-License-Identifier: Apache-2.0
"""Signs approved CertificateSigningRequests. Approval is not part of this controller."""

from __future__ import annotations

import base64
from typing import Final

from devcluster.controllers.caches import BACKOFF
from devcluster.controllers.request_signing import SIGNERS, RequestSigner
from devcluster.pki import Authority
from multikueue.api.objects import JsonObject
from multikueue.api.resource import CERTIFICATE_SIGNING_REQUESTS
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.kube.cache.informer import Informer
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

_REASON: Final = "SignerValidationFailure"


def needs_signature(request: JsonObject) -> bool:
    """Whether the request is approved, and neither signed nor failed."""
    status = request.get("status") or {}
    true = {entry["type"] for entry in status.get("conditions") or () if entry.get("status", "True") == "True"}
    return (
        request["spec"]["signerName"] in SIGNERS
        and "Approved" in true
        and not (true & {"Denied", "Failed"} or status.get("certificate"))
    )


class CertificateRequests:
    """The signing controller of one cluster."""

    def __init__(self, client: KubeClient, *, authority: Authority, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._signer = RequestSigner(authority.pair)
        self._requests = Informer(client, CERTIFICATE_SIGNING_REQUESTS, clock=clock, backoff=BACKOFF)
        self._controller: Controller[Key] = Controller(
            "certificate-requests", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        self._requests.add_handler(lambda change: self._controller.enqueue(change.key))

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The informers that only this controller uses."""
        return (self._requests,)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Sign one request, or set its condition Failed with the reason."""
        request = self._requests.store.object(key)
        if request is None or not needs_signature(request):
            return None
        now = self._clock.now()
        try:
            certificate = self._signer.sign(request["spec"], now=now)
        except BadInput as error:
            stamp = format_time(now)
            failure = {
                "type": "Failed",
                "status": "True",
                "reason": _REASON,
                "message": str(error),
                "lastUpdateTime": stamp,
                "lastTransitionTime": stamp,
            }
            status: JsonObject = {"conditions": [*request["status"]["conditions"], failure]}
        else:
            status = {"certificate": base64.b64encode(certificate).decode()}
        try:
            await self._client.patch(
                CERTIFICATE_SIGNING_REQUESTS,
                key.name,
                {"status": status},
                subresource="status",
                resource_version=request["metadata"]["resourceVersion"],
            )
        except NotFound:
            return None
        return None
