# SPDX-License-Identifier: Apache-2.0
"""Whether a reason to wait is news to who has read the last one, and which places a reservation shows."""

from __future__ import annotations

import pytest

from manager.scheduler import admission_writes
from manager.scheduler.pending_writes import News
from manager.workload import changes
from manager.workload.status import Status
from multikueue.api.topologyslices import expand
from multikueue.engine.decisions import PodSetFlavors
from multikueue.engine.workloads import AssignedDomains
from tests.unit.manager.builders import NOW, reserved, status

REASON = "Unschedulable"


def waiting(message: str, *, reason: str = REASON, cpu: str = "1", gates: bool = False) -> Status:
    """A Workload that a cycle has seen."""
    return changes.pend(
        status(),
        reason=reason,
        message=message,
        resource_requests=({"name": "main", "resources": {"cpu": cpu}},),
        blocked_on_gates=gates,
        now=NOW,
    )


BEFORE = waiting("insufficient unused quota for cpu in flavor default, 3 more needed")


def test_the_first_reason_is_news() -> None:
    assert admission_writes.news(status(), BEFORE) is News.REASON


def test_the_same_message_is_no_news() -> None:
    assert admission_writes.news(BEFORE, BEFORE) is News.NOTHING
    assert admission_writes.news(BEFORE, waiting(BEFORE.conditions[0].message)) is News.NOTHING


@pytest.mark.parametrize("amount", ["1", "2500m", "1.5", "10Gi", "7k"])
def test_amounts_and_requests_that_moved_are_figures(amount: str) -> None:
    after = waiting(f"insufficient unused quota for cpu in flavor default, {amount} more needed", cpu="2")
    assert admission_writes.news(BEFORE, after) is News.FIGURES


def test_another_reason_flavor_or_resource_than_the_one_shown_is_a_change() -> None:
    message = BEFORE.conditions[0].message
    for after in (
        waiting(message, reason="WaitingForPreemptedWorkloads"),
        waiting(message.replace("default", "spot-2")),
        waiting(message.replace("cpu", "memory")),
    ):
        assert admission_writes.news(BEFORE, after) is News.CHANGED


def test_a_closed_gate_and_a_listed_check_are_news() -> None:
    message = BEFORE.conditions[0].message
    for after in (
        waiting(message, gates=True),
        changes.sync_checks(BEFORE, ["check"], now=NOW),
    ):
        assert admission_writes.news(BEFORE, after) is News.REASON


def test_a_digit_in_a_name_is_no_amount() -> None:
    one, two = (waiting(f"insufficient quota for cpu in flavor spot-{number}, 3 more needed") for number in (1, 2))
    assert admission_writes.news(one, two) is News.CHANGED


def test_quota_that_is_given_back_is_always_news() -> None:
    after = changes.without_reservation(reserved(), reason=REASON, message="no quota", now=NOW)
    assert admission_writes.news(reserved(), after) is News.REASON


def pod_set(*, topology: AssignedDomains | None = None, delayed: bool = False) -> PodSetFlavors:
    return PodSetFlavors(
        name="main",
        count=3,
        flavors={"cpu": "tas"},
        resource_usage={"cpu": 3000},
        topology=topology,
        delayed_topology=delayed,
    )


def test_the_domains_of_a_pod_set_are_compressed_in_their_order() -> None:
    domains = ((("b1", "b1-r2"), 2), (("b1", "b1-r1"), 1))
    (found,) = admission_writes.topology_of(pod_set(topology=AssignedDomains(("block", "rack"), domains))).items()
    assert found == (
        "topologyAssignment",
        {
            "levels": ["block", "rack"],
            "slices": [
                {
                    "domainCount": 2,
                    "valuesPerLevel": [
                        {"universal": "b1"},
                        {"individual": {"prefix": "b1-r", "roots": ["2", "1"]}},
                    ],
                    "podCounts": {"individual": [2, 1]},
                }
            ],
        },
    )
    assert expand(found[1])["domains"] == [
        {"values": ["b1", "b1-r2"], "count": 2},
        {"values": ["b1", "b1-r1"], "count": 1},
    ]


def test_domains_that_are_found_later_are_pending() -> None:
    assert admission_writes.topology_of(pod_set(delayed=True)) == {"delayedTopologyRequest": "Pending"}


def test_a_pod_set_without_a_topology_has_no_field_of_one() -> None:
    assert admission_writes.topology_of(pod_set()) == {}
