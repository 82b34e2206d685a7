# SPDX-License-Identifier: Apache-2.0
"""What a typed decoder says of a value of the wrong form.

Owns the first thing that is wrong with an object of a built-in kind, in the order of the document and in a real
server's words: a string where a number belongs, a number out of range, a text that is no date or no base 64.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Final

from multikueue.core.quantity import Quantity, QuantityError
from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.documents import JsonValue
from multikueue.devcluster.apiserver.schema.node import Node
from multikueue.devcluster.apiserver.schema.values import type_of

_GO_TYPES: Final = {"int32": "int32", "int64": "int64", "double": "float64", "float": "float32"}
_JSON_WORDS: Final = {"boolean": "bool", "integer": "number"}
_KINDS: Final = {dict: "map", list: "slice", str: "string", int: "int64", float: "float64", bool: "bool"}
_RANGES: Final = {"int32": 1 << 31, "int64": 1 << 63}
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_TIME: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.Time"
_MICRO_TIME: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
_LAYOUTS: Final = {_TIME: "2006-01-02T15:04:05Z07:00", _MICRO_TIME: "2006-01-02T15:04:05.000000Z07:00"}
_STAMP: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?(Z|[-+]\d\d:\d\d)")
_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9+/=\r\n]")


def mismatch(value: JsonValue, kind: Node, owner: str, path: str = "", *, restores: bool = False) -> str | None:
    """What is wrong first with a value; None when nothing is. `owner` is the struct that its field belongs to."""
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
        word = _JSON_WORDS.get(actual, actual)
        if actual == "number":
            word = f"number {documents.dump(value).decode()}"
        return f"json: cannot unmarshal {word} into Go struct field {owner}{path} of type {_go_type(kind, path)}"
    if isinstance(value, dict):
        inner_owner = kind.name.rpartition(".")[2] or owner
        for name, entry in value.items():
            field = kind.properties.get(name)
            if field is not None:
                found = mismatch(entry, field, inner_owner, f"{path}.{name}", restores=restores)
            elif kind.additional is not None:
                found = mismatch(entry, kind.additional, owner, path, restores=restores)
            else:
                continue
            if found is not None:
                return found
    elif isinstance(value, list):
        if kind.items is not None:
            for entry in value:
                found = mismatch(entry, kind.items, owner, path, restores=restores)
                if found is not None:
                    return found
    elif isinstance(value, str):
        return _text_problem(value, kind)
    elif actual == "integer" and abs(value) >= _RANGES.get(kind.format, abs(value) + 1):
        return f"json: cannot unmarshal number {value} into Go struct field {owner}{path} of type {kind.format}"
    return None


def _restore_problem(value: JsonValue, kind: Node) -> str:
    """What is said of a document instead of a text."""
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


def _text_problem(value: str, kind: Node) -> str | None:
    if kind.format == "byte":
        return base64_problem(value)
    if kind.format == "date-time" and value and _STAMP.fullmatch(value) is None:
        layout = _LAYOUTS.get(kind.name, _LAYOUTS[_TIME])
        return f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'
    return None


def base64_problem(value: str) -> str | None:
    """Where a text stops to be base 64; None when it is all of it."""
    bad = _NOT_BASE64.search(value)
    if bad is not None:
        return f"illegal base64 data at input byte {bad.start()}"
    try:
        b64decode(value)
    except ValueError:
        return f"illegal base64 data at input byte {len(value) // 4 * 4}"
    return None


def _go_type(kind: Node, path: str) -> str:
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
