# SPDX-License-Identifier: Apache-2.0
"""Times of the years 0000 to 9999, as an API server accepts them, and ages as the cells of tables show them.

`core.timestamps` has fewer years. Ages and durations are rounded as kubectl prints them.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Final

from devcluster.apiserver.codec.documents import JsonValue
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


def duration(since: JsonValue, until: datetime) -> str:
    """The time from `since` to `until`, rounded to at most two units."""
    if not isinstance(since, str):
        return "<unknown>"
    return span((until - read_time(since)).total_seconds())


def span(seconds: float) -> str:
    """A length of time, rounded to at most two units."""
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
