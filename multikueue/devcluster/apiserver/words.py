# SPDX-License-Identifier: Apache-2.0
"""Words that people read in tables: ages and durations, and the texts of name validation.

Owns the very roundings that kubectl prints, since a table's cells are made here.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from multikueue.core.timestamps import parse_time
from multikueue.devcluster.apiserver.documents import JsonValue
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.schema.values import quoted

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
QUALIFIED_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def bad_value(path: str, value: JsonValue, detail: str) -> Cause:
    """A value that breaks a rule."""
    return Cause("FieldValueInvalid", f"Invalid value: {quoted(value)}: {detail}", path)


def required(path: str, detail: str = "") -> Cause:
    """A value that is missing."""
    return Cause("FieldValueRequired", f"Required value: {detail}" if detail else "Required value", path)


def unsupported(path: str, value: JsonValue, allowed: list[str]) -> Cause:
    """A value that is not one of a few."""
    listed = ", ".join(quoted(entry) for entry in sorted(allowed))
    return Cause("FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {listed}", path)


def one_of(path: str, value: JsonValue, allowed: list[str]) -> Cause:
    """The same, the few in an order that means something."""
    listed = ", ".join(map(quoted, allowed))
    return Cause("FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {listed}", path)


def forbidden(path: str, detail: str) -> Cause:
    """A value that may not be there or may not change."""
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", path)


def immutable(path: str, value: JsonValue) -> Cause:
    """A value that may not change."""
    return Cause("FieldValueInvalid", f"Invalid value: {quoted(value)}: field is immutable", path)


def is_label(text: str) -> bool:
    """A DNS label."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """A DNS subdomain."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def name_problems(path: str, name: str, *, label: bool = False, shown: str | None = None) -> list[Cause]:
    """What is wrong with the name of an object; `shown` is what is told of instead of it."""
    limit = 63 if label else 253
    told = name if shown is None else shown
    found = []
    if len(name) > limit:
        found.append(bad_value(path, told, f"must be no more than {limit} characters"))
    if (_LABEL if label else _SUBDOMAIN).fullmatch(name) is None:
        dotted = label and "." in name and _SUBDOMAIN.fullmatch(name) is not None
        found.append(
            bad_value(path, told, "must not contain dots" if dotted else LABEL_TEXT if label else SUBDOMAIN_TEXT)
        )
    return found


def label_problems(path: str, labels: JsonValue) -> list[Cause]:
    """What is wrong with a map of labels."""
    found = []
    for key, value in (labels or {}).items():
        found += key_problems(path, key)
        if isinstance(value, str):
            found += label_value_problems(path, value)
    return found


def label_value_problems(path: str, value: str) -> list[Cause]:
    """What is wrong with the value of a label."""
    found = []
    if len(value) > 63:
        found.append(bad_value(path, value, "must be no more than 63 bytes"))
    if _VALUE.fullmatch(value) is None:
        found.append(bad_value(path, value, VALUE_TEXT))
    return found


def key_problems(path: str, key: str, *, shown: str | None = None) -> list[Cause]:
    """What is wrong with the key of a label or an annotation; `shown` is what is told of instead of it."""
    found = []
    domain, slash, name = key.rpartition("/")
    if "/" in domain:
        what = "valid label key" if path == "metadata.labels" else "qualified name"
        text = (
            f"a {what} must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        )
        return [bad_value(path, key, text)]
    if slash and not domain:
        found.append(bad_value(path, key, "prefix part must be non-empty"))
    elif slash and not is_subdomain(domain):
        found.append(bad_value(path, key, f"prefix part {SUBDOMAIN_TEXT}"))
    if not name:
        found.append(bad_value(path, key, "name part must be non-empty"))
    elif len(name) > 63:
        found.append(bad_value(path, key, "name part must be no more than 63 bytes"))
    if _QUALIFIED.fullmatch(name) is None:
        found.append(bad_value(path, key, QUALIFIED_TEXT))
    return found


def duration(since: JsonValue, until: datetime) -> str:
    """The time from `since` to `until`, in the two largest units that matter."""
    if not isinstance(since, str):
        return "<unknown>"
    return span((until - parse_time(since)).total_seconds())


def span(seconds: float) -> str:
    """A length of time, in the two largest units that matter."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return f"{minutes}m{total % 60}s" if total % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if hours < 24 * 365 * 2:
        return f"{days}d"
    years = days // 365
    if hours < 24 * 365 * 8:
        rest = days % 365
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"
