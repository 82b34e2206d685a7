# SPDX-License-Identifier: Apache-2.0
"""What a report tells of ClusterQueues: free, borrowable, used by whom; and within which limits."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.clusterreport import MAX_CLUSTER_QUEUES, MAX_QUOTA_ENTRIES, ClusterReportStatus
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.queue_quota import (
    ClusterQueueReport,
    FlavorQuotaReport,
    cluster_queue_wire,
    cluster_queues_of,
)
from multikueue.engine import decode
from multikueue.engine.resources import MAX_INT64, FlavorResource
from multikueue.engine.values import ClusterQueue, Cohort
from worker_agent.local.queueing.queue_quotas import QUIET_SECONDS, QueueUsage, held_by, queue_quotas, used_of

CPU = FlavorResource("default", "cpu")
Object = dict[str, Any]


def cluster_queue(name: str = "cq", *, cohort: str = "", flavors: int = 1, **quota: str) -> Object:
    """A ClusterQueue with that quota of cpu in each of its flavors."""
    amounts = {"nominalQuota": "10", **quota}
    names = ["default", *(f"f{number}" for number in range(2, flavors + 1))]
    entries = [{"name": each, "resources": [{"name": "cpu", **amounts}]} for each in names]
    spec: Object = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": entries}]}
    return {"metadata": {"name": name}, "spec": {**spec, "cohortName": cohort} if cohort else spec}


def queues(*objects: Object) -> dict[str, ClusterQueue]:
    found = [decode.cluster_queue(each) for each in objects]
    return {each.name: each for each in found}


def told(
    *objects: Object, used: dict[str, int] | None = None, own: int = 0, cohorts: tuple[Cohort, ...] = ()
) -> dict[str, ClusterQueueReport]:
    """What is told when so much milli-cpu is used of the queues, `own` of it of the first by assignments."""
    usage = QueueUsage()
    for name, amount in (used or {}).items():
        usage.set_status(name, {CPU: amount}, now=0.0)
    usage.set_own(Key("ns", "wl"), objects[0]["metadata"]["name"], {CPU: own} if own else {}, now=0.0)
    usage.settle(now=QUIET_SECONDS)
    known = queues(*objects)
    return {each.name: each for each in queue_quotas(known, cohorts, usage, reported=known.keys())}


def cell(report: ClusterQueueReport) -> FlavorQuotaReport:
    return report.flavors["default"]["cpu"]


def test_a_queue_without_a_cohort_has_its_unused_quota_free() -> None:
    found = told(cluster_queue(), used={"cq": 7000}, own=2000)["cq"]
    assert cell(found) == FlavorQuotaReport(nominal=10_000, used=7000, free=3000, reserved=2000, capacity=10_000)
    assert (found.cohort, found.preempts, found.admission_checks) == ("", False, False)


def test_quota_that_may_be_borrowed_is_free_and_reported_as_borrowable() -> None:
    found = told(cluster_queue("a", cohort="all"), cluster_queue("b", cohort="all"), used={"a": 8000, "b": 5000})
    assert (cell(found["a"]).free, cell(found["a"]).borrowable, cell(found["a"]).capacity) == (7000, 5000, 20_000)
    assert found["a"].cohort == found["b"].cohort == "all"


def test_what_others_have_borrowed_is_not_free() -> None:
    found = told(cluster_queue("a", cohort="all"), cluster_queue("b", cohort="all"), used={"b": 16_000})
    assert (cell(found["a"]).free, cell(found["a"]).borrowable) == (4000, 0)


def test_limits_of_borrowing_and_lending_and_nested_cohorts_count_as_the_engine_counts_them() -> None:
    a = cluster_queue("a", cohort="left", borrowingLimit="1")
    b = cluster_queue("b", cohort="right", lendingLimit="3")
    nested = (Cohort(name="left", parent="root"), Cohort(name="right", parent="root"))
    found = told(a, b, used={"a": 10_000}, cohorts=nested)
    assert (cell(found["a"]).free, cell(found["a"]).borrowable, found["a"].cohort) == (1000, 1000, "root")
    assert cell(found["b"]).capacity == 20_000
    assert cell(told(a, b, used={"a": 10_000})["a"]).free == 0, "cohorts that may not be read join nothing"


def test_cohorts_in_a_circle_have_nothing_free() -> None:
    circle = (Cohort(name="x", parent="y"), Cohort(name="y", parent="x"))
    found = cell(told(cluster_queue("a", cohort="x"), cohorts=circle)["a"])
    assert (found.nominal, found.free, found.capacity) == (10_000, 0, 0)


@pytest.mark.parametrize(
    ("spec", "preempts"),
    [
        pytest.param({"withinClusterQueue": "LowerPriority"}, True, id="within the queue"),
        pytest.param({"reclaimWithinCohort": "Any"}, True, id="what it lent"),
        pytest.param({"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}, False, id="never"),
    ],
)
def test_whether_a_queue_may_preempt_is_reported(spec: Object, preempts: bool) -> None:
    queue = cluster_queue("a", cohort="all")
    queue["spec"]["preemption"] = spec
    assert told(queue)["a"].preempts is preempts


def test_admission_checks_of_a_queue_are_reported() -> None:
    queue = cluster_queue()
    queue["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "provisioning"}]}
    assert told(queue)["cq"].admission_checks


def test_quota_without_a_limit_fits_into_a_report() -> None:
    found = told(cluster_queue(nominalQuota="1e40"))["cq"]
    assert cell(found).free == MAX_INT64
    assert cluster_queues_of({"clusterQueues": [cluster_queue_wire(found)]}) == {"cq": found}


def test_a_report_has_a_limit_of_queues_and_amounts() -> None:
    many = [cluster_queue(f"q{number:05}") for number in range(MAX_CLUSTER_QUEUES + 1)]
    assert len(told(*many)) == MAX_CLUSTER_QUEUES
    large = [cluster_queue(f"q{number:05}", flavors=64) for number in range(MAX_QUOTA_ENTRIES // 64 + 1)]
    assert len(told(*large)) == MAX_QUOTA_ENTRIES // 64


def test_a_report_can_be_read_back_and_matches_the_schema() -> None:
    first, second = cluster_queue("a", cohort="all", flavors=2), cluster_queue("b", cohort="all")
    first["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    first["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "check"}]}
    found = told(first, second, used={"a": 2500}, own=1500)
    wire = {"clusterQueues": [cluster_queue_wire(each) for each in found.values()]}
    assert cluster_queues_of(wire) == found
    read = ClusterReportStatus.model_validate(wire)
    assert read.model_dump(mode="json", by_alias=True, exclude_defaults=True)["clusterQueues"] == wire["clusterQueues"]


def test_the_status_of_a_queue_and_the_admission_of_a_workload_are_read() -> None:
    entries = [{"name": "cpu", "total": "1500m"}, {"name": "memory"}]
    assert used_of({"flavorsReservation": [{"name": "default", "resources": entries}]}) == {
        CPU: 1500,
        FlavorResource("default", "memory"): 0,
    }
    assert used_of({}) == {}
    pod_sets = [{"flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "2", "pods": "1"}}] * 2
    status: Object = {
        "conditions": [{"type": "QuotaReserved", "status": "True"}],
        "admission": {"clusterQueue": "cq", "podSetAssignments": pod_sets},
    }
    assert held_by({"status": status}) == ("cq", {CPU: 4000})
    finished = {**status, "conditions": [*status["conditions"], {"type": "Finished", "status": "True"}]}
    assert held_by({"status": finished}) == ("", {})
    assert held_by({}) == ("", {})
    with pytest.raises(BadInput):
        used_of({"flavorsReservation": [{"name": "default", "resources": [{"name": "cpu", "total": "much"}]}]})


class TestUsage:
    OURS = Key("ns", "ours")

    def test_what_an_assignment_reserves_is_used_at_once_and_is_no_news_when_the_status_follows(self) -> None:
        usage = QueueUsage()
        usage.set_status("cq", {CPU: 4000}, now=0.0)
        usage.set_own(self.OURS, "cq", {CPU: 1000}, now=10.0)
        assert (usage.used("cq"), usage.own("cq")) == ({CPU: 5000}, {CPU: 1000})
        assert not usage.set_status("cq", {CPU: 5000}, now=10.5)
        assert usage.used("cq") == {CPU: 5000}

    def test_what_others_reserve_is_news(self) -> None:
        usage = QueueUsage()
        usage.set_own(self.OURS, "cq", {CPU: 1000}, now=0.0)
        assert usage.set_status("cq", {CPU: 1000}, now=0.1)
        assert usage.set_status("cq", {CPU: 3000}, now=1.0)
        assert not usage.set_status("cq", {CPU: 3000}, now=1.1)
        assert usage.used("cq") == {CPU: 3000}

    def test_a_status_that_comes_before_its_workload_is_put_right_when_both_are_quiet(self) -> None:
        usage = QueueUsage()
        usage.set_status("cq", {CPU: 1000}, now=0.0)
        usage.set_own(self.OURS, "cq", {CPU: 1000}, now=0.1)
        usage.settle(now=1.0)
        assert usage.used("cq") == {CPU: 2000}, "it may be that of another"
        usage.settle(now=0.1 + QUIET_SECONDS)
        assert usage.used("cq") == {CPU: 1000}

    def test_what_ends_is_free_at_once(self) -> None:
        usage = QueueUsage()
        usage.set_own(self.OURS, "cq", {CPU: 1000}, now=0.0)
        usage.set_status("cq", {CPU: 3000}, now=0.1)
        usage.set_own(self.OURS, "", {}, now=5.0)
        assert (usage.used("cq"), usage.own("cq")) == ({CPU: 2000}, {})
        usage.forget("cq")
        assert usage.used("cq") == {}
