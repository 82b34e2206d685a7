# SPDX-License-Identifier: Apache-2.0
"""Parsing of numbers written by tenants and workers, within limits; `BadInput` otherwise.

Every annotation, label, status field or lease that holds a number is read through this module. Times, durations and
quantities have `core.timestamps`, `core.duration` and `core.quantity`, which raise the same error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
_MAX_DIGITS: Final = 19  # those of MAX_INT64; longer text is refused before it is converted


def parse_unsigned(value: object, *, field: str, maximum: int = MAX_INT64) -> int:
    """The whole number from 0 to `maximum` that `value` is, as JSON integer or as ASCII decimal text.

    Raises `BadInput` naming `field`. Signs, spaces, underscores and digits of other scripts are not accepted.
    """
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and len(value) <= _MAX_DIGITS and value.isascii() and value.isdigit():
        number = int(value)
    if number is None or not 0 <= number <= maximum:
        raise BadInput(f"{field}: expected a whole number from 0 to {maximum}, found {excerpt(value)}")
    return number


def parse_signed(text: str, *, field: str) -> int:
    """The 64-bit number in `text`, with or without a sign, as in node labels that Gt and Lt compare.

    Raises `BadInput` naming `field`.
    """
    negative = text.startswith("-")
    try:
        number = parse_unsigned(text[1:] if text[:1] in ("+", "-") else text, field=field, maximum=MAX_INT64 + negative)
    except BadInput as error:
        raise BadInput(f"{field}: expected a whole number of 64 bits, found {excerpt(text)}") from error
    return -number if negative else number


def version_number(resource_version: str) -> int:
    """A resourceVersion as a number that orders versions of one resource; 0 for an opaque one."""
    try:
        return parse_unsigned(resource_version, field="metadata.resourceVersion")
    except BadInput:
        return 0


def count_of(source: Mapping[str, object], name: str, *, at: str, default: int = 0) -> int:
    """The 32-bit count in the field `name`, `default` if absent. Raises `BadInput`, which names `at.name`."""
    value = source.get(name)
    return default if value is None else parse_unsigned(value, field=f"{at}.{name}", maximum=MAX_INT32)
