# SPDX-License-Identifier: Apache-2.0
"""The functions and methods of the language, and Kubernetes' own beside them.

Owns what each does to values: None, bool, int, float, str, list, dict, `Quantity`, `timedelta`, `datetime`, `Optional`.
Every failure is a `CelError`, since a rule that fails to evaluate is a rule that is not met.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from multikueue.core.quantity import Quantity, QuantityError
from multikueue.core.timestamps import parse_time
from multikueue.devcluster.apiserver.cel.libraries import ADDRESS_FUNCTIONS, ADDRESS_METHODS
from multikueue.devcluster.apiserver.cel.syntax import CelError
from multikueue.devcluster.apiserver.documents import JsonValue

Function: TypeAlias = Callable[..., JsonValue]


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    present: bool
    value: JsonValue = None


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL."""

    text: str


_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|us|µs|ns|m|s)")


@cache
def compiled(text: str) -> re.Pattern[str]:
    """A regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise CelError(f"error parsing regexp: {error}") from error


def size(value: JsonValue) -> int:
    """Length of a string, list or map."""
    if isinstance(value, str | list | dict):
        return len(value)
    raise CelError("no such overload: size")


def _unconvertible(wanted: str) -> CelError:
    return CelError(f"type conversion error from 'string' to '{wanted}'")


def _some(value: list[JsonValue], function: str) -> list[JsonValue]:
    if not value:
        raise CelError(f"{function} called on empty list")
    return value


def duration(text: JsonValue) -> timedelta:
    """A duration such as `1h30m`."""
    if isinstance(text, timedelta):
        return text
    body = str(text).lstrip("+-")
    if not body or _DURATION.sub("", body) not in ("", "0"):
        raise _unconvertible("google.protobuf.Duration")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(body))
    return timedelta(seconds=-seconds if str(text).startswith("-") else seconds)


def timestamp(text: JsonValue) -> datetime:
    """An instant in RFC 3339."""
    if isinstance(text, datetime):
        return text
    try:
        return parse_time(str(text))
    except ValueError as error:
        raise _unconvertible("google.protobuf.Timestamp") from error


def quantity(text: JsonValue) -> Quantity:
    """A Kubernetes quantity."""
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        form = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise CelError(f"quantities must match the regular expression '{form}'") from error


def is_quantity(text: JsonValue) -> bool:
    """Whether the text is a quantity."""
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def _integer(value: JsonValue) -> int:
    if isinstance(value, datetime):
        return int(value.timestamp())
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise _unconvertible("int") from error


def _double(value: JsonValue) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise _unconvertible("double") from error


def string(value: JsonValue) -> str:
    """The value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)


_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    list: "list",
    dict: "map",
    type(None): "null_type",
    datetime: "google.protobuf.Timestamp",
    timedelta: "google.protobuf.Duration",
}
TYPES: Final = frozenset({*_TYPE_NAMES.values(), "bytes", "uint", "type"})
"""The names of types that an expression may compare with."""


def type_name(value: JsonValue) -> str:
    """The name of the value's type."""
    return _TYPE_NAMES.get(type(value), type(value).__name__)


FUNCTIONS: Final[dict[str, Function]] = {
    **ADDRESS_FUNCTIONS,
    "size": size,
    "duration": duration,
    "timestamp": timestamp,
    "quantity": quantity,
    "isQuantity": is_quantity,
    "int": _integer,
    "uint": _integer,
    "double": _double,
    "string": string,
    "bool": lambda value: value if isinstance(value, bool) else {"true": True, "false": False}[value],
    "dyn": lambda value: value,
    "type": type_name,
    "url": lambda text: Url(text),
    "isURL": lambda text: bool(urlsplit(text).scheme),
}


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    for at in (start, end):
        if not 0 <= at <= len(text):
            raise CelError(f"index out of range: {at}")
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _sorted(items: list[JsonValue]) -> bool:
    return all(left <= right for left, right in pairwise(items))


def _index_of(value: JsonValue, item: JsonValue, start: int = 0) -> int:
    if isinstance(value, str):
        return value.find(item, start)
    return value.index(item) if item in value else -1


def _last_index_of(value: JsonValue, item: JsonValue) -> int:
    if isinstance(value, str):
        return value.rfind(item)
    return max((index for index, entry in enumerate(value) if entry == item), default=-1)


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")
    return text[index : index + 1]


def _find(text: str, pattern: str) -> str:
    match = compiled(pattern).search(text)
    return match[0] if match else ""


def _or_value(value: Optional, other: JsonValue) -> JsonValue:
    return value.value if value.present else other


def _value(value: Optional) -> JsonValue:
    if not value.present:
        raise CelError("optional.none() dereference")
    return value.value


def _compare_to(left: Quantity, right: Quantity) -> int:
    return (left > right) - (left < right)


METHODS: Final[dict[str, Function]] = {
    **ADDRESS_METHODS,
    "size": size,
    "startsWith": lambda text, start: text.startswith(start),
    "endsWith": lambda text, end: text.endswith(end),
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: compiled(pattern).search(text) is not None,
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "replace": lambda text, old, new, count=-1: text.replace(old, new, count),
    "split": lambda text, by, count=-1: text.split(by, count - 1 if count > 0 else -1) if by else list(text),
    "join": lambda items, by="": by.join(items),
    "substring": _substring,
    "charAt": _char_at,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "find": _find,
    "findAll": lambda text, pattern: [match[0] for match in compiled(pattern).finditer(text)],
    "isSorted": _sorted,
    "sum": sum,
    "min": lambda value: min(_some(value, "min")),
    "max": lambda value: max(_some(value, "max")),
    "reverse": lambda value: value[::-1],
    "orValue": _or_value,
    "hasValue": lambda value: value.present,
    "value": _value,
    "or": lambda value, other: value if value.present else other,
    "isGreaterThan": lambda left, right: left > right,
    "isLessThan": lambda left, right: left < right,
    "compareTo": _compare_to,
    "isInteger": lambda value: value.exact().denominator == 1,
    "asInteger": lambda value: int(value.exact()),
    "asApproximateFloat": lambda value: float(value.exact()),
    "sign": lambda value: _compare_to(value, Quantity(0)),
    "add": lambda left, right: left + (Quantity.of(right) if isinstance(right, int) else right),
    "sub": lambda left, right: left - (Quantity.of(right) if isinstance(right, int) else right),
    "getSeconds": lambda value: int(value.total_seconds()) if isinstance(value, timedelta) else value.second,
    "getMinutes": lambda value: int(value.total_seconds() // 60) if isinstance(value, timedelta) else value.minute,
    "getHours": lambda value: int(value.total_seconds() // 3600) if isinstance(value, timedelta) else value.hour,
    "getFullYear": lambda value: value.year,
    "getScheme": lambda value: urlsplit(value.text).scheme,
    "getHost": lambda value: urlsplit(value.text).netloc,
    "getHostname": lambda value: urlsplit(value.text).hostname or "",
    "getPort": lambda value: str(urlsplit(value.text).port or ""),
    "getEscapedPath": lambda value: urlsplit(value.text).path,
}
