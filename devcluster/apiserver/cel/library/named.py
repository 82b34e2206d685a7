# SPDX-License-Identifier: Apache-2.0
"""The named string formats of rules (`format.dns1123Label()`), and their validation."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.cel.signatures import FORMATS
from devcluster.apiserver.cel.values import NamedFormat, Optional
from devcluster.apiserver.codec.documents import JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.schema.formats import has_format
from devcluster.apiserver.schema.values import quoted

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_OLD_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def named(name: str) -> Optional:
    """The format of that name, if there is one."""
    return Optional(True, NamedFormat(name)) if name in FORMATS else Optional(False)


def judged(format: NamedFormat, text: str) -> Optional:
    """The problems of the text; none if it has the format."""
    found = _JUDGES[format.name](text)
    return Optional(True, found) if found else Optional(False)


def _matching(pattern: re.Pattern[str], limit: int, complaint: str) -> Callable[[str], list[JsonValue]]:
    def judge(text: str) -> list[JsonValue]:
        found: list[JsonValue] = [f"must be no more than {limit} characters"] if len(text) > limit else []
        return found if pattern.fullmatch(text) else [*found, complaint]

    return judge


def _beginning(judge: Callable[[str], list[JsonValue]]) -> Callable[[str], list[JsonValue]]:
    """The same for a prefix of a name, which may end with a hyphen (and then hides the character before it)."""
    return lambda text: judge(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _details(text: str, causes: list[StatusCause]) -> list[JsonValue]:
    return [cause.message.removeprefix(f"Invalid value: {quoted(text)}: ") for cause in causes]


def _qualified(text: str) -> list[JsonValue]:
    return _details(text, field_errors.key_problems("metadata.labels", text))


def _value(text: str) -> list[JsonValue]:
    return _details(text, field_errors.label_value_problems("", text))


def _of_type(format: str, complaint: str) -> Callable[[str], list[JsonValue]]:
    return lambda text: [] if has_format(text, format) else [complaint]


def _date(text: str) -> list[JsonValue]:
    try:
        date.fromisoformat(text)
    except ValueError:
        return ["invalid date"]
    return []


def _uri(text: str) -> list[JsonValue]:
    return [] if has_format(text, "uri") and " " not in text else [f'parse "{text}": invalid URI for request']


_label = _matching(_LABEL, 63, field_errors.LABEL_TEXT)
_subdomain = _matching(_SUBDOMAIN, 253, field_errors.SUBDOMAIN_TEXT)
_old_label = _matching(_OLD_LABEL, 63, field_errors.DNS_1035_TEXT)
_JUDGES: Final[dict[str, Callable[[str], list[JsonValue]]]] = {
    "byte": _of_type("byte", "invalid base64"),
    "date": _date,
    "datetime": _of_type("date-time", "invalid datetime"),
    "dns1035Label": _old_label,
    "dns1035LabelPrefix": _beginning(_old_label),
    "dns1123Label": _label,
    "dns1123LabelPrefix": _beginning(_label),
    "dns1123Subdomain": _subdomain,
    "dns1123SubdomainPrefix": _beginning(_subdomain),
    "labelValue": _value,
    "qualifiedName": _qualified,
    "uri": _uri,
    "uuid": _of_type("uuid", "does not match the UUID format"),
}
FORMAT_LIBRARIES: Final[dict[tuple[str, str], Callable[..., JsonValue]]] = {
    ("format", "named"): named,
    **{("format", name): lambda name=name: NamedFormat(name) for name in FORMATS},
}
"""The functions that are called through their library's name."""
