# SPDX-License-Identifier: Apache-2.0
"""Checks that the schema of a definition is structural.

Owns the causes for types, lists, maps, logical junctors and defaults, at the paths of the definition. Rules are checked
by `expressions` if there are no other problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import orjson

from devcluster.apiserver import field_errors
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.codec.documents import JsonObject, copy
from devcluster.apiserver.codec.patterns import pattern_of
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.schema import structural
from devcluster.apiserver.schema.expressions import rule_problems
from devcluster.apiserver.schema.validate import validate_value

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_LISTS: Final = ("atomic", "set", "map")
_MAPS: Final = ("atomic", "granular")
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
_UNCONDITIONAL: Final = {
    "type": "must be empty to be structural",
    "default": "must be undefined to be structural",
    "additionalProperties": "must be undefined to be structural",
    "nullable": "must be false to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
}
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_LIST_TYPE: Final = "x-kubernetes-list-type"
_LIST_KEYS: Final = "x-kubernetes-list-map-keys"
_MAP_TYPE: Final = "x-kubernetes-map-type"
_EITHER: Final = "x-kubernetes-int-or-string"
_KNOWN_AT_MOST: Final = 500
_known: Final[dict[tuple[bytes, str], tuple[StatusCause, ...]]] = {}
"""By the digest of a schema, and its path: the same few definitions are written again and again."""


def problems(schema: JsonObject, path: str) -> list[StatusCause]:
    """The problems of the schema of a whole object."""
    key = (blake2b(orjson.dumps(schema), digest_size=16).digest(), path)
    found = _known.get(key)
    if found is None:
        if len(_known) >= _KNOWN_AT_MOST:
            _known.clear()
        found = _known[key] = tuple(_problems(schema, path))
    return list(found)


def _problems(schema: JsonObject, path: str) -> list[StatusCause]:
    type = schema.get("type")
    if not type:
        return [field_errors.required(f"{path}.type", "must not be empty at the root")]
    if type != "object":
        return [field_errors.invalid(f"{path}.type", type, "must be object at the root")]
    found = list(_node(schema, path))
    return found or rule_problems(schema, path)


def _node(schema: JsonObject, path: str) -> Iterator[StatusCause]:
    yield from _keywords(schema, path)
    yield from _kubernetes_keywords(schema, path)
    yield from _list_keywords(schema, path)
    yield from _default(schema, path)
    for name, child in (schema.get("properties") or {}).items():
        yield from _child(child, f"{path}.properties[{name}]", "must not be empty for specified object fields")
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        text = "must not be empty for specified object fields"
        yield from _child(extra, f"{path}.additionalProperties", text)
        if schema.get("properties"):
            text = "additionalProperties and properties are mutual exclusive"
            yield field_errors.forbidden(f"{path}.additionalProperties", text)
    items = schema.get("items")
    if isinstance(items, dict):
        yield from _child(items, f"{path}.items", "must not be empty for specified array items")
    elif schema.get("type") == "array":
        yield field_errors.required(f"{path}.items", "must be specified")
    for keyword in _JUNCTORS:
        for index, part in enumerate(schema.get(keyword) or ()):
            yield from _junctor(part, f"{path}.{keyword}[{index}]", either=bool(schema.get(_EITHER)))
    if isinstance(schema.get("not"), dict):
        yield from _junctor(schema["not"], f"{path}.not", either=False)


def _child(schema: JsonObject, path: str, untyped: str) -> Iterator[StatusCause]:
    if not schema.get("type") and not schema.get(_EITHER) and not schema.get(_PRESERVE) and "$ref" not in schema:
        yield field_errors.required(f"{path}.type", untyped)
    yield from _node(schema, path)


def _keywords(schema: JsonObject, path: str) -> Iterator[StatusCause]:
    type = schema.get("type")
    if type and type not in _TYPES:
        yield field_errors.not_supported(f"{path}.type", type, _TYPES)
    if "$ref" in schema:
        yield field_errors.forbidden(f"{path}.$ref", "$ref is not supported")
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield field_errors.forbidden(f"{path}.uniqueItems", text)
    pattern = schema.get("pattern")
    if pattern:
        try:
            pattern_of(pattern)
        except re.error:
            why = f"error parsing regexp: missing closing ]: `{pattern[pattern.find('[') :]}`"
            text = f"must be a valid regular expression, but isn't: {why}"
            yield field_errors.invalid(f"{path}.pattern", pattern, text)


def _kubernetes_keywords(schema: JsonObject, path: str) -> Iterator[StatusCause]:
    type = schema.get("type")
    if schema.get(_PRESERVE) is False:
        yield field_errors.invalid(f"{path}.{_PRESERVE}", False, "must be true or undefined")
    if schema.get(_EMBEDDED):
        if type != "object":
            yield field_errors.invalid(f"{path}.type", type or "", f"must be object if {_EMBEDDED} is true")
        if not schema.get("properties") and not schema.get(_PRESERVE):
            text = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
            yield field_errors.required(f"{path}.properties", text)
    map_type = schema.get(_MAP_TYPE)
    if map_type is not None:
        if map_type not in _MAPS:
            yield field_errors.not_supported(f"{path}.{_MAP_TYPE}", map_type, _MAPS)
        if type != "object":
            yield field_errors.invalid(f"{path}.type", type or "", f"must be object if {_MAP_TYPE} is specified")


def _list_keywords(schema: JsonObject, path: str) -> Iterator[StatusCause]:
    list_type, keys = schema.get(_LIST_TYPE), schema.get(_LIST_KEYS) or []
    if list_type is None:
        return
    type, items = schema.get("type"), schema.get("items")
    items = items if isinstance(items, dict) else {}
    if type != "array":
        yield field_errors.invalid(f"{path}.type", type or "", f"must be array if {_LIST_TYPE} is specified")
    if list_type not in _LISTS:
        yield field_errors.not_supported(f"{path}.{_LIST_TYPE}", list_type, _LISTS)
    if list_type == "map":
        if not keys:
            yield field_errors.required(f"{path}.{_LIST_KEYS}", f"must not be empty if {_LIST_TYPE} is map")
        if items.get("type") != "object":
            text = f"must be object if parent array's {_LIST_TYPE} is map"
            yield field_errors.invalid(f"{path}.items.type", items.get("type", ""), text)
            return
        known = items.get("properties") or {}
        if any(key not in known for key in keys):
            yield field_errors.invalid(f"{path}.{_LIST_KEYS}", keys, "entries must all be names of item properties")
        for key in keys:
            if key in known and key not in (items.get("required") or ()) and "default" not in known[key]:
                text = f"this property is in {_LIST_KEYS}, so it must have a default or be a required property"
                yield field_errors.required(f"{path}.items.properties[{key}].default", text)
    elif list_type == "set" and items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
        text = f"must be atomic as item of a list with {_LIST_TYPE}=set"
        yield field_errors.invalid(f"{path}.items.{_MAP_TYPE}", items.get(_MAP_TYPE), text)


def _default(schema: JsonObject, path: str) -> Iterator[StatusCause]:
    default = schema.get("default")
    if default is None:
        return
    try:
        kind = structural.read(schema)
    except CelError:
        return
    where, pruned = f"{path}.default", copy(default)
    if isinstance(pruned, dict):
        structural.prune(pruned, kind)
        if pruned != default:
            yield field_errors.invalid(where, default, "must not have unknown fields")
            return
    for cause in validate_value(default, kind):
        yield StatusCause(
            cause.reason, cause.message, f"{where}.{cause.field}" if cause.field not in ("", "<nil>") else where
        )


def _junctor(schema: JsonObject, path: str, *, either: bool) -> Iterator[StatusCause]:
    """The problems of a part of a junctor, which may only restrict the structure beside it."""
    for keyword, text in _UNCONDITIONAL.items():
        if keyword in schema and not (either and keyword == "type"):
            yield field_errors.forbidden(f"{path}.{keyword}", text)
    for name, child in (schema.get("properties") or {}).items():
        yield from _junctor(child, f"{path}.properties[{name}]", either=False)
    if isinstance(schema.get("items"), dict):
        yield from _junctor(schema["items"], f"{path}.items", either=False)
    for keyword in _JUNCTORS:
        for index, part in enumerate(schema.get(keyword) or ()):
            yield from _junctor(part, f"{path}.{keyword}[{index}]", either=either)
