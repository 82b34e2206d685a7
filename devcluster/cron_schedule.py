# SPDX-License-Identifier: Apache-2.0
"""Schedules of CronJobs, parsed and evaluated as in Kubernetes. Pure.

Five fields (minute, hour, day of month, month, day of week) or `@yearly`, `@monthly`, `@weekly`, `@daily`, `@hourly`
and `@every DURATION`. No Python library implements this dialect: Sunday is 0 and never 7, a single number with a step
runs to the end of its range (`5/20`), and day of month and day of week must both match only if one of the two fields
contains a plain `*` or `?`. A local time that a clock change skips is skipped; one that occurs twice is used twice.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from multikueue.core.duration import parse_duration
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_unsigned

_YEARS_AHEAD: Final = 5
_LONGEST: Final = 1000
"""Characters of a schedule; each field is parsed item by item."""
_MONTHS: Final[Mapping[str, int]] = {
    "jan": 1,
    "feb": 2,
    "mar": 3,
    "apr": 4,
    "may": 5,
    "jun": 6,
    "jul": 7,
    "aug": 8,
    "sep": 9,
    "oct": 10,
    "nov": 11,
    "dec": 12,
}
_DAYS: Final[Mapping[str, int]] = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY: Final = "@every "
_ZONE_PREFIXES: Final = ("TZ=", "CRON_TZ=")


class Schedule(Protocol):
    """The times of a schedule."""

    def after(self, moment: datetime) -> datetime | None:
        """The first time after `moment`, in UTC; None if there is none within five years."""

    def last(self, first: datetime, until: datetime) -> datetime:
        """The last time not after `until`; `first` is a time of the schedule and not after `until`."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A fixed interval."""

    seconds: int

    def after(self, moment: datetime) -> datetime | None:
        """The first time after `moment`; None beyond the year 9999."""
        try:
            return moment.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=self.seconds)
        except OverflowError:
            return None

    def last(self, first: datetime, until: datetime) -> datetime:
        """The last time not after `until`, counted from `first`."""
        return first + (until - first) // timedelta(seconds=self.seconds) * timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class _Field:
    values: frozenset[int]
    unrestricted: bool
    """Contains a plain `*` or `?`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSchedule:
    """The minutes that match five fields, in a time zone."""

    minutes: _Field
    hours: _Field
    days: _Field
    months: _Field
    weekdays: _Field
    zone: ZoneInfo

    def after(self, moment: datetime) -> datetime | None:
        """The first time after `moment`, in UTC; None if there is none within five years."""
        try:
            return self._after(moment)
        except (OverflowError, ValueError):  # beyond the year 9999
            return None

    def last(self, first: datetime, until: datetime) -> datetime:
        """The last time not after `until`, by binary search: there may be a million times in between."""
        low, high = 0, int((until - first).total_seconds() // 60)
        found = first
        while low <= high:
            middle = (low + high) // 2
            moment = self.after(first + timedelta(minutes=middle))
            if moment is not None and moment <= until:
                found, low = moment, middle + 1
            else:
                high = middle - 1
        return found

    def _after(self, moment: datetime) -> datetime | None:
        start = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        today = start.astimezone(self.zone).date()
        day = today
        while day.year <= today.year + _YEARS_AHEAD:
            if day.month not in self.months.values:
                day = day.replace(day=1) + timedelta(days=monthrange(day.year, day.month)[1])
                continue
            if self._on(day):
                found = self._first_on(day, start)
                if found is not None:
                    return found
            day += timedelta(days=1)
        return None

    def _on(self, day: date) -> bool:
        by_month = day.day in self.days.values
        by_week = day.isoweekday() % 7 in self.weekdays.values
        if self.days.unrestricted or self.weekdays.unrestricted:
            return by_month and by_week
        return by_month or by_week

    def _first_on(self, day: date, start: datetime) -> datetime | None:
        # A local day has 23 to 25 hours, so its UTC hours are visited and converted to the zone.
        begin = datetime.combine(day, time(), self.zone).astimezone(UTC) - timedelta(hours=1)
        moment = max(start, begin)
        end = begin + timedelta(hours=27)
        while moment < end:
            local = moment.astimezone(self.zone)
            if local.date() != day or local.hour not in self.hours.values:
                moment += timedelta(minutes=60 - local.minute)
            elif local.minute not in self.minutes.values:
                moment += timedelta(minutes=1)
            else:
                return moment
        return None


def parse_schedule(text: str, *, time_zone: str = "") -> Schedule:
    """Parse a schedule; an empty `time_zone` is UTC. Raises `BadInput` with the message of Kubernetes."""
    if len(text) > _LONGEST:
        raise BadInput(f"schedule has {len(text)} characters, more than {_LONGEST}")
    zone = zone_of(time_zone)
    if text.startswith(_ZONE_PREFIXES):
        written, _, text = text.partition(" ")
        name = written.partition("=")[2]
        try:
            zone = zone_of(name)
        except BadInput as error:
            raise BadInput(f"provided bad location {name}: {error}") from error
        text = text.strip()
    if text.startswith(_EVERY):
        return _interval(text.removeprefix(_EVERY))
    if text.startswith("@"):
        if text not in _NAMED:
            raise BadInput(f"unrecognized descriptor: {text}")
        text = _NAMED[text]
    fields = text.split()
    if len(fields) != len(_BOUNDS):
        raise BadInput(f"expected exactly {len(_BOUNDS)} fields, found {len(fields)}: [{' '.join(fields)}]")
    minutes, hours, days, months, weekdays = (
        _field(field, bounds) for field, bounds in zip(fields, _BOUNDS, strict=True)
    )
    return CronSchedule(minutes=minutes, hours=hours, days=days, months=months, weekdays=weekdays, zone=zone)


def zone_of(name: str) -> ZoneInfo:
    """The time zone of that name; UTC if the name is empty. Raises `BadInput`."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInput(f"unknown time zone {name}") from error


def most_recent(schedule: Schedule, *, since: datetime, now: datetime) -> tuple[datetime | None, int]:
    """The last time after `since` and not after `now`, and an estimate of how many there were. Raises `BadInput`."""
    first = schedule.after(since)
    if first is None:
        raise BadInput("time difference between two schedules is less than 1 second")
    if now < first:
        return None, 0
    second = schedule.after(first)
    if second is None or now < second:
        return first, 1
    # Counting each would take too long after years of downtime: the interval of the first two is used for all.
    missed = int((now - first) / (second - first)) + 1
    return schedule.last(first, now), missed


@dataclass(frozen=True, slots=True)
class _Bounds:
    low: int
    high: int
    names: Mapping[str, int]


_BOUNDS: Final = (
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, _MONTHS),
    _Bounds(0, 6, _DAYS),
)


def _interval(text: str) -> Interval:
    try:
        seconds = parse_duration(text).total_seconds()
    except (BadInput, OverflowError) as error:
        raise BadInput(f'failed to parse duration {_EVERY}{text}: time: invalid duration "{text}"') from error
    return Interval(max(1, int(seconds)))


def _field(text: str, bounds: _Bounds) -> _Field:
    values: set[int] = set()
    unrestricted = False
    for item in filter(None, text.split(",")):
        found, plain = _item(item, bounds)
        values.update(found)
        unrestricted |= plain
    return _Field(frozenset(values), unrestricted)


def _item(text: str, bounds: _Bounds) -> tuple[range, bool]:
    """The values of one item of a list, and whether it is a plain `*` or `?`."""
    span, *steps = text.split("/")
    ends = span.split("-")
    star = ends[0] in ("*", "?")
    if star:
        low, high = bounds.low, bounds.high
    else:
        low = _number(ends[0], bounds)
        if len(ends) > 2:
            raise BadInput(f"too many hyphens: {text}")
        high = _number(ends[-1], bounds)
    if len(steps) > 1:
        raise BadInput(f"too many slashes: {text}")
    step = _number(steps[0], _BOUNDS[0]) if steps else 1
    if steps and len(ends) == 1:
        high = bounds.high
    if low < bounds.low:
        raise BadInput(f"beginning of range ({low}) below minimum ({bounds.low}): {text}")
    if high > bounds.high:
        raise BadInput(f"end of range ({high}) above maximum ({bounds.high}): {text}")
    if low > high:
        raise BadInput(f"beginning of range ({low}) beyond end of range ({high}): {text}")
    if step == 0:
        raise BadInput(f"step of range should be a positive number: {text}")
    return range(low, high + 1, step), star and step == 1


def _number(text: str, bounds: _Bounds) -> int:
    named = bounds.names.get(text.lower())
    if named is not None:
        return named
    try:
        return parse_unsigned(text, field="schedule")
    except BadInput as error:
        if text.startswith("-") and text[1:].isdecimal():
            raise BadInput(f"negative number ({text}) not allowed: {text}") from error
        raise BadInput(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax') from error
