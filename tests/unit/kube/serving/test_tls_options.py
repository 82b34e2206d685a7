# SPDX-License-Identifier: Apache-2.0
"""The TLS versions and cipher suites of our servers, as a Configuration names them."""

from __future__ import annotations

import ssl

import aiohttp
import pytest
import trustme
from aiohttp import web

from multikueue.api import configuration_file
from multikueue.api.tls_names import CIPHER_SUITES, TLS13_CIPHER_SUITES
from multikueue.core.errors import BadInput
from multikueue.kube.serving.serve import ServingCertificate, TlsOptions, serving

pytestmark = pytest.mark.anyio

AUTHORITY = trustme.CA()
LEAF = AUTHORITY.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA)
PEM = b"".join([*(each.bytes() for each in LEAF.cert_chain_pems), LEAF.private_key_pem.bytes()])
CHOSEN = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"


def options(settings: str) -> TlsOptions:
    return TlsOptions.of(configuration_file.load(settings).tls)


async def agreed(tls: TlsOptions, *, ciphers: str = "", newest: ssl.TLSVersion | None = None) -> tuple[str, str]:
    """Version and cipher suite that a client and a server with these options agree on."""
    app = web.Application()
    found: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        connection = request.transport.get_extra_info("ssl_object")
        found.append((connection.version(), connection.cipher()[0]))
        return web.Response()

    app.router.add_get("/", answer)
    trust = ssl.create_default_context()
    AUTHORITY.configure_trust(trust)
    if ciphers:
        trust.set_ciphers(ciphers)
    if newest is not None:
        trust.maximum_version = newest
    async with serving(app, "127.0.0.1:0", certificate=ServingCertificate(PEM, tls=tls)) as port:
        async with aiohttp.ClientSession() as session, session.get(f"https://127.0.0.1:{port}/", ssl=trust) as reply:
            assert reply.status == 200
    return found[0]


async def test_without_settings_a_client_of_tls_1_2_is_served() -> None:
    assert (await agreed(options(""), newest=ssl.TLSVersion.TLSv1_2))[0] == "TLSv1.2"
    assert (await agreed(options("")))[0] == "TLSv1.3"


@pytest.mark.parametrize(
    "settings",
    ["tls: {minVersion: VersionTLS13}", "tls: {cipherSuites: [TLS_AES_128_GCM_SHA256]}"],
    ids=["the least version", "suites of no older version"],
)
async def test_a_client_of_an_older_version_than_the_least_is_refused(settings: str) -> None:
    with pytest.raises(aiohttp.ClientError):
        await agreed(options(settings), newest=ssl.TLSVersion.TLSv1_2)
    assert (await agreed(options(settings)))[0] == "TLSv1.3"


async def test_only_the_named_cipher_suites_are_offered() -> None:
    chosen = options(f"tls: {{cipherSuites: [{CHOSEN}, TLS_AES_128_GCM_SHA256]}}")
    assert await agreed(chosen, newest=ssl.TLSVersion.TLSv1_2) == ("TLSv1.2", "ECDHE-RSA-AES256-GCM-SHA384")
    with pytest.raises(aiohttp.ClientError):
        await agreed(chosen, newest=ssl.TLSVersion.TLSv1_2, ciphers="ECDHE-RSA-AES128-GCM-SHA256")


async def test_they_hold_after_the_certificate_was_replaced() -> None:
    certificate = ServingCertificate(PEM, tls=options("tls: {minVersion: VersionTLS13}"))
    certificate.replace(PEM)
    app = web.Application()
    trust = ssl.create_default_context()
    AUTHORITY.configure_trust(trust)
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serving(app, "127.0.0.1:0", certificate=certificate) as port, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"https://127.0.0.1:{port}/", ssl=trust)


@pytest.mark.parametrize("name", sorted(CIPHER_SUITES))
def test_openssl_knows_each_cipher_suite(name: str) -> None:
    TlsOptions.of(configuration_file.load(f"tls: {{cipherSuites: [{name}]}}").tls).apply(
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    )


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("tls: {minVersion: '1.3'}", r"tls\.minVersion: expected one of VersionTLS10, .*VersionTLS13, got '1\.3'"),
        ("tls: {cipherSuites: [MADE_UP]}", r'tls\.cipherSuites\[0\]: "MADE_UP" is not a cipher suite'),
    ],
)
def test_a_name_that_is_unknown_is_refused(settings: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        configuration_file.load(settings)


def test_suites_of_the_newest_version_can_be_named() -> None:
    named = ", ".join(sorted(TLS13_CIPHER_SUITES))
    assert configuration_file.load(f"tls: {{cipherSuites: [{named}]}}").tls is not None
