# SPDX-License-Identifier: Apache-2.0
"""What a Job and its Workload need next (docs/spec/kueue-api.md §4.2), with the batch/job integration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manager.controllers import job_decision
from manager.controllers.job_facts import ManagedJobFacts
from manager.controllers.job_steps import (
    CreateWorkload,
    DeleteWorkload,
    ReleaseWorkload,
    SetPriority,
    Step,
    UpdateWorkload,
    WriteJob,
    WriteReclaimable,
    WriteStatus,
)
from manager.workload import changes
from manager.workload.status import Check, Status
from multikueue.api.constants import CheckState
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import FALSE, TRUE
from multikueue.jobs.framework.protocol import InjectionConflict, PodSetInfo
from multikueue.jobs.framework.workloads import Priority, workload_for
from multikueue.jobs.kinds.batch_job import BATCH_JOB, BatchJob
from multikueue.jobs.kinds.pod import BARE_POD
from tests.unit.jobs.kinds.pod_builders import PAIR, group, running
from tests.unit.jobs.kinds.pod_builders import workload as group_workload
from tests.unit.manager.builders import NOW, Object, admitted, evicted, having, pending, reserved, status
from tests.unit.manager.controllers.job_builders import (
    decide,
    infos,
    job,
    kinds,
    merged,
    started,
    workload,
)


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


@pytest.mark.parametrize(("reason", "value"), [("Started", TRUE), ("WaitForRecovery", FALSE)])
def test_pods_that_are_being_stopped_are_shown_as_they_were(reason: str, value: str) -> None:
    old = having(evicted(admitted(), "Preempted"), WorkloadCondition.PODS_READY, reason=reason, value=value)
    known = workload(job(), old)
    steps = decide(started(job(), known, active=1), known, tracks_pods=True)
    assert not [step for step in steps if isinstance(step, WriteStatus)]


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


class TestReplacements:
    """A group of two pods, of which one is over before the other."""

    FAILED = group(running("a1"), running("a2", phase="Failed"))

    def written(self, found: Object, before: Status) -> tuple[str, str, str] | None:
        """Status, reason and message of the condition that is written, if any is."""
        known = group_workload(group(*PAIR)) | {"status": before.wire()}
        known["metadata"] |= {"uid": "uid-w", "resourceVersion": "1"}
        facts = ManagedJobFacts(job=found, integration=BARE_POD, workloads=(known,), infos=lambda _: ())
        writes = [step for step in job_decision.decide(facts, now=NOW) if isinstance(step, WriteStatus)]
        for step in writes:
            now = step.change(before).condition(WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS)
            if now is not None and now != before.condition(WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS):
                return now.status, now.reason, now.message
        return None

    def waiting(self, before: Status, reason: str) -> Status:
        kind = WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS
        return changes.with_condition(before, kind, value=TRUE, reason=reason, message="1 of 2", now=NOW)

    def preempted(self) -> Status:
        return changes.evict(admitted(), reason="Preempted", message="go", now=NOW)

    def test_a_failed_pod_has_to_be_replaced(self) -> None:
        status_, reason, message = self.written(self.FAILED, admitted()) or ("", "", "")
        assert (status_, reason) == (TRUE, "PodsFailed")
        assert message.startswith("1 of 2 pods failed or were deleted")

    def test_of_a_group_that_was_evicted_the_reason_is_that_of_the_eviction(self) -> None:
        assert (self.written(self.FAILED, self.preempted()) or ())[:2] == (TRUE, "Preempted")

    def test_a_group_that_waits_and_is_evicted_gets_the_reason_of_the_eviction(self) -> None:
        before = self.waiting(self.preempted(), "PodsFailed")
        assert (self.written(self.FAILED, before) or ())[:2] == (TRUE, "Preempted")

    def test_what_is_written_already_is_not_written_again(self) -> None:
        assert self.written(self.FAILED, self.waiting(admitted(), "PodsFailed")) is None
        assert self.written(self.FAILED, self.waiting(self.preempted(), "Preempted")) is None

    def test_a_group_whose_pods_are_there_waits_no_more(self) -> None:
        whole = group(running("a1"), running("a2"))
        assert (self.written(whole, self.waiting(admitted(), "PodsFailed")) or ())[:2] == (FALSE, "PodsReady")
        assert self.written(whole, admitted()) is None
