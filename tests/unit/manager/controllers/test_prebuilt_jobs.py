# SPDX-License-Identifier: Apache-2.0
"""What a job that brings its Workload along and that Workload need next (docs/spec/kueue-api.md §4.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manager.controllers import job_decision
from manager.controllers.job_facts import ManagedJobFacts
from manager.controllers.job_steps import (
    DeleteWorkload,
    OwnWorkload,
    ReleaseWorkload,
    Step,
    WarnOwner,
    WriteJob,
    WriteStatus,
)
from manager.workload import changes
from manager.workload.status import Check, Status
from multikueue.api.constants import CheckState
from multikueue.api.reasons import WorkloadCondition
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import known_integrations
from multikueue.jobs.framework.workloads import Priority, workload_for
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.jobs.kinds.pod import BARE_POD
from tests.unit.jobs.kinds.pod_builders import PAIR, group, running
from tests.unit.jobs.kinds.pod_builders import workload as pod_workload
from tests.unit.manager.builders import NOW, Object, admitted, pending, status
from tests.unit.manager.controllers.job_builders import (
    decide,
    infos,
    job,
    kinds,
    merged,
    workload,
)

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
    made["metadata"] |= {"name": "w", "uid": "uid-w", "resourceVersion": "1"}
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
        found = workload(job(), status(), name="w", ownerReferences=[])
        assert decide(job(), found, prebuilt="w") == (OwnWorkload(found),)

    def test_what_it_had_before_it_was_given_one_is_deleted(self) -> None:
        own, found = workload(job(), pending()), workload(job(), pending(), name="w")
        assert decide(job(), found, own, prebuilt="w") == (DeleteWorkload(own),)
        assert decide(job(), own, prebuilt="w") == (DeleteWorkload(own),), "the other one is still to come"
        releases = own | {"metadata": own["metadata"] | {"deletionTimestamp": "2026-01-01T12:00:00Z"}}
        assert decide(job(), found, releases, prebuilt="w") == (ReleaseWorkload(releases),)
        ended = workload(job(), changes.finish(pending(), reason="Succeeded", message="done", now=NOW))
        assert decide(job(), found, ended, prebuilt="w") == ()

    def test_one_that_belongs_to_another_job_is_refused(self) -> None:
        owner = {"kind": "Job", "name": "other", "uid": "other", "controller": True}
        found = workload(job(), status(), name="w", ownerReferences=[owner])
        assert kinds(decide(job(), found, prebuilt="w")) == ["WarnOwner"]

    def test_one_that_does_not_match_is_finished_as_out_of_sync(self) -> None:
        found = workload(job(parallelism=2), pending(), name="w")
        warning, step = decide(job(), found, prebuilt="w")
        message = "The prebuilt workload is out of sync with its user job: podSets[0].count: Job has 1, Workload has 2"
        assert warning == WarnOwner("OutOfSync", message)
        assert isinstance(step, WriteStatus)
        done = step.change(pending()).condition(WorkloadCondition.FINISHED)
        assert done is not None
        assert (done.reason, done.message) == ("OutOfSync", message)

    def test_one_that_names_nothing_but_its_containers_is_taken(self) -> None:
        of = job()
        found = workload(of, status(), name="w", ownerReferences=[])
        of["spec"]["template"]["spec"] |= {"dnsPolicy": "ClusterFirst", "restartPolicy": "Never"}
        of["spec"]["template"]["spec"]["containers"][0] |= {"imagePullPolicy": "Always"}
        assert decide(of, found, prebuilt="w") == (OwnWorkload(found),)

    def test_a_refusal_names_the_field_that_is_otherwise(self) -> None:
        found = workload(job(parallelism=2), status(), name="w", ownerReferences=[])
        (warning,) = decide(job(), found, prebuilt="w")
        assert isinstance(warning, WarnOwner)
        assert "podSets[0].count: Job has 1, Workload has 2" in warning.message

    def test_a_refusal_names_the_queues(self) -> None:
        found = workload(job(), status(), name="w", ownerReferences=[])
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
        found = workload(job(), known, name="w", ownerReferences=[])
        thief = job(suspend=False)
        containers_of(thief)[0]["resources"]["requests"]["cpu"] = "64"
        warning, stop = decide(thief, found, prebuilt="w")
        assert isinstance(warning, WarnOwner)
        assert warning.reason == "WorkloadRefused"
        assert isinstance(stop, WriteJob)


class TestGroup:
    """A group of pods that a hub of Kueue's sends to this cluster, with its Workload, one pod after another."""

    WORKLOAD = pod_workload(group(*PAIR)) | {"metadata": {"name": "g", "namespace": "team", "uid": "uid-w"}}

    def steps(self, *pods: Object) -> list[str]:
        facts = ManagedJobFacts(
            job=group(*pods), integration=BARE_POD, workloads=(self.WORKLOAD,), prebuilt="g", infos=infos
        )
        return kinds(job_decision.decide(facts, now=NOW))

    def test_it_waits_for_its_other_pods(self) -> None:
        assert self.steps(PAIR[0]) == []

    def test_it_owns_the_workload_once_all_are_there(self) -> None:
        assert self.steps(*PAIR) == ["OwnWorkload"]

    def test_it_waits_for_none_while_one_runs(self) -> None:
        """That has no gate any more: it is stopped as one whose Workload is not admitted."""
        assert self.steps(running("a1")) == ["OwnWorkload"]
