# SPDX-License-Identifier: Apache-2.0
"""Two servers with authentication: every request chooses its credentials."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

import aiohttp
import pytest

from devcluster.apiserver.http.listener import Listener, Serving
from devcluster.apiserver.http.requests import MASTERS
from devcluster.apiserver.server import ApiServer
from devcluster.cluster import ADMIN_USER
from devcluster.pki import Authority, new_key
from tests.conformance.conftest import Judge
from tests.conformance.harness import Answer, Both, Case, Exchange, Server

WHO: Final = "X-Conformance-Who"
"""Names the client certificate of a request, which is taken off before it is sent; empty for none."""


class Gate(Server):
    """A server called with one of several client certificates, or with none."""

    def __init__(self, name: str, url: str, session: aiohttp.ClientSession, contexts: Mapping[str, ssl.SSLContext]):
        super().__init__(name, url, session, contexts["admin"])
        self._contexts = contexts

    async def send(self, exchange: Exchange) -> Answer:
        """The answer to one request."""
        headers = dict(exchange.headers)
        who = headers.pop(WHO, "" if "Authorization" in headers else "admin")
        chosen = Server(self.name, self.url, self.session, self._contexts[who])
        return await chosen.send(replace(exchange, headers=headers))


_USERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "admin": (ADMIN_USER, (MASTERS,)),
    "jane": ("jane", ("team", "other")),
}


def _contexts(authority: Authority, folder: Path) -> dict[str, ssl.SSLContext]:
    found = {}
    for name in ("", "stranger", *_USERS):
        context = ssl.create_default_context(cadata=authority.certificate.decode())
        issuer = Authority.create("somebody else") if name == "stranger" else authority
        user, groups = _USERS.get(name, (name, ()))
        if name:
            pair = issuer.client(user, groups=groups)
            context.load_cert_chain(*pair.write(folder, name=quote(f"{name}-client")))
        found[name] = context
    return found


@pytest.fixture(scope="package")
async def gates(both: Both, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    """The embedded server with certificates, and the real one."""
    folder = tmp_path_factory.mktemp("gates")
    authority = Authority.create("embedded")
    certificate, key = authority.serving("kube-apiserver", hosts=["127.0.0.1", "localhost"]).write(folder, name="s")
    ca = folder / "ca.crt"
    ca.write_bytes(authority.certificate)
    api = ApiServer(signing_key=new_key())
    theirs = folder / "real"
    theirs.mkdir()
    assert both.real.kubeconfig is not None
    real_authority = Authority.load_or_create(both.real.kubeconfig.parent / "pki", name="ca")
    serving = Serving(certificate, key, ca)
    async with Listener(api, serving=serving) as listener, aiohttp.ClientSession() as session:
        yield Both(
            Gate("embedded", listener.url, session, _contexts(authority, folder)),
            Gate("real", both.real.url, session, _contexts(real_authority, theirs)),
            api,
        )


@pytest.fixture
def gate_judge(gates: Both, record_property: Callable[[str, object], None]) -> Judge:
    """Plays a case on both gates and fails when they differ."""

    async def play(case: Case) -> None:
        record_property("conformance", await gates.judge(case))

    return play
