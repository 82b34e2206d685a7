# SPDX-License-Identifier: Apache-2.0
"""AdmissionReview and ConversionReview as values.

Owns what the API server sends and expects back (admission.k8s.io/v1, apiextensions.k8s.io/v1). Handlers see an
`AdmissionRequest` and answer with an `Answer`; neither knows of HTTP.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput

_ADMISSION: Final = "admission.k8s.io/v1"
_CONVERSION: Final = "apiextensions.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """What is about to be done to one object."""

    uid: str
    operation: str
    namespace: str
    name: str
    subresource: str = ""
    user: str = ""
    object: JsonObject | None
    old_object: JsonObject | None = None

    @property
    def creates(self) -> bool:
        """Whether the object is new."""
        return self.operation == "CREATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Allowed, perhaps as another object; or refused with the reasons."""

    object: JsonObject | None = None
    refusals: Sequence[str] = ()
    warnings: Sequence[str] = ()


def read_admission(body: bytes) -> AdmissionRequest:
    """The request of an AdmissionReview. Raises `BadInput` on anything else."""
    try:
        review = orjson.loads(body)
        request = review["request"]
        return AdmissionRequest(
            uid=request["uid"],
            operation=request["operation"],
            namespace=request.get("namespace") or "",
            name=request.get("name") or "",
            subresource=request.get("subResource") or "",
            user=(request.get("userInfo") or {}).get("username") or "",
            object=request.get("object"),
            old_object=request.get("oldObject"),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise BadInput(f"not an AdmissionReview: {error}") from error


def write_admission(request: AdmissionRequest, answer: Answer, *, kind: str) -> bytes:
    """The AdmissionReview that answers `request`; a refusal reads as the API server's own (422 Invalid)."""
    response: JsonObject = {"uid": request.uid, "allowed": not answer.refusals}
    if answer.refusals:
        reasons = answer.refusals[0] if len(answer.refusals) == 1 else f"[{', '.join(answer.refusals)}]"
        response["status"] = {
            "code": 422,
            "reason": "Invalid",
            "message": f'{kind} "{request.name}" is invalid: {reasons}',
        }
    elif answer.object is not None and request.object is not None:
        operations = json_patch(request.object, answer.object)
        if operations:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(orjson.dumps(operations)).decode()
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    return orjson.dumps({"apiVersion": _ADMISSION, "kind": "AdmissionReview", "response": response})


def convert_review(body: bytes, convert: Callable[[JsonObject, str], JsonObject]) -> bytes:
    """The ConversionReview that answers `body`. Raises `BadInput` when it is none; objects fail as a whole."""
    try:
        request = orjson.loads(body)["request"]
        uid, version, objects = request["uid"], request["desiredAPIVersion"], request["objects"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise BadInput(f"not a ConversionReview: {error}") from error
    try:
        response = {
            "uid": uid,
            "convertedObjects": [convert(item, version) for item in objects],
            "result": {"status": "Success"},
        }
    except (BadInput, KeyError, TypeError, ValueError) as error:
        response = {"uid": uid, "result": {"status": "Failure", "message": f"to {version}: {error}"}}
    return orjson.dumps({"apiVersion": _CONVERSION, "kind": "ConversionReview", "response": response})


def json_patch(old: JsonObject, new: JsonObject) -> list[JsonObject]:
    """The JSON Patch from `old` to `new`: members are added, replaced and removed; lists are replaced as a whole."""
    operations: list[JsonObject] = []
    _diff(old, new, "", operations)
    return operations


def _diff(old: JsonObject, new: JsonObject, path: str, operations: list[JsonObject]) -> None:
    for name in old.keys() - new.keys():
        operations.append({"op": "remove", "path": f"{path}/{_escaped(name)}"})
    for name, value in new.items():
        where = f"{path}/{_escaped(name)}"
        if name not in old:
            operations.append({"op": "add", "path": where, "value": value})
        elif isinstance(value, dict) and isinstance(old[name], dict):
            _diff(old[name], value, where, operations)
        elif value != old[name]:
            operations.append({"op": "replace", "path": where, "value": value})


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
