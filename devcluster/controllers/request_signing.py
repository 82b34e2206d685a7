# SPDX-License-Identifier: Apache-2.0
"""Signs a certificate request with the cluster's CA, or says why not. No clock, no network.

Implements the rules of the built-in signers for client and kubelet certificates, without `legacy-unknown`.
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devcluster.pki import KeyPair
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput

CLIENT: Final = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING: Final = "kubernetes.io/kubelet-serving"
SIGNERS: Final = (CLIENT, KUBELET_CLIENT, KUBELET_SERVING)
_BACKDATED: Final = timedelta(minutes=5)
_LIFETIME: Final = timedelta(days=365)
_NODES: Final = "system:nodes"
_NODE_PREFIX: Final = "system:node:"
_KEY_USAGES: Final = {"digital signature": "digital_signature", "key encipherment": "key_encipherment"}
_PURPOSES: Final = {"client auth": ExtendedKeyUsageOID.CLIENT_AUTH, "server auth": ExtendedKeyUsageOID.SERVER_AUTH}
_NEEDED: Final = {CLIENT: "client auth", KUBELET_CLIENT: "client auth", KUBELET_SERVING: "server auth"}


class RequestSigner:
    """A CA that signs requests."""

    def __init__(self, pair: KeyPair) -> None:
        self._certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise BadInput(f"the CA's key is of type {type(key).__name__}, expected an elliptic curve key")
        self._key = key

    def sign(self, spec: JsonObject, *, now: datetime) -> bytes:
        """The certificate, PEM, for the spec of a CertificateSigningRequest. Raises `BadInput` with the reason."""
        request = read_request(spec)
        usages = [str(usage) for usage in spec.get("usages") or ()]
        check(spec["signerName"], usages, request)
        seconds = spec.get("expirationSeconds")
        lifetime = timedelta(seconds=seconds) if seconds is not None else _LIFETIME
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(self._certificate.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(min(now + lifetime, self._certificate.not_valid_after_utc))
        )
        wanted = {_KEY_USAGES[usage] for usage in usages if usage in _KEY_USAGES}
        if wanted:
            builder = builder.add_extension(_key_usage(wanted), critical=True)
        purposes = [_PURPOSES[usage] for usage in usages if usage in _PURPOSES]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        names = _alternative_names(request)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def read_request(spec: JsonObject) -> x509.CertificateSigningRequest:
    """The parsed request of the spec. Raises `BadInput`."""
    try:
        request = x509.load_pem_x509_csr(base64.b64decode(spec["request"], validate=True))
        is_valid = request.is_signature_valid
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"unable to parse csr: {error}") from error
    if not is_valid:
        raise BadInput("the signature of the request does not match its key")
    return request


def check(signer: str, usages: list[str], request: x509.CertificateSigningRequest) -> None:
    """Check that the signer signs such a request. Raises `BadInput` with the reason."""
    needed = _NEEDED[signer]
    purpose = "client certificate" if needed == "client auth" else "serving certificate"
    if signer != CLIENT:
        _check_node(request)
    if signer == KUBELET_SERVING and _alternative_names(request) is None:
        raise BadInput("DNS or IP subjectAltName is required")
    if signer == KUBELET_CLIENT and _alternative_names(request) is not None:
        raise BadInput("subjectAltNames are not allowed")
    wrong = [usage for usage in usages if usage != needed and usage not in _KEY_USAGES]
    if wrong or needed not in usages:
        raise BadInput(f"invalid usage for {purpose}: {', '.join(wrong or usages)}")


def _check_node(request: x509.CertificateSigningRequest) -> None:
    organizations = [part.value for part in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    if organizations != [_NODES]:
        raise BadInput(f"subject organization is not {_NODES}")
    names = [str(part.value) for part in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(names) != 1 or not names[0].startswith(_NODE_PREFIX):
        raise BadInput(f"subject common name does not begin with {_NODE_PREFIX}")


def _alternative_names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _key_usage(wanted: set[str]) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature="digital_signature" in wanted,
        key_encipherment="key_encipherment" in wanted,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
