# SPDX-License-Identifier: Apache-2.0
"""Times of the years 0000 to 9999, as an API server accepts them; `core.timestamps` has fewer."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt

_CLOCK: Final = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_LEAP_CYCLE: Final = "2000"  # a leap year as 0000 is, which Python's calendar does not have


def is_date(text: str) -> bool:
    """Whether the text is a date such as 2026-01-31."""
    if len(text) != 10 or not text.isascii():
        return False
    try:
        date.fromisoformat(_LEAP_CYCLE + text[4:] if text.startswith("0000-") else text)
    except ValueError:
        return False
    return text[4] == text[7] == "-"


def is_date_time(text: str) -> bool:
    """Whether the text is an RFC 3339 time, as the format `date-time` of schemas."""
    day, separator, clock = text.lower().partition("t")
    return bool(separator) and is_date(day) and _CLOCK.fullmatch(clock) is not None


def read_time(text: str) -> datetime:
    """The time in UTC, for comparisons; clamped to the range of Python's calendar.

    Raises `BadInput`.
    """
    if not is_date_time(text):
        raise BadInput(f"{excerpt(text)} is not an RFC 3339 time such as 2026-01-31T08:00:00Z")
    if text.startswith("0000-"):
        return _FIRST
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except OverflowError:
        return _FIRST if text.startswith("0001-") else _LAST
