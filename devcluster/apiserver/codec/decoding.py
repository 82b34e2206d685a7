# SPDX-License-Identifier: Apache-2.0
"""Decodes request bodies (JSON, YAML, protobuf) to objects of one type.

Owns the check of the body's type, and field validation: unknown and duplicate fields are dropped, warned of or refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents, grammar, protobuf
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.http.requests import Request
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.schema import builtin, structural
from devcluster.apiserver.schema.forms import mismatch, unreadable
from devcluster.apiserver.schema.node import TypeNode

_METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
READ: Final = ("application/json", "application/yaml", protobuf.MEDIA_TYPE)
_SHOWN: Final = 30
_SCHEME: Final = 'in scheme "pkg/runtime/scheme.go:111"'
_HEAD: Final = (
    'Go value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
    '"json:\\"kind,omitempty\\"" }'
)
_JSON_TYPES: Final = {list: "array", str: "string", int: "number", float: "number", bool: "bool"}


def decode(request: Request) -> JsonValue:
    """The body as JSON of any type. Raises `StatusError`."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = request.body
    if media == protobuf.MEDIA_TYPE or body[:4] == protobuf.MAGIC:
        return protobuf.decode(body)
    if not body:
        return {}
    try:
        return grammar.load_yaml(body) if media.endswith("yaml") else documents.load(body)
    except ValueError as error:
        raise errors.bad_request(f"error decoding the body of the request: {error}") from error


def validation(request: Request) -> str:
    """The mode of field validation: `Ignore`, `Warn` or `Strict`."""
    return request.query.get("fieldValidation", "") or "Warn"


def read(request: Request, kind: ResourceType) -> JsonObject:
    """The body as an object of that type, after field validation. Raises `StatusError`."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = request.body
    twice: list[str] = []
    places: dict[str, int] = {}
    mode = validation(request)
    if media == protobuf.MEDIA_TYPE and not kind.custom:
        value = protobuf.decode(body)
    elif media and (media not in READ or media == protobuf.MEDIA_TYPE):
        raise unknown_format()
    else:
        is_yaml = media.endswith("yaml")
        found = _parse(body, kind, twice=twice if is_yaml else None)
        if not isinstance(found, dict):
            found = {}
        value = found
        if is_yaml and twice and mode == "Strict":
            twice = ["yaml: unmarshal errors:\n  " + "\n  ".join(twice)]
        elif not is_yaml and documents.may_repeat(body, value):
            value, twice, places = _doubled(body, kind)
    check_type(value, kind, body)
    clean(value, kind, mode, request.warnings, twice=twice, places=places)
    settle(value, kind)
    return value


def unknown_format() -> errors.StatusError:
    """The answer to a body of an unknown media type."""
    listed = f"accepted media types include: {', '.join(READ)}"
    text = f"the body of the request was in an unknown format - {listed}"
    return errors.StatusError(415, "UnsupportedMediaType", text)


def _parse(body: bytes, kind: ResourceType, *, twice: list[str] | None) -> JsonValue:
    """The body as JSON; as YAML if `twice` is given, which collects duplicate keys."""
    try:
        return head(body, is_yaml=twice is not None, twice=twice)
    except errors.StatusError as error:
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): {error.message} ({_shown(body)})"
        ) from error


def head(body: bytes, *, is_yaml: bool, twice: list[str] | None = None) -> JsonObject | None:
    """The body as an object with a type; None if it is null. Raises `StatusError`."""
    unknown_type = "couldn't get version/kind; json parse error: "
    try:
        value = grammar.load_yaml(body, twice=twice) if is_yaml else documents.load(body)
    except ValueError as error:
        if is_yaml:
            raise errors.bad_request(str(error)) from error
        problem = grammar.json_problem(body.decode("utf-8", "replace"))
        raise errors.bad_request(f"{unknown_type}{problem or error}") from error
    if value is None:
        return None
    if not isinstance(value, dict):
        raise errors.bad_request(f"{unknown_type}json: cannot unmarshal {json_type(value)} into {_HEAD}")
    for name in ("apiVersion", "kind"):
        entry = value.get(name)
        if entry is not None and not isinstance(entry, str):
            where = f"Go struct field .{name} of type string"
            raise errors.bad_request(f"{unknown_type}json: cannot unmarshal {json_type(entry)} into {where}")
    return value


def _shown(body: bytes) -> str:
    """The part of a body that an error shows: text if it looks like JSON, else its bytes."""
    if not body:
        return "<empty>"
    cut, more = body[:_SHOWN], " ..." if len(body) > _SHOWN else ""
    return (cut.decode("utf-8", "replace") if body.lstrip()[:1] == b"{" else cut.hex()) + more


def check_type(value: JsonObject, kind: ResourceType, body: bytes = b"") -> None:
    """Set the type of an object that has none; refuse another type. Raises `StatusError`."""
    given_version, given_kind = value.get("apiVersion"), value.get("kind")
    if kind.custom:
        if not given_kind:
            text = body.decode("utf-8", "replace")
            raise errors.bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): Object 'Kind' is missing in "
                f"'{text}' ({_shown(body)})"
            )
        if given_version != kind.api_version:
            raise errors.bad_request(
                f"the API version in the data ({given_version or ''}) does not match the expected API version "
                f"({kind.api_version})"
            )
        return
    why = type_problem(value, kind)
    if why is not None:
        name, version = given_kind or kind.kind, (given_version or kind.api_version).rpartition("/")[2]
        raise errors.bad_request(f'{name} in version "{version}" cannot be handled as a {kind.kind}: {why}')
    value["apiVersion"], value["kind"] = kind.api_version, kind.kind


def type_problem(value: JsonObject, kind: ResourceType) -> str | None:
    """Why an object cannot be decoded as a built-in kind; None if it is of that kind."""
    group_version, name = value.get("apiVersion") or kind.api_version, value.get("kind") or kind.kind
    if kind.custom or (name == kind.kind and group_version == kind.api_version):
        return None
    group, _, version = group_version.rpartition("/")
    definition = builtin.definition_of(group, version, name)
    if definition is None:
        return f'no kind "{name}" is registered for version "{group_version}" {_SCHEME}'
    group_kind = f"{kind.group.partition('.')[0] or 'core'}.{kind.kind}"
    converting = f"converting ({version}.{name}) to ({group_kind}): unknown conversion"
    return mismatch(value, builtin.node(definition), name) or converting


def clean(
    value: JsonObject,
    kind: ResourceType,
    mode: str,
    warnings: list[str],
    *,
    twice: Sequence[str] = (),
    places: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Drop unknown fields in place, and check the types of known ones. Raises `StatusError`.

    `twice` are the texts about duplicate fields, `places` where in the body a text about a field of a built-in kind
    belongs.
    """
    problem = mismatched(value, kind)
    if problem is not None:
        raise errors.bad_request(f"{_handled(kind)}: {problem}")
    pruned = unknown(value, kind)
    texts = [*twice, *(f'unknown field "{path}"' for path in pruned)]
    if places:
        gone = {f'duplicate field "{path}"' for path in pruned}
        texts = sorted((text for text in texts if text not in gone), key=lambda text: places.get(text, 0))
    if texts and mode != "Ignore":
        if mode == "Strict":
            raise errors.bad_request(f"{_handled(kind)}: strict decoding error: {', '.join(texts)}")
        warnings.extend(texts)


def _handled(kind: ResourceType) -> str:
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'


def json_type(value: JsonValue) -> str:
    """The name of a value's type in errors of a JSON decoder."""
    return _JSON_TYPES.get(type(value), "object")


def mismatched(value: JsonObject, kind: ResourceType, *, restores: bool = False) -> str | None:
    """A typed decoder's error for the first value of a wrong type; of custom resources only the metadata is typed.

    With `restores`, the error of a decoder that reads a patched document instead of text.
    """
    if not kind.custom:
        return mismatch(value, kind.node, kind.kind, restores=restores)
    metadata = value.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        return f"json: cannot unmarshal {_JSON_TYPES[type(metadata)]} into Go value of type v1.ObjectMeta"
    return mismatch(metadata, builtin.node(_METADATA), "ObjectMeta") or unreadable(value, kind.node)


def unknown(value: JsonObject, kind: ResourceType, old: JsonObject = documents.EMPTY) -> list[str]:
    """Drop unknown fields in place, and return their paths. Parts shared with `old` are known."""
    if not isinstance(value.get("metadata"), dict):
        value["metadata"] = {}
    pruned: list[str] = []
    structural.prune(value, kind.node, pruned=pruned, old=old)
    if kind.custom:
        pruned.sort()
    return pruned


def settle(value: JsonObject, kind: ResourceType) -> None:
    """Drop in place what a struct does not tell from absent; of custom resources only in the metadata."""
    if kind.custom:
        _drop_empty(value["metadata"], builtin.node(_METADATA))
    else:
        _drop_empty(value, kind.node)


def _drop_empty(value: JsonObject, node: TypeNode) -> None:
    """A struct does not tell null from absent, nor empty from absent in optional fields that are no pointers."""
    pruned = []
    for name, entry in value.items():
        if entry and type(entry) is str:
            continue
        if entry is None:
            if node.additional is not None and node.additional.type == "string":
                value[name] = ""
            else:
                pruned.append(name)
        elif not entry and name in node.properties and _omits(name, entry, node):
            pruned.append(name)
        elif isinstance(entry, dict):
            field = node.field(name)
            if field is None or field.preserve:
                continue
            _drop_empty(entry, field)
        elif isinstance(entry, list):
            field = node.field(name)
            if field is not None and field.items is not None:
                for item in entry:
                    if isinstance(item, dict):
                        _drop_empty(item, field.items)
    for name in pruned:
        del value[name]


def _omits(name: str, entry: JsonValue, node: TypeNode) -> bool:
    """Whether a struct leaves out an empty field."""
    if name in node.required or name == "managedFields":
        return False
    if node.properties[name].preserve:
        return False  # any JSON is a value
    if isinstance(entry, list):
        return True
    if isinstance(entry, dict):
        return not node.properties[name].properties
    return name in builtin.omitted_fields(node.name)


class _Pairs(list[tuple[str, JsonValue]]):
    """The members of an object in the order of the text."""


def _doubled(body: bytes, kind: ResourceType) -> tuple[JsonObject, list[str], dict[str, int]]:
    """The object, the texts about duplicate fields, and where in the body a text about a field belongs."""
    pairs = json.loads(body, object_pairs_hook=_Pairs)
    twice: list[str] = []
    value = _joined(pairs, "", twice, None if kind.custom else kind.node)
    places: dict[str, int] = {}
    if not kind.custom:
        for place, path in enumerate(_paths(pairs, "")):
            first, again = f'unknown field "{path}"', f'duplicate field "{path}"'
            places.setdefault(again if first in places else first, place)
    return value, [f'duplicate field "{path}"' for path in dict.fromkeys(twice)], places


def _paths(value: JsonValue, path: str) -> Iterator[str]:
    """The path of each field in the order of the text, as often as it is there."""
    if isinstance(value, _Pairs):
        for name, entry in value:
            where = f"{path}.{name}" if path else name
            yield where
            yield from _paths(entry, where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _paths(item, f"{path}[{index}]")


def _joined(value: JsonValue, path: str, twice: list[str], node: TypeNode | None) -> JsonValue:
    if isinstance(value, _Pairs):
        found: JsonObject = {}
        for name, entry in value:
            where = f"{path}.{name}" if path else name
            inner = _joined(entry, where, twice, node.field(name) if node is not None else None)
            if name in found:
                twice.append(where)
                if node is not None and isinstance(inner, dict) and isinstance(found[name], dict):
                    inner = {**found[name], **inner}  # a duplicate struct is decoded into the same one
            found[name] = inner
        return found
    if isinstance(value, list):
        inner_node = node.items if node is not None else None
        return [_joined(item, f"{path}[{index}]", twice, inner_node) for index, item in enumerate(value)]
    return value
