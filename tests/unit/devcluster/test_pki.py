# SPDX-License-Identifier: Apache-2.0
"""What an authority signs is what Go and a strict Python accept."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devcluster import pki
from devcluster.pki import Authority


def test_a_client_certificate_carries_user_and_groups() -> None:
    pair = Authority.create("ca").client("alice", groups=["dev", "ops"])
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    subject = certificate.subject
    assert [part.value for part in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["alice"]
    assert [part.value for part in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["dev", "ops"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_a_serving_certificate_passes_strict_verification_for_its_hosts(tmp_path: Path) -> None:
    authority = Authority.create("ca")
    certificate, key = authority.serving("server", hosts=["127.0.0.1", "localhost"]).write(tmp_path, name="server")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    client = ssl.create_default_context(cadata=authority.certificate.decode())
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    assert _handshake(client, server, host="localhost") == "TLSv1.3"


def test_keys_can_be_read_by_their_owner_alone(tmp_path: Path) -> None:
    _, key = Authority.create("ca").client("alice").write(tmp_path, name="alice")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_an_authority_is_made_once_and_then_found(tmp_path: Path) -> None:
    first = Authority.load_or_create(tmp_path, name="ca")
    assert Authority.load_or_create(tmp_path, name="ca").certificate == first.certificate


def test_a_service_account_key_has_the_form_that_the_api_server_reads() -> None:
    assert pki.new_key().startswith(b"-----BEGIN EC PRIVATE KEY-----")


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext, *, host: str) -> str | None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=host)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [one, other]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    return one.version()
