# SPDX-License-Identifier: Apache-2.0
"""Keys, certificate requests and certificates of API clients.

Keys are P-256 and never leave the process that created them, except into its store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from multikueue.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A key and a certificate request for it, in PEM."""

    key: bytes
    request: bytes


@dataclass(frozen=True, slots=True)
class RequestedIdentity:
    """The identity that a certificate request asks for."""

    user: str
    groups: tuple[str, ...]
    other_names: bool
    """Whether it asks for host names or other attributes that a client does not need."""


@dataclass(frozen=True, slots=True)
class CertificateLife:
    """The validity period of a certificate."""

    begins: datetime
    ends: datetime

    def at(self, share: float) -> datetime:
        """The time at which that share of the period is over."""
        return self.begins + (self.ends - self.begins) * share


def new_request(user: str, groups: Sequence[str]) -> ClientRequest:
    """Create a key, and a request for a client certificate of that user."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [
        *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
        x509.NameAttribute(NameOID.COMMON_NAME, user),
    ]
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names)).sign(key, hashes.SHA256())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return ClientRequest(pem, request.public_bytes(serialization.Encoding.PEM))


def read_request(pem: bytes) -> RequestedIdentity:
    """The identity in the request. Raises `BadInput` if it is malformed or not signed by its key."""
    try:
        request = x509.load_pem_x509_csr(pem)
        signed = request.is_signature_valid
        users = [str(name.value) for name in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        groups = [str(name.value) for name in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    except ValueError as error:
        raise BadInput(f"not a certificate request: {error}") from error
    if not signed or len(users) != 1:
        raise BadInput("the certificate request is not signed by its key, or has not exactly one common name")
    attributes = len(list(request.subject)) - len(groups) - 1
    return RequestedIdentity(users[0], tuple(groups), bool(len(request.extensions) or attributes))


def life_of(certificate: bytes) -> CertificateLife:
    """The validity period of the first certificate in the PEM text. Raises `BadInput`."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
    except ValueError as error:
        raise BadInput(f"not a certificate: {error}") from error
    return CertificateLife(found.not_valid_before_utc, found.not_valid_after_utc)
