# SPDX-License-Identifier: Apache-2.0
"""Bodies to objects, and the metadata that every object has.

Owns reading a body as an object of one type (JSON, YAML, protobuf; unknown fields dropped, warned of or refused), and
the rules of `metadata` on create and update.
"""

from __future__ import annotations

import random
from typing import Final
from uuid import UUID

import yaml

from multikueue.devcluster.apiserver import documents, errors, protobuf, words
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.requests import Request
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.schema import builtin, structural
from multikueue.devcluster.apiserver.schema.node import Node
from multikueue.devcluster.apiserver.schema.validate import type_of

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED: Final = 63 - 5
_GO_TYPES: Final = {"int32": "int32", "int64": "int64", "double": "float64", "float": "float32"}
_JSON_WORDS: Final = {"boolean": "bool", "integer": "number"}
_LABEL_NAMED: Final = frozenset({"namespaces", "services"})


def decode(request: Request) -> JsonValue:
    """The body as JSON. Raises `StatusError`."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = request.body
    if media == protobuf.MEDIA_TYPE or body[:4] == protobuf.MAGIC:
        return protobuf.decode(body)
    try:
        if media.endswith("yaml"):
            return yaml.load(body, Loader=yaml.CSafeLoader)
        return documents.load(body) if body else {}
    except (ValueError, yaml.YAMLError) as error:
        raise errors.bad_request(f"error decoding the body of the request: {error}") from error


def read(request: Request, kind: ResourceType) -> JsonObject:
    """The body as an object of that type, its unknown fields treated as asked. Raises `StatusError`."""
    try:
        value = decode(request)
    except errors.StatusError as error:
        if kind.custom or error.code != 400:
            raise
        shown = request.body[:200].decode("utf-8", "replace")
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get version/kind; "
            f"json parse error: {error.message.rpartition('request: ')[2]} ({shown})"
        ) from error
    if not isinstance(value, dict):
        raise errors.bad_request(f"the body of the request is no object but {type_of(value)}")
    check_type(value, kind)
    clean(value, kind, validation(request), request.warnings)
    return value


def validation(request: Request) -> str:
    """What to do about unknown fields."""
    return request.query.get("fieldValidation", "") or "Warn"


def check_type(value: JsonObject, kind: ResourceType) -> None:
    """Set the type of an object that has none; refuse another. Raises `StatusError`."""
    group_version, name = value.get("apiVersion") or kind.api_version, value.get("kind") or kind.kind
    if name != kind.kind or group_version != kind.api_version:
        if kind.custom:
            raise errors.bad_request(
                f"the API version in the data ({group_version}) does not match the expected API version "
                f"({kind.api_version})"
                if group_version != kind.api_version
                else f"the kind in the data ({name}) does not match the expected kind ({kind.kind})"
            )
        version = group_version.rpartition("/")[2]
        raise errors.bad_request(
            f'{name} in version "{version}" cannot be handled as a {kind.kind}: converting ({version}.{name}) to '
            f"({kind.group or 'core'}.{kind.kind}): unknown conversion"
        )
    value["apiVersion"], value["kind"] = kind.api_version, kind.kind


def clean(value: JsonObject, kind: ResourceType, mode: str, warnings: list[str]) -> None:
    """Drop in place what the type does not know; for built-in kinds also check types. Raises `StatusError`."""
    if not isinstance(value.get("metadata"), dict):
        value["metadata"] = {}
    if not kind.custom:
        problem = _mismatch(value, kind.node, kind.kind, "")
        if problem is not None:
            raise errors.bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {problem}'
            )
    gone: list[str] = []
    structural.prune(value, kind.node, gone=gone)
    if not kind.custom:
        _drop_nulls(value)
    if gone and mode != "Ignore":
        if kind.custom:
            gone.sort()
        texts = [f'unknown field "{path}"' for path in gone]
        if mode == "Strict":
            raise errors.bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict decoding error: '
                f"{', '.join(texts)}"
            )
        warnings.extend(texts)


def _drop_nulls(value: JsonObject) -> None:
    """Absent and null are one to a struct."""
    for name in [name for name, entry in value.items() if entry is None]:
        del value[name]
    for entry in value.values():
        if isinstance(entry, dict):
            _drop_nulls(entry)
        elif isinstance(entry, list):
            for item in entry:
                if isinstance(item, dict):
                    _drop_nulls(item)


def _mismatch(value: JsonValue, kind: Node, owner: str, path: str) -> str | None:
    """What a typed decoder says of the first value of a wrong type."""
    if value is None:
        return None
    if kind.int_or_string or kind.preserve or (not kind.type and not kind.properties):
        return None
    actual = type_of(value)
    wanted = kind.type or "object"
    fits = actual == wanted or (wanted == "number" and actual == "integer")
    if not fits:
        word = _JSON_WORDS.get(actual, actual)
        where = f"{owner}{path}"
        return f"json: cannot unmarshal {word} into Go struct field {where} of type {_go_type(kind)}"
    if isinstance(value, dict):
        inner_owner = kind.name.rpartition(".")[2] or owner
        for name, entry in value.items():
            field = kind.properties.get(name)
            if field is not None:
                found = _mismatch(entry, field, inner_owner, f"{path}.{name}")
            elif kind.additional is not None:
                found = _mismatch(entry, kind.additional, owner, path)
            else:
                continue
            if found is not None:
                return found
    elif isinstance(value, list) and kind.items is not None:
        for entry in value:
            found = _mismatch(entry, kind.items, owner, path)
            if found is not None:
                return found
    return None


def _go_type(kind: Node) -> str:
    if kind.type == "integer":
        return _GO_TYPES.get(kind.format, "int")
    if kind.type == "array":
        return f"[]{_go_type(kind.items)}" if kind.items is not None else "[]"
    if kind.type == "boolean":
        return "bool"
    if kind.type == "string":
        return "string"
    if kind.additional is not None and not kind.properties:
        return f"map[string]{_go_type(kind.additional)}"
    parts = kind.name.split(".")
    return ".".join(parts[-2:]) if len(parts) > 1 else "struct"


def default(value: JsonObject, kind: ResourceType) -> None:
    """Fill in place what clients may leave out."""
    if kind.custom:
        structural.default(value, kind.node)
    else:
        kind.behaviour.default(value)
        builtin.fill_zero(kind.node, value)


def begin(value: JsonObject, *, kind: ResourceType, namespace: str, now: str, rng: random.Random) -> None:
    """The metadata of a new object. Raises `StatusError`."""
    metadata = value["metadata"]
    if kind.namespaced:
        given = metadata.get("namespace")
        if given and given != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = namespace
    elif metadata.get("namespace"):
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    for name in (
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "generation",
        "creationTimestamp",
        "uid",
    ):
        metadata.pop(name, None)
    if metadata.pop("resourceVersion", None):
        raise errors.StatusError(500, "", "resourceVersion should not be set on objects to be created")
    if not metadata.get("name"):
        generate = metadata.get("generateName")
        if generate:
            metadata["name"] = generate[:_MAX_GENERATED] + "".join(rng.choices(_SUFFIX, k=5))
    metadata["uid"] = new_uid(rng)
    metadata["creationTimestamp"] = now


def new_uid(rng: random.Random) -> str:
    """A version 4 UUID."""
    return str(UUID(int=rng.getrandbits(128), version=4))


def ordered(metadata: JsonObject) -> JsonObject:
    """The metadata as the next reader likes it: name first, bookkeeping last."""
    found: JsonObject = {name: metadata[name] for name in _ORDER if name in metadata}
    found.update(metadata)
    fields = found.pop("managedFields", None)
    if fields:
        found["managedFields"] = fields
    return found


_ORDER: Final = ("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp")


def problems(value: JsonObject, *, kind: ResourceType, old: JsonObject | None = None) -> list[Cause]:
    """What is wrong with the metadata."""
    metadata = value["metadata"]
    found: list[Cause] = []
    if old is None:
        name = metadata.get("name")
        if not name:
            found.append(words.required("metadata.name", "name or generateName is required"))
        elif kind.group == "rbac.authorization.k8s.io":
            if "/" in name or "%" in name or name in (".", ".."):
                found.append(words.bad_value("metadata.name", name, "may not contain '/'"))
        else:
            found += words.name_problems("metadata.name", name, label=kind.plural in _LABEL_NAMED)
    before = old["metadata"] if old is not None else documents.EMPTY
    if metadata.get("labels") != before.get("labels"):
        found += words.label_problems("metadata.labels", metadata.get("labels"))
    if metadata.get("annotations") != before.get("annotations"):
        for key in metadata.get("annotations") or {}:
            found += words.key_problems("metadata.annotations", key.lower())
    if metadata.get("ownerReferences") != before.get("ownerReferences"):
        found += _owner_problems(metadata.get("ownerReferences"))
    if metadata.get("finalizers") != before.get("finalizers"):
        found += _finalizer_problems(metadata, before)
    return found


def _owner_problems(references: JsonValue) -> list[Cause]:
    found = []
    controllers = 0
    for index, reference in enumerate(references or ()):
        where = f"metadata.ownerReferences[{index}]"
        for name in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(name):
                text = "version must not be empty" if name == "apiVersion" else "must not be empty"
                found.append(words.bad_value(f"{where}.{name}", reference.get(name, ""), text))
        controllers += bool(reference.get("controller"))
    if controllers > 1:
        detail = "Only one reference can have Controller set to true"
        found.append(words.bad_value("metadata.ownerReferences", references, detail))
    return found


def _finalizer_problems(metadata: JsonObject, before: JsonObject) -> list[Cause]:
    found = []
    finalizers = metadata.get("finalizers") or []
    for name in finalizers:
        found += words.key_problems("metadata.finalizers", name)
    if before.get("deletionTimestamp"):
        added = [name for name in finalizers if name not in (before.get("finalizers") or [])]
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            detail = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            found.append(words.forbidden("metadata.finalizers", detail))
    return found


def carry(value: JsonObject, old: JsonObject) -> None:
    """What an update may not change in the metadata is taken from the old object."""
    metadata, before = value["metadata"], old["metadata"]
    for name in (
        "uid",
        "creationTimestamp",
        "namespace",
        "generateName",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ):
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    metadata.pop("selfLink", None)
    metadata["name"] = before["name"]
