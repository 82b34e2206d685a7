# SPDX-License-Identifier: Apache-2.0
"""Every shipped kind, with the example of its page: pod sets, start and stop, states, and the remote job."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from multikueue.api.defaulting import JobSurroundings
from multikueue.api.featuregates import default
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.paths import with_value
from multikueue.jobs.declared.reading import read_declaration
from multikueue.jobs.declared.shipped import declared_integrations
from multikueue.jobs.framework.admission import defaulted
from multikueue.jobs.framework.protocol import PodSetInfo, Reclaimable
from tests.unit.jobs.declared.builders import (
    IDENTITY,
    PAGES_OF_KINDS,
    SPOT,
    TOLERATION,
    WIDGET,
    example,
    infos,
    kind_of,
    suspended_in,
    workload,
    written,
)

Status = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def condition(kind: str, **more: Any) -> Status:
    return {"conditions": [{"type": kind, "status": "True", "message": f"it is {kind}"}], **more}


def jobset_status(**counts: int) -> Status:
    return {"replicatedJobsStatus": [{"name": "leader", "ready": 1}, {"name": "workers", **counts}]}


@dataclass(frozen=True, kw_only=True)
class KindCase:
    """What is expected of one kind."""

    page: str
    pod_sets: dict[str, int]
    active: Status
    ready: Status
    not_ready: Status = field(default_factory=dict)
    succeeded: Status | None = None
    failed: Status | None = None
    reclaimed: tuple[Status, tuple[Reclaimable, ...]] | None = None
    stripped: tuple[str, ...] = ()
    managed: tuple[str, ...] = ("spec", "managedBy")
    cleared: Status = field(default_factory=dict)
    """What is left of `active` when the job has stopped."""


def training(page: str, pod_sets: dict[str, int]) -> KindCase:
    return KindCase(
        page=page,
        pod_sets=pod_sets,
        active={"replicaStatuses": {"Worker": {"active": 1}}},
        ready=condition("Running"),
        not_ready=condition("Created"),
        succeeded=condition("Succeeded"),
        failed=condition("Failed"),
        stripped=("spec", "runPolicy", "ttlSecondsAfterFinished"),
        managed=("spec", "runPolicy", "managedBy"),
    )


RAY_PODS = {"head": 1, "small": 6}
CASES = [
    KindCase(
        page="jobset",
        pod_sets={"leader": 1, "workers": 8},
        active=jobset_status(active=1),
        ready=jobset_status(ready=1, succeeded=1),
        not_ready=jobset_status(ready=1),
        succeeded=condition("Completed"),
        failed=condition("Failed"),
        reclaimed=(jobset_status(succeeded=1), (Reclaimable(name="workers", count=4),)),
        stripped=("spec", "ttlSecondsAfterFinished"),
    ),
    training("pytorchjob", {"master": 1, "worker": 3}),
    training("tfjob", {"chief": 1, "ps": 2, "worker": 3}),
    training("xgboostjob", {"master": 1, "worker": 2}),
    training("paddlejob", {"master": 1, "worker": 2}),
    training("jaxjob", {"worker": 4}),
    training("mpijob", {"launcher": 1, "worker": 4}),
    KindCase(
        page="trainjob",
        pod_sets={"node": 4},
        active={"jobsStatus": [{"name": "node", "active": 1}]},
        ready={"jobsStatus": [{"name": "node", "ready": 1}]},
        succeeded=condition("Complete"),
        failed=condition("Failed"),
        reclaimed=({"jobsStatus": [{"name": "node", "succeeded": 1}]}, (Reclaimable(name="node", count=4),)),
    ),
    KindCase(
        page="rayjob",
        pod_sets={**RAY_PODS, "submitter": 1},
        active={"jobDeploymentStatus": "Running", "jobId": "j"},
        ready={"rayClusterStatus": {"state": "ready"}},
        not_ready={"rayClusterStatus": {"state": "failed"}},
        succeeded={"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "it is done"},
        failed={"jobDeploymentStatus": "Complete", "jobStatus": "FAILED", "message": "it is broken"},
        stripped=("spec", "ttlSecondsAfterFinished"),
        cleared={"jobId": "j"},
    ),
    KindCase(page="raycluster", pod_sets=RAY_PODS, active={"availableWorkerReplicas": 1}, ready={"state": "ready"}),
    KindCase(
        page="rayservice",
        pod_sets=RAY_PODS,
        active={"activeServiceStatus": {"rayClusterStatus": {"availableWorkerReplicas": 1}}},
        ready=condition("Ready"),
        cleared={"activeServiceStatus": {}},
    ),
    KindCase(
        page="appwrapper",
        pod_sets={"appwrapper-sample-0": 3},
        active=condition("QuotaReserved"),
        ready=condition("PodsReady"),
        succeeded={"phase": "Succeeded"},
        failed={"phase": "Failed"},
    ),
    KindCase(
        page="sparkapplication",
        pod_sets={"driver": 1, "executor": 3},
        active={"applicationState": {"state": "SUBMITTED"}},
        ready={"applicationState": {"state": "RUNNING"}},
        not_ready={"applicationState": {"state": "SUBMITTED"}},
        succeeded={"applicationState": {"state": "COMPLETED"}},
        failed={"applicationState": {"state": "FAILED", "errorMessage": "it is broken"}},
        managed=(),
    ),
]
EVERY = [pytest.param(case, id=case.page) for case in CASES]
ENDING = [pytest.param(case, id=case.page) for case in CASES if case.succeeded is not None]
WITH_MANAGED_BY = [pytest.param(case, id=case.page) for case in CASES if case.managed]


def at(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = (value or {}).get(key)
    return value


def test_every_shipped_kind_is_in_the_table_and_has_a_page() -> None:
    pages = {case.page for case in CASES}
    assert {kind_of(example(page)).framework for page in pages} == set(declared_integrations())
    assert pages == set(PAGES_OF_KINDS)


@pytest.mark.parametrize("case", EVERY)
def test_pod_sets_have_the_counts_of_the_job(case: KindCase) -> None:
    job = example(case.page)
    found = kind_of(job).pod_sets(job)
    assert {each["name"]: each["count"] for each in found} == case.pod_sets
    assert all(each["template"]["spec"]["containers"][0]["resources"]["requests"] for each in found)


@pytest.mark.parametrize("case", EVERY)
def test_the_queue_is_that_of_the_label(case: KindCase) -> None:
    job = example(case.page)
    assert kind_of(job).queue_name(job) == "user-queue"


@pytest.mark.parametrize("case", EVERY)
def test_a_started_job_has_what_admission_adds_in_every_pod_set(case: KindCase) -> None:
    job = example(case.page)
    kind = kind_of(job)
    assert kind.is_suspended(job)
    added, of = infos(job, kind), workload(job, kind)
    started = written(job, kind.start(job, added))
    assert not kind.is_suspended(started)
    for each in kind.pod_sets(started):
        assert each["template"]["spec"]["nodeSelector"] == SPOT
        assert each["template"]["spec"]["tolerations"] == [TOLERATION]
        assert each["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"] == each["name"]
    assert kind.matches(started, of, added)
    assert not kind.matches(started, of)
    assert kind.differences(started, of, added) == ()


@pytest.mark.parametrize("case", EVERY)
def test_a_stopped_job_is_as_it_was(case: KindCase) -> None:
    job = example(case.page)
    kind = kind_of(job)
    of = workload(job, kind)
    started = written(job, kind.start(job, infos(job, kind)))
    stopped = written(started, kind.stop(started, of["spec"]["podSets"]))
    assert stopped == job
    assert kind.matches(stopped, of)
    assert kind.stop(stopped, of["spec"]["podSets"]) is None


@pytest.mark.parametrize("case", ENDING)
def test_it_has_succeeded_or_failed_with_the_message_of_its_controller(case: KindCase) -> None:
    job = example(case.page)
    kind = kind_of(job)
    assert kind.finished(job) is None
    succeeded, failed = kind.finished(job | {"status": case.succeeded}), kind.finished(job | {"status": case.failed})
    assert succeeded is not None
    assert failed is not None
    assert (succeeded.reason, failed.reason) == ("Succeeded", "Failed")
    if "phase" not in (case.failed or {}):
        assert failed.message in ("it is Failed", "it is broken")


@pytest.mark.parametrize("case", EVERY)
def test_its_pods_are_ready(case: KindCase) -> None:
    job = example(case.page)
    kind = kind_of(job)
    assert kind.pods_ready(job | {"status": case.ready})
    assert not kind.pods_ready(job | {"status": case.not_ready})


@pytest.mark.parametrize("case", EVERY)
def test_it_is_active_while_it_has_pods(case: KindCase) -> None:
    job = example(case.page)
    kind = kind_of(job)
    assert kind.is_active(job | {"status": case.active})
    assert not kind.is_active(job)


@pytest.mark.parametrize("case", EVERY)
def test_pods_are_reclaimable_where_the_kind_has_them(case: KindCase) -> None:
    job = example(case.page)
    status, expected = case.reclaimed or ({}, ())
    assert kind_of(job).reclaimable(job | {"status": status}) == expected


@pytest.mark.parametrize("case", EVERY)
def test_the_remote_job_runs_and_has_no_field_of_the_hub(case: KindCase) -> None:
    job = example(case.page)
    kind = kind_of(job)
    if case.managed:
        job = with_value(job, case.managed, "kueue.x-k8s.io/multikueue")
    added = infos(job, kind)
    remote = kind.remote_manifest(job | {"status": case.active}, added, identity=IDENTITY)
    assert "status" not in remote
    assert set(remote["metadata"]) == {"name", "namespace", "labels", "annotations"}
    assert remote["metadata"]["labels"] == {
        **job["metadata"].get("labels", {}),
        "kueue.x-k8s.io/multikueue-origin": "mk",
    }
    assert remote["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] == "widget-w-12345"
    if case.managed:
        assert at(remote, case.managed) is None
    if case.stripped:
        assert at(job, case.stripped) == 600
        assert at(remote, case.stripped) is None
    for each in kind.pod_sets(remote):
        assert each["template"]["metadata"]["labels"]["kueue.x-k8s.io/multikueue-worker-workload-pod"] == "true"
    if kind.spec.suspend is not None:
        assert suspended_in(remote, kind) is not kind.spec.suspend.value
        assert all(each["template"]["spec"]["nodeSelector"] == SPOT for each in kind.pod_sets(remote))


@pytest.mark.parametrize("case", WITH_MANAGED_BY)
def test_a_job_recreated_from_its_remote_job_waits_for_multikueue(case: KindCase) -> None:
    job = example(case.page)
    kind = kind_of(job)
    provisioned = {"autoscaling.x-k8s.io/consume-provisioning-request": "of-the-former-dispatch"}
    infos = [PodSetInfo(name=each["name"], count=each["count"], annotations=provisioned) for each in kind.pod_sets(job)]
    made = kind.local_manifest(kind.remote_manifest(job, infos, identity=IDENTITY))
    assert kind.managed_by(made) == at(made, case.managed) == "kueue.x-k8s.io/multikueue"
    assert kind.is_suspended(made)
    assert made["metadata"] == {
        "name": job["metadata"]["name"],
        "namespace": "team-a",
        "labels": {"kueue.x-k8s.io/queue-name": "user-queue"},
        "annotations": {},
    }
    assert kind.pod_sets(made) == kind.pod_sets(job)


@pytest.mark.parametrize("case", EVERY)
def test_the_remote_status_is_shown_and_cleared_when_the_job_stops(case: KindCase) -> None:
    job = example(case.page)
    kind = kind_of(job)
    sync = kind.sync_status(job, case.active)
    assert sync.write is not None
    assert sync.write.subresource == "status"
    shown = written(job, sync.write)
    assert shown["status"] == case.active
    assert kind.sync_status(shown, case.active).write is None
    stopped = written(shown, kind.stopped_status(shown, now=NOW))
    assert stopped["status"] == case.cleared
    assert not kind.is_active(stopped)
    assert kind.stopped_status(stopped, now=NOW) is None


@pytest.mark.parametrize("case", ENDING)
def test_the_status_of_an_ended_job_does_not_change(case: KindCase) -> None:
    job = example(case.page) | {"status": case.succeeded}
    kind = kind_of(job)
    assert kind.sync_status(job, case.active).write is None
    assert kind.stopped_status(job, now=NOW) is None


@pytest.mark.parametrize("case", EVERY)
def test_the_example_is_accepted_and_a_change_of_a_running_job_is_refused(case: KindCase) -> None:
    job = example(case.page)
    kind = kind_of(job)
    assert kind.job_refusals(job) == ()
    running = written(job, kind.start(job, ()))
    path = kind.spec.validation.immutable[0]
    changed = with_value(running, path.keys or (), [])
    assert kind.refused_changes(running, running) == ()
    assert any(str(path) in text for text in kind.refused_changes(running, changed))
    if kind.spec.suspend is not None:
        assert kind.refused_changes(job, changed) == ()


@pytest.mark.parametrize("case", EVERY)
def test_a_topology_that_pods_cannot_have_is_refused_in_every_pod_set_unless_it_was_there_before(
    case: KindCase,
) -> None:
    job = example(case.page)
    kind = kind_of(job)
    wrong = {f"kueue.x-k8s.io/podset-{each}-topology": "rack" for each in ("required", "preferred")}
    asking = job
    for place in kind.places(job):
        metadata = place.template.get("metadata") or {}
        annotations = {**(metadata.get("annotations") or {}), **wrong}
        template = {**place.template, "metadata": {**metadata, "annotations": annotations}}
        asking = kind.with_template(asking, place, template)
    found = kind.refusals(asking, None, has_default_queue=False, gate=default)
    assert len([each for each in found if "more than one topology annotation" in each]) == len(kind.places(job))
    later = with_value(asking, ("metadata", "labels", "other"), "x")
    assert not any("topology" in each for each in kind.refusals(later, asking, has_default_queue=False, gate=default))


def test_a_job_that_nothing_would_hold_is_refused_in_a_queue_and_left_alone_without_one() -> None:
    declaration = WIDGET.replace("suspend: {path: $.spec.suspend}", "hold: Pods")
    kind = DeclaredIntegration(read_declaration(declaration, origin="widget.yaml"))
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    job: dict[str, Any] = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "team-a"},
        "spec": {"template": template},
    }
    assert kind.refusals(job, None, has_default_queue=False, gate=default) == ()
    surroundings = JobSurroundings(namespace_queue="user-queue")
    assert defaulted(job, kind, surroundings) is job, "it gets no queue of its namespace either"
    queued = {**job, "metadata": job["metadata"] | {"labels": {"kueue.x-k8s.io/queue-name": "user-queue"}}}
    text = "metadata.labels[kueue.x-k8s.io/queue-name]: Forbidden: a Widget is not queued as a whole"
    for before in (None, job):
        found = kind.refusals(queued, before, has_default_queue=False, gate=default)
        assert [each for each in found if each.startswith(text)]
    assert kind.refusals(queued, queued, has_default_queue=False, gate=default) == (), "one that is there can change"
