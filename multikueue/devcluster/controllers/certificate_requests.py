# SPDX-License-Identifier: Apache-2.0
"""Signs certificate requests that somebody has approved. Who approves is not decided here."""

from __future__ import annotations

import base64
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.api.resource import CERTIFICATE_SIGNING_REQUESTS
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.devcluster.controllers.caches import BACKOFF
from multikueue.devcluster.controllers.request_signing import SIGNERS, RequestSigner
from multikueue.devcluster.pki import Authority
from multikueue.kube.client import KubeClient
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import NotFound
from multikueue.kube.informer import Informer
from multikueue.kube.workqueue import WorkQueue

_REASON: Final = "SignerValidationFailure"


def waits(request: JsonObject) -> bool:
    """Whether it is approved, and neither signed nor failed."""
    status = request.get("status") or {}
    true = {entry["type"] for entry in status.get("conditions") or () if entry.get("status", "True") == "True"}
    return (
        request["spec"]["signerName"] in SIGNERS
        and "Approved" in true
        and not (true & {"Denied", "Failed"} or status.get("certificate"))
    )


class CertificateRequests:
    """Signs with the CA of one cluster."""

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
        """What it follows by itself."""
        return (self._requests,)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Sign one request, or say why not."""
        request = self._requests.store.object(key)
        if request is None or not waits(request):
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
