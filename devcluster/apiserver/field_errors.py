# SPDX-License-Identifier: Apache-2.0
"""What validation answers: a cause for each kind of wrong field, and the checks of names and labels.

The texts are those of a real server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from devcluster.apiserver.codec.documents import JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.schema.values import quoted

_IPV4: Final = re.compile(r"0*\d{1,3}(\.0*\d{1,3}){3}")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
CONFIG_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
DNS_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
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


def invalid(path: str, value: JsonValue, detail: str) -> StatusCause:
    """A value that breaks a rule."""
    text = f"Invalid value: {quoted(value)}"
    return StatusCause("FieldValueInvalid", f"{text}: {detail}" if detail else text, path)


def required(path: str, detail: str = "") -> StatusCause:
    """A value that is missing."""
    return StatusCause("FieldValueRequired", f"Required value: {detail}" if detail else "Required value", path)


def not_supported(path: str, value: JsonValue, allowed: Sequence[str]) -> StatusCause:
    """A value that is not one of the allowed ones, which are listed in the given order."""
    listed = ", ".join(map(quoted, allowed))
    return StatusCause(
        "FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {listed}", path
    )


def duplicate(path: str, value: JsonValue) -> StatusCause:
    """A value that another entry has already."""
    return StatusCause("FieldValueDuplicate", f"Duplicate value: {quoted(value)}", path)


def forbidden(path: str, detail: str) -> StatusCause:
    """A value that may not be there or may not change."""
    return StatusCause("FieldValueForbidden", f"Forbidden: {detail}", path)


def immutable(path: str, value: JsonValue) -> StatusCause:
    """A value that may not change."""
    return StatusCause("FieldValueInvalid", f"Invalid value: {quoted(value)}: field is immutable", path)


def is_label(text: str) -> bool:
    """A DNS label."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """A DNS subdomain."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def name_problems(path: str, name: str, *, label: bool = False, shown: str | None = None) -> list[StatusCause]:
    """What is wrong with the name of an object; the causes show `shown` instead of it if given."""
    limit = 63 if label else 253
    displayed = name if shown is None else shown
    found = []
    if len(name) > limit:
        found.append(invalid(path, displayed, f"must be no more than {limit} characters"))
    if (_LABEL if label else _SUBDOMAIN).fullmatch(name) is None:
        dotted = label and "." in name and _SUBDOMAIN.fullmatch(name) is not None
        found.append(
            invalid(path, displayed, "must not contain dots" if dotted else LABEL_TEXT if label else SUBDOMAIN_TEXT)
        )
    return found


def address_problems(path: str, text: str) -> list[StatusCause]:
    """What is wrong with an IP address that must be in its canonical form."""
    try:
        found = ip_address(text)
    except ValueError:
        zeros = _IPV4.fullmatch(text) is not None
        wrong = "must not have leading 0s" if zeros else "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        return [invalid(path, text, wrong)]
    if found.version == 6 and found.ipv4_mapped is not None:
        return [invalid(path, text, "must not be an IPv4-mapped IPv6 address")]
    return [] if str(found) == text else [invalid(path, text, f'must be in canonical form ("{found}")')]


def config_key_problems(path: str, key: str) -> list[StatusCause]:
    """What is wrong with a key of a ConfigMap or a Secret."""
    if key in (".", ".."):
        return [invalid(path, key, f"must not be '{key}'")]
    return [] if _CONFIG_KEY.fullmatch(key) is not None else [invalid(path, key, CONFIG_KEY_TEXT)]


def label_problems(path: str, labels: JsonValue) -> list[StatusCause]:
    """What is wrong with a map of labels."""
    found = []
    for key, value in (labels or {}).items():
        found += key_problems(path, key)
        if isinstance(value, str):
            found += label_value_problems(path, value)
    return found


def label_value_problems(path: str, value: str) -> list[StatusCause]:
    """What is wrong with the value of a label."""
    found = []
    if len(value) > 63:
        found.append(invalid(path, value, "must be no more than 63 bytes"))
    if _VALUE.fullmatch(value) is None:
        found.append(invalid(path, value, VALUE_TEXT))
    return found


def key_problems(path: str, key: str, *, shown: str | None = None) -> list[StatusCause]:
    """What is wrong with the key of a label or an annotation; the causes show `shown` instead of it if given."""
    found = []
    displayed = key if shown is None else shown
    domain, slash, name = key.rpartition("/")
    if "/" in domain:
        what = "valid label key" if path == "metadata.labels" else "qualified name"
        text = (
            f"a {what} must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        )
        return [invalid(path, displayed, text)]
    if slash and not domain:
        found.append(invalid(path, displayed, "prefix part must be non-empty"))
    elif slash and not is_subdomain(domain):
        found.append(invalid(path, displayed, f"prefix part {SUBDOMAIN_TEXT}"))
    if not name:
        found.append(invalid(path, displayed, "name part must be non-empty"))
    elif len(name) > 63:
        found.append(invalid(path, displayed, "name part must be no more than 63 bytes"))
    if _QUALIFIED.fullmatch(name) is None:
        found.append(invalid(path, displayed, QUALIFIED_TEXT))
    return found
