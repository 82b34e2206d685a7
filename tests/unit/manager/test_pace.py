# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from manager.reconcilers.pace import Pace
from multikueue.core.clock import ManualClock


def pauses(pace: Pace[str], clock: ManualClock, *, writes: int) -> list[float]:
    """The pauses of figures that change all the time."""
    found = []
    for _ in range(writes):
        found.append(pace.pause("queue"))
        clock.advance(found[-1])
        pace.wrote("queue")
    return found


def test_what_changes_all_the_time_is_written_less_and_less_often() -> None:
    clock = ManualClock()
    assert pauses(Pace(shortest=1.0, longest=4.0, clock=clock), clock, writes=5) == [1.0, 1.0, 2.0, 4.0, 4.0]


def test_after_a_quiet_time_a_change_is_shown_soon() -> None:
    clock = ManualClock()
    pace: Pace[str] = Pace(shortest=1.0, longest=4.0, clock=clock)
    pauses(pace, clock, writes=5)
    clock.advance(8.0)
    assert pauses(pace, clock, writes=2) == [1.0, 1.0]


def test_what_is_gone_is_forgotten_and_others_have_a_pause_of_their_own() -> None:
    clock = ManualClock()
    pace: Pace[str] = Pace(shortest=1.0, longest=4.0, clock=clock)
    pauses(pace, clock, writes=5)
    assert pace.pause("another") == 1.0
    pace.forget("queue")
    assert pace.pause("queue") == 1.0
