# SPDX-License-Identifier: Apache-2.0
"""When the schedules of CronJobs are due; times and texts were taken from what a real cluster makes of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from devcluster.cron_schedule import most_recent, parse_schedule
from multikueue.core.errors import BadInput
from multikueue.core.timestamps import format_time, parse_time

NOW = datetime(2026, 11, 22, 11, 0, 30, tzinfo=UTC)


def times(schedule: str, *, since: str, zone: str = "", count: int = 3) -> list[str]:
    parsed = parse_schedule(schedule, time_zone=zone)
    found: list[str] = []
    moment = parsed.after(parse_time(since))
    while moment is not None and len(found) < count:
        found.append(format_time(moment))
        moment = parsed.after(moment)
    return found


@pytest.mark.parametrize(
    ("schedule", "want"),
    [
        pytest.param("* * * * *", ["2026-11-22T11:01:00Z", "2026-11-22T11:02:00Z"], id="every minute"),
        pytest.param("*/15 * * * *", ["2026-11-22T11:15:00Z", "2026-11-22T11:30:00Z"], id="a step"),
        pytest.param("5/40 3 * * *", ["2026-11-23T03:05:00Z", "2026-11-23T03:45:00Z"], id="a step from a number"),
        pytest.param("0 9-17/8 * * MON", ["2026-11-23T09:00:00Z", "2026-11-23T17:00:00Z"], id="ranges and names"),
        pytest.param("0 0 13 * 5", ["2026-11-27T00:00:00Z", "2026-12-04T00:00:00Z"], id="either day"),
        pytest.param("0 0 1 * ?", ["2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"], id="both days with a star"),
        pytest.param("0 0 */2 * 5", ["2026-11-23T00:00:00Z", "2026-11-25T00:00:00Z"], id="a step is no plain star"),
        pytest.param("0 0 29 2 *", ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"], id="leap days"),
        pytest.param("@weekly", ["2026-11-29T00:00:00Z", "2026-12-06T00:00:00Z"], id="a name"),
        pytest.param("@every 90s", ["2026-11-22T11:02:00Z", "2026-11-22T11:03:30Z"], id="an interval"),
        pytest.param("@every 10ms", ["2026-11-22T11:00:31Z", "2026-11-22T11:00:32Z"], id="at least a second"),
        pytest.param("CRON_TZ=Asia/Kolkata 0 0 * * *", ["2026-11-22T18:30:00Z", "2026-11-23T18:30:00Z"], id="a zone"),
        pytest.param("0 0 31 2 *", [], id="a day that never comes"),
    ],
)
def test_times_of_a_schedule(schedule: str, want: list[str]) -> None:
    assert times(schedule, since="2026-11-22T11:00:30Z", count=2) == want


def test_a_time_that_a_change_of_the_clocks_leaves_out_is_left_out() -> None:
    found = times("30 2 * * *", since="2026-03-07T00:00:00Z", zone="America/New_York")
    assert found == ["2026-03-07T07:30:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]


def test_a_time_that_comes_twice_is_used_twice() -> None:
    found = times("30 1 * * *", since="2026-10-31T12:00:00Z", zone="America/New_York")
    assert found == ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"]


@pytest.mark.parametrize(
    ("schedule", "want"),
    [
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("a * * * *", 'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax'),
        ("@whim", "unrecognized descriptor: @whim"),
        ("@every whim", 'failed to parse duration @every whim: time: invalid duration "whim"'),
        ("@every 99999999999999999h", "failed to parse duration @every 99999999999999999h"),
        ("TZ=Nowhere * * * * *", "provided bad location Nowhere: unknown time zone Nowhere"),
        ("TZ=../../etc/passwd * * * * *", "provided bad location ../../etc/passwd"),
        ("9" * 30 + " * * * *", "failed to parse int"),
        ("* " * 1000, "schedule has 2000 characters, more than 1000"),
    ],
)
def test_a_schedule_that_is_none_is_refused_with_the_reason(schedule: str, want: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_schedule(schedule)
    assert want in str(refused.value)


@pytest.mark.parametrize(
    ("schedule", "since", "want", "missed"),
    [
        pytest.param("0 * * * *", "2026-11-22T11:00:00Z", None, 0, id="none"),
        pytest.param("0 * * * *", "2026-11-22T10:30:00Z", "2026-11-22T11:00:00Z", 1, id="one"),
        pytest.param("0 * * * *", "2026-11-20T10:30:00Z", "2026-11-22T11:00:00Z", 49, id="two days of hours"),
        pytest.param("@every 7s", "2026-11-22T10:00:00Z", "2026-11-22T11:00:26Z", 518, id="intervals keep their beat"),
        pytest.param("* * * 1 *", "2020-01-31T23:58:00Z", "2026-01-31T23:59:00Z", 8, id="unevenly spread"),
        pytest.param("0 0 1 1 *", "1900-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 126, id="a century"),
    ],
)
def test_the_last_time_that_was_missed(schedule: str, since: str, want: str | None, missed: int) -> None:
    found, count = most_recent(parse_schedule(schedule), since=parse_time(since), now=NOW)
    assert (format_time(found) if found is not None else None, count) == (want, missed)


def test_a_schedule_without_any_time_is_refused_when_it_is_followed() -> None:
    with pytest.raises(BadInput, match="less than 1 second"):
        most_recent(parse_schedule("0 0 31 2 *"), since=NOW, now=NOW)


def test_nothing_comes_after_the_end_of_the_calendar() -> None:
    assert times("@every 2562047h", since="2999-12-31T00:00:00Z", count=40)[-1] < "9999"
    assert parse_schedule("0 0 1 1 *").after(datetime(9999, 12, 31, tzinfo=UTC)) is None
