# SPDX-License-Identifier: Apache-2.0
"""Ages and durations as the cells of tables show them, rounded as kubectl prints them."""

from __future__ import annotations

from datetime import datetime

from devcluster.apiserver.codec.documents import JsonValue
from devcluster.apiserver.codec.times import read_time


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
