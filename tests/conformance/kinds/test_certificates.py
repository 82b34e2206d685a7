# SPDX-License-Identifier: Apache-2.0
"""CertificateSigningRequests: the requester, and who may write which part."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from devcluster.pki import Authority
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Side

pytestmark = pytest.mark.binaries

CASES = Cases("certificates")
REQUESTS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ONE: Final = f"{REQUESTS}/{{id}}"
# An impersonated user, since the two servers know their administrators by different means.
REQUESTER: Final = {
    "Impersonate-User": "somebody",
    "Impersonate-Uid": "42",
    "Impersonate-Group": "system:masters",
    "Impersonate-Extra-Scopes": "all",
}

Document = dict[str, Any]


@cache
def _pem(*groups: str) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody"), *organizations])
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


@cache
def _certificate() -> str:
    return base64.b64encode(Authority.create("somebody").certificate).decode()


def _request(**spec: object) -> Document:
    return {
        "kind": "CertificateSigningRequest",
        "apiVersion": "certificates.k8s.io/v1",
        "metadata": {"name": "{id}"},
        "spec": {
            "request": _pem(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
            **spec,
        },
    }


def _condition(kind: str, status: str = "True") -> Document:
    return {"type": kind, "status": status, "reason": "Because", "message": "so it is"}


async def _made(side: Side) -> Document:
    found = await side.post(REQUESTS, _request(), headers=REQUESTER)
    body: Document = found.body
    return body


@CASES.case("a certificate of system:masters is refused")
async def _(side: Side) -> None:
    await side.post(REQUESTS, _request(request=_pem("a", "system:masters")), headers=REQUESTER)
    other = _request(request=_pem("system:masters"), signerName="example.com/own")
    await side.post(f"{REQUESTS}?dryRun=All", other, headers=REQUESTER)


@CASES.case("the requester is recorded")
async def _recorded(side: Side) -> None:
    await side.post(REQUESTS, _request(username="root", uid="0", groups=["g"], extra={"a": ["b"]}), headers=REQUESTER)
    await side.get(ONE)


_REFUSED: Final[dict[str, Document]] = {
    "a request of no signer": {"signerName": ""},
    "a request of no usages": {"usages": []},
    "a request of a short life": {"expirationSeconds": 60},
    "a request of nothing": {"request": base64.b64encode(b"nothing").decode()},
}
for _name, _spec in _REFUSED.items():

    async def _refused(side: Side, spec: Document = _spec) -> None:
        await side.post(REQUESTS, _request(**spec), headers=REQUESTER)

    CASES.add(f"{_name} is refused", _refused)


@CASES.case("the spec cannot change")
async def _unchanged(side: Side) -> None:
    body = await _made(side)
    body["spec"]["usages"] = ["server auth"]
    body["status"] = {"conditions": [_condition("Approved")]}
    await side.put(ONE, body)


@CASES.case("an approval writes verdicts and no certificate")
async def _approved(side: Side) -> None:
    body = await _made(side)
    body["status"] = {"conditions": [_condition("Approved")], "certificate": "YQ=="}
    await side.put(f"{ONE}/approval", body)


@CASES.case("a status writes no verdicts")
async def _status(side: Side) -> None:
    await _made(side)
    await side.patch("merge", f"{ONE}/status", {"status": {"conditions": [_condition("Approved"), _condition("X")]}})


@CASES.case("a verdict stays")
async def _final(side: Side) -> None:
    await _made(side)
    await side.patch("merge", f"{ONE}/approval", {"status": {"conditions": [_condition("Approved")]}})
    await side.patch("merge", f"{ONE}/approval", {"status": {"conditions": []}})
    await side.patch("merge", f"{ONE}/status", {"status": {"conditions": [_condition("X")]}})
    both = [_condition("Approved"), _condition("Denied")]
    await side.patch("merge", f"{ONE}/approval", {"status": {"conditions": both}})


@CASES.case("a signer writes that it has failed")
async def _failed(side: Side) -> None:
    await _made(side)
    await side.patch("merge", f"{ONE}/status", {"status": {"conditions": [_condition("Failed")]}})
    await side.patch("merge", f"{ONE}/status", {"status": {"conditions": []}})


@CASES.case("a verdict that is not true is refused")
async def _untrue(side: Side) -> None:
    await _made(side)
    await side.patch("merge", f"{ONE}/approval", {"status": {"conditions": [_condition("Approved", "False")]}})


@CASES.case("what became of a request is shown in its row")
async def _shown(side: Side) -> None:
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    await side.post(REQUESTS, _request(expirationSeconds=5400), headers=REQUESTER)
    await side.get(ONE, headers=accept)
    await side.patch("merge", f"{ONE}/approval", {"status": {"conditions": [_condition("Approved")]}})
    await side.get(ONE, headers=accept)
    await side.patch("merge", f"{ONE}/status", {"status": {"certificate": _certificate()}})
    await side.get(ONE, headers=accept)
    both = [_condition("Approved"), _condition("Failed")]
    await side.patch("merge", f"{ONE}/status", {"status": {"conditions": both}})
    await side.get(ONE, headers=accept)


@CASES.case("requests of a signer are selected by field")
async def _selected(side: Side) -> None:
    await _made(side)
    for name in ("kubernetes.io/kube-apiserver-client", "example.com/other"):
        await side.get(f"{REQUESTS}?fieldSelector=spec.signerName%3D{name},metadata.name%3D{side.id}")
    await side.get(f"{REQUESTS}?fieldSelector=spec.username%3Dx")


@CASES.case("a denied request that has failed is shown as both")
async def _denied(side: Side) -> None:
    await _made(side)
    await side.patch("merge", f"{ONE}/approval", {"status": {"conditions": [_condition("Denied")]}})
    both = [_condition("Failed"), _condition("Denied")]
    await side.patch("merge", f"{ONE}/status", {"status": {"conditions": both}})
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    await side.get(ONE, headers=accept)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_request_for_a_certificate_is_treated_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """From being made to being approved."""
    await judge(case)
