# SPDX-License-Identifier: Apache-2.0
"""The renewal of a certificate whose stored identity is deleted meanwhile; against a hub that the test answers for."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from multikueue.core.clock import SystemClock
from tests.support.polling import until
from tests.support.stub_api import status_answer, stub_api
from worker_agent.hub.enrolment import Renewer
from worker_agent.hub.identity import FileStore, with_certificate
from worker_agent.options import Renewal

pytestmark = pytest.mark.anyio

HUB: Final[dict[str, Any]] = {
    "clusters": [{"name": "hub", "cluster": {"server": "https://hub:6443"}}],
    "users": [{"name": "u", "user": {}}],
    "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "u"}}],
    "current-context": "hub",
}
AT_ONCE: Final = Renewal(earliest=0.0, latest=0.0, seconds=600)


async def uid() -> str:
    return "cluster-1"


def short_certificate() -> bytes:
    """A certificate that is valid for two seconds: a failed renewal is tried again after a twentieth of that."""
    key, name, now = ec.generate_private_key(ec.SECP256R1()), x509.Name([]), SystemClock().now()
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = builder.not_valid_before(now).not_valid_after(now + timedelta(seconds=2)).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


async def test_an_identity_that_is_deleted_while_it_is_in_use_is_stored_again(tmp_path: Path) -> None:
    """The agent would renew no more, and stop with its certificate: seed 9789 of the simulation."""
    store, clock = FileStore(tmp_path / "hub"), SystemClock()
    identity = with_certificate(HUB, user="w", certificate=short_certificate(), key=b"")
    await store.save(identity)

    async def refuse(request: web.Request) -> web.StreamResponse:
        return status_answer(403, "Forbidden", "not now")

    async with stub_api(refuse) as api, api.client() as hub, anyio.create_task_group() as tasks:
        renewer = Renewer(hub, cluster="w", uid=uid, store=store, clock=clock, random=Random(1), renewal=AT_ONCE)
        tasks.start_soon(renewer.run)
        await until(lambda: "not now" in renewer.problem, what="the first renewal failed")
        (tmp_path / "hub").unlink()
        asked = len(api.seen)
        await until(lambda: len(api.seen) > asked, what="it is renewed again")
        assert await store.load() == identity
        tasks.cancel_scope.cancel()
