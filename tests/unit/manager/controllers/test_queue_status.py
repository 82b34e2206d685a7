# SPDX-License-Identifier: Apache-2.0
"""What queues show (docs/spec/engine.md §8)."""

from __future__ import annotations

import math
from dataclasses import replace

from manager.controllers.queue_status import cluster_queue_status, cohort_status, local_queue_status
from multikueue.api.reasons import CohortReason, LocalQueueReason
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.engine.decisions import ClusterQueueState, CohortState, LocalQueueState
from multikueue.engine.resources import FlavorResource
from tests.unit.manager.builders import NOW, Object, at

SPOT_CPU = FlavorResource("spot", "cpu")


def queue() -> Object:
    return {
        "metadata": {"name": "cq", "generation": 3},
        "spec": {
            "resourceGroups": [
                {
                    "coveredResources": ["memory", "cpu"],
                    "flavors": [
                        {"name": "spot", "resources": [{"name": "memory"}, {"name": "cpu"}]},
                        {"name": "base", "resources": [{"name": "memory"}, {"name": "cpu"}]},
                    ],
                }
            ]
        },
    }


def state(**changes: object) -> ClusterQueueState:
    given: dict[str, object] = {
        "name": "cq",
        "active": True,
        "reason": "Ready",
        "message": "Can admit new workloads",
        "reservation": {SPOT_CPU: 2500},
        "borrowed_reservation": {SPOT_CPU: 500},
        "pending": 3,
        "reserving": 2,
        "admitted": 1,
    }
    return ClusterQueueState(**(given | changes))  # type: ignore[arg-type]


def test_every_flavor_and_resource_is_listed_also_at_zero_in_the_order_of_the_queue() -> None:
    shown = cluster_queue_status(queue(), state(), now=NOW)
    assert shown["flavorsReservation"] == [
        {
            "name": "spot",
            "resources": [
                {"name": "cpu", "total": "2500m", "borrowed": "500m"},
                {"name": "memory", "total": "0", "borrowed": "0"},
            ],
        },
        {
            "name": "base",
            "resources": [
                {"name": "cpu", "total": "0", "borrowed": "0"},
                {"name": "memory", "total": "0", "borrowed": "0"},
            ],
        },
    ]
    assert (shown["pendingWorkloads"], shown["reservingWorkloads"], shown["admittedWorkloads"]) == (3, 2, 1)
    assert "fairSharing" not in shown


def test_showing_it_again_changes_nothing_and_keeps_the_conditions_of_others() -> None:
    other = {
        "type": "MultiKueueManagerQuotaAutomation",
        "status": "False",
        "reason": "NotRequested",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    old = queue() | {"status": {"conditions": [other]}}
    once = cluster_queue_status(old, state(), now=NOW)
    assert other in once["conditions"]
    assert cluster_queue_status(old | {"status": once}, state(), now=at(60)) == once


def test_the_transition_time_moves_only_when_the_status_flips() -> None:
    once = cluster_queue_status(queue(), state(), now=NOW)
    stopped = state(active=False, reason="Stopped", message="Can't admit new workloads: is stopped.")
    twice = cluster_queue_status(queue() | {"status": once}, stopped, now=at(60))
    (condition,) = twice["conditions"]
    assert condition["lastTransitionTime"] == "2026-01-01T12:01:00Z"
    missing = state(active=False, reason="FlavorNotFound", message="m")
    (later,) = cluster_queue_status(queue() | {"status": twice}, missing, now=at(120))["conditions"]
    assert (later["reason"], later["lastTransitionTime"]) == ("FlavorNotFound", "2026-01-01T12:01:00Z")


def test_a_share_comes_and_goes_with_fair_sharing() -> None:
    shared = cluster_queue_status(queue(), state(weighted_share=7), now=NOW)
    assert shared["fairSharing"] == {"weightedShare": 7}
    assert "fairSharing" not in cluster_queue_status(queue() | {"status": shared}, state(), now=NOW)
    cohort: Object = {"metadata": {"name": "c"}}
    assert cohort_status(cohort, CohortState(name="c"), now=NOW) == {}
    with_share = cohort_status(cohort, CohortState(name="c", weighted_share=1), now=NOW)
    assert with_share == {"fairSharing": {"weightedShare": 1}}
    assert cohort_status(cohort | {"status": with_share}, CohortState(name="c"), now=NOW) == {}


def test_a_cohort_reports_a_problem_and_later_that_it_is_solved() -> None:
    cohort: Object = {"metadata": {"name": "c", "generation": 3}}
    deep = CohortState(name="c", active=False, reason=CohortReason.TOO_DEEP, message="too deep")
    reported = cohort_status(cohort, deep, now=NOW)
    (condition,) = reported["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Active", "False", "CohortTooDeep")
    assert cohort_status(cohort | {"status": reported}, deep, now=at(5)) == reported
    well = CohortState(name="c", message="Belongs to its tree of cohorts")
    (condition,) = cohort_status(cohort | {"status": reported}, well, now=at(9))["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "Ready")


def test_what_a_local_queue_used_is_shown_where_usage_orders_its_queue() -> None:
    lq: Object = {"metadata": {"name": "lq", "namespace": "team"}, "spec": {"clusterQueue": "cq"}}
    used = LocalQueueState(
        key=Key("team", "lq"),
        active=True,
        reason=LocalQueueReason.READY,
        message="m",
        consumed={"cpu": 1.0005, "memory": 2.0**30},
        consumed_at=NOW,
        weighted_share=1.2,
    )
    shown = local_queue_status(lq, queue(), used, now=NOW)
    assert shown["fairSharing"] == {
        "weightedShare": 2,
        "admissionFairSharingStatus": {
            "consumedResources": {"cpu": "1001m", "memory": "1073741824"},
            "lastUpdate": format_time(NOW),
        },
    }
    never = local_queue_status(lq, queue(), replace(used, weighted_share=math.inf, consumed_at=None), now=NOW)
    assert never["fairSharing"] == {"weightedShare": 2**63 - 1}
    off = local_queue_status(lq | {"status": shown}, queue(), replace(used, weighted_share=None), now=NOW)
    assert "fairSharing" not in off


def test_a_local_queue_without_its_cluster_queue_shows_no_flavors() -> None:
    lq: Object = {"metadata": {"name": "lq", "namespace": "team", "generation": 1}, "spec": {"clusterQueue": "cq"}}
    gone = LocalQueueState(
        key=Key("team", "lq"),
        active=False,
        reason=LocalQueueReason.CLUSTER_QUEUE_DOES_NOT_EXIST,
        message="Can't submit new workloads to clusterQueue",
    )
    shown = local_queue_status(lq, None, gone, now=NOW)
    assert shown["flavorsUsage"] == []
    assert shown["conditions"][0]["reason"] == "ClusterQueueDoesNotExist"
    there = LocalQueueState(
        key=Key("team", "lq"), active=True, reason=LocalQueueReason.READY, message="m", usage={SPOT_CPU: 1000}
    )
    (spot, _base) = local_queue_status(lq, queue(), there, now=NOW)["flavorsUsage"]
    assert spot == {"name": "spot", "resources": [{"name": "cpu", "total": "1"}, {"name": "memory", "total": "0"}]}
