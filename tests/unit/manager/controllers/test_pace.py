# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from manager.controllers.queues import Pace
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


def busy(pace: Pace[str], clock: ManualClock, *, keys: int, seconds: float) -> float:
    """The writes a second of so many keys whose figures change all the time, in the last half of that time."""
    due = {f"queue-{number}": 0.0 for number in range(keys)}
    began, writes = clock.monotonic(), 0
    while (passed := clock.monotonic() - began) < seconds:
        for key, at in due.items():
            if at <= passed:
                pace.wrote(key)
                due[key] = passed + pace.pause(key)
                writes += passed >= seconds / 2
        clock.advance(0.1)
    return writes / (seconds / 2)


def paced(clock: ManualClock) -> Pace[str]:
    return Pace(shortest=1.0, longest=1.5, rate=10.0, longest_at_rate=30.0, clock=clock)


def test_the_figures_of_many_busy_queues_are_written_as_often_together_as_the_rate_allows() -> None:
    clock = ManualClock()
    assert 7.0 <= busy(paced(clock), clock, keys=100, seconds=120.0) <= 10.0


def test_the_figures_of_few_busy_queues_are_not_delayed_by_the_rate() -> None:
    clock = ManualClock()
    pace = paced(clock)
    busy(pace, clock, keys=6, seconds=60.0)
    assert pace.pause("queue-0") == 1.5


def test_no_pause_is_longer_than_the_longest_however_many_queues_are_busy() -> None:
    clock = ManualClock()
    pace = paced(clock)
    busy(pace, clock, keys=400, seconds=120.0)
    assert max(pace.pause(f"queue-{number}") for number in range(400)) == 30.0


def test_a_queue_at_rest_is_shown_soon_while_many_others_are_busy() -> None:
    clock = ManualClock()
    pace = paced(clock)
    busy(pace, clock, keys=200, seconds=60.0)
    assert pace.pause("another") == 1.0
