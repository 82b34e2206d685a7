# SPDX-License-Identifier: Apache-2.0
"""What the bench of overload says about the order in which Jobs were served."""

from __future__ import annotations

from tests.bench.overload.order import overtaken_seconds


def test_jobs_that_are_served_as_they_came_overtook_none() -> None:
    assert overtaken_seconds([1.0, 2.0, 2.0, 5.0]) == 0.0


def test_a_job_is_overtaken_by_the_newest_one_before_it() -> None:
    assert overtaken_seconds([1.0, 9.0, 3.0, 10.0, 4.0]) == 6.0


def test_nothing_served_is_nothing_overtaken() -> None:
    assert overtaken_seconds([]) == 0.0
