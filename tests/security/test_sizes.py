# SPDX-License-Identifier: Apache-2.0
"""Numbers and sizes that a tenant or a worker wrote cost no more than the text they stand in."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from manager.controllers import job_decision
from manager.controllers.job_facts import ManagedJobFacts
from manager.controllers.job_steps import WarnOwner, WriteJob
from multikueue.api import codec
from multikueue.api.job import Job
from multikueue.api.topologyslices import MAX_DOMAINS, expand
from multikueue.api.validation import validate_job, validate_workload
from multikueue.api.workload import Workload
from multikueue.core.duration import parse_duration
from multikueue.core.errors import BadInput
from multikueue.dispatch.worker.ledger import Demand, Ledger, NodeFacts
from multikueue.jobs.framework.pod_templates import original_infos
from multikueue.jobs.framework.workloads import Priority, workload_for
from multikueue.jobs.kinds import job_status
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from tests.unit.manager.builders import NOW, Object, admitted, evicted

MEBIBYTE: Final = 1 << 20
K: Final = "kueue.x-k8s.io/"


def peak(action: Callable[[], object]) -> int:
    """The most memory that `action` holds, in bytes."""
    action()  # once before, so that what is loaded on first use is not counted
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def job(*, annotations: dict[str, str] | None = None, template: dict[str, str] | None = None, **changes: Any) -> Object:
    spec = {"suspend": False, "parallelism": 4, "completions": 10_000_000, "completionMode": "Indexed"}
    pod = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "team",
            "uid": "uid-j",
            "labels": {f"{K}queue-name": "lq"},
            "annotations": {K + key: value for key, value in (annotations or {}).items()},
        },
        "spec": spec
        | {"template": {"metadata": {"annotations": {K + k: v for k, v in (template or {}).items()}}, "spec": pod}}
        | changes.pop("spec", {}),
        **changes,
    }


def test_completed_indexes_stay_intervals() -> None:
    done = job(status={"completedIndexes": "0-9999996", "failedIndexes": "9999990-9999997"})
    (reclaimed,) = BATCH_JOB.reclaimable(done)
    assert reclaimed.count == 2, "two indexes of four pods are left"
    assert peak(lambda: BATCH_JOB.reclaimable(done)) < MEBIBYTE


@pytest.mark.parametrize("indexes", ["0-", "5-2", "1,,3", "²", "0-99999999999999999999", "9" * 5000, "0x10"])
def test_indexes_that_are_none_are_named(indexes: str) -> None:
    with pytest.raises(BadInput, match=r"^status\.completedIndexes: expected"):
        BATCH_JOB.reclaimable(job(status={"completedIndexes": indexes}))


def test_a_status_that_cannot_be_understood_does_not_keep_an_evicted_job_running() -> None:
    broken = job(status={"completedIndexes": "5-2", "active": 4})
    made = workload_for(broken, BATCH_JOB, priority=Priority())
    made["metadata"] |= {"uid": "uid-w", "resourceVersion": "1"}
    made["status"] = evicted(admitted(), "Preempted").wire()
    facts = ManagedJobFacts(job=broken, integration=BATCH_JOB, workloads=(made,), infos=original_infos)
    complaint, stop = job_decision.decide(facts, now=NOW)
    assert complaint == WarnOwner(
        "JobStatusInvalid", 'status.completedIndexes: expected intervals such as 0-4,7, found "5-2"'
    )
    assert isinstance(stop, WriteJob)
    assert stop.write.body["spec"] == {"suspend": True}


@pytest.mark.parametrize("number", ["²", "", "-1", "1_0", " 4", "+4", "2147483648", "9" * 5000, "٣"])
@pytest.mark.parametrize(
    ("annotation", "of_template"),
    [
        pytest.param("job-min-parallelism", False, id="the least parallelism"),
        pytest.param("podset-slice-size", True, id="the size of slices"),
    ],
)
def test_an_annotation_that_is_no_number_is_refused_by_webhook_and_reconciler(
    annotation: str, of_template: bool, number: str
) -> None:
    written = {annotation: number}
    others = {"podset-slice-required-topology": "rack"}
    broken = job(template={**written, **others}) if of_template else job(annotations=written)
    assert any(f"{K}{annotation}]" in str(error) for error in validate_job(codec.load_as(Job, broken)))
    with pytest.raises(BadInput, match=f"^annotation {K}{annotation}: expected a whole number from 0 to 2147483647"):
        BATCH_JOB.pod_sets(broken)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 100_000, id="nested without end"),
        pytest.param('[{"topology":"a","size":' + "9" * 5000 + "}]", id="a size of five thousand digits"),
        pytest.param('[{"topology":"a","size":4294967296}]', id="a size beyond 32 bits"),
        pytest.param("{", id="no JSON"),
        pytest.param("[1]", id="a list of others"),
    ],
)
def test_slice_constraints_that_are_none_are_refused_by_webhook_and_reconciler(text: str) -> None:
    annotation = "podset-slice-required-topology-constraints"
    broken = job(template={annotation: text})
    errors = [str(error) for error in validate_job(codec.load_as(Job, broken))]
    assert any(f"{K}{annotation}]" in error for error in errors)
    assert all(len(error) < 5000 for error in errors)
    with pytest.raises(BadInput, match=f"^annotation {K}{annotation}: "):
        BATCH_JOB.pod_sets(broken)


def test_a_topology_assignment_is_not_expanded_beyond_its_limit() -> None:
    def slices(*counts: int) -> Object:
        level = {"universal": "rack-1"}
        entries = [{"domainCount": count, "valuesPerLevel": [level], "podCounts": {"universal": 1}} for count in counts]
        return {"levels": ["rack"], "slices": entries}

    assert len(expand(slices(MAX_DOMAINS - 1, 1))["domains"]) == MAX_DOMAINS
    refused = r"^topologyAssignment\.slices\[{}\]\.domainCount: expected a whole number from 0 to"
    with pytest.raises(BadInput, match=refused.format(0)):
        expand(slices(2**31 - 1))
    with pytest.raises(BadInput, match=refused.format(1)):
        expand(slices(MAX_DOMAINS, 1))


def test_a_topology_assignment_beyond_the_limit_is_refused_before_it_is_stored() -> None:
    level, one = {"universal": "rack-1"}, {"universal": 1}
    entries = [
        {"domainCount": count, "valuesPerLevel": [level], "podCounts": one} for count in (MAX_DOMAINS, 2**31 - 1)
    ]
    assigned = {"name": "main", "count": 1, "topologyAssignment": {"levels": ["rack"], "slices": entries}}
    body = {
        "metadata": {"name": "w", "namespace": "team"},
        "spec": {"podSets": [{"name": "main", "count": 1}]},
        "status": {
            "conditions": [
                {
                    "type": "QuotaReserved",
                    "status": "True",
                    "reason": "r",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
            "admission": {"clusterQueue": "q", "podSetAssignments": [assigned]},
        },
    }
    (error,) = validate_workload(codec.load_as(Workload, body))
    assert str(error).startswith("status.admission.podSetAssignments[0].topologyAssignment.slices: Too many: ")


def test_capacity_for_two_thousand_million_pods_is_one_entry() -> None:
    ledger = Ledger()
    ledger.set_node(NodeFacts(name="n", allocatable={"cpu": 1000}, labels={}))
    many = (Demand(count=2**31 - 1, requests={}),)

    def reservation() -> None:
        assert ledger.reserve("w", many) is None
        assert ledger.holds("w")
        ledger.release("w")

    assert peak(reservation) < MEBIBYTE


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"succeeded": "many"}, id="a counter that is a text"),
        pytest.param({"failed": -1}, id="a counter below zero"),
        pytest.param({"active": {"a": 1}}, id="a counter that is an object"),
        pytest.param({"conditions": "Complete"}, id="conditions that are a text"),
        pytest.param({"conditions": ["Complete"]}, id="a condition that is a text"),
    ],
)
def test_a_worker_s_status_that_is_none_is_named(status: Object) -> None:
    with pytest.raises(BadInput, match=r"^jobStatus\.(succeeded|failed|active|conditions): expected"):
        job_status.synced(job(), status)


@pytest.mark.parametrize("text", ["9" * 5000 + "h", "99999999999999999h", "٣s", "1h" * 100])
def test_a_duration_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"is not a duration|is longer than"):
        parse_duration(text)


def test_the_longest_duration_can_still_be_added_to() -> None:
    assert parse_duration("2562047h") == timedelta(hours=2_562_047)
