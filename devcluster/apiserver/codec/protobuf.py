# SPDX-License-Identifier: Apache-2.0
"""Request bodies in Kubernetes' protobuf encoding.

Owns the wire format and the envelope (`k8s\\0` and `runtime.Unknown`), driven by the table of field numbers. Decode
only: every client that sends protobuf also reads JSON. Types that are no plain messages in JSON (times, quantities, raw
extensions) become their JSON form.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.schema import builtin
from multikueue.core.timestamps import format_micro_time, format_time

MAGIC: Final = b"k8s\x00"
MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_META: Final = "k8s.io.apimachinery.pkg.apis.meta.v1."
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS: Final = frozenset({"int32", "int64", "uint32", "uint64"})
_PACKAGES: Final = {
    "": "core",
    "rbac.authorization.k8s.io": "rbac",
    "authentication.k8s.io": "authentication",
    "authorization.k8s.io": "authorization",
    "coordination.k8s.io": "coordination",
    "events.k8s.io": "events",
    "scheduling.k8s.io": "scheduling",
    "admissionregistration.k8s.io": "admissionregistration",
    "certificates.k8s.io": "certificates",
    "discovery.k8s.io": "discovery",
    "networking.k8s.io": "networking",
    "node.k8s.io": "node",
    "resource.k8s.io": "resource",
    "storage.k8s.io": "storage",
    "flowcontrol.apiserver.k8s.io": "flowcontrol",
}


def decode(body: bytes) -> JsonObject:
    """The object in an envelope. Raises `StatusError`."""
    if body[:4] != MAGIC:
        raise errors.bad_request(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    try:
        envelope = _fields(body[4:])
        type_meta = _fields(_one(envelope, 1))
        api_version, kind = _one(type_meta, 1).decode(), _one(type_meta, 2).decode()
        name = message_of(api_version, kind)
        found = _message(_one(envelope, 2), name)
    except (IndexError, KeyError, ValueError) as error:
        raise errors.bad_request(f"unable to decode protobuf: {error}") from error
    return {"kind": kind, "apiVersion": api_version, **found}


def field(number: int, value: bytes) -> bytes:
    """A field of a message: text, bytes or a message."""
    length, head = len(value), bytearray([number << 3 | 2])
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*head, length]) + value


def message_of(api_version: str, kind: str) -> str:
    """The message of a kind. Raises `KeyError`."""
    group, _, version = api_version.rpartition("/")
    if group == "apiextensions.k8s.io":
        name = f"k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.{version}.{kind}"
    elif group == "apiregistration.k8s.io":
        name = f"k8s.io.kube_aggregator.pkg.apis.apiregistration.{version}.{kind}"
    else:
        name = f"k8s.io.api.{_PACKAGES.get(group, group)}.{version}.{kind}"
    if name not in _table():
        name = f"{_META}{kind}"
    if name not in _table():
        raise KeyError(f'no kind "{kind}" is registered for version "{api_version}"')
    return name


class _Shown(StrEnum):
    """How a field is shown in JSON, as its Go struct says."""

    INLINE = "inline"
    """Its fields are those of the message around it."""
    KEEP = "keep"
    """Whenever it was sent, also zero or empty."""
    DROP = "drop"
    """Not if it is zero or empty: the encoding writes every field that is not a pointer."""


@cache
def _table() -> dict[str, dict[int, tuple[str, str, bool, _Shown]]]:
    return {
        name: {number: (field, kind, repeated, _Shown(shown)) for number, field, kind, repeated, shown in fields}
        for name, fields in builtin.table("protobuf.json").items()
    }


def _one(fields: list[tuple[int, JsonValue]], number: int) -> bytes:
    for found, value in fields:
        if found == number and isinstance(value, bytes):
            return value
    return b""


def _varint(data: bytes, position: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _fields(data: bytes) -> list[tuple[int, JsonValue]]:
    """The fields of a message in the order of the bytes: number and raw value."""
    found: list[tuple[int, JsonValue]] = []
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, form = tag >> 3, tag & 7
        if form == 0:
            value, position = _varint(data, position)
            found.append((number, value))
        elif form == 2:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise ValueError("unexpected EOF")
            found.append((number, data[position : position + length]))
            position += length
        elif form in (1, 5):
            size = 8 if form == 1 else 4
            found.append((number, data[position : position + size]))
            position += size
        else:
            raise ValueError(f"illegal wireType {form}")
    return found


def _message(data: bytes, name: str) -> JsonObject:
    table = _table()[name]
    found: JsonObject = {}
    for number, raw in _fields(data):
        entry = table.get(number)
        if entry is None:
            continue
        field, kind, repeated, shown = entry
        if kind.startswith("map<"):
            _, _, value_kind = kind[4:-1].partition(",")
            pair = _fields(raw)
            values = [value for at, value in pair if at == 2]
            value = _value(values[0], value_kind) if values else _zero(value_kind)
            found.setdefault(field, {})[_one(pair, 1).decode()] = value
        elif repeated:
            found.setdefault(field, []).append(_value(raw, kind))
        else:
            value = _value(raw, kind)
            if shown is _Shown.INLINE and isinstance(value, dict):
                found.update(value)
            elif value or shown is _Shown.KEEP:
                found[field] = value
    return found


def _zero(kind: str) -> JsonValue:
    if kind in ("string", "bytes"):
        return ""
    return False if kind == "bool" else 0 if kind in _INTEGERS else {}


def _value(raw: JsonValue, kind: str) -> JsonValue:
    if kind == "string":
        return raw.decode()
    if kind == "bool":
        return bool(raw)
    if kind in _INTEGERS:
        number = int(raw)
        if kind.startswith("int") and number >= 1 << 63:
            number -= 1 << 64
        return number
    if kind == "bytes":
        return b64encode(raw).decode()
    if kind == "double":
        number = struct.unpack("<d", raw)[0]
        return int(number) if number.is_integer() else number
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(raw)
    return _message(raw, kind)


def _time(raw: bytes) -> JsonValue:
    moment = _moment(raw)
    return None if moment is None else format_time(moment)


def _micro_time(raw: bytes) -> JsonValue:
    moment = _moment(raw)
    return None if moment is None else format_micro_time(moment)


def _moment(raw: bytes) -> datetime | None:
    """The time of a message; None for that of an empty one, which is the first second of the first year."""
    fields = dict(_fields(raw))
    if 1 not in fields:
        return None
    seconds = timedelta(seconds=int(_value(fields[1], "int64")), microseconds=int(fields.get(2, 0)) // 1000)
    try:
        return _EPOCH + seconds
    except OverflowError as error:
        raise ValueError(f"time out of range: {fields[1]} seconds") from error


def _quantity(raw: bytes) -> JsonValue:
    return _one(_fields(raw), 1).decode()


def _int_or_string(raw: bytes) -> JsonValue:
    fields = _fields(raw)
    numbers = {number: value for number, value in fields if isinstance(value, int)}
    return _one(fields, 3).decode() if numbers.get(1) == 1 else _value(numbers.get(2, 0), "int64")


def _json(raw: bytes) -> JsonValue:
    body = _one(_fields(raw), 1)
    return documents.load(body) if body else None


def _verbs(raw: bytes) -> JsonValue:
    return [value.decode() for _, value in _fields(raw)]


def _bool_or_schema(raw: bytes) -> JsonValue:
    fields = _fields(raw)
    schema = _one(fields, 2)
    if schema:
        return _message(schema, f"{_CRD}JSONSchemaProps")
    return any(number == 1 and value for number, value in fields)


def _schema_or_array(raw: bytes) -> JsonValue:
    fields = _fields(raw)
    schemas = [_message(value, f"{_CRD}JSONSchemaProps") for number, value in fields if number == 2]
    return schemas or _message(_one(fields, 1), f"{_CRD}JSONSchemaProps")


def _schema_or_strings(raw: bytes) -> JsonValue:
    fields = _fields(raw)
    names = [value.decode() for number, value in fields if number == 2]
    return names or _message(_one(fields, 1), f"{_CRD}JSONSchemaProps")


_CRD: Final = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1."
_SPECIAL: Final = {
    f"{_META}Time": _time,
    f"{_META}MicroTime": _micro_time,
    f"{_META}FieldsV1": _json,
    f"{_META}Verbs": _verbs,
    "k8s.io.apimachinery.pkg.api.resource.Quantity": _quantity,
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "k8s.io.apimachinery.pkg.runtime.RawExtension": _json,
    "k8s.io.api.authentication.v1.ExtraValue": _verbs,
    "k8s.io.api.authorization.v1.ExtraValue": _verbs,
    "k8s.io.api.certificates.v1.ExtraValue": _verbs,
    f"{_CRD}JSON": _json,
    f"{_CRD}JSONSchemaPropsOrBool": _bool_or_schema,
    f"{_CRD}JSONSchemaPropsOrArray": _schema_or_array,
    f"{_CRD}JSONSchemaPropsOrStringArray": _schema_or_strings,
}
