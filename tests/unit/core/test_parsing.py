# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from multikueue.api.intervals import Intervals
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, MAX_INT64, parse_signed, parse_unsigned
from multikueue.core.printable import excerpt, printable
from multikueue.core.quantity import Quantity, QuantityError
from multikueue.core.timestamps import parse_time


@pytest.mark.parametrize(("value", "number"), [("0", 0), ("007", 7), (7, 7), (str(MAX_INT64), MAX_INT64)])
def test_a_whole_number_is_read_from_text_and_from_json(value: object, number: int) -> None:
    assert parse_unsigned(value, field="epoch") == number


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("²", id="a superscript passes isdigit"),
        pytest.param("٣", id="digits of another script pass int"),
        pytest.param("1_0", id="underscores pass int"),
        pytest.param(" 1", id="spaces pass int"),
        "",
        "-1",
        "+1",
        "1.0",
        "9" * 5000,
        str(MAX_INT64 + 1),
        -1,
        MAX_INT64 + 1,
        pytest.param(10**5000, id="five thousand digits in JSON"),
        True,
        1.0,
        None,
        [1],
        {"a": 1},
    ],
)
def test_what_is_no_whole_number_is_refused_by_name(value: object) -> None:
    with pytest.raises(BadInput, match=r"^status\.epoch: expected a whole number from 0 to ") as refused:
        parse_unsigned(value, field="status.epoch")
    assert len(str(refused.value)) < 250


def test_a_number_keeps_to_the_range_of_its_field() -> None:
    assert parse_unsigned(MAX_INT32, field="count", maximum=MAX_INT32) == MAX_INT32
    with pytest.raises(BadInput, match="from 0 to 2147483647"):
        parse_unsigned(MAX_INT32 + 1, field="count", maximum=MAX_INT32)


@pytest.mark.parametrize(
    ("text", "number"),
    [("-9223372036854775808", -(2**63)), ("-1", -1), ("+5", 5), ("9223372036854775807", 2**63 - 1)],
)
def test_a_signed_number_has_64_bits(text: str, number: int) -> None:
    assert parse_signed(text, field="label") == number


@pytest.mark.parametrize("text", ["", "-", "--1", "9223372036854775808", "-9223372036854775809", "x", "²"])
def test_a_signed_number_of_more_bits_or_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="label: expected a whole number of 64 bits"):
        parse_signed(text, field="label")


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "3000-01-01T00:00:00Z", "2" * 100, ""]
)
def test_a_time_at_the_end_of_the_calendar_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_time(text)


def test_a_quantity_of_thousands_of_digits_is_refused_with_a_short_message() -> None:
    for value in ("9" * 5000, 10**5000, "0." + "1" * 200, "²"):
        with pytest.raises(QuantityError) as refused:
            Quantity.parse(value)
        assert len(str(refused.value)) < 250


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert printable("a\x1b[2Jb\nc\u202ed\x9b") == r"a\x1b[2Jb\x0ac\u202ed\x9b"
    assert printable("two\nlines\t", keep="\n") == "two\nlines\\x09"
    assert printable("naïve 漢字 ✓") == "naïve 漢字 ✓"
    assert excerpt("x" * 500).startswith('"xxx')
    assert len(excerpt("x" * 500)) < 100


def test_a_hundred_million_indexes_are_two_numbers() -> None:
    intervals = Intervals.parse("0-99999999", field="completedIndexes")
    assert len(intervals) == 100_000_000
    assert intervals.pairs == ((0, 99_999_999),)
    assert 5 in intervals


def test_intervals_that_touch_or_overlap_are_one() -> None:
    first = Intervals.parse("7,0-3,2-5", field="completedIndexes")
    second = Intervals.parse("6,20-21", field="failedIndexes")
    assert (first | second).pairs == ((0, 7), (20, 21))
    assert len(Intervals.parse("", field="completedIndexes")) == 0


@pytest.mark.parametrize("text", ["5-3", "a", "1-", "-1", "1,,2", "1-2-3", "99999999999", "²"])
def test_intervals_that_are_none_are_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput, match="completedIndexes: expected"):
        Intervals.parse(text, field="completedIndexes")
