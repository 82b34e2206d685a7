# SPDX-License-Identifier: Apache-2.0
"""Validation of custom resources against their structural schema and its rules.

Owns the causes in Kubernetes' words. Promises ratcheting: what an update did not change is not looked at again, so an
object that an older schema let in can still be updated, and a status patch costs what it touches.
"""

from __future__ import annotations

import ipaddress
import re
from base64 import b64decode
from binascii import Error as Base64Error
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from multikueue.core.timestamps import parse_time
from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.cel.functions import Optional, duration
from multikueue.devcluster.apiserver.cel.syntax import CelError
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.schema.node import Node, item_key
from multikueue.devcluster.apiserver.schema.structural import Rule, Structural

_INVALID: Final = "FieldValueInvalid"
_NOTHING: Final = object()
_LIMITS: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def quoted(value: JsonValue) -> str:
    """A value as error texts show it."""
    return documents.dump(value).decode()


def type_of(value: JsonValue) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def validate(value: JsonObject, kind: Structural, *, old: JsonObject | None = None) -> list[Cause]:
    """Everything that is wrong with the object: first its form, then, when that is right, its rules."""
    causes: list[Cause] = []
    was: JsonValue = _NOTHING if old is None else old
    _check(value, kind, "", causes, was)
    if not causes:
        _apply_rules(value, kind, "", causes, was)
    return causes


def _check(value: JsonValue, kind: Node, path: str, causes: list[Cause], old: JsonValue) -> None:
    if old is not _NOTHING and (old is value or old == value):
        return
    if value is None:
        if not kind.nullable and kind.type:
            causes.append(_wrong_type(path, kind.type, "null"))
        return
    actual = type_of(value)
    wanted = kind.type
    if kind.int_or_string:
        if actual not in ("integer", "string"):
            causes.append(_wrong_type(path, "integer,string", actual))
            return
    elif wanted and actual != wanted and not _fits(value, wanted):
        causes.append(_wrong_type(path, wanted, actual))
        return
    source = kind.source
    if "enum" in source and value not in source["enum"]:
        listed = ", ".join(quoted(entry) for entry in source["enum"])
        causes.append(
            Cause("FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {listed}", path)
        )
    if isinstance(value, dict):
        _check_object(value, kind, path, causes, old)
    elif isinstance(value, list):
        _check_list(value, kind, path, causes, old)
    elif isinstance(value, str):
        _check_string(value, source, path, causes)
    elif not isinstance(value, bool):
        _check_number(value, kind, path, causes)
    for word in ("allOf", "anyOf", "oneOf", "not"):
        if word in source and not (word == "anyOf" and kind.int_or_string):
            _check_combination(word, value, source, path, causes)


def _fits(value: JsonValue, wanted: str) -> bool:
    """Whether a number fits a type that is not its own."""
    if wanted == "number":
        return isinstance(value, int) and not isinstance(value, bool)
    return wanted == "integer" and isinstance(value, float) and value.is_integer()


def _wrong_type(path: str, wanted: str, actual: str) -> Cause:
    return Cause(
        "FieldValueTypeInvalid",
        f'Invalid value: "{actual}": {path} in body must be of type {wanted}: "{actual}"',
        path or "<nil>",
    )


def _check_object(value: JsonObject, kind: Node, path: str, causes: list[Cause], old: JsonValue) -> None:
    source = kind.source
    before: JsonObject = old if isinstance(old, dict) else documents.EMPTY
    if kind.required:
        causes.extend(
            Cause("FieldValueRequired", "Required value", f"{path}.{name}" if path else name)
            for name in source.get("required", ())
            if name not in value
        )
    if (limit := source.get("maxProperties")) is not None and len(value) > limit:
        causes.append(Cause("FieldValueTooMany", f"Too many: {len(value)}: must have at most {limit} items", path))
    if (limit := source.get("minProperties")) is not None and len(value) < limit:
        causes.append(
            Cause(
                _INVALID, f"Invalid value: {len(value)}: {path} in body should have at least {limit} properties", path
            )
        )
    for name, entry in value.items():
        field = kind.properties.get(name)
        if field is not None:
            if not isinstance(field, Structural):
                continue  # metadata is validated as metadata
            where = f"{path}.{name}" if path else name
        elif kind.additional is not None:
            field, where = kind.additional, f"{path}.{name}"
        else:
            continue
        _check(entry, field, where, causes, before.get(name, _NOTHING))


def _check_list(value: list[JsonValue], kind: Node, path: str, causes: list[Cause], old: JsonValue) -> None:
    source = kind.source
    if (limit := source.get("maxItems")) is not None and len(value) > limit:
        causes.append(Cause("FieldValueTooMany", f"Too many: {len(value)}: must have at most {limit} items", path))
    if (limit := source.get("minItems")) is not None and len(value) < limit:
        causes.append(
            Cause(_INVALID, f"Invalid value: {len(value)}: {path} in body should have at least {limit} items", path)
        )
    if kind.list_type in ("map", "set"):
        _check_unique(value, kind, path, causes)
    if kind.items is None:
        return
    earlier = _correlated(old, kind)
    for index, item in enumerate(value):
        was = _NOTHING
        if earlier:
            was = earlier.get(item_key(kind, item), _NOTHING)
        _check(item, kind.items, f"{path}[{index}]", causes, was)


def _correlated(old: JsonValue, kind: Node) -> dict[object, JsonValue]:
    if kind.list_type != "map" or not isinstance(old, list):
        return {}
    return {item_key(kind, item): item for item in old}


def _check_unique(value: list[JsonValue], kind: Node, path: str, causes: list[Cause]) -> None:
    seen = set()
    for index, item in enumerate(value):
        if kind.list_type == "set":
            key, shown = quoted(item), item
        else:
            found = item_key(kind, item)
            shown = dict(zip(kind.keys, found or (), strict=False))
            key = quoted(shown)
        if key in seen:
            causes.append(Cause("FieldValueDuplicate", f"Duplicate value: {quoted(shown)}", f"{path}[{index}]"))
        seen.add(key)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    # Go's `\z` is Python's `\Z`, and its `$` does not match before a final newline. Flags that Go takes anywhere and
    # Python at the start only hold for the rest of the expression.
    ours = re.sub(r"(?<!\\)\$$", r"\\Z", text.replace(r"\z", r"\Z"))
    return re.compile(re.sub(r"^(\^?)(\(\?[ims]+\))(.*)$", r"\2\1\3", ours), re.ASCII)


def _check_string(value: str, source: JsonObject, path: str, causes: list[Cause]) -> None:
    if (limit := source.get("maxLength")) is not None and len(value) > limit:
        causes.append(Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", path))
    if (limit := source.get("minLength")) is not None and len(value) < limit:
        text = f"Invalid value: {quoted(value)}: {path} in body should be at least {limit} chars long"
        causes.append(Cause(_INVALID, text, path))
    pattern = source.get("pattern")
    if pattern is not None and _pattern(pattern).search(value) is None:
        causes.append(Cause(_INVALID, f"Invalid value: {quoted(value)}: {path} in body should match '{pattern}'", path))
    format = source.get("format")
    if format is not None and not _has_format(value, format):
        causes.append(
            Cause(
                _INVALID,
                f"Invalid value: {quoted(value)}: {path} in body must be of type {format}: {quoted(value)}",
                path,
            )
        )


def _has_format(value: str, format: str) -> bool:
    try:
        match format:
            case "date-time":
                parse_time(value)
            case "duration":
                duration(value)
            case "ipv4":
                ipaddress.IPv4Address(value)
            case "ipv6":
                ipaddress.IPv6Address(value)
            case "cidr":
                ipaddress.ip_network(value, strict=False)
            case "byte":
                b64decode(value, validate=True)
            case "uuid":
                return re.fullmatch(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}", value) is not None
            case "date":
                return re.fullmatch(r"\d{4}-\d{2}-\d{2}", value) is not None
            case "uri":
                return bool(urlsplit(value).scheme)
            case "hostname":
                return re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?", value) is not None
            case "email":
                return "@" in value
    except (ValueError, CelError, Base64Error):
        return False
    return True


def _check_number(value: float, kind: Node, path: str, causes: list[Cause]) -> None:
    source = kind.source
    limit = source.get("maximum")
    if limit is not None:
        if source.get("exclusiveMaximum"):
            if value >= limit:
                causes.append(
                    Cause(_INVALID, f"Invalid value: {value}: {path} in body should be less than {limit}", path)
                )
        elif value > limit:
            text = f"Invalid value: {value}: {path} in body should be less than or equal to {limit}"
            causes.append(Cause(_INVALID, text, path))
    limit = source.get("minimum")
    if limit is not None:
        if source.get("exclusiveMinimum"):
            if value <= limit:
                causes.append(
                    Cause(_INVALID, f"Invalid value: {value}: {path} in body should be greater than {limit}", path)
                )
        elif value < limit:
            text = f"Invalid value: {value}: {path} in body should be greater than or equal to {limit}"
            causes.append(Cause(_INVALID, text, path))
    factor = source.get("multipleOf")
    if factor and value % factor:
        causes.append(Cause(_INVALID, f"Invalid value: {value}: {path} in body should be a multiple of {factor}", path))
    if kind.format in _LIMITS:
        low, high = _LIMITS[kind.format]
        if not low <= value <= high:
            shown = quoted(type_of(value))
            text = f"Invalid value: {shown}: {path} in body must be of type {kind.format}: {shown}"
            causes.append(Cause(_INVALID, text, path))


def _check_combination(word: str, value: JsonValue, source: JsonObject, path: str, causes: list[Cause]) -> None:
    def failures(schema: JsonObject) -> list[Cause]:
        found: list[Cause] = []
        _check(value, _alternative(id(schema), schema), path, found, _NOTHING)
        return found

    if word == "not":
        if not failures(source["not"]):
            causes.append(
                Cause(_INVALID, f'Invalid value: "{path}" must not validate the schema (not)', path or "<nil>")
            )
        return
    results = [failures(schema) for schema in source[word]]
    fitting = sum(1 for result in results if not result)
    if word == "allOf":
        for result in results:
            causes.extend(result)
        if fitting < len(results):
            causes.append(
                Cause(_INVALID, f'Invalid value: "": "{path}" must validate all the schemas (allOf)', path or "<nil>")
            )
    elif word == "anyOf" and fitting == 0:
        causes.append(
            Cause(_INVALID, f'Invalid value: "": "{path}" must validate at least one schema (anyOf)', path or "<nil>")
        )
        causes.extend(results[0] if results else ())
    elif word == "oneOf" and fitting != 1:
        detail = "Found none valid" if fitting == 0 else f"Found {fitting} valid alternatives"
        text = f'Invalid value: "": "{path}" must validate one and only one schema (oneOf). {detail}'
        causes.append(Cause(_INVALID, text, path or "<nil>"))


_alternatives: dict[int, tuple[JsonObject, Structural]] = {}


def _alternative(identity: int, schema: JsonObject) -> Structural:
    found = _alternatives.get(identity)
    if found is None or found[0] is not schema:
        from multikueue.devcluster.apiserver.schema import structural

        found = _alternatives[identity] = (schema, structural.read(schema))
    return found[1]


def _apply_rules(value: JsonValue, kind: Node, path: str, causes: list[Cause], old: JsonValue) -> None:
    if old is not _NOTHING and (old is value or old == value):
        return
    if not isinstance(kind, Structural) or value is None:
        return
    for rule in kind.rules:
        _apply_rule(rule, value, kind, path, causes, old)
    if isinstance(value, dict):
        before: JsonObject = old if isinstance(old, dict) else documents.EMPTY
        for name, entry in value.items():
            field = kind.properties.get(name)
            where = f"{path}.{name}" if path else name
            if field is None:
                field = kind.additional
            if isinstance(field, Structural) and (isinstance(entry, dict | list) or field.rules):
                _apply_rules(entry, field, where, causes, before.get(name, _NOTHING))
    elif isinstance(value, list) and isinstance(kind.items, Structural):
        earlier = _correlated(old, kind)
        for index, item in enumerate(value):
            was = earlier.get(item_key(kind, item), _NOTHING) if earlier else _NOTHING
            _apply_rules(item, kind.items, f"{path}[{index}]", causes, was)


def _apply_rule(rule: Rule, value: JsonValue, kind: Node, path: str, causes: list[Cause], old: JsonValue) -> None:
    variables: JsonObject = {"self": value}
    if rule.optional_old:
        variables["oldSelf"] = Optional(False) if old is _NOTHING else Optional(True, old)
    elif rule.transition:
        if old is _NOTHING:
            return
        variables["oldSelf"] = old
    where = path
    if rule.field_path:
        where = f"{path}{rule.field_path}" if path else rule.field_path.lstrip(".")
    # Objects and lists are not shown.
    shown = "" if isinstance(value, dict | list) else f" {quoted(value)}:"
    try:
        if rule.expression.evaluate(variables) is True:
            return
    except CelError as error:
        text = f"Invalid value:{shown} rule evaluation error: {error} (evaluating rule: {rule.expression.text.strip()})"
        causes.append(Cause(_INVALID, text, where or "<nil>"))
        return
    message = rule.message
    if rule.message_expression is not None:
        try:
            found = rule.message_expression.evaluate(variables)
        except CelError:
            found = None
        if isinstance(found, str) and found.strip() and "\n" not in found:
            message = found
    match rule.reason:
        case "FieldValueRequired":
            text = f"Required value: {message}"
        case "FieldValueForbidden":
            text = f"Forbidden: {message}"
        case "FieldValueDuplicate":
            text = f"Duplicate value:{shown}".rstrip(":")
        case _:
            text = f"Invalid value:{shown} {message}"
    causes.append(Cause(rule.reason, text, where or "<nil>"))
