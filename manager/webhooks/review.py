# SPDX-License-Identifier: Apache-2.0
"""AdmissionReview and ConversionReview as values.

Owns what the API server sends and expects (admission.k8s.io/v1, apiextensions.k8s.io/v1). Handlers take an
`AdmissionRequest` and return a `ReviewAnswer`; neither depends on HTTP.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import orjson

from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt, printable

_ADMISSION: Final = "admission.k8s.io/v1"
_CONVERSION: Final = "apiextensions.k8s.io/v1"
_MESSAGE_LENGTH: Final = 16 * 1024  # a denial quotes the value, which may be as long as the object
_TYPES: Final[Mapping[type, str]] = {dict: "an object", list: "a list", str: "text"}
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """What is about to be done to one object."""

    uid: str
    operation: str
    namespace: str
    name: str
    subresource: str = ""
    user: str = ""
    user_info: JsonObject = field(default_factory=dict)
    object: JsonObject | None
    old_object: JsonObject | None = None

    @property
    def creates(self) -> bool:
        """Whether the object is new."""
        return self.operation == "CREATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewAnswer:
    """Allowed, perhaps as another object; or denied with the reasons, or because the user may not do it."""

    object: JsonObject | None = None
    refusals: Sequence[str] = ()
    forbidden: str = ""
    warnings: Sequence[str] = ()


def read_admission(body: bytes) -> AdmissionRequest:
    """The request of an AdmissionReview. Raises `BadInput` for anything else."""
    request = _request(body, "AdmissionReview")
    user = _field(request, "userInfo", dict, "AdmissionReview") or {}

    def text(name: str, *, required: bool = False) -> str:
        return _field(request, name, str, "AdmissionReview", required=required) or ""

    return AdmissionRequest(
        uid=text("uid", required=True),
        operation=text("operation", required=True),
        namespace=text("namespace"),
        name=text("name"),
        subresource=text("subResource"),
        user=_field(user, "username", str, "AdmissionReview") or "",
        user_info=user,
        object=_field(request, "object", dict, "AdmissionReview"),
        old_object=_field(request, "oldObject", dict, "AdmissionReview"),
    )


def _request(body: bytes, kind: str) -> JsonObject:
    """The `request` of a review of that kind. Raises `BadInput`."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"not {_an(kind)}: not JSON: {error}") from error
    if not isinstance(review, dict):
        raise BadInput(f"not {_an(kind)}: expected an object, found {excerpt(review)}")
    found: JsonObject = _field(review, "request", dict, kind, required=True)
    return found


def _field(obj: JsonObject, name: str, wanted: type[T], kind: str, *, required: bool = False) -> T | Any:
    """A field of the required type; None where it may be absent. Raises `BadInput`."""
    value = obj.get(name)
    if isinstance(value, wanted) or (value is None and not required):
        return value
    found = "nothing" if value is None else excerpt(value)
    raise BadInput(f"not {_an(kind)}: {name}: expected {_TYPES[wanted]}, found {found}")


def _an(kind: str) -> str:
    return f"an {kind}" if kind.startswith("A") else f"a {kind}"


def write_admission(request: AdmissionRequest, answer: ReviewAnswer, *, kind: str) -> bytes:
    """The AdmissionReview that answers `request`; every refusal is 403 Forbidden, as clients of Kueue test for it.

    The API server writes `admission webhook "NAME" denied the request: ` before the message.
    """
    response: JsonObject = {"uid": request.uid, "allowed": not (answer.refusals or answer.forbidden)}
    if answer.forbidden:
        response["status"] = _forbidden(f'{kind} "{request.name}" is forbidden: {answer.forbidden}')
    elif answer.refusals:
        reasons = answer.refusals[0] if len(answer.refusals) == 1 else f"[{', '.join(answer.refusals)}]"
        if len(reasons) > _MESSAGE_LENGTH:
            reasons = f"{reasons[:_MESSAGE_LENGTH]}…"
        response["status"] = _forbidden(f'{kind} "{request.name}" is invalid: {reasons}')
    elif answer.object is not None and request.object is not None:
        operations = json_patch(request.object, answer.object)
        if operations:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(orjson.dumps(operations)).decode()
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    return orjson.dumps({"apiVersion": _ADMISSION, "kind": "AdmissionReview", "response": response})


def _forbidden(message: str) -> JsonObject:
    return {"code": 403, "reason": "Forbidden", "message": message}


def convert_review(body: bytes, convert: Callable[[JsonObject, str], JsonObject]) -> bytes:
    """The ConversionReview that answers `body`. Raises `BadInput` for an invalid review; objects fail as a whole."""
    kind = "ConversionReview"
    request = _request(body, kind)
    uid = _field(request, "uid", str, kind, required=True)
    version = _field(request, "desiredAPIVersion", str, kind, required=True)
    objects = _field(request, "objects", list, kind, required=True)
    for index, item in enumerate(objects):
        if not isinstance(item, dict):
            raise BadInput(f"not a {kind}: objects[{index}]: expected an object, found {excerpt(item)}")
    try:
        response = {
            "uid": uid,
            "convertedObjects": [convert(item, version) for item in objects],
            "result": {"status": "Success"},
        }
        return _conversion(response)
    except (BadInput, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        # The server does not validate stored objects before it asks, so any field may be of any type.
        message = f"to {printable(version)}: {printable(str(error))[:_MESSAGE_LENGTH]}"
        return _conversion({"uid": uid, "result": {"status": "Failure", "message": message}})


def _conversion(response: JsonObject) -> bytes:
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
