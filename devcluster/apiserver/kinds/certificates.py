# SPDX-License-Identifier: Apache-2.0
"""CertificateSigningRequests: the requester, what an update may change, and validation.

Approving and signing are done by controllers and administrators.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext

COLLECTION: Final = "certificatesigningrequests.certificates.k8s.io"
_CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
_MASTERS: Final = "system:masters"
_VERDICTS: Final = ("Approved", "Denied")
_MARKS: Final = ("Approved", "Denied", "Failed")
_SHORTEST: Final = 600


class CertificateRequestBehaviour(KindBehaviour):
    """CertificateSigningRequests."""

    has_status = True

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the requester, whatever the client sent."""
        super().prepare_create(value, request_context)
        spec = value.setdefault("spec", {})
        for name in ("username", "uid", "groups", "extra"):
            spec.pop(name, None)
        spec.update(request_context.requester)
        value["status"] = {}

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """The spec cannot change; approval conditions change through `approval`, the rest through the status."""
        super().prepare_update(value, old, request_context)
        value["spec"] = old["spec"]
        if not request_context.subresource:
            return
        before = documents.child(old, "status")
        status = documents.child(value, "status")
        conditions = documents.items(status, "conditions")
        if request_context.subresource == "approval":
            status = dict(before)
        if conditions:
            status["conditions"] = [_timed(entry, before, request_context.now) for entry in conditions]
        else:
            status.pop("conditions", None)
        value["status"] = status

    def fields(self, value: JsonObject) -> dict[str, str]:
        """The fields that selectors can use."""
        return {"spec.signerName": documents.child(value, "spec").get("signerName", "")}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names of `fields`."""
        return ("spec.signerName",)

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        found = _spec_problems(value["spec"]) if old is None else []
        conditions = documents.items(value, "status", "conditions")
        for index, entry in enumerate(conditions):
            path = f"status.conditions[{index}]"
            kind = entry.get("type", "")
            if not kind:
                found.append(field_errors.required(f"{path}.type"))
            if not entry.get("status"):
                found.append(field_errors.required(f"{path}.status"))
            elif kind in _MARKS and entry["status"] != "True":
                found.append(field_errors.not_supported(f"{path}.status", entry["status"], ["True"]))
        types = {str(entry.get("type", "")) for entry in conditions}
        if types >= {*_VERDICTS}:
            second = [entry["type"] for entry in conditions if entry.get("type") in _VERDICTS][-1]
            text = "Approved and Denied conditions are mutually exclusive"
            found.append(field_errors.invalid("status.conditions", second, text))
        if old is not None:
            before = {str(entry.get("type", "")) for entry in documents.items(old, "status", "conditions")}
            added = sorted((types - before) & {*_VERDICTS} if request_context.subresource == "status" else ())
            removed = sorted((before - types) & {*_MARKS})
            for what, changed in (("add", added), ("remove", removed)):
                text = 'updates may not {} a condition of type "{}"'
                found += [field_errors.forbidden("status.conditions", text.format(what, name)) for name in changed]
        return found

    @property
    def ignored_by_main(self) -> JsonObject | None:
        """The spec, which cannot change, has no owner."""
        return {"f:spec": {}, "f:status": {}}


def refusal(value: JsonObject) -> str | None:
    """Why such a certificate is never allowed; None if it may be."""
    spec = documents.child(value, "spec")
    if spec.get("signerName") != _CLIENT_SIGNER:
        return None
    try:
        request = x509.load_pem_x509_csr(base64.b64decode(spec.get("request") or "", validate=True))
    except (binascii.Error, ValueError):
        return None  # validation reports it
    if all(entry.value != _MASTERS for entry in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)):
        return None
    return f"use of {_CLIENT_SIGNER} signer with {_MASTERS} group is not allowed"


def _timed(entry: JsonObject, before: JsonObject, now: str) -> JsonObject:
    """The condition with the times that its writer left out."""
    kind = entry.get("type")
    was: JsonValue = next((old for old in documents.items(before, "conditions") if old.get("type") == kind), None)
    same = isinstance(was, dict) and was.get("status") == entry.get("status")
    changed = was["lastTransitionTime"] if isinstance(was, dict) and same and was.get("lastTransitionTime") else now
    return {
        **entry,
        "lastUpdateTime": entry.get("lastUpdateTime") or now,
        "lastTransitionTime": entry.get("lastTransitionTime") or changed,
    }


def _spec_problems(spec: JsonObject) -> list[StatusCause]:
    found = []
    try:
        x509.load_pem_x509_csr(base64.b64decode(spec.get("request") or "", validate=True))
    except (binascii.Error, ValueError):
        text = "PEM block type must be CERTIFICATE REQUEST"
        found.append(field_errors.invalid("spec.request", spec.get("request") or "", text))
    if not spec.get("usages"):
        found.append(field_errors.required("spec.usages"))
    if not spec.get("signerName"):
        found.append(field_errors.required("spec.signerName"))
    seconds = spec.get("expirationSeconds")
    if isinstance(seconds, int) and seconds < _SHORTEST:
        text = f"may not specify a duration less than {_SHORTEST} seconds (10 minutes)"
        found.append(field_errors.invalid("spec.expirationSeconds", seconds, text))
    return found
