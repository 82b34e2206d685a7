# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from multikueue.core.backoff import Backoff
from multikueue.core.clock import ManualClock
from multikueue.core.conditions import Condition, find, find_in, is_true, is_true_in, set_condition, truncate_message
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_micro_time, format_time, parse_time

START = datetime(2026, 1, 1, tzinfo=UTC)


def active(status: str, *, reason: str = "Ready", message: str = "", minute: int = 0) -> Condition:
    return Condition(
        type="Active",
        status=status,
        reason=reason,
        message=message,
        last_transition_time=START + timedelta(minutes=minute),
    )


def test_the_transition_time_moves_only_when_the_status_flips() -> None:
    first = set_condition((), active("True"))
    reworded = set_condition(first, active("True", message="still", minute=5))
    flipped = set_condition(reworded, active("False", reason="Stopped", minute=9))
    assert [c.last_transition_time.minute for c in (*reworded, *flipped)] == [0, 9]
    assert find(reworded, "Active").message == "still"  # type: ignore[union-attr]
    assert is_true(reworded, "Active")
    assert not is_true(flipped, "Active")


def test_setting_what_is_already_so_returns_the_same_conditions() -> None:
    first = set_condition((), active("True"))
    assert set_condition(first, active("True", minute=5)) is first


def test_a_condition_is_found_in_a_status_of_any_shape() -> None:
    status = {"conditions": [None, "text", {"type": "Ready"}, {"type": "Active", "status": "True"}]}
    assert find_in(status, "Active") == {"type": "Active", "status": "True"}
    assert is_true_in(status, "Active")
    assert not is_true_in(status, "Ready")
    for empty in (None, {}, {"conditions": None}):
        assert find_in(empty, "Active") is None


def test_a_long_message_is_cut_by_bytes_and_stays_text() -> None:
    cut = truncate_message("ä" * 600, 1024)
    assert len(cut.encode()) <= 1024
    assert cut.endswith("ä ...")
    assert truncate_message("short", 1024) == "short"


def test_times_round_trip_in_utc_whole_seconds() -> None:
    assert format_time(parse_time("2026-01-31T09:00:00.9+01:00")) == "2026-01-31T08:00:00Z"
    assert format_micro_time(START + timedelta(microseconds=5)) == "2026-01-01T00:00:00.000005Z"


@pytest.mark.parametrize("text", ["yesterday", "2026-01-31T09:00:00"])
def test_a_time_without_a_zone_or_sense_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="2026-01-31T08:00:00Z"):
        parse_time(text)


def test_a_key_prints_as_kubectl_writes_it_and_parses_back() -> None:
    assert str(Key("ns", "w")) == "ns/w"
    assert str(Key("", "node")) == "node"
    assert Key.parse("ns/w") == Key("ns", "w")
    assert Key.parse("node") == Key("", "node")


def test_a_manual_clock_jumps_without_the_monotonic_clock_noticing() -> None:
    clock = ManualClock(START)
    clock.advance(2.5)
    clock.set(START - timedelta(days=1))
    assert clock.monotonic() == 2.5
    assert clock.now() == START - timedelta(days=1)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


def test_back_off_doubles_up_to_its_cap_and_jitters_only_upwards() -> None:
    backoff = Backoff(base=1, cap=10)
    assert [backoff.delay(n) for n in (1, 2, 3, 4, 5, 10_000)] == [1, 2, 4, 8, 10, 10]
    jittered = Backoff(base=1, cap=10, jitter=0.5)
    assert all(4 <= jittered.delay(3, Random(seed)) <= 6 for seed in range(50))
