# SPDX-License-Identifier: Apache-2.0
"""How many writes may be in flight after answers that were fast, slow, or asked for less."""

from __future__ import annotations

import pytest

from manager.scheduler.write_concurrency import WriteConcurrency
from multikueue.kube.errors import ApiError, Conflict, Details, ServiceUnavailable, TooManyRequests, Unreachable

NOW = 1000.0


def error(kind: type[ApiError], *, after: float | None = None) -> ApiError:
    return kind(request="hub: APPLY", status=kind.code, reason="", message="", details=Details(retry_after=after))


def answer(
    concurrency: WriteConcurrency, seconds: float, *, times: int, now: float = NOW, waiting: bool = True
) -> None:
    for _ in range(times):
        if waiting:
            concurrency.allows(concurrency.limit)
        concurrency.answered(seconds, now=now)


def test_more_writes_start_while_answers_are_fast_and_others_wait() -> None:
    concurrency = WriteConcurrency(most=48)
    before = concurrency.limit
    answer(concurrency, 0.01, times=3 * before)
    assert concurrency.limit > before


def test_there_are_never_more_than_the_most() -> None:
    concurrency = WriteConcurrency(most=24)
    answer(concurrency, 0.01, times=2000)
    assert concurrency.limit == 24
    assert not concurrency.allows(24)


def test_the_limit_does_not_grow_while_nothing_waits_for_it() -> None:
    concurrency = WriteConcurrency(most=48)
    before = concurrency.limit
    answer(concurrency, 0.01, times=200, waiting=False)
    assert concurrency.limit == before


def test_fewer_writes_start_when_answers_become_slow_but_some_always_do() -> None:
    concurrency = WriteConcurrency(most=48)
    answer(concurrency, 0.01, times=2000)
    answer(concurrency, 0.3, times=60)
    assert concurrency.limit < 48
    answer(concurrency, 0.3, times=2000)
    assert concurrency.limit == 8
    assert concurrency.allows(7)


def test_one_slow_answer_changes_nothing() -> None:
    concurrency = WriteConcurrency(most=48)
    answer(concurrency, 0.01, times=2000)
    answer(concurrency, 0.1, times=1)
    assert concurrency.limit == 48


def test_a_server_far_away_is_expected_to_answer_as_late_as_it_does_when_it_has_little_to_do() -> None:
    concurrency = WriteConcurrency(most=48)
    answer(concurrency, 0.2, times=2000)
    assert concurrency.limit == 48


def test_a_server_that_has_become_slower_for_good_is_expected_to_after_some_minutes() -> None:
    concurrency = WriteConcurrency(most=48)
    answer(concurrency, 0.01, times=100)
    answer(concurrency, 0.2, times=500)
    assert concurrency.limit == 8
    for minute in range(15):
        answer(concurrency, 0.2, times=500, now=NOW + 60 * minute)
    assert concurrency.limit == 48


@pytest.mark.parametrize(("after", "pause"), [(None, 1.0), (3.0, 3.0), (7200.0, 60.0)])
def test_a_server_that_asks_for_a_retry_later_gets_no_write_until_then(after: float | None, pause: float) -> None:
    concurrency = WriteConcurrency(most=48)
    answer(concurrency, 0.01, times=2000)
    assert concurrency.pause(NOW) == 0.0
    concurrency.answered(0.001, now=NOW, error=error(TooManyRequests, after=after))
    assert concurrency.pause(NOW) == pause
    assert concurrency.pause(NOW + pause) == 0.0
    assert concurrency.limit == 24


def test_many_answers_of_that_kind_at_once_halve_the_limit_once() -> None:
    concurrency = WriteConcurrency(most=48)
    answer(concurrency, 0.01, times=2000)
    for _ in range(20):
        concurrency.answered(0.001, now=NOW, error=error(TooManyRequests, after=1.0))
    assert concurrency.limit == 24


@pytest.mark.parametrize(
    "failure", [error(ServiceUnavailable), Unreachable("hub: no answer")], ids=["503", "no answer"]
)
def test_a_failing_server_gets_fewer_writes(failure: ApiError | Unreachable) -> None:
    concurrency = WriteConcurrency(most=48)
    answer(concurrency, 0.01, times=2000)
    concurrency.answered(0.001, now=NOW, error=failure)
    assert concurrency.limit == 24
    for _ in range(100):
        concurrency.answered(0.001, now=NOW, error=failure)
    assert concurrency.limit == 8


def test_a_conflict_is_no_sign_of_a_slow_server() -> None:
    concurrency = WriteConcurrency(most=48)
    answer(concurrency, 0.01, times=2000)
    for _ in range(200):
        concurrency.answered(5.0, now=NOW, error=error(Conflict))
    assert concurrency.limit == 48


def test_a_server_is_overloaded_while_it_answers_late_even_to_the_fewest_writes() -> None:
    concurrency = WriteConcurrency(most=48)
    answer(concurrency, 0.01, times=100)
    assert not concurrency.overloaded(NOW)
    answer(concurrency, 0.3, times=10)
    assert not concurrency.overloaded(NOW)
    answer(concurrency, 0.3, times=200)
    assert concurrency.overloaded(NOW)
    assert not concurrency.overloaded(NOW + 10.0)
    answer(concurrency, 0.01, times=50)
    assert not concurrency.overloaded(NOW)


def test_a_delay_follows_the_latency_within_bounds() -> None:
    concurrency = WriteConcurrency(most=48)
    assert concurrency.delay(0.1, now=NOW) == 0.1, "nothing is known yet"
    answer(concurrency, 0.005, times=100)
    assert concurrency.delay(0.1, now=NOW) == 0.1
    answer(concurrency, 0.03, times=100)
    assert concurrency.delay(0.1, now=NOW) == pytest.approx(0.3)
    answer(concurrency, 2.0, times=100)
    assert concurrency.delay(0.1, now=NOW) == pytest.approx(1.0)
    assert concurrency.delay(0.0, now=NOW) == 0.0, "no delay stays none"


def test_a_latency_of_long_ago_delays_nothing() -> None:
    concurrency = WriteConcurrency(most=48)
    answer(concurrency, 0.5, times=100)
    assert concurrency.delay(0.1, now=NOW + 3600) == 0.1
