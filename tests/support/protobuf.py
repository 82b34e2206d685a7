# SPDX-License-Identifier: Apache-2.0
"""Encodes an object as a Go client does, in Kubernetes' protobuf encoding; the servers only decode it."""

from __future__ import annotations

import json
import math
import struct
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

from devcluster.apiserver.codec.protobuf import MAGIC, message_of
from devcluster.apiserver.schema import builtin

Document = dict[str, Any]

_META = "k8s.io.apimachinery.pkg.apis.meta.v1."
_CRD = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1."
_INTEGERS = frozenset({"int32", "int64", "uint32", "uint64"})


def encode(value: Document) -> bytes:
    """The body of a request with this object. Raises `KeyError` for a field that its kind does not have."""
    type_meta = _field_of(1, value["apiVersion"].encode()) + _field_of(2, value["kind"].encode())
    rest = {key: entry for key, entry in value.items() if key not in ("apiVersion", "kind")}
    name = message_of(value["apiVersion"], value["kind"])
    return MAGIC + _field_of(1, type_meta) + _field_of(2, _message(rest, name))


def _message(value: Document, name: str) -> bytes:
    fields = builtin.table("protobuf.json")[name]
    if strange := set(value) - _inside(name):
        raise KeyError(f"{name} has no fields {sorted(strange)}")
    found = b""
    for number, shown, kind, repeated, how in fields:
        if how == "inline":
            inside = {key: entry for key, entry in value.items() if key in _inside(kind)}
            found += _field_of(number, _message(inside, kind))
        elif shown not in value:
            # Fields that are no pointers are always written.
            found += _zero(number, kind) if how == "drop" and not repeated else b""
        elif kind.startswith("map<"):
            _, _, of = kind[4:-1].partition(",")
            for key, entry in value[shown].items():
                found += _field_of(number, _field_of(1, key.encode()) + _field(2, entry, of))
        elif repeated:
            found += b"".join(_field(number, entry, kind) for entry in value[shown])
        else:
            found += _field(number, value[shown], kind)
    return found


def _inside(kind: str) -> set[str]:
    """The fields of a message whose fields are those of the one around it, also of several levels."""
    found: set[str] = set()
    for _, shown, of, _, how in builtin.table("protobuf.json")[kind]:
        found |= _inside(of) if how == "inline" else {shown}
    return found


def _zero(number: int, kind: str) -> bytes:
    if kind == "string":
        return _field_of(number, b"")
    return _number(number, 0) if kind == "bool" or kind in _INTEGERS else b""


def _field(number: int, value: Any, kind: str) -> bytes:
    if kind == "bool" or kind in _INTEGERS:
        return _number(number, int(value))
    if kind == "double":
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    return _field_of(number, _bytes(value, kind))


def _field_of(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _bytes(value: Any, kind: str) -> bytes:
    if kind == "string":
        return str(value).encode()
    if kind == "bytes":
        return b64decode(value)
    if kind in (f"{_META}Time", f"{_META}MicroTime"):
        moment = datetime.fromisoformat(value).astimezone(UTC)
        return _number(1, math.floor(moment.timestamp())) + _number(2, moment.microsecond * 1000)
    if kind.endswith("resource.Quantity"):
        return _field_of(1, str(value).encode())
    if kind.endswith("intstr.IntOrString"):
        text = isinstance(value, str)
        return _number(1, int(text)) + _number(2, 0 if text else value) + _field_of(3, value.encode() if text else b"")
    if kind in (f"{_CRD}JSON", f"{_META}FieldsV1") or kind.endswith("runtime.RawExtension"):
        return _field_of(1, json.dumps(value).encode())
    if kind == f"{_CRD}JSONSchemaPropsOrBool":
        allowed = _number(1, int(bool(value)))
        return allowed + _field_of(2, _message(value, f"{_CRD}JSONSchemaProps")) if isinstance(value, dict) else allowed
    if kind == f"{_CRD}JSONSchemaPropsOrArray":
        return _field_of(1, _message(value, f"{_CRD}JSONSchemaProps"))
    if kind.endswith((".ExtraValue", ".Verbs")):
        return b"".join(_field_of(1, entry.encode()) for entry in value)
    return _message(value, kind)
