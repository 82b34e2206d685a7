# SPDX-License-Identifier: Apache-2.0
"""What a Job and its Workload need next (docs/spec/kueue-api.md §4.2), with the batch/job integration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from manager.controllers import job_decision
from manager.controllers.job_decision import ManagedJobFacts
from manager.controllers.job_steps import (
    CreateWorkload,
    DeleteWorkload,
    OwnWorkload,
    ReleaseWorkload,
    SetPriority,
    Step,
    UpdateWorkload,
    WarnOwner,
    WriteJob,
    WriteReclaimable,
    WriteStatus,
)
from manager.workload import changes
from manager.workload.status import Check, Status
from multikueue.api.constants import CheckState
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import FALSE
from multikueue.jobs.framework.admission_infos import pod_set_infos
from multikueue.jobs.framework.protocol import InjectionConflict, JobIntegration, PodSetInfo
from multikueue.jobs.framework.registry import known_integrations
from multikueue.jobs.framework.workloads import Priority, workload_for
from multikueue.jobs.kinds.batch_job import BATCH_JOB, BatchJob
from tests.unit.manager.builders import NOW, Object, admitted, evicted, having, pending, reserved, status

FLAVOR = {"spec": {"nodeLabels": {"zone": "a"}}}
FINALIZER = "kueue.x-k8s.io/resource-in-use"


def job(*, suspend: bool = True, parallelism: int = 1, queue: str = "lq", status: Object | None = None) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "team",
            "uid": "uid-j",
            "resourceVersion": "7",
            "labels": {"kueue.x-k8s.io/queue-name": queue},
        },
        "spec": {
            "suspend": suspend,
            "parallelism": parallelism,
            "completions": parallelism,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
        },
        "status": status or {},
    }


def workload(of: Object, value: Status, **metadata: Any) -> Object:
    made = workload_for(of, BATCH_JOB, priority=Priority())
    made["metadata"] |= {"uid": "uid-w", "resourceVersion": "1"} | metadata
    return made | {"status": value.wire()}


def infos(of: Object) -> tuple[PodSetInfo, ...]:
    return pod_set_infos(of, {"default": FLAVOR})


def started(of: Object, of_workload: Object, **status: Any) -> Object:
    """The job after its start, as admission changed it."""
    write = BATCH_JOB.start(of, infos(of_workload))
    spec = merged(of["spec"], write.body["spec"])
    return of | {"spec": spec, "status": status}


def merged(old: Object, patch: Object) -> Object:
    result = dict(old)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name) or {}, value)
        else:
            result[name] = value
    return result


def decide(of: Object, *workloads: Object, **changes: Any) -> tuple[Step, ...]:
    known = ManagedJobFacts(job=of, integration=BATCH_JOB, workloads=workloads, infos=infos, **changes)
    return job_decision.decide(known, now=NOW)


def kinds(steps: tuple[Step, ...]) -> list[str]:
    return [type(step).__name__ for step in steps]


def test_a_suspended_job_without_a_workload_gets_one() -> None:
    assert decide(job()) == (CreateWorkload(),)


def test_a_running_job_without_a_workload_is_stopped_first() -> None:
    (step,) = decide(job(suspend=False, status={"active": 1}))
    assert isinstance(step, WriteJob)
    assert step.write.body["spec"] == {"suspend": True}


def test_a_job_that_still_has_pods_waits_for_its_workload() -> None:
    assert decide(job(status={"active": 1})) == ()


def test_a_job_that_ended_before_its_first_reconcile_gets_no_workload() -> None:
    ended = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert decide(job(suspend=False, status=ended)) == ()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(status(), id="that no cycle has seen"),
        pytest.param(pending(), id="that waits for quota"),
        pytest.param(reserved(), id="that waits for its checks"),
    ],
)
def test_a_suspended_job_stays_so_with_a_workload(value: Status) -> None:
    assert decide(job(), workload(job(), value)) == ()


def test_an_admitted_job_is_started_with_what_its_flavor_asks_for() -> None:
    (step,) = decide(job(), workload(job(), admitted("big")))
    assert isinstance(step, WriteJob)
    assert (step.event, step.message) == ("Started", "Admitted by clusterQueue big")
    assert step.write.body["spec"]["suspend"] is False
    assert step.write.body["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}


def test_a_started_job_is_left_alone() -> None:
    known = workload(job(), admitted())
    assert decide(started(job(), known, active=1), known) == ()


def test_a_job_that_runs_without_being_admitted_is_stopped() -> None:
    known = workload(job(), pending())
    (step,) = decide(job(suspend=False), known)
    assert isinstance(step, WriteJob)
    assert step.event == "Stopped"


def test_an_injection_that_cannot_be_ends_the_workload() -> None:
    def broken(of: Object) -> tuple[PodSetInfo, ...]:
        raise InjectionConflict("nodeSelector of pod set main: zone is to be both a and b")

    known = ManagedJobFacts(job=job(), integration=BATCH_JOB, workloads=(workload(job(), admitted()),), infos=broken)
    (step,) = job_decision.decide(known, now=NOW)
    assert isinstance(step, WriteStatus)
    assert step.event == "FailedToStart"
    found = step.change(admitted()).condition(WorkloadCondition.FINISHED)
    assert found is not None
    assert found.reason == "FailedToStart"


def test_an_eviction_stops_the_job_and_gives_quota_back_only_when_no_pod_is_left() -> None:
    known = workload(job(), evicted(admitted(), "Preempted", message="preempted"))
    running = started(job(), known, active=1, startTime="2026-01-01T11:00:00Z")
    seen: list[Object] = []
    for _ in range(10):
        steps = decide(running, known)
        if not steps and running["status"].get("active"):
            running["status"] = running["status"] | {"active": 0}
            continue
        (step,) = steps
        if isinstance(step, WriteStatus):
            assert not running["status"].get("active")
            assert step.change(Status.of(known)).admission is None
            break
        assert isinstance(step, WriteJob)
        assert step.message == "preempted"
        seen.append(step.write.body)
        running = merged(running, step.write.body)
    else:
        pytest.fail("the eviction never ended")
    assert running["spec"]["suspend"] is True
    assert "nodeSelector" not in running["spec"]["template"]["spec"], "the template is the user's again"
    assert len(seen) >= 2


def test_a_job_is_stopped_for_the_reason_of_its_eviction_although_the_updates_of_its_checks_are_cleared() -> None:
    update = {"name": "main", "annotations": {"autoscaling.x-k8s.io/consume-provisioning-request": "r"}}
    ready = Check(name="c", state=CheckState.READY, message="", last_transition_time=NOW, pod_set_updates=(update,))
    before = replace(admitted(), checks=(ready,))
    after = changes.evict(before, reason="Preempted", message="preempted by high", now=NOW)
    running = started(job(), workload(job(), before), active=1, startTime="2026-01-01T11:00:00Z")
    (step,) = decide(running, workload(job(), after))
    assert isinstance(step, WriteJob)
    assert (step.event, step.message) == ("Stopped", "preempted by high")


def test_an_evicted_workload_keeps_its_quota_while_it_may_run_on_another_cluster() -> None:
    known = workload(job(), evicted(admitted(), "Preempted"))
    assert kinds(decide(job(), known, may_run_elsewhere=lambda workload: True)) == ["LookAgain"]
    assert kinds(decide(job(), known, may_run_elsewhere=lambda workload: False)) == ["WriteStatus"]


def test_a_finished_job_finishes_its_workload() -> None:
    known = workload(job(), admitted())
    ended = started(job(), known, conditions=[{"type": "Failed", "status": "True", "message": "BackoffLimitExceeded"}])
    (step,) = decide(ended, known)
    assert isinstance(step, WriteStatus)
    found = step.change(admitted()).condition(WorkloadCondition.FINISHED)
    assert found is not None
    assert (found.reason, found.message) == ("Failed", "BackoffLimitExceeded")


def test_a_finished_workload_is_let_go_of() -> None:
    done = workload(job(), having(admitted(), WorkloadCondition.FINISHED, reason="Succeeded"))
    assert decide(job(suspend=False), done) == (ReleaseWorkload(done),)
    done["metadata"]["finalizers"] = []
    assert decide(job(suspend=False), done) == ()


def test_a_job_that_is_being_deleted_lets_its_workload_go() -> None:
    going = job()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    known = workload(job(), admitted())
    assert decide(going, known) == (ReleaseWorkload(known),)


def test_a_workload_that_is_being_deleted_goes_after_the_job_has_stopped() -> None:
    known = workload(job(), admitted(), deletionTimestamp="2026-01-01T12:00:00Z")
    assert kinds(decide(started(job(), known, active=1), known)) == ["WriteJob"]
    assert decide(job(), known) == (ReleaseWorkload(known),)


def test_a_workload_that_is_being_deleted_stays_until_no_cluster_runs_it() -> None:
    known = workload(job(), admitted(), deletionTimestamp="2026-01-01T12:00:00Z")
    assert kinds(decide(job(), known, may_run_elsewhere=lambda workload: True)) == ["LookAgain"]


def test_a_job_changed_before_its_reservation_changes_its_workload() -> None:
    known = workload(job(), pending())
    assert decide(job(parallelism=3), known) == (UpdateWorkload(known),)
    assert decide(job(queue="other"), known) == (UpdateWorkload(known),)


def test_a_job_changed_after_its_reservation_gets_a_new_workload() -> None:
    known = workload(job(), reserved())
    assert decide(job(parallelism=3), known) == (DeleteWorkload(known),)


def test_of_two_workloads_the_matching_one_stays() -> None:
    wrong = workload(job(parallelism=2), pending(), name="wrong")
    right = workload(job(), pending())
    assert decide(job(), wrong, right) == (DeleteWorkload(wrong),)


def test_pods_that_are_done_give_their_quota_back() -> None:
    known = workload(job(parallelism=3), admitted())
    known["status"]["admission"]["podSetAssignments"][0]["count"] = 3
    (step,) = decide(started(job(parallelism=3), known, succeeded=2, active=1), known)
    assert isinstance(step, WriteReclaimable)
    assert [(pod.name, pod.count) for pod in step.pods] == [("main", 2)]
    known["status"]["reclaimablePods"] = [{"name": "main", "count": 2}]
    assert decide(started(job(parallelism=3), known, succeeded=2, active=1), known) == ()


@pytest.mark.parametrize(
    ("old", "running", "want"),
    [
        pytest.param(admitted(), {"active": 1}, ("False", "WaitForStart"), id="not ready yet"),
        pytest.param(admitted(), {"active": 1, "ready": 1}, ("True", "Started"), id="ready"),
        pytest.param(
            having(admitted(), WorkloadCondition.PODS_READY, reason="Started"),
            {"active": 1},
            ("False", "WaitForRecovery"),
            id="lost a pod",
        ),
        pytest.param(
            having(admitted(), WorkloadCondition.PODS_READY, reason="WaitForRecovery", value=FALSE),
            {"active": 1, "ready": 1},
            ("True", "Recovered"),
            id="ready again",
        ),
        pytest.param(
            having(
                admitted(),
                WorkloadCondition.PODS_READY,
                reason="Started",
                message="All pods reached readiness and the workload is running",
            ),
            {"active": 1, "ready": 1},
            None,
            id="ready as before",
        ),
    ],
)
def test_pods_ready(old: Status, running: Object, want: tuple[str, str] | None) -> None:
    known = workload(job(), old)
    steps = decide(started(job(), known, **running), known, tracks_pods=True)
    if want is None:
        assert steps == ()
        return
    (step,) = steps
    assert isinstance(step, WriteStatus)
    found = step.change(old).condition(WorkloadCondition.PODS_READY)
    assert found is not None
    assert (found.status, found.reason) == want


@pytest.mark.parametrize(
    ("value", "has", "wants", "want"),
    [
        pytest.param(pending(), "", "high", True, id="a class is added while it waits"),
        pytest.param(pending(), "low", "high", True, id="another class while it waits"),
        pytest.param(admitted(), "low", "high", True, id="another class of the same kind while it holds quota"),
        pytest.param(admitted(), "", "high", False, id="a class cannot be added while it holds quota"),
        pytest.param(pending(), "high", "high", False, id="the same class"),
    ],
)
def test_priority(value: Status, has: str, wants: str, want: bool) -> None:
    def of(name: str) -> Priority:
        group = "kueue.x-k8s.io" if name else ""
        return Priority(value=5, group=group, kind="WorkloadPriorityClass" if name else "", name=name)

    known = workload_for(job(), BATCH_JOB, priority=of(has)) | {"status": value.wire()}
    known["metadata"] |= {"uid": "uid-w", "resourceVersion": "1"}
    steps = decide(job(), known, priority=of(wants))
    assert (SetPriority(known, of(wants)) in steps) is want


JOB_SET: JobIntegration = known_integrations(())["jobset.x-k8s.io/jobset"]


def source_of(kind: JobIntegration) -> Object:
    """A suspended job of that kind, with one pod set `main`."""
    if kind is BATCH_JOB:
        return job()
    replicated = {"name": "main", "replicas": 1, "template": {"spec": job()["spec"]}}
    replicated["template"]["spec"].pop("suspend")  # type: ignore[index]
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": job()["metadata"],
        "spec": {"suspend": True, "replicatedJobs": [replicated]},
        "status": {},
    }


def containers_of(of: Object) -> list[Object]:
    spec = of["spec"] if "template" in of["spec"] else of["spec"]["replicatedJobs"][0]["template"]["spec"]
    found: list[Object] = spec["template"]["spec"]["containers"]
    return found


def prebuilt_of(kind: JobIntegration, value: Status) -> Object:
    """A Workload that its user made for such a job."""
    made = workload_for(source_of(kind), kind, priority=Priority())
    made["metadata"] |= {"uid": "uid-w", "resourceVersion": "1"}
    return made | {"status": value.wire()}


def with_update(value: Status) -> Status:
    """With a check that adds a node selector to the pods."""
    update = {"name": "main", "nodeSelector": {"pool": "x"}}
    ready = Check(name="c", state=CheckState.READY, message="", last_transition_time=NOW, pod_set_updates=(update,))
    return replace(value, checks=(ready,))


def run(kind: JobIntegration, wanted: Object, value: Status) -> Object:
    """The job as it was started with all that."""
    running = merged(source_of(kind), kind.start(source_of(kind), infos(wanted)).body)
    running["status"] = {"active": 1, "startTime": "2026-01-01T11:00:00Z"} if kind is BATCH_JOB else {}
    return running


def decide_as(kind: JobIntegration, of: Object, *workloads: Object) -> tuple[Step, ...]:
    facts = ManagedJobFacts(job=of, integration=kind, workloads=workloads, infos=infos, prebuilt="w")
    return job_decision.decide(facts, now=NOW)


class TestPrebuilt:
    """A job that brings its Workload along."""

    def test_it_waits_for_one_that_is_not_there(self) -> None:
        assert decide(job(), prebuilt="w") == ()

    def test_it_becomes_the_owner_of_one_without_an_owner(self) -> None:
        found = workload(job(), status(), ownerReferences=[])
        assert decide(job(), found, prebuilt="w") == (OwnWorkload(found),)

    def test_one_that_belongs_to_another_job_is_refused(self) -> None:
        owner = {"kind": "Job", "name": "other", "uid": "other", "controller": True}
        found = workload(job(), status(), ownerReferences=[owner])
        assert kinds(decide(job(), found, prebuilt="w")) == ["WarnOwner"]

    def test_one_that_does_not_match_is_finished_as_out_of_sync(self) -> None:
        found = workload(job(parallelism=2), pending())
        warning, step = decide(job(), found, prebuilt="w")
        message = "The prebuilt workload is out of sync with its user job: podSets[0].count: Job has 1, Workload has 2"
        assert warning == WarnOwner("OutOfSync", message)
        assert isinstance(step, WriteStatus)
        done = step.change(pending()).condition(WorkloadCondition.FINISHED)
        assert done is not None
        assert (done.reason, done.message) == ("OutOfSync", message)

    def test_one_that_names_nothing_but_its_containers_is_taken(self) -> None:
        of = job()
        found = workload(of, status(), ownerReferences=[])
        of["spec"]["template"]["spec"] |= {"dnsPolicy": "ClusterFirst", "restartPolicy": "Never"}
        of["spec"]["template"]["spec"]["containers"][0] |= {"imagePullPolicy": "Always"}
        assert decide(of, found, prebuilt="w") == (OwnWorkload(found),)

    def test_a_refusal_names_the_field_that_is_otherwise(self) -> None:
        found = workload(job(parallelism=2), status(), ownerReferences=[])
        (warning,) = decide(job(), found, prebuilt="w")
        assert isinstance(warning, WarnOwner)
        assert "podSets[0].count: Job has 1, Workload has 2" in warning.message

    def test_a_refusal_names_the_queues(self) -> None:
        found = workload(job(), status(), ownerReferences=[])
        found["spec"]["queueName"] = "other"
        (warning,) = decide(job(), found, prebuilt="w")
        assert isinstance(warning, WarnOwner)
        assert "queueName: Job has lq, Workload has other" in warning.message

    @pytest.mark.parametrize("kind", [BATCH_JOB, JOB_SET], ids=["a Job", "a JobSet"])
    def test_an_eviction_that_takes_the_updates_of_checks_back_is_no_difference(self, kind: JobIntegration) -> None:
        before = with_update(admitted())
        wanted = prebuilt_of(kind, before)
        running = run(kind, wanted, before)
        assert decide_as(kind, running, prebuilt_of(kind, before)) == (), "it runs as admitted"
        known = changes.evict(before, reason="Preempted", message="preempted by high", now=NOW)
        events: list[str] = []
        for _ in range(10):
            steps = decide_as(kind, running, prebuilt_of(kind, known))
            if not steps:
                running["status"] = {}  # its pods have ended
                continue
            (step,) = steps
            if isinstance(step, WriteStatus):
                known = step.change(known)
                break
            assert isinstance(step, WriteJob)
            events.append(step.message)
            running = merged(running, step.write.body)
        else:
            pytest.fail("the eviction never ended")
        assert set(events) == {"preempted by high"}
        assert known.condition(WorkloadCondition.FINISHED) is None
        assert known.admission is None
        assert decide_as(kind, running, prebuilt_of(kind, known)) == (), "it waits for its next admission"

    @pytest.mark.parametrize("state", [CheckState.RETRY, CheckState.REJECTED])
    @pytest.mark.parametrize("kind", [BATCH_JOB, JOB_SET], ids=["a Job", "a JobSet"])
    def test_a_check_that_takes_its_updates_back_with_its_verdict_leaves_it_to_the_eviction(
        self, kind: JobIntegration, state: CheckState
    ) -> None:
        before = with_update(admitted())
        running = run(kind, prebuilt_of(kind, before), before)
        after = changes.set_check(before, "c", state=state, now=NOW, pod_set_updates=())
        assert decide_as(kind, running, prebuilt_of(kind, after)) == ()

    @pytest.mark.parametrize("kind", [BATCH_JOB, JOB_SET], ids=["a Job", "a JobSet"])
    def test_a_job_that_runs_otherwise_than_admitted_is_out_of_sync(self, kind: JobIntegration) -> None:
        before = with_update(admitted())
        running = run(kind, prebuilt_of(kind, before), before)
        after = changes.set_check(before, "c", state=CheckState.READY, now=NOW, pod_set_updates=())
        warning, step = decide_as(kind, running, prebuilt_of(kind, after))
        assert isinstance(warning, WarnOwner)
        assert "nodeSelector[pool]: Job has x, Workload has nothing" in warning.message
        assert isinstance(step, WriteStatus)

    @pytest.mark.parametrize("kind", [BATCH_JOB, JOB_SET], ids=["a Job", "a JobSet"])
    def test_a_job_that_was_changed_while_it_was_evicted_is_out_of_sync_once_it_has_stopped(
        self, kind: JobIntegration
    ) -> None:
        known = changes.evict(with_update(admitted()), reason="Preempted", message="go", now=NOW)
        of = source_of(kind)
        containers_of(of)[0]["resources"]["requests"]["cpu"] = "64"
        warning, step = decide_as(kind, of, prebuilt_of(kind, known))
        assert isinstance(warning, WarnOwner)
        assert "requests[cpu]: Job has 64, Workload has 1" in warning.message
        assert isinstance(step, WriteStatus)

    def test_an_evicted_workload_of_another_client_is_not_taken_by_a_job_that_differs(self) -> None:
        known = changes.evict(with_update(admitted()), reason="Preempted", message="go", now=NOW)
        found = workload(job(), known, ownerReferences=[])
        thief = job(suspend=False)
        containers_of(thief)[0]["resources"]["requests"]["cpu"] = "64"
        warning, stop = decide(thief, found, prebuilt="w")
        assert isinstance(warning, WarnOwner)
        assert warning.reason == "WorkloadRefused"
        assert isinstance(stop, WriteJob)


def test_facts_are_values() -> None:
    known = ManagedJobFacts(job=job(), integration=BATCH_JOB, workloads=(), infos=infos)
    assert replace(known, prebuilt="w").prebuilt == "w"


class WithoutManagedBy(BatchJob):
    """A kind that is suspended, and that nothing but its suspension keeps from running here."""

    traits = replace(BatchJob.traits, has_managed_by=False)


def held(of: Object, known: Object) -> tuple[Step, ...]:
    facts = ManagedJobFacts(
        job=of,
        integration=WithoutManagedBy(),
        workloads=(known,),
        infos=infos,
        runs_on_workers=lambda workload: True,
    )
    return job_decision.decide(facts, now=NOW)


def test_a_job_without_managed_by_stays_suspended_here_while_it_runs_on_a_worker() -> None:
    assert held(job(), workload(job(), admitted())) == ()


def test_a_job_without_managed_by_that_was_started_here_is_stopped_again() -> None:
    known = workload(job(), admitted())
    (step,) = held(started(job(), known, active=1), known)
    assert isinstance(step, WriteJob)
    assert (step.event, step.message) == ("Stopped", "It runs on a worker cluster")


def test_a_job_with_managed_by_is_started_here_although_it_runs_on_a_worker() -> None:
    known = workload(job(), admitted())
    (step,) = decide(job(), known, runs_on_workers=lambda workload: True)
    assert isinstance(step, WriteJob)
    assert step.event == "Started"
