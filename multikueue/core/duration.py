# SPDX-License-Identifier: Apache-2.0
"""Durations as Go and Kubernetes write them: `1h30m`, `5s`, `100ms`, `0`; values are `timedelta`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt

_MICROSECONDS: Final = {"ns": 0.001, "us": 1, "µs": 1, "ms": 1000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_MAX_LENGTH: Final = 64
_LONGEST: Final = timedelta(microseconds=(2**63 - 1) // 1000)  # as many nanoseconds as Go counts


def parse_duration(text: str) -> timedelta:
    """The duration that `text` holds, at most about 290 years. Raises `BadInput`."""
    if len(text) > _MAX_LENGTH:
        raise BadInput(f"{excerpt(text)} is not a duration such as 30s, 5m or 1h30m")
    unsigned = text.removeprefix("-").removeprefix("+")
    if unsigned == "0":
        return timedelta()
    total = 0.0
    position = 0
    while match := _PART.match(unsigned, position):
        total += float(match[1]) * _MICROSECONDS[match[2]]
        position = match.end()
    if not position or position != len(unsigned):
        raise BadInput(f"{excerpt(text)} is not a duration such as 30s, 5m or 1h30m")
    if total > _LONGEST / timedelta(microseconds=1):
        raise BadInput(f"{excerpt(text)} is longer than {_LONGEST.days} days")
    duration = timedelta(microseconds=total)
    return -duration if text.startswith("-") else duration


def parse_unsigned_duration(text: str) -> timedelta:
    """As `parse_duration`; a negative duration is refused as well."""
    duration = parse_duration(text)
    if duration < timedelta():
        raise BadInput(f"{excerpt(text)} is a negative duration")
    return duration


def format_duration(duration: timedelta) -> str:
    """`duration` as Go prints it, without the parts that are zero."""
    microseconds = duration // timedelta(microseconds=1)
    sign, microseconds = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    hours, rest = divmod(microseconds, 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    seconds = f"{rest / 1_000_000:.6f}".rstrip("0").rstrip(".")
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", f"{seconds}s" if rest else ""]
    return sign + ("".join(parts) or "0s")
