# SPDX-License-Identifier: Apache-2.0
"""The certificates of the webhook server as values: a CA of our own and a serving certificate under it.

Owns their making, their reading from and writing to a Secret's data, and the question whether they still serve. Pure
but for the randomness of keys. Leaves the Secret and its sharing between replicas to `webhooks.rotation`.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFETIME: Final = timedelta(days=3650)
SERVING_LIFETIME: Final = timedelta(days=365)
_RENEW_PART: Final = 3  # renewed when a third of the lifetime is left: a manager that sleeps for weeks still finds time
_BACKDATED: Final = timedelta(hours=1)  # clocks of API servers and managers differ
_CA_CRT, _CA_KEY, _TLS_CRT, _TLS_KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"
_CA_NAME: Final = "multikueue-webhook-ca"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """PEM texts. `ca_certificate` may hold several, the newest first, so that a rotation breaks no connection."""

    ca_certificate: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes

    @classmethod
    def of_secret(cls, data: Mapping[str, str]) -> Bundle | None:
        """The bundle in a Secret's `data`; None when a part is missing or is not base64."""
        try:
            parts = [base64.b64decode(data[name], validate=True) for name in (_CA_CRT, _CA_KEY, _TLS_CRT, _TLS_KEY)]
        except (KeyError, ValueError):
            return None
        return cls(ca_certificate=parts[0], ca_key=parts[1], certificate=parts[2], key=parts[3])

    def secret_data(self) -> dict[str, str]:
        """The `data` of a Secret."""
        parts = {_CA_CRT: self.ca_certificate, _CA_KEY: self.ca_key, _TLS_CRT: self.certificate, _TLS_KEY: self.key}
        return {name: base64.b64encode(value).decode() for name, value in parts.items()}

    @property
    def pem(self) -> bytes:
        """Certificate and key, as a server loads them."""
        return self.certificate + self.key

    @property
    def ca_bundle(self) -> str:
        """`caBundle` of a webhook's client configuration."""
        return base64.b64encode(self.ca_certificate).decode()


def renewed(old: Bundle | None, *, hosts: Iterable[str], now: datetime) -> Bundle:
    """A bundle that serves all `hosts`: the old one if it still does, else with as much of it as remains valid."""
    wanted = frozenset(hosts)
    if old is not None:
        try:
            return _kept(old, wanted, now)
        except ValueError:  # unreadable PEM is replaced
            pass
    return _issued(_new_ca(now), hosts=wanted, now=now, former=b"")


def _kept(old: Bundle, hosts: frozenset[str], now: datetime) -> Bundle:
    authorities = x509.load_pem_x509_certificates(old.ca_certificate)
    ca_key = serialization.load_pem_private_key(old.ca_key, password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the CA is not an elliptic curve key")
    served = x509.load_pem_x509_certificate(old.certificate)
    if not _fresh(authorities[0], now):
        return _issued(_new_ca(now), hosts=hosts | _names(served), now=now, former=_pem(authorities[0]))
    if _fresh(served, now) and hosts <= _names(served):
        return old
    return _issued((authorities[0], ca_key), hosts=hosts | _names(served), now=now, former=_pem(*authorities[1:]))


def _fresh(certificate: x509.Certificate, now: datetime) -> bool:
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now < certificate.not_valid_after_utc - lifetime / _RENEW_PART


def _names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = (str(address) for address in names.get_values_for_type(x509.IPAddress))
    return frozenset(names.get_values_for_type(x509.DNSName)) | frozenset(addresses)


def _new_ca(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _CA_NAME)])
    certificate = (
        _builder(name, key, now=now, lifetime=CA_LIFETIME)
        .issuer_name(name)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _issued(
    authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    *,
    hosts: frozenset[str],
    now: datetime,
    former: bytes,
) -> Bundle:
    ca, ca_key = authority
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "multikueue-webhook")])
    certificate = (
        _builder(name, key, now=now, lifetime=SERVING_LIFETIME)
        .issuer_name(ca.subject)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in sorted(hosts)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return Bundle(
        ca_certificate=_pem(ca) + former, ca_key=_key_pem(ca_key), certificate=_pem(certificate), key=_key_pem(key)
    )


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + lifetime)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
