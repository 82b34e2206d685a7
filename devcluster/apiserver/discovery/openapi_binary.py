# SPDX-License-Identifier: Apache-2.0
"""OpenAPI v2 in the protobuf form, the only one that kubectl requests.

Only the definitions and patch operations are encoded; kubectl does not use parameters, answers and examples.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue

_TEXTS: Final = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
# The numbers of the fields in their messages.
_REQUIRED, _ADDITIONAL, _TYPE, _ITEMS, _ALL_OF, _PROPERTIES, _EXTENSION = 19, 21, 22, 23, 24, 25, 31
_DOCUMENT: Final = {"swagger": 1, "info": 2, "paths": 8, "definitions": 9}
_PATCH, _CONSUMES, _OPERATION_EXTENSION = 8, 7, 13


def encode(document: JsonObject) -> bytes:
    """The document as a message."""
    info = document["info"]
    paths = [
        _field(2, _named(path, _field(_PATCH, _operation(item["patch"]))))
        for path, item in document["paths"].items()
        if "patch" in item
    ]
    definitions = [_field(1, _named(name, _schema(entry))) for name, entry in document["definitions"].items()]
    return b"".join(
        (
            _text(_DOCUMENT["swagger"], document["swagger"]),
            _field(_DOCUMENT["info"], _text(1, info["title"]) + _text(2, info["version"])),
            _field(_DOCUMENT["paths"], b"".join(paths)),
            _field(_DOCUMENT["definitions"], b"".join(definitions)),
        )
    )


def _operation(value: JsonObject) -> bytes:
    consumed = b"".join(_text(_CONSUMES, media) for media in value.get("consumes", ()))
    return consumed + _extensions(value, _OPERATION_EXTENSION)


def _schema(value: JsonObject) -> bytes:
    parts = [_text(number, value[name]) for name, number in _TEXTS.items() if isinstance(value.get(name), str)]
    parts += [_text(_REQUIRED, name) for name in value.get("required") or ()]
    extra = value.get("additionalProperties")
    if isinstance(extra, dict):
        parts.append(_field(_ADDITIONAL, _field(1, _schema(extra))))
    if isinstance(value.get("type"), str):
        parts.append(_field(_TYPE, _text(1, value["type"])))
    if isinstance(value.get("items"), dict):
        parts.append(_field(_ITEMS, _field(1, _schema(value["items"]))))
    parts += [_field(_ALL_OF, _schema(part)) for part in documents.items(value, "allOf")]
    properties = documents.child(value, "properties")
    if properties:
        named = (_field(1, _named(name, _schema(entry))) for name, entry in properties.items())
        parts.append(_field(_PROPERTIES, b"".join(named)))
    parts.append(_extensions(value, _EXTENSION))
    return b"".join(parts)


def _extensions(value: JsonObject, number: int) -> bytes:
    found: Iterable[tuple[str, JsonValue]] = ((name, entry) for name, entry in value.items() if name[:2] == "x-")
    # An extension is YAML, and JSON is YAML.
    return b"".join(_field(number, _named(name, _field(2, documents.dump(entry)))) for name, entry in found)


def _named(name: str, value: bytes) -> bytes:
    return _text(1, name) + _field(2, value)


def _text(number: int, value: str) -> bytes:
    return _field(number, value.encode())


def _field(number: int, value: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(value)) + value


def _number(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
