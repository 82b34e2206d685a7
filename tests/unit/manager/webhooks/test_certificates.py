# SPDX-License-Identifier: Apache-2.0
"""The webhook's certificates: made, kept, renewed, rotated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from manager.webhooks.certificates import CA_LIFETIME, SERVING_LIFETIME, Bundle, renewed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = ("webhook.kueue-system.svc", "127.0.0.1")


def verify(bundle: Bundle, host: str, *, at: datetime = NOW) -> None:
    store = Store(x509.load_pem_x509_certificates(bundle.ca_certificate))
    verifier = PolicyBuilder().store(store).time(at).build_server_verifier(x509.DNSName(host))
    verifier.verify(x509.load_pem_x509_certificate(bundle.certificate), [])


def test_a_new_certificate_serves_its_hosts_and_is_trusted_through_the_bundle() -> None:
    bundle = renewed(None, hosts=HOSTS, now=NOW)
    verify(bundle, "webhook.kueue-system.svc")
    with pytest.raises(Exception, match="leaf certificate has no matching subjectAltName"):
        verify(bundle, "elsewhere")


def test_a_bundle_survives_its_secret() -> None:
    bundle = renewed(None, hosts=HOSTS, now=NOW)
    assert Bundle.of_secret(bundle.secret_data()) == bundle


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({}, id="empty"),
        pytest.param({"ca.crt": "!", "ca.key": "!", "tls.crt": "!", "tls.key": "!"}, id="not base64"),
    ],
)
def test_a_secret_that_holds_no_bundle(data: dict[str, str]) -> None:
    assert Bundle.of_secret(data) is None


def test_an_unreadable_bundle_is_replaced() -> None:
    broken = Bundle(ca_certificate=b"x", ca_key=b"x", certificate=b"x", key=b"x")
    verify(renewed(broken, hosts=HOSTS, now=NOW), "webhook.kueue-system.svc")


def test_what_still_serves_is_kept() -> None:
    bundle = renewed(None, hosts=HOSTS, now=NOW)
    assert renewed(bundle, hosts=HOSTS[:1], now=NOW + SERVING_LIFETIME / 2) is bundle


def test_a_new_host_is_added_under_the_same_authority_and_the_old_ones_stay() -> None:
    old = renewed(None, hosts=HOSTS, now=NOW)
    new = renewed(old, hosts=("second.kueue-system.svc",), now=NOW)
    assert new.ca_certificate == old.ca_certificate
    verify(new, "second.kueue-system.svc")
    verify(new, "webhook.kueue-system.svc")


def test_a_serving_certificate_is_renewed_before_it_ends_under_the_same_authority() -> None:
    old = renewed(None, hosts=HOSTS, now=NOW)
    later = NOW + SERVING_LIFETIME * 0.7
    new = renewed(old, hosts=HOSTS, now=later)
    assert new.certificate != old.certificate
    assert new.ca_certificate == old.ca_certificate
    verify(new, "webhook.kueue-system.svc", at=NOW + SERVING_LIFETIME + timedelta(days=1))


def test_a_new_authority_comes_before_the_old_one_so_that_both_certificates_are_trusted() -> None:
    old = renewed(None, hosts=HOSTS, now=NOW)
    later = NOW + CA_LIFETIME * 0.7
    new = renewed(old, hosts=HOSTS, now=later)
    assert len(x509.load_pem_x509_certificates(new.ca_certificate)) == 2
    verify(new, "webhook.kueue-system.svc", at=later)
    still = Bundle(ca_certificate=new.ca_certificate, ca_key=new.ca_key, certificate=old.certificate, key=old.key)
    verify(still, "webhook.kueue-system.svc", at=NOW + timedelta(days=30))
