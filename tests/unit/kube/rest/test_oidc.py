# SPDX-License-Identifier: Apache-2.0
"""The auth provider oidc of a kubeconfig: renewed in time, and only at a verified identity provider."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trustme
from aiohttp import web

from multikueue.core.clock import ManualClock
from multikueue.core.errors import BadInput
from multikueue.kube.rest import credentials
from multikueue.kube.rest.oidc import OidcToken

pytestmark = pytest.mark.anyio


def jwt(expiry: float) -> str:
    parts = ({"alg": "none"}, {"exp": int(expiry)})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + ".s"


@dataclass(kw_only=True)
class Provider:
    url: str
    authority: bytes
    clock: ManualClock
    seen: list[tuple[str, str]] = field(default_factory=list)
    answer: dict[str, Any] = field(default_factory=dict)

    def settings(self, **more: str) -> dict[str, Any]:
        authority = {"idp-certificate-authority-data": base64.b64encode(self.authority).decode()}
        known = {"client-id": "me", "client-secret": "secret", "refresh-token": "one", "idp-issuer-url": self.url}
        return known | authority | more

    def expiring(self, seconds: float) -> str:
        return jwt(self.clock.now().timestamp() + seconds)


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    authority = trustme.CA()
    made = Provider(url="", authority=authority.cert_pem.bytes(), clock=ManualClock())

    async def discovery(request: web.Request) -> web.Response:
        return web.json_response({"token_endpoint": f"{made.url}/token"})

    async def token(request: web.Request) -> web.Response:
        form = await request.post()
        made.seen.append((request.headers.get("Authorization", ""), str(form["refresh_token"])))
        return web.json_response(made.answer)

    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", discovery)
    app.router.add_post("/token", token)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        made.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        yield made
    finally:
        await runner.cleanup()


async def test_a_valid_id_token_is_used_and_an_expired_one_renewed() -> None:
    async with provider() as idp:
        first, second = idp.expiring(600), idp.expiring(3600)
        idp.answer = {"id_token": second, "refresh_token": "two"}
        user = {"auth-provider": {"name": "oidc", "config": idp.settings(**{"id-token": first})}}
        cluster = {"server": "https://127.0.0.1:6443"}
        config = credentials.from_dict(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
            },
            clock=idp.clock,
        )
        assert isinstance(config.tokens, OidcToken)
        assert await config.tokens.token() == first
        assert idp.seen == []
        idp.clock.advance(590)
        assert await config.tokens.token() == second
        assert await config.tokens.refresh()
        await config.tokens.token()
        basic = "Basic " + base64.b64encode(b"me:secret").decode()
        assert idp.seen == [(basic, "one"), (basic, "two")], "the new refresh-token is used"


async def test_an_unverified_identity_provider_gets_no_secret() -> None:
    async with provider() as idp:
        settings = idp.settings(**{"idp-certificate-authority-data": ""})
        with pytest.raises(BadInput, match="cannot renew the id-token"):
            await OidcToken(settings, clock=idp.clock).token()
        assert idp.seen == []


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param({"refresh-token": ""}, "there is no refresh-token", id="nothing to renew with"),
        pytest.param({"idp-issuer-url": "http://127.0.0.1"}, "must be an https URL", id="no TLS"),
        pytest.param({"id-token": "x"}, "not a JWT", id="a malformed id-token"),
        pytest.param({}, "has no id_token", id="an answer without an id-token"),
    ],
)
async def test_a_token_that_cannot_be_renewed_is_an_error(settings: dict[str, str], want: str) -> None:
    async with provider() as idp:
        with pytest.raises(BadInput, match=want):
            await OidcToken(idp.settings(**settings), clock=idp.clock).token()


async def test_a_malformed_authority_is_an_error() -> None:
    with pytest.raises(BadInput, match="not base64"):
        OidcToken({"idp-certificate-authority-data": "?"}, clock=ManualClock())
