# SPDX-License-Identifier: Apache-2.0
"""What makes a schema structural: checks of a definition's schema before anything is served by it.

Owns the causes for types, lists, maps, formulas and defaults, at the paths of the definition. Rules are judged by
`expressions`, when there is nothing else to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from multikueue.devcluster.apiserver.cel.syntax import CelError
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue, copy
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.schema import structural
from multikueue.devcluster.apiserver.schema.expressions import rule_problems
from multikueue.devcluster.apiserver.schema.validate import pattern_of, validate_value
from multikueue.devcluster.apiserver.schema.values import quoted

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_LISTS: Final = ("atomic", "set", "map")
_MAPS: Final = ("atomic", "granular")
_FORMULAS: Final = ("allOf", "anyOf", "oneOf")
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


def problems(schema: JsonObject, path: str) -> list[Cause]:
    """What is wrong with the schema of a whole object."""
    type = schema.get("type")
    if not type:
        return [_required(f"{path}.type", "must not be empty at the root")]
    if type != "object":
        return [_invalid(f"{path}.type", type, "must be object at the root")]
    found = list(_node(schema, path))
    return found or rule_problems(schema, path)


def _required(path: str, text: str) -> Cause:
    return Cause("FieldValueRequired", f"Required value: {text}", path)


def _invalid(path: str, value: JsonValue, text: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {quoted(value)}: {text}", path)


def _forbidden(path: str, text: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {text}", path)


def _unsupported(path: str, value: JsonValue, allowed: tuple[str, ...]) -> Cause:
    listed = ", ".join(map(quoted, allowed))
    return Cause("FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {listed}", path)


def _node(schema: JsonObject, path: str) -> Iterator[Cause]:
    yield from _words(schema, path)
    yield from _kubernetes_words(schema, path)
    yield from _list_words(schema, path)
    yield from _default(schema, path)
    for name, child in (schema.get("properties") or {}).items():
        yield from _child(child, f"{path}.properties[{name}]", "must not be empty for specified object fields")
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        text = "must not be empty for specified object fields"
        yield from _child(extra, f"{path}.additionalProperties", text)
        if schema.get("properties"):
            text = "additionalProperties and properties are mutual exclusive"
            yield _forbidden(f"{path}.additionalProperties", text)
    items = schema.get("items")
    if isinstance(items, dict):
        yield from _child(items, f"{path}.items", "must not be empty for specified array items")
    elif schema.get("type") == "array":
        yield _required(f"{path}.items", "must be specified")
    for word in _FORMULAS:
        for index, part in enumerate(schema.get(word) or ()):
            yield from _formula(part, f"{path}.{word}[{index}]", either=bool(schema.get(_EITHER)))
    if isinstance(schema.get("not"), dict):
        yield from _formula(schema["not"], f"{path}.not", either=False)


def _child(schema: JsonObject, path: str, untyped: str) -> Iterator[Cause]:
    if not schema.get("type") and not schema.get(_EITHER) and not schema.get(_PRESERVE) and "$ref" not in schema:
        yield _required(f"{path}.type", untyped)
    yield from _node(schema, path)


def _words(schema: JsonObject, path: str) -> Iterator[Cause]:
    type = schema.get("type")
    if type and type not in _TYPES:
        yield _unsupported(f"{path}.type", type, _TYPES)
    if "$ref" in schema:
        yield _forbidden(f"{path}.$ref", "$ref is not supported")
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield _forbidden(f"{path}.uniqueItems", text)
    pattern = schema.get("pattern")
    if pattern:
        try:
            pattern_of(pattern)
        except re.error:
            why = f"error parsing regexp: missing closing ]: `{pattern[pattern.find('[') :]}`"
            text = f"must be a valid regular expression, but isn't: {why}"
            yield _invalid(f"{path}.pattern", pattern, text)


def _kubernetes_words(schema: JsonObject, path: str) -> Iterator[Cause]:
    type = schema.get("type")
    if schema.get(_PRESERVE) is False:
        yield _invalid(f"{path}.{_PRESERVE}", False, "must be true or undefined")
    if schema.get(_EMBEDDED):
        if type != "object":
            yield _invalid(f"{path}.type", type or "", f"must be object if {_EMBEDDED} is true")
        if not schema.get("properties") and not schema.get(_PRESERVE):
            text = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
            yield _required(f"{path}.properties", text)
    map_type = schema.get(_MAP_TYPE)
    if map_type is not None:
        if map_type not in _MAPS:
            yield _unsupported(f"{path}.{_MAP_TYPE}", map_type, _MAPS)
        if type != "object":
            yield _invalid(f"{path}.type", type or "", f"must be object if {_MAP_TYPE} is specified")


def _list_words(schema: JsonObject, path: str) -> Iterator[Cause]:
    list_type, keys = schema.get(_LIST_TYPE), schema.get(_LIST_KEYS) or []
    if list_type is None:
        return
    type, items = schema.get("type"), schema.get("items")
    items = items if isinstance(items, dict) else {}
    if type != "array":
        yield _invalid(f"{path}.type", type or "", f"must be array if {_LIST_TYPE} is specified")
    if list_type not in _LISTS:
        yield _unsupported(f"{path}.{_LIST_TYPE}", list_type, _LISTS)
    if list_type == "map":
        if not keys:
            yield _required(f"{path}.{_LIST_KEYS}", f"must not be empty if {_LIST_TYPE} is map")
        if items.get("type") != "object":
            text = f"must be object if parent array's {_LIST_TYPE} is map"
            yield _invalid(f"{path}.items.type", items.get("type", ""), text)
            return
        known = items.get("properties") or {}
        if any(key not in known for key in keys):
            yield _invalid(f"{path}.{_LIST_KEYS}", keys, "entries must all be names of item properties")
        for key in keys:
            if key in known and key not in (items.get("required") or ()) and "default" not in known[key]:
                text = f"this property is in {_LIST_KEYS}, so it must have a default or be a required property"
                yield _required(f"{path}.items.properties[{key}].default", text)
    elif list_type == "set" and items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
        text = f"must be atomic as item of a list with {_LIST_TYPE}=set"
        yield _invalid(f"{path}.items.{_MAP_TYPE}", items.get(_MAP_TYPE), text)


def _default(schema: JsonObject, path: str) -> Iterator[Cause]:
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
            yield _invalid(where, default, "must not have unknown fields")
            return
    for cause in validate_value(default, kind):
        yield Cause(
            cause.reason, cause.message, f"{where}.{cause.field}" if cause.field not in ("", "<nil>") else where
        )


def _formula(schema: JsonObject, path: str, *, either: bool) -> Iterator[Cause]:
    """A part of a formula only limits what the structure beside it describes."""
    for word, text in _UNCONDITIONAL.items():
        if word in schema and not (either and word == "type"):
            yield _forbidden(f"{path}.{word}", text)
    for name, child in (schema.get("properties") or {}).items():
        yield from _formula(child, f"{path}.properties[{name}]", either=False)
    if isinstance(schema.get("items"), dict):
        yield from _formula(schema["items"], f"{path}.items", either=False)
    for word in _FORMULAS:
        for index, part in enumerate(schema.get(word) or ()):
            yield from _formula(part, f"{path}.{word}[{index}]", either=either)
