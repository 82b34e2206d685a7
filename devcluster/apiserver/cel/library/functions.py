# SPDX-License-Identifier: Apache-2.0
"""The functions and methods of the language, and Kubernetes' own beside them.

Values are None, bool, int, float, str, list, dict, `Quantity`, `timedelta`, `datetime` and `Optional`. Every failure is
a `CelError`, since a rule that cannot be evaluated counts as violated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from string import ascii_lowercase, ascii_uppercase
from typing import Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

from devcluster.apiserver.cel.library.authorizer import AUTHORIZER_METHODS
from devcluster.apiserver.cel.library.formatting import formatted, text_of
from devcluster.apiserver.cel.library.libraries import ADDRESS_FUNCTIONS, ADDRESS_METHODS, SEQUENCE_METHODS
from devcluster.apiserver.cel.library.named import judged
from devcluster.apiserver.cel.library.semantic import Version, is_version
from devcluster.apiserver.cel.library.timestamps import TIME_METHODS
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.values import Optional, Url
from devcluster.apiserver.codec.documents import JsonValue
from devcluster.apiserver.codec.patterns import pattern_of
from devcluster.apiserver.codec.times import read_time
from multikueue.core.duration import parse_duration
from multikueue.core.errors import BadInput
from multikueue.core.quantity import Quantity, QuantityError

Function: TypeAlias = Callable[..., JsonValue]
_LONG: Final = 5_000_000
"""In a string that is longer nothing is replaced."""
_HUGE: Final = 100_000_000
"""A string that is longer is not made."""


def compiled(text: str) -> re.Pattern[str]:
    """A regular expression."""
    try:
        return pattern_of(text)
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
    try:
        return parse_duration(str(text))
    except BadInput as error:
        raise _unconvertible("google.protobuf.Duration") from error


def timestamp(text: JsonValue) -> datetime:
    """An instant in RFC 3339."""
    if isinstance(text, datetime):
        return text
    if isinstance(text, int):
        return datetime.fromtimestamp(text, UTC)
    try:
        return read_time(str(text))
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
"""The type names that expressions can compare with."""


def type_name(value: JsonValue) -> str:
    """The name of the value's type."""
    return "map" if isinstance(value, dict) else _TYPE_NAMES.get(type(value), type(value).__name__)


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
    "string": text_of,
    "bool": lambda value: value if isinstance(value, bool) else {"true": True, "false": False}[value],
    "dyn": lambda value: value,
    "type": type_name,
    "url": lambda text: Url(text),
    "isURL": lambda text: bool(urlsplit(text).scheme),
    "bytes": lambda value: value,
    "isSemver": is_version,
    "matches": lambda text, pattern: compiled(pattern).search(text) is not None,
    "semver": Version,
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


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    found = [match[0] for match in compiled(pattern).finditer(text)]
    return found if most < 0 else found[:most]


def _split(text: str, by: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if by:
        return text.split(by, most - 1 if most > 0 else -1)
    return list(text) if most < 0 else [*text[: most - 1], *filter(None, [text[most - 1 :]])]


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    times = text.count(old) if count < 0 else count
    if len(text) > _LONG or times * len(new) > _HUGE:
        raise CelError("operation cancelled: actual cost limit exceeded")
    return text.replace(old, new, count)


def _or_value(value: Optional, other: JsonValue) -> JsonValue:
    return value.value if value.present else other


def _value(value: Optional) -> JsonValue:
    if not value.present:
        raise CelError("optional.none() dereference")
    return value.value


def _compare_to(left: JsonValue, right: JsonValue) -> int:
    return int(left > right) - int(left < right)


_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_UPPER: Final = str.maketrans(ascii_lowercase, ascii_uppercase)
METHODS: Final[dict[str, Function]] = {
    **ADDRESS_METHODS,
    **TIME_METHODS,
    **SEQUENCE_METHODS,
    **AUTHORIZER_METHODS,
    "size": size,
    "startsWith": lambda text, start: text.startswith(start),
    "endsWith": lambda text, end: text.endswith(end),
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: compiled(pattern).search(text) is not None,
    "lowerAscii": lambda text: text.translate(_LOWER),
    "upperAscii": lambda text: text.translate(_UPPER),
    "trim": lambda text: text.strip(),
    "replace": _replace,
    "split": _split,
    "join": lambda items, by="": by.join(items),
    "substring": _substring,
    "charAt": _char_at,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "find": _find,
    "findAll": _find_all,
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
    "getScheme": lambda value: urlsplit(value.text).scheme,
    "getHost": lambda value: urlsplit(value.text).netloc,
    "getHostname": lambda value: urlsplit(value.text).hostname or "",
    "getPort": lambda value: str(urlsplit(value.text).port or ""),
    "format": formatted,
    "getQuery": lambda value: parse_qs(urlsplit(value.text).query, keep_blank_values=True),
    "major": lambda version: version.major,
    "minor": lambda version: version.minor,
    "patch": lambda version: version.patch,
    "validate": judged,
    "getEscapedPath": lambda value: urlsplit(value.text).path,
}
