# SPDX-License-Identifier: Apache-2.0
"""Decisions that cost a tenant or a queue its share, one test for each of them.

A check that is listed and not Ready, slices of elastic jobs, a resource in two groups, preemption gates, device claims,
and what a Workload takes over from its Job. The texts are those of `docs/spec/engine.md`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest

from manager.controllers import job_decision, workload_decision
from manager.controllers.job_facts import ManagedJobFacts
from manager.controllers.job_steps import FollowJob, Step, WarnOwner, WriteJob
from manager.scheduler import admission_writes
from manager.workload.status import Status
from multikueue.api import codec, featuregates
from multikueue.api.clusterqueue import ClusterQueue
from multikueue.api.constants import CheckState
from multikueue.api.job import Job
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.validation import validate_cluster_queue, validate_job, validate_workload
from multikueue.api.workload import Workload as WireWorkload
from multikueue.engine import Gates, Outcome, Settings, decode, lifecycle
from multikueue.engine.workloads import CheckStatus
from multikueue.jobs.framework.workloads import Priority, workload_for
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.simulation.manifests import Manifest
from multikueue.simulation.run import run
from multikueue.simulation.simulated_cluster import build
from tests.support.engine_builders import START, Bench, at, group, holding, key, pods, preemption, queue, workload
from tests.unit.manager.builders import NOW, admitted, check, facts, pending, reserved, status, with_checks

ONE = pods(cpu="1")
NO_RANDOM: Final = Random(0)
ELASTIC = Settings(pods_ready=None, gates=Gates(elastic_jobs=True))
GATE = "kueue.x-k8s.io/admission-gated-by"
LIMIT = "kueue.x-k8s.io/max-exec-time-seconds"
SLICE_OF = "kueue.x-k8s.io/workload-slice-replacement-for"
OFF = "elastic jobs are not supported while the feature gate ElasticJobsViaWorkloadSlices is off"


def settings_of(**gates: bool) -> Settings:
    return replace(decode.settings({"featureGates": gates}), pods_ready=None)


# 1. Admitted requires every check that is listed.


def test_a_listed_check_that_is_not_required_any_more_keeps_a_workload_from_being_admitted() -> None:
    old = CheckStatus(name="old", state=CheckState.PENDING)
    bench = Bench(queue("q", group(default="9"))).add(workload("w", "q", ONE, checks=(old,)))
    decision = bench.decide("w")
    told = bench.engine.workload(key("w"))
    assert told is not None
    written = lifecycle.reserved(told, decision, at(1))
    assert (decision.outcome, written.reserved, written.admitted) == (Outcome.RESERVED, True, False)
    assert bench.engine.cluster_queue_state("q").admitted == 0
    ready = replace(written, checks=(replace(old, state=CheckState.READY),))
    assert lifecycle.with_admission(ready, decision.admission_checks, at(2)).admitted


def test_the_manager_writes_a_reservation_without_admission_while_a_listed_check_is_pending() -> None:
    bench = Bench(queue("q", group(default="9"))).add(workload("w", "q", ONE))
    before = with_checks(status(), check("old"))
    after = admission_writes.reserve(before, bench.decide("w"), now=NOW)
    assert after.is_true(WorkloadCondition.QUOTA_RESERVED)
    assert not after.is_true(WorkloadCondition.ADMITTED)
    assert [item.name for item in after.checks] == ["old"], "dropping it is the workload reconciler's"
    settled = workload_decision.decide(facts(), after, now=NOW, random=NO_RANDOM).status
    assert (settled.checks, settled.is_true(WorkloadCondition.ADMITTED)) == ((), True)


# 2. Elastic slices.


def job(
    *, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "team",
            "uid": "uid-j",
            "resourceVersion": "7",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"} | (labels or {}),
            "annotations": annotations or {},
        },
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
            **spec,
        },
    }


def test_the_gate_of_elastic_jobs_is_off_and_the_webhook_refuses_their_annotations() -> None:
    elastic = codec.load_as(Job, job(annotations={"kueue.x-k8s.io/elastic-job": "true"}))
    plain = codec.load_as(Job, job())
    refusal = f"metadata.annotations[kueue.x-k8s.io/elastic-job]: Forbidden: {OFF}; remove the annotation"
    assert [str(error) for error in validate_job(elastic)] == [refusal]
    assert [str(error) for error in validate_job(elastic, plain)] == [refusal]
    assert validate_job(elastic, elastic) == [], "an older one may still be changed"
    assert validate_job(plain, elastic) == [], "and lose the annotation"
    body = {"metadata": {"name": "w", "namespace": "team", "annotations": {SLICE_OF: "team/old"}}}
    slice_ = codec.load_as(WireWorkload, body | {"spec": {"podSets": [{"name": "main"}]}})
    assert [str(error) for error in validate_workload(slice_)] == [
        f"metadata.annotations[{SLICE_OF}]: Forbidden: {OFF}; remove the annotation"
    ]


def test_a_slice_cannot_name_a_workload_of_another_namespace() -> None:
    body = {"metadata": {"name": "w", "namespace": "team", "annotations": {SLICE_OF: "other/theirs"}}}
    slice_ = codec.load_as(WireWorkload, body | {"spec": {"podSets": [{"name": "main"}]}})
    errors = validate_workload(slice_, gate=lambda name: name == featuregates.ELASTIC_JOBS)
    assert [str(error) for error in errors] == [
        f'metadata.annotations[{SLICE_OF}]: Invalid value: "other/theirs": must name a Workload of the namespace team'
    ]


def test_a_slice_that_is_met_while_the_gate_is_off_waits_with_the_reason() -> None:
    bench = Bench(queue("q", group(default="9"))).add(
        holding(workload("old", "q", ONE), "q"), workload("new", "q", pods(2, cpu="1"), replaces="default/old")
    )
    decision = bench.decide("new")
    assert (decision.outcome, decision.reason) == (Outcome.INADMISSIBLE, "Misconfigured")
    assert decision.message == f"annotation {SLICE_OF}: {OFF}"
    assert bench.engine.cluster_queue_state("q").reserving == 1


@pytest.mark.parametrize(
    ("nominal", "size", "want"),
    [
        pytest.param("5", 5, (Outcome.RESERVED, ""), id="what is left is enough for the difference"),
        pytest.param(
            "4",
            5,
            (Outcome.PENDING, "insufficient unused quota for cpu in flavor default, 1 more needed"),
            id="the whole is more than could be had ever and the difference is not",
        ),
        pytest.param(
            "4",
            8,
            (
                Outcome.PENDING,
                "insufficient quota for cpu in flavor default, previously considered podsets requests (0) + current"
                " podset request (5) > maximum capacity (4)",
            ),
            id="the difference alone is more than could be had ever",
        ),
    ],
)
def test_a_grown_slice_asks_for_the_difference_to_the_old_one(
    nominal: str, size: int, want: tuple[Outcome, str]
) -> None:
    bench = Bench(queue("q", group(default=nominal)), settings=ELASTIC)
    bench.add(holding(workload("old", "q", pods(3, cpu="1")), "q"))
    bench.add(workload("new", "q", pods(size, cpu="1"), replaces="default/old"))
    decision = bench.decide("new")
    assert decision.outcome is want[0]
    assert want[1] in decision.message


def test_a_new_slice_holds_all_of_its_quota_and_the_old_one_none() -> None:
    bench = Bench(queue("q", group(default="5")), settings=ELASTIC)
    old = holding(workload("old", "q", pods(3, cpu="1")), "q")
    bench.add(old, workload("new", "q", pods(5, cpu="1"), replaces="default/old"))
    decision = bench.decide("new")
    assert decision.pod_sets[0].count == 5
    assert decision.pod_sets[0].resource_usage == {"cpu": 5000}
    bench.add(replace(old, generation=9))  # the API does not have its Finished condition yet
    state = bench.engine.cluster_queue_state("q")
    assert (list(state.reservation.values()), state.reserving) == ([5000], 1)


def test_the_old_slice_has_its_quota_again_when_the_new_one_could_not_be_written() -> None:
    bench = Bench(queue("q", group(default="5")), settings=ELASTIC)
    bench.add(holding(workload("old", "q", pods(3, cpu="1")), "q"))
    bench.add(workload("new", "q", pods(5, cpu="1"), replaces="default/old"))
    bench.cycle()
    bench.engine.admission_failed(key("new"), bench.now)
    assert list(bench.engine.cluster_queue_state("q").reservation.values()) == [3000]
    assert bench.decide("new").replaced_slice == key("old")


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")], ids=["the older first", "the newer first"])
def test_an_engine_that_starts_counts_two_slices_of_one_job_once(order: tuple[str, str]) -> None:
    bench = Bench(queue("q", group(default="5")), settings=ELASTIC)
    slices = {
        "old": holding(workload("old", "q", pods(3, cpu="1")), "q"),
        "new": holding(workload("new", "q", pods(5, cpu="1"), replaces="default/old"), "q"),
    }
    bench.add(*(slices[name] for name in order))
    assert list(bench.engine.cluster_queue_state("q").reservation.values()) == [5000]


def test_a_slice_of_another_job_takes_nobodys_quota() -> None:
    bench = Bench(queue("q", group(default="5")), settings=ELASTIC)
    bench.add(holding(workload("theirs", "q", pods(3, cpu="1"), job_uid="a"), "q"))
    bench.add(workload("mine", "q", pods(5, cpu="1"), replaces="default/theirs", job_uid="b"))
    assert bench.decide("mine").outcome is Outcome.PENDING


def test_a_simulation_finishes_the_slice_that_was_replaced() -> None:
    pod = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}

    def slice_of(name: str, count: int, **annotations: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "team", "annotations": annotations}
        return {"metadata": metadata, "spec": {"queueName": "lq", "podSets": [{"count": count, "template": pod}]}}

    held = slice_of("old", 3)
    assigned = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}, "count": 3}
    held["status"] = {
        "admission": {"clusterQueue": "q", "podSetAssignments": [assigned]},
        "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}],
    }
    quota = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "5"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    manifests: list[tuple[str, dict[str, Any]]] = [
        ("ResourceFlavor", {"metadata": {"name": "f"}}),
        ("ClusterQueue", {"metadata": {"name": "q"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}}),
        ("LocalQueue", {"metadata": {"name": "lq", "namespace": "team"}, "spec": {"clusterQueue": "q"}}),
        ("Workload", held),
        ("Workload", slice_of("new", 5, **{SLICE_OF: "team/old"})),
    ]
    listed = [
        Manifest({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind} | body, "test") for kind, body in manifests
    ]
    cache = build(listed, settings=settings_of(ElasticJobsViaWorkloadSlices=True), now=START)
    run(cache, now=START)
    by_name = {found.name: value for found, value in cache.workloads.items()}
    finished = by_name["old"].condition(WorkloadCondition.FINISHED)
    assert finished is not None
    assert (finished.reason, by_name["new"].reserved) == ("WorkloadSliceReplaced", True)
    assert finished.message.startswith("Replaced to accommodate a workload (UID: ")


# 3. Two groups that cover the same resource.


def test_the_webhook_refuses_a_resource_in_two_groups() -> None:
    quota = [{"name": "cpu", "nominalQuota": "1"}]
    groups = [
        {"coveredResources": ["cpu"], "flavors": [{"name": name, "resources": quota}]} for name in ("first", "second")
    ]
    found = codec.load_as(ClusterQueue, {"metadata": {"name": "q"}, "spec": {"resourceGroups": groups}})
    assert [str(error) for error in validate_cluster_queue(found)] == [
        'spec.resourceGroups[1].coveredResources[0]: Duplicate value: "cpu"'
    ]


def test_the_engine_takes_the_first_of_two_groups_that_cover_a_resource() -> None:
    second = group(second={"cpu": "9", "memory": "9Gi"})
    bench = Bench(queue("q", group(first="2"), second))
    decision = bench.add(workload("w", "q", pods(cpu="1", memory="1Gi"))).decide("w")
    assert decision.pod_sets[0].flavors == {"cpu": "first", "memory": "second"}
    bench.add(workload("v", "q", pods(cpu="2")))
    assert "insufficient unused quota for cpu in flavor first" in bench.decide("v").message


def test_one_flavor_in_two_groups_has_the_quota_of_the_first() -> None:
    bench = Bench(queue("q", group(default="2"), group(default={"cpu": "9", "memory": "9Gi"})))
    bench.add(workload("w", "q", pods(cpu="3")))
    assert "> maximum capacity (2)" in bench.decide("w").message


# 4. Preemption gates.


@pytest.mark.parametrize(
    ("gates", "want"),
    [
        pytest.param({}, Outcome.PREEMPTING, id="by default"),
        pytest.param({"ConcurrentAdmission": True}, Outcome.PENDING, id="with concurrent admission"),
        pytest.param({"MultiKueueOrchestratedPreemption": True}, Outcome.PENDING, id="with orchestrated preemption"),
    ],
)
def test_a_closed_preemption_gate_is_heeded_with_its_feature_only(gates: dict[str, bool], want: Outcome) -> None:
    bench = Bench(queue("q", group(default="2"), preemption=preemption("LowerPriority")), settings=settings_of(**gates))
    bench.add(
        holding(workload("low", "q", pods(cpu="2")), "q"),
        workload("w", "q", pods(cpu="2"), priority=1, preemption_gate_closed=True),
    )
    assert bench.decide("w").outcome is want


# 5. Resource claims.


CLAIM = {"name": "gpu", "resourceClaimTemplateName": "t"}
OF_CONTAINER = {"containers": [{"name": "c", "resources": {"claims": [{"name": "hidden"}]}}]}
MAPPED = {"resources": {"deviceClassMappings": [{"name": "gpus", "deviceClassNames": ["gpu.example.com"]}]}}
UNMAPPED = (
    "it claims devices, which would not count in the quota: resources.deviceClassMappings of the manager's"
    " Configuration is empty"
)


@pytest.mark.parametrize(
    ("configuration", "spec", "shown"),
    [
        pytest.param({}, {"resourceClaims": [CLAIM]}, UNMAPPED, id="of a pod without mappings"),
        pytest.param({}, OF_CONTAINER, UNMAPPED, id="of a container alone without mappings"),
        pytest.param(
            {"featureGates": {"KueueDRAIntegration": False}} | MAPPED,
            {"resourceClaims": [CLAIM]},
            "it claims devices, which would not count in the quota: the feature gate KueueDRAIntegration is off",
            id="of a pod with the feature off",
        ),
        pytest.param(
            MAPPED,
            {"resourceClaims": [CLAIM]},
            'resourceClaim "gpu": ResourceClaimTemplate "t" not found',
            id="of a template that is missing",
        ),
        pytest.param(
            MAPPED,
            OF_CONTAINER,
            'resourceClaim "hidden": a container names it, and the pod has no claim of that name',
            id="of a container alone",
        ),
        pytest.param(
            MAPPED,
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]},
            'resourceClaim "gpu": ResourceClaim "shared" is named directly; only claims that are made from templates'
            " are counted",
            id="that exists",
        ),
    ],
)
def test_a_workload_with_claims_that_are_not_counted_is_not_admitted(
    configuration: dict[str, Any], spec: dict[str, Any], shown: str
) -> None:
    pod = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]} | spec
    body = {
        "metadata": {"name": "w", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}]},
    }
    settings = replace(decode.settings(configuration), pods_ready=None)
    bench = Bench(queue("q", group(default="9")), settings=settings).add(decode.workload(body, decode.Shapes()))
    bench.settle()
    assert bench.waits("q") == []
    found = bench.engine.explain(key("w"), bench.now)
    assert (found.state, found.reason, found.message) == ("NotQueued", "Misconfigured", f"podSet main: {shown}")
    assert bench.engine.claims_problem(key("w")) == found.message, "which the reconciler of Workloads writes"


# 6. What a Workload takes over from its Job.


def steps(of: dict[str, Any], made: dict[str, Any], value: Status, **changes: Any) -> tuple[Step, ...]:
    known = made | {"status": value.wire()}
    known["metadata"] |= {"uid": "uid-w", "resourceVersion": "1"}
    found = ManagedJobFacts(job=of, integration=BATCH_JOB, workloads=(known,), infos=lambda workload: (), **changes)
    return job_decision.decide(found, now=NOW)


def made_of(of: dict[str, Any]) -> dict[str, Any]:
    return workload_for(of, BATCH_JOB, priority=Priority())


@pytest.mark.parametrize(
    ("before", "after", "value", "want"),
    [
        pytest.param({LIMIT: "60"}, {LIMIT: "90"}, pending(), 90, id="another limit"),
        pytest.param({}, {LIMIT: "90"}, pending(), 90, id="a first limit"),
        pytest.param({LIMIT: "60"}, {}, reserved(), None, id="no limit any more, while checks are waited for"),
    ],
)
def test_a_changed_limit_of_execution_time_reaches_the_workload(
    before: dict[str, str], after: dict[str, str], value: Status, want: int | None
) -> None:
    made = made_of(job(labels=before))
    (step,) = steps(job(labels=after), made, value)
    assert isinstance(step, FollowJob)
    assert step.patch == {"spec": {"maximumExecutionTimeSeconds": want}}


def test_a_limit_stays_while_the_workload_is_admitted_and_where_it_is_no_number() -> None:
    made = made_of(job(labels={LIMIT: "60"}))
    assert not any(isinstance(step, FollowJob) for step in steps(job(labels={LIMIT: "90"}), made, admitted()))
    (step,) = steps(job(labels={LIMIT: "²"}), made, pending())
    assert step == WarnOwner(
        "ErrWorkloadCompose",
        f'label {LIMIT}: expected a whole number from 0 to 2147483647, found "²"',
    )


@pytest.mark.parametrize(
    ("left", "want"),
    [
        pytest.param("example.com/a", "example.com/a", id="one of two"),
        pytest.param("", None, id="the last"),
        pytest.param("example.com/a,example.com/new", "example.com/a", id="and no other comes in its place"),
    ],
)
def test_an_admission_gate_that_is_removed_from_the_job_goes_from_the_workload(left: str, want: str | None) -> None:
    made = made_of(job(annotations={GATE: "example.com/a,example.com/b"}))
    (step,) = steps(job(annotations={GATE: left} if left else {}), made, pending())
    assert isinstance(step, FollowJob)
    assert step.patch == {"metadata": {"annotations": {GATE: want}}}


def test_a_workload_that_matches_its_job_is_not_changed() -> None:
    same = job(labels={LIMIT: "60"}, annotations={GATE: "example.com/a"})
    assert steps(same, made_of(same), pending()) == ()


def test_reclaimable_pods_are_not_written_with_their_gate_off() -> None:
    of = job(parallelism=3, completions=3, suspend=False) | {"status": {"succeeded": 2, "active": 1}}
    made = made_of(of)
    value = admitted()
    names = [type(step).__name__ for step in steps(of, made, value)]
    assert "WriteReclaimable" in names
    assert "WriteReclaimable" not in [type(step).__name__ for step in steps(of, made, value, reclaims=False)]


@pytest.mark.parametrize(
    ("boosts", "want"),
    [
        pytest.param(
            (0, 0),
            "preemptor effective priority: 5 (base: 5, boost: 0); preemptee effective priority: 1 (base: 1, boost: 0)",
            id="no boost is not mentioned",
        ),
        pytest.param(
            (3, -2),
            "preemptor effective priority: 8 (base: 5, boost: 3);"
            " preemptee effective priority: -1 (base: 1, boost: -2)",
            id="others are, of both",
        ),
    ],
)
def test_events_of_a_preemption_say_both_priorities(boosts: tuple[int, int], want: str) -> None:
    settings = settings_of(PriorityBoost=True)
    bench = Bench(queue("q", group(default="2"), preemption=preemption("LowerPriority")), settings=settings)
    bench.add(holding(workload("low", "q", pods(cpu="2"), priority=1, priority_boost=boosts[1]), "q"))
    bench.add(workload("w", "q", pods(cpu="2"), priority=5, priority_boost=boosts[0]))
    (victim,) = bench.decide("w").victims
    assert victim.priorities == want


def test_a_running_job_that_cannot_be_understood_any_more_is_stopped_and_gives_its_quota_back() -> None:
    of = job(suspend=False)
    made = made_of(of)
    nonsense = job(suspend=False, annotations={"kueue.x-k8s.io/job-min-parallelism": "²"})
    (step,) = steps(nonsense, made, admitted())
    assert isinstance(step, WriteJob)
    assert step.write.body["spec"] == {"suspend": True}
