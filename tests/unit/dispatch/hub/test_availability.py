# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta

from multikueue.core.keys import Key
from multikueue.dispatch.hub.availability import Pacer
from tests.unit.dispatch.builders import NOW


def key(number: int) -> Key:
    return Key("ns", str(number))


def waits(pacer: Pacer, count: int, *, cluster: str = "w1", later: float = 0.0) -> list[float]:
    return [pacer.turn(cluster, key(number), NOW + timedelta(seconds=later)) for number in range(count)]


def test_some_leave_at_once_and_the_others_one_after_another() -> None:
    assert waits(Pacer(per_second=2, burst=3), 6) == [0, 0, 0, 0.5, 1.0, 1.5]


def test_asking_again_does_not_lose_the_turn() -> None:
    pacer = Pacer(per_second=1, burst=1)
    assert waits(pacer, 3) == [0, 1, 2]
    assert pacer.turn("w1", key(2), NOW + timedelta(seconds=1.5)) == 0.5
    assert pacer.turn("w1", key(2), NOW + timedelta(seconds=2)) == 0


def test_each_cluster_has_turns_of_its_own() -> None:
    pacer = Pacer(per_second=1, burst=1)
    assert waits(pacer, 2) == [0, 1]
    assert pacer.turn("w2", key(9), NOW) == 0


def test_a_pause_gives_the_burst_back() -> None:
    pacer = Pacer(per_second=1, burst=2)
    assert waits(pacer, 2) == [0, 0]
    assert waits(pacer, 2, later=60) == [0, 0]


def test_who_need_not_leave_after_all_is_forgotten() -> None:
    pacer = Pacer(per_second=1, burst=1)
    waits(pacer, 2)
    pacer.leave(key(1))
    assert pacer.turn("w1", key(1), NOW + timedelta(seconds=30)) == 0
