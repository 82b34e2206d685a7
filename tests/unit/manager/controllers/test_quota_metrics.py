# SPDX-License-Identifier: Apache-2.0
"""The gauges of quotas and cohorts, in cores and bytes."""

from __future__ import annotations

import math

from manager.controllers import quota_metrics
from manager.controllers.gauges import Gauges
from multikueue.api.reasons import ClusterQueueReason
from multikueue.engine.decisions import ClusterQueueState
from multikueue.engine.figures import CohortFigures, QueueFigures
from multikueue.engine.resources import FlavorResource
from multikueue.engine.values import Quota

CPU = FlavorResource("spot", "cpu")
FIGURES = QueueFigures(
    name="q",
    cohort="c",
    root="top",
    quotas={("spot", "cpu"): Quota(nominal=4500, borrowing_limit=None, lending_limit=1000)},
    share=None,
    requested={"cpu": 1500, "memory": 2**30},
    hashes=3,
    inadmissible_hashes=1,
    inadmissible={},
)
STATE = ClusterQueueState(
    name="q", active=True, reason=ClusterQueueReason.READY, message="", reservation={CPU: 2000}, usage={CPU: 1000}
)
COHORT = CohortFigures(
    name="c", parent="top", root="top", quota={CPU: 6000}, reserved={CPU: 500}, admitted=7, share=12.5
)


def samples(gauges: Gauges) -> dict[str, float]:
    """By name and the values of the labels."""
    return {
        ",".join((sample.name.removeprefix("kueue_"), *sample.labels.values())): sample.value
        for family in gauges.families()
        for sample in family.samples
    }


def test_quotas_are_in_cores_and_a_limit_that_is_not_set_is_infinite() -> None:
    gauges = Gauges("leader")
    quota_metrics.add_quota(gauges, FIGURES, STATE)
    assert samples(gauges) == {
        "cluster_queue_nominal_quota,c,q,spot,cpu,leader": 4.5,
        "cluster_queue_borrowing_limit,c,q,spot,cpu,leader": math.inf,
        "cluster_queue_lending_limit,c,q,spot,cpu,leader": 1,
        "cluster_queue_resource_reservation,c,q,spot,cpu,leader": 2,
        "cluster_queue_resource_usage,c,q,spot,cpu,leader": 1,
    }


def test_what_waits_and_where_the_queue_is() -> None:
    gauges = Gauges("leader")
    quota_metrics.add_pending(gauges, FIGURES)
    quota_metrics.add_place(gauges, FIGURES)
    assert samples(gauges) == {
        "cluster_queue_resource_pending,q,cpu,leader": 1.5,
        "cluster_queue_resource_pending,q,memory,leader": 2**30,
        "pending_scheduling_hashes,q,active,leader": 3,
        "pending_scheduling_hashes,q,inadmissible,leader": 1,
        "cluster_queue_info,q,c,top,leader": 1,
    }


def test_the_figures_of_a_cohort() -> None:
    gauges = Gauges("leader")
    quota_metrics.add_cohort(gauges, COHORT)
    assert samples(gauges) == {
        "cohort_info,c,top,top,leader": 1,
        "cohort_subtree_quota,c,spot,cpu,leader": 6,
        "cohort_subtree_resource_reservations,c,spot,cpu,leader": 0.5,
        "cohort_subtree_admitted_active_workloads,c,leader": 7,
        "cohort_weighted_share,c,leader": 12.5,
    }
