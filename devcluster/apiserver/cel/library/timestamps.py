# SPDX-License-Identifier: Apache-2.0
"""The parts of timestamps and durations, in a given time zone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from devcluster.apiserver.cel.syntax import CelError

_Moment = datetime | timedelta


def _local(moment: datetime, zone: str) -> datetime:
    hours, colon, minutes = zone.lstrip("+-").partition(":")
    if colon and hours.isdigit() and minutes.isdigit():
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        return moment.astimezone(timezone(-offset if zone.startswith("-") else offset))
    try:
        return moment.astimezone(ZoneInfo(zone) if zone else UTC)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise CelError(f"unknown time zone {zone}") from error


def _part(of: Callable[[datetime], int]) -> Callable[..., int]:
    return lambda moment, zone="UTC": of(_local(moment, zone))


def _clock(of: Callable[[datetime], int], unit: timedelta) -> Callable[..., int]:
    """The part of a timestamp, or the number of units in a duration."""

    def get(moment: _Moment, zone: str = "UTC") -> int:
        if isinstance(moment, timedelta):
            whole = abs(moment) // unit
            return whole if moment >= timedelta() else -whole
        return of(_local(moment, zone))

    return get


TIME_METHODS: Final[dict[str, Callable[..., int]]] = {
    "getDate": _part(lambda moment: moment.day),
    "getDayOfMonth": _part(lambda moment: moment.day - 1),
    "getDayOfWeek": _part(lambda moment: moment.isoweekday() % 7),
    "getDayOfYear": _part(lambda moment: moment.timetuple().tm_yday - 1),
    "getFullYear": _part(lambda moment: moment.year),
    "getHours": _clock(lambda moment: moment.hour, timedelta(hours=1)),
    "getMilliseconds": _clock(lambda moment: moment.microsecond // 1000, timedelta(milliseconds=1)),
    "getMinutes": _clock(lambda moment: moment.minute, timedelta(minutes=1)),
    "getMonth": _part(lambda moment: moment.month - 1),
    "getSeconds": _clock(lambda moment: moment.second, timedelta(seconds=1)),
}
