# SPDX-License-Identifier: Apache-2.0
"""The renewal of a certificate whose stored identity is deleted meanwhile; against a hub that the test answers for."""

from __future__ import annotations

import base64
from datetime import timedelta
from random import Random
from typing import Final

import anyio
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from multikueue.api.meta import JsonObject
from multikueue.core.clock import SystemClock
from multikueue.core.errors import BadInput
from tests.support.polling import until
from tests.support.stub_api import status_answer, stub_api
from worker_agent.hub.enrolment import Renewer
from worker_agent.hub.identity import with_certificate
from worker_agent.options import Renewal

pytestmark = pytest.mark.anyio

HUB: Final[JsonObject] = {
    "clusters": [{"name": "hub", "cluster": {"server": "https://hub:6443"}}],
    "users": [{"name": "u", "user": {}}],
    "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "u"}}],
    "current-context": "hub",
}
CLOCK: Final = SystemClock()
AT_ONCE: Final = Renewal(earliest=0.0, latest=0.0, seconds=600)


async def uid() -> str:
    return "cluster-1"


def certificate(*, seconds: int) -> bytes:
    """A certificate that is valid for so long: a failed renewal is tried again after a twentieth of that."""
    key, name, now = ec.generate_private_key(ec.SECP256R1()), x509.Name([]), CLOCK.now()
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = builder.not_valid_before(now).not_valid_after(now + timedelta(seconds=seconds)).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


class DeletedOnce:
    """A store whose identity is deleted after it was read first; `writable` is whether it can be stored again."""

    def __init__(self, identity: JsonObject, *, writable: bool) -> None:
        self.stored: JsonObject | None = None
        self._first: JsonObject | None = identity
        self._writable = writable

    async def load(self) -> JsonObject | None:
        first, self._first = self._first, None
        return first or self.stored

    async def save(self, kubeconfig: JsonObject) -> None:
        if not self._writable:
            raise BadInput("no space left")
        self.stored = kubeconfig


@pytest.mark.parametrize("writable", [True, False])
async def test_an_identity_that_is_deleted_while_it_is_in_use_is_stored_again_and_renewed(writable: bool) -> None:
    """The agent would renew no more, and stop with its certificate: seed 9789 of the simulation."""
    identity = with_certificate(HUB, user="w", certificate=certificate(seconds=2), key=b"")
    store = DeletedOnce(identity, writable=writable)

    async def refuse(request: web.Request) -> web.StreamResponse:
        return status_answer(403, "Forbidden", "not now")

    async with stub_api(refuse) as api, api.client() as hub, anyio.create_task_group() as tasks:
        renewer = Renewer(hub, cluster="w", uid=uid, store=store, clock=CLOCK, random=Random(1), renewal=AT_ONCE)
        tasks.start_soon(renewer.run)
        await until(lambda: "not now" in renewer.problem, what="the first renewal failed")
        asked = len(api.seen)
        await until(lambda: len(api.seen) > asked, what="it is tried again")
        assert store.stored == (identity if writable else None)
        tasks.cancel_scope.cancel()


async def test_a_certificate_that_is_due_as_it_is_issued_is_not_renewed_again_and_again() -> None:
    """The clock of the agent may be ahead of the one that issues."""
    requests: list[JsonObject] = []

    async def issue(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            requests.append(await request.json())
        issued = base64.b64encode(certificate(seconds=3600)).decode()
        return web.json_response(requests[-1] | {"status": {"certificate": issued}})

    async with stub_api(issue) as api, api.client() as hub, anyio.create_task_group() as tasks:
        reached = HUB | {"clusters": [{"name": "hub", "cluster": {"server": api.url}}]}
        identity = with_certificate(reached, user="w", certificate=certificate(seconds=2), key=b"")
        store = DeletedOnce(identity, writable=True)
        renewer = Renewer(hub, cluster="w", uid=uid, store=store, clock=CLOCK, random=Random(1), renewal=AT_ONCE)
        tasks.start_soon(renewer.run)
        await until(lambda: store.stored is not None, what="it was renewed")
        await anyio.sleep(0.5)
        assert len(requests) == 1
        tasks.cancel_scope.cancel()
