# SPDX-License-Identifier: Apache-2.0
"""The certificate authority of a local cluster.

Owns keys and certificates as PEM values, and their files in a cluster's folder. The extensions pass strict verification
(Go, and Python since 3.13). Keys are P-256: a cluster needs seven, and generating an RSA key takes about a second.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME: Final = timedelta(days=3650)  # a devcluster that was not used for a year still starts
_BACKDATED: Final = timedelta(minutes=5)  # the clock of a suspended laptop or container may be off


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, *, name: str) -> tuple[Path, Path]:
        """Write `name.crt` and `name.key` (readable by the owner only) into the folder. Returns their paths."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        write_private(key, self.key)
        return certificate, key


class Authority:
    """A certificate authority."""

    __slots__ = ("_certificate", "_key", "pair")

    def __init__(self, pair: KeyPair) -> None:
        self.pair = pair
        self._certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):  # RSA is what kubeadm makes
            raise TypeError(f"the CA's key is of type {type(key).__name__}, expected an elliptic curve or RSA key")
        self._key = key

    @classmethod
    def create(cls, name: str) -> Self:
        """Create an authority with that common name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name, ())
        usage = _usage(signing_certificates=True)
        certificate = (
            _dated(subject=subject, issuer=subject, public=key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(KeyPair(certificate.public_bytes(serialization.Encoding.PEM), private_pem(key)))

    @classmethod
    def load_or_create(cls, folder: Path, *, name: str) -> Self:
        """The authority whose files are in the folder; created the first time."""
        certificate, key = folder / "ca.crt", folder / "ca.key"
        if certificate.exists() and key.exists():
            return cls(KeyPair(certificate.read_bytes(), key.read_bytes()))
        made = cls.create(name)
        made.pair.write(folder, name="ca")
        return made

    @property
    def certificate(self) -> bytes:
        """The CA's certificate, PEM."""
        return self.pair.certificate

    def serving(self, name: str, *, hosts: Sequence[str]) -> KeyPair:
        """Sign a serving certificate for the given host names and IP addresses."""
        names = [_general_name(host) for host in hosts]
        return self._sign(_name(name, ()), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, user: str, *, groups: Sequence[str] = ()) -> KeyPair:
        """Sign a client certificate with the user as CN and the groups as O."""
        return self._sign(_name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _sign(self, subject: x509.Name, purpose: x509.ObjectIdentifier, names: list[x509.GeneralName]) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _dated(subject=subject, issuer=self._certificate.subject, public=key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signing_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), private_pem(key))


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """The files of an API server's client certificate towards aggregated APIs, and of its CA."""

    certificate: Path
    key: Path
    authority: Path


FRONT_PROXY: Final = "front-proxy-client"
"""The common name of that certificate."""


def front_proxy(folder: Path) -> FrontProxy:
    """The front proxy's files in the folder; created the first time.

    Its CA is not the cluster's: a certificate signed by it may impersonate any user.
    """
    ca = folder / "front-proxy-ca.crt"
    certificate, key = folder / f"{FRONT_PROXY}.crt", folder / f"{FRONT_PROXY}.key"
    if not (ca.exists() and certificate.exists() and key.exists()):
        authority = Authority.create("front-proxy-ca")
        authority.client(FRONT_PROXY).write(folder, name=FRONT_PROXY)
        ca.write_bytes(authority.certificate)
    return FrontProxy(certificate, key, ca)


def new_key() -> bytes:
    """A new private key, PEM, as used to sign service-account tokens."""
    return private_pem(ec.generate_private_key(ec.SECP256R1()))


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key in SEC 1 form, the only one from which kube-apiserver derives public keys."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def write_private(path: Path, content: bytes) -> None:
    """Write a file that is readable by its owner only from the start."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _name(common: str, organizations: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _dated(*, subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFETIME)
    )


def _usage(*, signing_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signing_certificates,
        crl_sign=signing_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
