# SPDX-License-Identifier: Apache-2.0
"""Keys, certificate requests and certificates of API clients.

Owns what a request says and how long a certificate is good. Keys are P-256 and never leave the process that made them
except into its own store.
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
    """A key and the request for a certificate over it, PEM."""

    key: bytes
    request: bytes


@dataclass(frozen=True, slots=True)
class RequestedIdentity:
    """Whom a request would make its holder."""

    user: str
    groups: tuple[str, ...]
    other_names: bool
    """Whether it asks for host names or anything else that a client does not need."""


@dataclass(frozen=True, slots=True)
class Life:
    """From when until when a certificate is good."""

    begins: datetime
    ends: datetime

    def at(self, share: float) -> datetime:
        """The moment at which that share of it is over."""
        return self.begins + (self.ends - self.begins) * share


def new_request(user: str, groups: Sequence[str]) -> ClientRequest:
    """A new key, and a request for a client certificate of that user."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [
        *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
        x509.NameAttribute(NameOID.COMMON_NAME, user),
    ]
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names)).sign(key, hashes.SHA256())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return ClientRequest(pem, request.public_bytes(serialization.Encoding.PEM))


def read_request(pem: bytes) -> RequestedIdentity:
    """What the request asks for. Raises `BadInput` for one that is none, or that its key did not sign."""
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


def life_of(certificate: bytes) -> Life:
    """Of the first certificate in the PEM text. Raises `BadInput`."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
    except ValueError as error:
        raise BadInput(f"not a certificate: {error}") from error
    return Life(found.not_valid_before_utc, found.not_valid_after_utc)
