# SPDX-License-Identifier: Apache-2.0
"""The rules for conditions of Workloads that the engine, the manager and `mkctl simulate` share."""

from __future__ import annotations

import pytest

from multikueue.api.constants import CheckState, StopPolicy
from multikueue.api.reasons import EvictedReason, QuotaReservedReason
from multikueue.engine import workload_conditions as conditions
from tests.support.engine_builders import at

HOLD, DRAIN = StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN


@pytest.mark.parametrize(
    ("cluster_queue", "local_queue", "want"),
    [
        pytest.param(DRAIN, DRAIN, EvictedReason.CLUSTER_QUEUE_STOPPED, id="both: the ClusterQueue is named"),
        pytest.param(HOLD, DRAIN, EvictedReason.LOCAL_QUEUE_STOPPED, id="only the LocalQueue drains"),
        pytest.param(HOLD, HOLD, None, id="a held queue does not drain"),
        pytest.param(None, None, None, id="no queue does not drain"),
    ],
)
def test_an_admitted_workload_is_evicted_only_by_a_drain(
    cluster_queue: StopPolicy | None, local_queue: StopPolicy | None, want: EvictedReason | None
) -> None:
    found = conditions.drained(cluster_queue=cluster_queue, local_queue=local_queue)
    assert (found and found[0]) == want


@pytest.mark.parametrize(
    ("evicted_for", "status"),
    [
        pytest.param(EvictedReason.PREEMPTED, "True", id="a preempted workload queues at once"),
        pytest.param(EvictedReason.NODE_FAILURES, "True", id="after a node failure too"),
        pytest.param(EvictedReason.PODS_READY_TIMEOUT, "False", id="after a timeout it backs off"),
        pytest.param("DeactivatedDueToAdmissionCheck", "False", id="a deactivated one waits"),
    ],
)
def test_the_reason_of_an_eviction_decides_whether_it_queues_at_once(evicted_for: str, status: str) -> None:
    (found,) = conditions.requeue_after_eviction((), reason=evicted_for, message="m", now=at(1))
    assert (found.type, found.status, found.reason, found.message) == ("Requeued", status, evicted_for, "m")


def test_setting_the_same_condition_again_returns_the_same_conditions() -> None:
    once = conditions.reserved((), cluster_queue="cq", now=at(1))
    assert conditions.reserved(once, cluster_queue="cq", now=at(2)) is once
    assert once[0].message == "Quota reserved in ClusterQueue cq"


def test_only_retries_in_a_row_are_counted() -> None:
    assert conditions.retries_after_eviction(CheckState.RETRY, 2) == 3
    assert conditions.retries_after_eviction(CheckState.READY, 2) is None


def test_a_problem_of_a_queue_names_the_queue() -> None:
    assert conditions.queue_missing("LocalQueue", "q") == (
        QuotaReservedReason.MISCONFIGURED,
        "LocalQueue q doesn't exist",
    )
    assert conditions.gated(("a", "b")) == (QuotaReservedReason.ADMISSION_GATED, "Admission is gated by: a,b")
