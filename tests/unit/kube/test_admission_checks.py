# SPDX-License-Identifier: Apache-2.0
"""What writers of admission checks use: answers, and the quota of a Workload."""

from __future__ import annotations

import pytest

from multikueue.api.constants import CheckState
from multikueue.core.backoff import Backoff
from multikueue.core.quantity import Quantity
from multikueue.kube.admission_checks import CheckAnswer, reserved_quota


@pytest.mark.parametrize(
    ("attempt", "want"),
    [(1, 60), (2, 120), (5, 960), (6, 1800), (10**6, 1800)],
    ids=["one minute", "twice that", "and so on", "at most half an hour", "however often"],
)
def test_a_retry_waits_longer_each_time(attempt: int, want: int) -> None:
    answer = CheckAnswer.retry("later", attempt=attempt)
    assert (answer.state, answer.requeue_after_seconds) == (CheckState.RETRY, want)


def test_a_pause_is_whole_seconds_and_at_least_one() -> None:
    backoff = Backoff(base=0.5, factor=3.0, cap=10)
    pauses = [CheckAnswer.retry("later", attempt=number, backoff=backoff).requeue_after_seconds for number in (1, 2, 3)]
    assert pauses == [1, 1, 4]


def test_the_quota_of_all_pod_sets_is_added() -> None:
    assignments = [
        {"name": "a", "resourceUsage": {"cpu": "500m", "memory": "1Gi"}},
        {"name": "b", "resourceUsage": {"cpu": "2"}},
    ]
    found = reserved_quota({"status": {"admission": {"podSetAssignments": assignments}}})
    assert found == {"cpu": Quantity.parse("2500m"), "memory": Quantity.parse("1Gi")}
    assert reserved_quota({"status": {}}) == {}
