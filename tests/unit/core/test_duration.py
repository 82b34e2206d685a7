# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multikueue.core.duration import format_duration, parse_duration
from multikueue.core.errors import BadInput


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("0", timedelta(), id="zero needs no unit"),
        pytest.param("5m", timedelta(minutes=5), id="minutes"),
        pytest.param("1h30m", timedelta(hours=1, minutes=30), id="parts add up"),
        pytest.param("1.5h", timedelta(minutes=90), id="fractions"),
        pytest.param("100ms", timedelta(milliseconds=100), id="milliseconds are no minutes"),
        pytest.param("-3s", timedelta(seconds=-3), id="negative"),
        pytest.param("5m0s", timedelta(minutes=5), id="as Go prints it"),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, want: timedelta) -> None:
    assert parse_duration(text) == want


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5mm", "1h-3m", "--5s", "five"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a duration"):
        parse_duration(text)


@given(st.timedeltas(min_value=timedelta(days=-30), max_value=timedelta(days=30)))
def test_a_printed_duration_reads_the_same(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


def test_zero_is_printed_with_its_unit() -> None:
    assert format_duration(timedelta()) == "0s"
    assert format_duration(timedelta(hours=1, seconds=30)) == "1h30s"
