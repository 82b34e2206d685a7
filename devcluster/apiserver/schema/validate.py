# SPDX-License-Identifier: Apache-2.0
"""Validation of custom resources against their structural schema and its rules.

Promises ratcheting: parts that an update does not change are not validated again, so that an object which an older
schema accepted can still be updated, and a status patch costs only what it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.codec.patterns import pattern_of
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.schema.formats import has_format
from devcluster.apiserver.schema.node import ABSENT, TypeNode, item_key
from devcluster.apiserver.schema.ruling import apply_rules
from devcluster.apiserver.schema.structural import Structural, read
from devcluster.apiserver.schema.values import correlated, quoted, type_of

__all__ = ["quoted", "type_of", "validate"]

_INVALID: Final = "FieldValueInvalid"
_NOWHERE: Final = "<nil>"
_COMBINING: Final = ("allOf", "anyOf", "oneOf", "not")
_COMBINED: Final = frozenset(_COMBINING)
_TEXTS: Final = frozenset({str})
_SHORT, _MANY = 64, 256
"""The length and the number of valid strings that are cached."""
_LIMITS: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_STOPS: Final = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"}
)
_UNCHECKED: Final = StatusCause(
    _INVALID,
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
    _NOWHERE,
)


def validate(
    value: JsonObject, kind: Structural, *, old: JsonObject | None = None, subresource: str = ""
) -> list[StatusCause]:
    """All problems of the object: its form, and its rules unless the form prevents their evaluation."""
    causes: list[StatusCause] = []
    was: JsonValue = ABSENT if old is None else old
    if subresource == "status":
        _check_status(value, kind, causes, was)
    else:
        _check(value, kind, "", causes, was)
    if not kind.ruled:
        return causes
    if not any(cause.reason in _STOPS for cause in causes):
        apply_rules(value, kind, "", causes, was)
    else:
        causes.append(_UNCHECKED)
    return causes


def validate_value(value: JsonValue, kind: Structural) -> list[StatusCause]:
    """The problems of a single value, such as a default."""
    causes: list[StatusCause] = []
    _check(value, kind, "", causes, ABSENT)
    return causes


def _check_status(value: JsonObject, kind: Structural, causes: list[StatusCause], old: JsonValue) -> None:
    """Check the status only; the texts name its fields without `status`."""
    field = kind.properties.get("status")
    if field is None or "status" not in value:
        return
    found: list[StatusCause] = []
    _check(value["status"], field, "", found, old.get("status", ABSENT) if isinstance(old, dict) else ABSENT)
    for cause in found:
        causes.append(replace(cause, field="status" if cause.field == _NOWHERE else f"status.{cause.field}"))


def _check(value: JsonValue, kind: TypeNode, path: str, causes: list[StatusCause], old: JsonValue) -> None:
    if old is not ABSENT and (old is value or old == value):
        return
    if value is None:
        if not kind.nullable and kind.type:
            causes.append(_wrong_type(path, kind.type, "null"))
        return
    if type(value) is dict and isinstance(kind, Structural) and kind.plain:
        _check_object(value, kind, path, causes, old)
        return
    actual = type_of(value)
    wanted = kind.type
    source = kind.source
    if kind.int_or_string:
        fits = actual in ("integer", "string")
        if not fits:
            causes.append(_wrong_type(path, "integer,string", actual))
    else:
        fits = not wanted or actual == wanted or _fits(value, actual, wanted)
        if not fits:
            if actual == "number" and wanted == "integer":
                causes.append(_wrong_number(path, ""))
            causes.append(_wrong_type(path, wanted, actual))
    if "enum" in source and value not in source["enum"]:
        listed = ", ".join(quoted(entry if isinstance(entry, str) else quoted(entry)) for entry in source["enum"])
        text = f"Unsupported value: {quoted(value)}: supported values: {listed}"
        causes.append(StatusCause("FieldValueNotSupported", text, path or _NOWHERE))
    if fits:
        if isinstance(value, dict):
            _check_object(value, kind, path, causes, old)
        elif isinstance(value, list):
            _check_list(value, kind, path, causes, old)
        elif isinstance(value, str):
            _check_string(value, source, path, causes)
            if len(value) <= _SHORT and not causes and isinstance(kind, Structural) and not _COMBINED & source.keys():
                _remember(value, kind)
        elif not isinstance(value, bool):
            _check_number(value, kind, path, causes)
    if not _COMBINED.isdisjoint(source):
        for keyword in _COMBINING:
            if keyword in source and (fits or kind.int_or_string):
                _check_combination(keyword, value, source, path, causes)


def _remember(value: str, kind: Structural) -> None:
    if len(kind.right) >= _MANY:
        kind.right.clear()
    kind.right.add(value)


def _fits(value: JsonValue, actual: str, wanted: str) -> bool:
    """Whether a number is valid for another numeric type."""
    if wanted == "number":
        return actual == "integer"
    return wanted == "integer" and isinstance(value, float) and value.is_integer() and abs(value) < 2**63


def _wrong_type(path: str, wanted: str, actual: str) -> StatusCause:
    return StatusCause(
        "FieldValueTypeInvalid",
        f'Invalid value: "{actual}": {path} in body must be of type {wanted}: "{actual}"',
        path or _NOWHERE,
    )


def _wrong_number(path: str, format: str) -> StatusCause:
    form = f"with format {format}" if format else "(default format)"
    return StatusCause(_INVALID, f'Invalid value: "": Checked value must be of type integer {form} in {path}', _NOWHERE)


def _check_object(value: JsonObject, kind: TypeNode, path: str, causes: list[StatusCause], old: JsonValue) -> None:
    source = kind.source
    before: JsonObject = old if isinstance(old, dict) else documents.EMPTY
    if not kind.required <= value.keys():
        causes.extend(
            StatusCause("FieldValueRequired", "Required value", f"{path}.{name}" if path else name)
            for name in source.get("required", ())
            if name not in value
        )
    if kind.embedded:
        _check_embedded(value, path, causes)
    if (limit := source.get("maxProperties")) is not None and len(value) > limit:
        causes.append(_too_many(path, len(value), limit))
    if (limit := source.get("minProperties")) is not None and len(value) < limit:
        text = f"Invalid value: {len(value)}: {path} in body should have at least {limit} properties"
        causes.append(StatusCause(_INVALID, text, path))
    properties = kind.properties
    for name, entry in value.items():
        field = properties.get(name)
        if field is not None:
            if not isinstance(field, Structural):
                continue  # metadata is validated as metadata
            if type(entry) is str and (len(entry) <= field.free or entry in field.right):
                continue
            where = f"{path}.{name}" if path else name
        elif kind.additional is not None:
            field, where = kind.additional, f"{path}.{name}"
        else:
            continue
        _check(entry, field, where, causes, before.get(name, ABSENT))


def _check_embedded(value: JsonObject, path: str, causes: list[StatusCause]) -> None:
    for name in ("apiVersion", "kind"):
        if not value.get(name):
            causes.append(StatusCause("FieldValueRequired", "Required value", f"{path}.{name}"))
    api_version = value.get("apiVersion")
    if isinstance(api_version, str) and api_version.count("/") > 1:
        text = f"Invalid value: {quoted(api_version)}: unexpected GroupVersion string: {api_version}"
        causes.append(StatusCause(_INVALID, text, f"{path}.apiVersion"))


def _too_many(path: str, count: int, limit: int) -> StatusCause:
    items = "item" if limit == 1 else "items"
    return StatusCause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} {items}", path)


def _check_list(value: list[JsonValue], kind: TypeNode, path: str, causes: list[StatusCause], old: JsonValue) -> None:
    source = kind.source
    if (limit := source.get("maxItems")) is not None and len(value) > limit:
        causes.append(_too_many(path, len(value), limit))
    if (limit := source.get("minItems")) is not None and len(value) < limit:
        causes.append(
            StatusCause(
                _INVALID, f"Invalid value: {len(value)}: {path} in body should have at least {limit} items", path
            )
        )
    keys = [item_key(kind, item) for item in value] if kind.list_type == "map" else [None] * len(value)
    if kind.list_type in ("map", "set"):
        _check_unique(value, keys, kind, path, causes)
    if kind.items is None:
        return
    earlier = correlated(old, kind)
    for index, item in enumerate(value):
        was = earlier.get(keys[index], ABSENT) if earlier else ABSENT
        _check(item, kind.items, f"{path}[{index}]", causes, was)


def _check_unique(
    value: list[JsonValue],
    keys: Sequence[tuple[JsonValue, ...] | None],
    kind: TypeNode,
    path: str,
    causes: list[StatusCause],
) -> None:
    seen: set[object] = set()
    for index, item in enumerate(value):
        found = keys[index]
        if found and set(map(type, found)) == _TEXTS:
            key: object = found
        elif kind.list_type == "map" and not isinstance(item, dict):
            text = f"Invalid value: {quoted(item)}: must be an object for an array of list-type map"
            causes.append(StatusCause(_INVALID, text, f"{path}[{index}]"))
            continue
        else:
            key = quoted(_identity(item, kind, found))
        if key in seen:
            text = f"Duplicate value: {quoted(_identity(item, kind, found))}"
            causes.append(StatusCause("FieldValueDuplicate", text, f"{path}[{index}]"))
        seen.add(key)


def _identity(item: JsonValue, kind: TypeNode, key: tuple[JsonValue, ...] | None) -> JsonValue:
    """The part of a list's item that identifies it."""
    return item if kind.list_type == "set" else dict(zip(kind.keys, key or (), strict=False))


def _check_string(value: str, source: JsonObject, path: str, causes: list[StatusCause]) -> None:
    if (limit := source.get("maxLength")) is not None and len(value) > limit:
        causes.append(StatusCause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", path))
    if (limit := source.get("minLength")) is not None and len(value) < limit:
        text = f"Invalid value: {quoted(value)}: {path} in body should be at least {limit} chars long"
        causes.append(StatusCause(_INVALID, text, path))
    pattern = source.get("pattern")
    if pattern is not None and pattern_of(pattern).search(value) is None:
        causes.append(
            StatusCause(_INVALID, f"Invalid value: {quoted(value)}: {path} in body should match '{pattern}'", path)
        )
    format = source.get("format")
    if format is not None and not has_format(value, format):
        text = f"Invalid value: {quoted(value)}: {path} in body must be of type {format}: {quoted(value)}"
        causes.append(StatusCause("FieldValueTypeInvalid", text, path))


def _check_number(value: float, kind: TypeNode, path: str, causes: list[StatusCause]) -> None:
    source = kind.source
    whole = isinstance(value, int)
    limit = source.get("maximum")
    if limit is not None:
        if whole:
            limit = int(limit)
        if source.get("exclusiveMaximum"):
            if value >= limit:
                text = f"Invalid value: {value}: {path} in body should be less than {limit}"
                causes.append(StatusCause(_INVALID, text, path))
        elif value > limit:
            text = f"Invalid value: {value}: {path} in body should be less than or equal to {limit}"
            causes.append(StatusCause(_INVALID, text, path))
    limit = source.get("minimum")
    if limit is not None:
        if whole:
            limit = int(limit)
        if source.get("exclusiveMinimum"):
            if value <= limit:
                text = f"Invalid value: {value}: {path} in body should be greater than {limit}"
                causes.append(StatusCause(_INVALID, text, path))
        elif value < limit:
            text = f"Invalid value: {value}: {path} in body should be greater than or equal to {limit}"
            causes.append(StatusCause(_INVALID, text, path))
    factor = source.get("multipleOf")
    if factor and value % factor:
        causes.append(
            StatusCause(_INVALID, f"Invalid value: {value}: {path} in body should be a multiple of {factor}", path)
        )
    if kind.format in _LIMITS:
        low, high = _LIMITS[kind.format]
        if not low <= value <= high:
            causes.append(_wrong_number(path, kind.format))


def _check_combination(
    keyword: str, value: JsonValue, source: JsonObject, path: str, causes: list[StatusCause]
) -> None:
    def failures(schema: JsonObject) -> list[StatusCause]:
        found: list[StatusCause] = []
        _check(value, _alternative(id(schema), schema), path, found, ABSENT)
        return found

    def wrong(text: str) -> None:
        causes.append(StatusCause(_INVALID, f'Invalid value: "": "{path}" must {text}', _NOWHERE))

    if keyword == "not":
        if not failures(source["not"]):
            wrong("not validate the schema (not)")
        return
    results = [failures(schema) for schema in source[keyword]]
    fitting = sum(1 for result in results if not result)
    if keyword == "allOf":
        for result in results:
            causes.extend(result)
        if fitting < len(results):
            wrong("validate all the schemas (allOf)")
    elif keyword == "anyOf" and fitting == 0:
        wrong("validate at least one schema (anyOf)")
        causes.extend(results[0] if results else ())
    elif keyword == "oneOf" and fitting != 1:
        detail = "Found none valid" if fitting == 0 else f"Found {fitting} valid alternatives"
        wrong(f"validate one and only one schema (oneOf). {detail}")
        if fitting == 0 and results:
            causes.extend(results[0])


_alternatives: dict[int, tuple[JsonObject, Structural]] = {}


def _alternative(identity: int, schema: JsonObject) -> Structural:
    found = _alternatives.get(identity)
    if found is None or found[0] is not schema:
        found = _alternatives[identity] = (schema, read(schema))
    return found[1]
