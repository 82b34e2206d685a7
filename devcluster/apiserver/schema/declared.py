# SPDX-License-Identifier: Apache-2.0
"""The types that expressions see in a structural schema.

Owns the fields that an expression can name and their types, the maximal length of lists, maps and strings (from the
schema, else from the size of a request), and the minimal size of a value in JSON.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from devcluster.apiserver.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
)
from devcluster.apiserver.codec.documents import JsonObject

LARGEST: Final = 3 * 1024 * 1024
"""The largest request, in bytes."""
_QUOTES: Final = 2
_TRUTH: Final = replace(BOOL, least=4)
_TEXT: Final = replace(STRING, most=LARGEST - _QUOTES, least=_QUOTES)
_FORMATS: Final = {
    "byte": BYTES,
    "duration": replace(DURATION, most=32, least=3),
    "date": replace(TIMESTAMP, most=17, least=12),
    "date-time": replace(TIMESTAMP, most=32, least=21),
}
_RESERVED: Final = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
_SYNTAX: Final = frozenset({"true", "false", "null", "in"})
"""The reserved names that are no field's name without underscores, since they mean something else."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WRITTEN: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def declared(schema: JsonObject, name: str = "selfType", *, whole: bool = False) -> Type | None:
    """The type of a value; None if it is unknown. A `whole` object has metadata."""
    if schema.get("x-kubernetes-int-or-string"):
        return replace(DYN, most=LARGEST - _QUOTES)
    match schema.get("type"):
        case "array":
            items = schema.get("items")
            inner = declared(items, f"{name}.@idx") if isinstance(items, dict) else None
            if inner is None:
                return None
            most = schema.get("maxItems", (LARGEST - 2) // (inner.least + 1))
            return replace(list_of(inner), most=max(most, 0), least=2)
        case "object":
            return _object(schema, name, whole=whole or bool(schema.get("x-kubernetes-embedded-resource")))
        case "string":
            return _string(schema)
        case "boolean":
            return _TRUTH
        case "integer":
            return INT
        case "number":
            return DOUBLE
    return None


def _object(schema: JsonObject, name: str, *, whole: bool) -> Type | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        value = declared(extra, f"{name}.@elem")
        if value is None:
            return None
        most = schema.get("maxProperties", (LARGEST - 2) // (value.least + 6))
        return replace(map_of(STRING, value), most=max(most, 0), least=2)
    properties: JsonObject = dict(schema.get("properties") or {})
    if whole:
        text: JsonObject = {"type": "string"}
        metadata = {"type": "object", "properties": {"name": text, "generateName": text}}
        properties = {"apiVersion": text, "kind": text, **properties, "metadata": metadata}
    fields: dict[str, Type] = {}
    least = 2
    required = schema.get("required") or ()
    for key, child in properties.items():
        written, kind = _written(key), declared(child, f"{name}.{key}")
        if kind is None or written is None:
            continue
        fields[written] = kind
        if key in _RESERVED and key not in _SYNTAX:
            fields[key] = kind
        if key in required and "default" not in child:
            least += len(key) + kind.least + 4
    return Type(name, fields=fields, least=least)


def _string(schema: JsonObject) -> Type:
    kind = _FORMATS.get(schema.get("format", ""), STRING)
    if kind not in (STRING, BYTES):
        return kind
    if "maxLength" in schema:
        factor = 1 if kind == BYTES else 4  # a character may have four bytes
        return replace(kind, most=max(schema["maxLength"], 0) * factor, least=_QUOTES)
    if schema.get("enum"):
        longest = max(len(entry.encode()) if isinstance(entry, str) else 0 for entry in schema["enum"])
        return replace(kind, most=longest, least=_QUOTES)
    return _TEXT if kind is STRING else replace(kind, most=LARGEST - _QUOTES, least=_QUOTES)


def _written(name: str) -> str | None:
    """A field's name in expressions; None if they cannot name it."""
    if name in _RESERVED:
        return f"__{name}__"
    for mark, replacement in _WRITTEN.items():
        name = name.replace(mark, replacement)
    return name if _IDENTIFIER.fullmatch(name) else None
