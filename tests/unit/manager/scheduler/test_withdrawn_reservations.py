# SPDX-License-Identifier: Apache-2.0
"""Which Workloads lose a reservation that is not written yet."""

from __future__ import annotations

from manager.scheduler.withdrawn_reservations import WithdrawnReservations
from multikueue.core.keys import Key

A, B = Key("ns", "a"), Key("ns", "b")


def test_a_workload_loses_no_second_reservation_within_ten_seconds() -> None:
    withdrawn = WithdrawnReservations()
    assert withdrawn.may_withdraw(A, 100.0)
    withdrawn.add(A, 100.0)
    assert not withdrawn.may_withdraw(A, 109.0)
    assert withdrawn.may_withdraw(B, 109.0)
    assert withdrawn.may_withdraw(A, 110.0)


def test_the_ten_seconds_count_from_the_last_one() -> None:
    withdrawn = WithdrawnReservations()
    withdrawn.add(A, 100.0)
    withdrawn.add(B, 105.0)
    withdrawn.add(A, 111.0)
    assert not withdrawn.may_withdraw(A, 116.0)
    assert withdrawn.may_withdraw(B, 116.0)
    assert withdrawn.may_withdraw(A, 121.0)
