# SPDX-License-Identifier: Apache-2.0
"""The errors of a typed decoder, in a real server's words.

Finds the first value of a built-in object, in the order of the document, that has another type: a string for a number,
a number out of range, a text that is no date or no base 64. Objects embedded in custom
resources are checked the same way.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonValue
from devcluster.apiserver.schema import builtin
from devcluster.apiserver.schema.node import TypeNode
from devcluster.apiserver.schema.structural import Structural
from devcluster.apiserver.schema.values import quoted, type_of
from multikueue.core.quantity import Quantity, QuantityError

_GO_TYPES: Final = {"int32": "int32", "int64": "int64", "double": "float64", "float": "float32"}
_JSON_TYPES: Final = {"boolean": "bool", "integer": "number"}
_KINDS: Final = {dict: "map", list: "slice", str: "string", int: "int64", float: "float64", bool: "bool"}
_RANGES: Final = {"int32": 1 << 31, "int64": 1 << 63}
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_TIME: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.Time"
_MICRO_TIME: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
_LAYOUTS: Final = {_TIME: "2006-01-02T15:04:05Z07:00", _MICRO_TIME: "2006-01-02T15:04:05.000000Z07:00"}
_STAMP: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?(Z|[-+]\d\d:\d\d)")
_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9+/=\r\n]")
_METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def mismatch(value: JsonValue, kind: TypeNode, owner: str, path: str = "", *, restores: bool = False) -> str | None:
    """The first error of a value; None if there is none. `owner` is the struct that has the field."""
    if value is None:
        return None
    if kind.name == _QUANTITY:
        return _quantity_problem(value)
    if kind.int_or_string or kind.preserve or (not kind.type and not kind.properties):
        return None
    actual = type_of(value)
    wanted = kind.type or "object"
    fits = actual == wanted or (wanted == "number" and actual == "integer")
    if not fits and restores:
        return _restore_problem(value, kind)
    if not fits:
        json_type = _JSON_TYPES.get(actual, actual)
        if actual == "number":
            json_type = f"number {documents.dump(value).decode()}"
        return f"json: cannot unmarshal {json_type} into Go struct field {owner}{path} of type {_go_type(kind, path)}"
    if isinstance(value, dict):
        inner_owner = kind.name.rpartition(".")[2] or owner
        for name, entry in value.items():
            field = kind.properties.get(name)
            if field is not None:
                if type(entry) is str and field.type == "string" and not (field.name or field.format):
                    continue  # most values are ordinary text
                found = mismatch(entry, field, inner_owner, f"{path}.{name}", restores=restores)
            elif kind.additional is not None:
                found = mismatch(entry, kind.additional, owner, path, restores=restores)
            else:
                continue
            if found is not None:
                return found
    elif isinstance(value, list):
        if kind.items is not None:
            for position, entry in enumerate(value):
                if entry is None and not restores:
                    # A typed decoder makes an empty element of it, which is then validated.
                    value[position] = _empty(kind.items)
                found = mismatch(entry, kind.items, owner, path, restores=restores)
                if found is not None:
                    return found
    elif isinstance(value, str):
        return _text_problem(value, kind)
    elif actual == "integer" and abs(value) >= _RANGES.get(kind.format, abs(value) + 1):
        return f"json: cannot unmarshal number {value} into Go struct field {owner}{path} of type {kind.format}"
    return None


def _empty(kind: TypeNode) -> JsonValue:
    empty: dict[str, JsonValue] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": None}
    return empty.get(kind.type or "object", {})


def _restore_problem(value: JsonValue, kind: TypeNode) -> str:
    """The error for a patched document instead of text."""
    given = _KINDS[type(value)]
    if kind.type == "array":
        return f"cannot restore slice from {given}"
    if kind.type == "string":
        return f"cannot convert {given} to string"
    if kind.type in ("integer", "number", "boolean"):
        return f"unrecognized type: {_go_type(kind, '')}"
    return f"cannot restore map from {given}" if not kind.properties else f"cannot restore struct from: {given}"


def _quantity_problem(value: JsonValue) -> str | None:
    try:
        Quantity.parse(value)
    except QuantityError:
        return "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    return None


def _text_problem(value: str, kind: TypeNode) -> str | None:
    if kind.format == "byte":
        return base64_problem(value)
    if kind.format == "date-time" and value and _STAMP.fullmatch(value) is None:
        layout = _LAYOUTS.get(kind.name, _LAYOUTS[_TIME])
        return f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'
    return None


def base64_problem(value: str) -> str | None:
    """The error of a text that is not base 64; None if it is."""
    bad = _NOT_BASE64.search(value)
    if bad is not None:
        return f"illegal base64 data at input byte {bad.start()}"
    try:
        b64decode(value)
    except ValueError:
        return f"illegal base64 data at input byte {len(value) // 4 * 4}"
    return None


def _go_type(kind: TypeNode, path: str) -> str:
    if kind.type == "integer":
        return _GO_TYPES.get(kind.format, "int")
    if kind.type == "array":
        return f"[]{_go_type(kind.items, '')}" if kind.items is not None else "[]"
    if kind.type == "boolean":
        return "bool"
    if kind.type == "string":
        if kind.format == "byte":
            return "[]uint8"
        return "types.UID" if path.endswith(".uid") else "string"
    if kind.additional is not None and not kind.properties:
        return f"map[string]{_go_type(kind.additional, '')}"
    parts = kind.name.split(".")
    return ".".join(parts[-2:]) if len(parts) > 1 else "struct"


def unreadable(value: JsonValue, kind: TypeNode, path: str = "") -> str | None:
    """The first decoding error in the embedded objects of a value, if there is one."""
    if not isinstance(kind, Structural) or not kind.embeds:
        return None
    if isinstance(value, dict):
        if kind.embedded:
            for name in ("apiVersion", "kind"):
                entry = value.get(name)
                if entry is not None and not isinstance(entry, str):
                    return f"{path}.{name}: Invalid value: {quoted(entry)}: must be a string"
            problem = _metadata_problem(value.get("metadata"))
            if problem is not None:
                return f"{path}.metadata: Invalid value: {quoted(value['metadata'])}: {problem}"
        for name, entry in value.items():
            field = kind.properties.get(name) or kind.additional
            if field is not None:
                found = unreadable(entry, field, f"{path}.{name}" if path else name)
                if found is not None:
                    return found
    elif isinstance(value, list) and kind.items is not None:
        for index, item in enumerate(value):
            found = unreadable(item, kind.items, f"{path}[{index}]")
            if found is not None:
                return found
    return None


def _metadata_problem(metadata: JsonValue) -> str | None:
    if metadata is None:
        return None
    if not isinstance(metadata, dict):
        return f"json: cannot unmarshal {type_of(metadata)} into Go value of type v1.ObjectMeta"
    return mismatch(metadata, builtin.node(_METADATA), "ObjectMeta")
