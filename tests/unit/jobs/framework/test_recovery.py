# SPDX-License-Identifier: Apache-2.0
"""What becomes of a copy that its management cluster does not know."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.constants import (
    ADOPTS_ANNOTATION,
    CLUSTER_LABEL,
    ELASTIC_JOB_ANNOTATION,
    MANAGED_LABEL,
    MANAGED_LABEL_VALUE,
    ORIGIN_LABEL,
    POD_GROUP_NAME_LABEL,
    QUEUE_NAME_LABEL,
)
from multikueue.jobs.declared.external import external_integration
from multikueue.jobs.framework.admission import refusals
from multikueue.jobs.framework.protocol import PodSetInfo, RemoteIdentity
from multikueue.jobs.framework.recovery import OrphanAction, adoption_annotation, judge, recreated
from multikueue.jobs.framework.registry import known_integrations
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.jobs.kinds.pod import BARE_POD

Object = dict[str, Any]
IDENTITY = RemoteIdentity(
    workload_name="job-j-1", origin="multikueue", epoch=3, manager_uid="old-hub", cluster="w", assignment="a"
)
INFO = PodSetInfo(
    name="main",
    count=2,
    labels={"kueue.x-k8s.io/podset": "main"},
    annotations={
        "kueue.x-k8s.io/workload": "job-j-1",
        "autoscaling.x-k8s.io/consume-provisioning-request": "of-the-former-dispatch",
    },
    node_selector={"flavor": "spot"},
)


def submitted(*, image: str = "i", **spec: Any) -> Object:
    """A Job as its user has it on the management cluster."""
    template = {"metadata": {"labels": {"own": "x"}}, "spec": {"containers": [{"name": "c", "image": image}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "u",
            "labels": {QUEUE_NAME_LABEL: "q"},
            "annotations": {"why": "because"},
        },
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "managedBy": "kueue.x-k8s.io/multikueue",
            "suspend": True,
            "template": template,
            **spec,
        },
    }


def orphan() -> Object:
    """What an agent tells of the copy of that Job."""
    copy = BATCH_JOB.remote_manifest(submitted(), (INFO,), identity=IDENTITY)
    copy["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": "r"}}
    copy["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = "r"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "ns",
        "name": "j",
        "uid": "r",
        "managerUID": "old-hub",
        "epoch": 3,
        "phase": "Running",
        "manifest": {"metadata": copy["metadata"], "spec": copy["spec"]},
    }


def test_a_job_is_made_anew_as_its_user_had_it() -> None:
    made = recreated(orphan(), cluster="w", of=BATCH_JOB)
    assert made["metadata"]["annotations"].pop(ADOPTS_ANNOTATION) == "w old-hub r 1"
    want = submitted()
    del want["metadata"]["uid"]
    # What admission had added stays: it is what the flavor of that name adds again.
    want["spec"]["template"]["spec"]["nodeSelector"] = {"flavor": "spot"}
    want["spec"]["template"]["metadata"]["annotations"] = {}
    assert made == want
    assert ORIGIN_LABEL not in made["metadata"]["labels"]
    assert CLUSTER_LABEL not in made["metadata"]["annotations"]


def test_a_pod_is_made_anew_behind_its_gate_where_no_webhook_adds_it() -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    pod = {"metadata": {"name": "j", "namespace": "ns", "uid": "u", "labels": {QUEUE_NAME_LABEL: "q"}}, "spec": spec}
    sent = BARE_POD.remote_manifest(pod, (INFO,), identity=IDENTITY)
    assert not BARE_POD.is_suspended(sent)
    made = recreated({**orphan(), "kind": "Pod", "manifest": sent}, cluster="w", of=BARE_POD)
    assert BARE_POD.is_suspended(made)
    assert made["metadata"]["labels"] == {QUEUE_NAME_LABEL: "q", MANAGED_LABEL: MANAGED_LABEL_VALUE}


def noted(job: Object, **changes: Any) -> Object:
    annotations = {**adoption_annotation(orphan(), cluster="w", epoch=1), "multikueue.io/adopts-seal": "s"}
    return {**job, "metadata": {**job["metadata"], "annotations": annotations}, **changes}


@pytest.mark.parametrize(
    ("job", "workload", "fate", "why"),
    [
        pytest.param(None, None, OrphanAction.CREATE, "no job", id="nothing of that name: made anew"),
        pytest.param(submitted(), None, OrphanAction.BIND, "waits", id="submitted again a moment ago: bound"),
        pytest.param(submitted(), {"status": {}}, OrphanAction.BIND, "waits", id="submitted again, and waits: bound"),
        pytest.param(
            submitted(),
            {"status": {"clusterName": "v"}},
            OrphanAction.LEAVE,
            "runs on v",
            id="runs elsewhere: left alone",
        ),
        pytest.param(
            noted(submitted()),
            {"status": {"schedulingStats": {"evictions": [{"reason": "Preempted", "count": 1}]}}},
            OrphanAction.BIND,
            "waits",
            id="was evicted before it was granted: bound again",
        ),
        pytest.param(
            noted(submitted(), status={"conditions": [{"type": "Complete", "status": "True"}]}),
            {"status": {"clusterName": "v"}},
            OrphanAction.LEAVE,
            "has ended",
            id="was to be taken over and has ended elsewhere: left alone",
        ),
        pytest.param(
            submitted(image="other"), None, OrphanAction.LEAVE, "pods differ", id="another image is other work"
        ),
        pytest.param(submitted(parallelism=1), None, OrphanAction.LEAVE, "pods differ", id="fewer pods are other work"),
        pytest.param(
            submitted(managedBy="kubernetes.io/job-controller"),
            None,
            OrphanAction.LEAVE,
            "not managed by MultiKueue",
            id="runs right here",
        ),
        pytest.param(
            {**submitted(), "status": {"conditions": [{"type": "Complete", "status": "True"}]}},
            None,
            OrphanAction.LEAVE,
            "has ended",
            id="what has ended is not run on",
        ),
        pytest.param(noted(submitted()), {"status": {}}, OrphanAction.WAIT, "is being taken over", id="on its way"),
        pytest.param(
            noted(submitted()),
            None,
            OrphanAction.WAIT,
            "the hub has no Workload of it: if that stays so, its kind is not enabled there",
            id="is not queued: a reason to look for",
        ),
    ],
)
def test_the_action_for_an_orphan(job: Object | None, workload: Object | None, fate: OrphanAction, why: str) -> None:
    verdict = judge(orphan(), job, workload, of=BATCH_JOB)
    assert verdict.action is fate
    assert why in verdict.why


@pytest.mark.parametrize(
    ("here", "there", "image", "action"),
    [
        pytest.param(True, True, "i", OrphanAction.BIND, id="both elastic: the remote job gets the size of the hub's"),
        pytest.param(True, True, "other", OrphanAction.LEAVE, id="both elastic, other containers"),
        pytest.param(True, False, "i", OrphanAction.LEAVE, id="only the one on the hub"),
        pytest.param(False, True, "i", OrphanAction.LEAVE, id="only the remote one"),
    ],
)
def test_an_elastic_job_is_taken_over_with_another_size(
    here: bool, there: bool, image: str, action: OrphanAction
) -> None:
    job, remote = submitted(parallelism=3, completions=3, image=image), orphan()
    for obj, elastic in ((job, here), (remote["manifest"], there)):
        obj["metadata"]["annotations"] |= {ELASTIC_JOB_ANNOTATION: "true"} if elastic else {}
    assert judge(remote, job, None, of=BATCH_JOB).action is action


def pod(**more: Any) -> Object:
    """A Pod as its user has it on the management cluster: gated, with the token volume that an API server adds."""
    mount = {"name": "kube-api-access-here", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    metadata = {"name": "one", "namespace": "ns", "uid": "u", "labels": {QUEUE_NAME_LABEL: "q"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
            "containers": [{"name": "c", "image": "i", "volumeMounts": [mount]}],
            "volumes": [{"name": "kube-api-access-here", "projected": {}}],
            **more,
        },
    }


def pod_orphan(*, group: str = "") -> Object:
    sent = pod(nodeName="n")
    sent["metadata"]["labels"] |= {POD_GROUP_NAME_LABEL: group} if group else {}
    remote = BARE_POD.remote_manifest(sent, (), identity=IDENTITY)
    mount = {"name": "kube-api-access-there", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    remote["spec"]["containers"][0]["volumeMounts"] = [mount]
    remote["spec"]["volumes"] = [{"name": "kube-api-access-there", "projected": {}}]
    manifest = {"metadata": remote["metadata"], "spec": remote["spec"]}
    return {**orphan(), "apiVersion": "v1", "kind": "Pod", "name": "one", "manifest": manifest}


STARTED: Object = {"schedulingGates": []}


@pytest.mark.parametrize(
    ("job", "fate", "why"),
    [
        pytest.param(None, OrphanAction.CREATE, "no job", id="nothing of that name"),
        pytest.param(pod(), OrphanAction.BIND, "waits", id="gated, and the same but for the token of its server"),
        pytest.param(pod(**STARTED), OrphanAction.LEAVE, "runs on the hub itself", id="was started on the hub"),
        pytest.param(
            pod(containers=[{"name": "c", "image": "other"}]), OrphanAction.LEAVE, "pods differ", id="another image"
        ),
        pytest.param({**pod(), "status": {"phase": "Failed"}}, OrphanAction.LEAVE, "has ended", id="has ended"),
    ],
)
def test_the_action_for_a_pod(job: Object | None, fate: OrphanAction, why: str) -> None:
    verdict = judge(pod_orphan(), job, None, of=BARE_POD)
    assert verdict.action is fate
    assert why in verdict.why


@pytest.mark.parametrize("job", [None, pod()], ids=["gone", "submitted again"])
def test_a_pod_of_a_group_is_left(job: Object | None) -> None:
    verdict = judge(pod_orphan(group="g"), job, None, of=BARE_POD)
    assert verdict.action is OrphanAction.LEAVE
    assert "a pod group is not created again" in verdict.why


def test_an_orphan_whose_pods_cannot_be_read_is_left_and_stops_no_other() -> None:
    lies = orphan()
    lies["manifest"]["spec"]["parallelism"] = "many"
    verdict = judge(lies, submitted(), None, of=BATCH_JOB)
    assert verdict.action is OrphanAction.LEAVE
    assert "parallelism" in verdict.why


@pytest.mark.parametrize(
    "manifest",
    [
        {"metadata": {}, "spec": "x"},
        {"metadata": {}, "spec": {"template": "x"}},
        {"metadata": {}, "spec": {"template": {"metadata": {"labels": "x"}, "spec": {}}}},
        {"metadata": {"labels": "x"}, "spec": {}},
        {"metadata": [], "spec": []},
    ],
    ids=str,
)
@pytest.mark.parametrize("job", [None, submitted()], ids=["gone", "submitted again"])
def test_what_a_worker_reports_of_another_shape_is_left_or_another_job(manifest: Object, job: Object | None) -> None:
    verdict = judge({**orphan(), "manifest": manifest}, job, None, of=BATCH_JOB)
    assert verdict.action is OrphanAction.LEAVE or (job is None and not any(manifest.values()))


EXTERNAL = external_integration("Pipeline.v1.ci.example.com")


@pytest.mark.parametrize(
    ("steps", "fate"), [(["build"], OrphanAction.BIND), (["other"], OrphanAction.LEAVE)], ids=["same", "other"]
)
def test_the_whole_spec_counts_of_a_kind_whose_pods_are_not_known(steps: list[str], fate: OrphanAction) -> None:
    metadata = {"name": "j", "namespace": "ns", "uid": "u"}
    spec = {"managedBy": "kueue.x-k8s.io/multikueue", "steps": ["build"]}
    job = {"apiVersion": "ci.example.com/v1", "kind": "Pipeline", "metadata": metadata, "spec": spec}
    remote = EXTERNAL.remote_manifest(job, (), identity=IDENTITY)
    left = {**orphan(), "manifest": {"metadata": remote["metadata"], "spec": remote["spec"] | {"steps": steps}}}
    assert judge(left, job, None, of=EXTERNAL).action is fate


FORBIDDEN = "metadata.annotations[multikueue.io/adopts]: Forbidden: "


def wanting(kind: str, *, asks: bool = True, **labels: str) -> Object:
    """An object that asks for an adoption."""
    annotations = {ADOPTS_ANNOTATION: "w old-hub r 1"} if asks else {}
    metadata = {"name": "one", "namespace": "ns", "labels": {QUEUE_NAME_LABEL: "q", **labels}}
    template = {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = pod()["spec"] if kind == "Pod" else {"replicas": 1, "template": template}
    return {"kind": kind, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


GROUPED: Object = {POD_GROUP_NAME_LABEL: "g", "kueue.x-k8s.io/managed": "true"}


@pytest.mark.parametrize(
    ("framework", "job", "why"),
    [
        pytest.param("pod", wanting("Pod", **GROUPED), "a Pod of a group cannot adopt", id="a pod of a group"),
        pytest.param("deployment", wanting("Deployment"), "a Deployment cannot adopt", id="a Deployment"),
        pytest.param("statefulset", wanting("StatefulSet"), "a StatefulSet cannot adopt", id="a StatefulSet"),
        pytest.param(
            "sparkoperator.k8s.io/sparkapplication",
            wanting("SparkApplication"),
            "a SparkApplication is not sent to workers",
            id="a kind that no worker runs",
        ),
    ],
)
def test_an_adoption_that_cannot_be_is_refused_where_it_is_asked_for(framework: str, job: Object, why: str) -> None:
    kind = known_integrations()[framework]

    def refused(new: Object, old: Object | None) -> list[str]:
        found = refusals(new, old, kind, has_default_queue=False)
        return [each for each in found if each.startswith(FORBIDDEN)]

    (text,) = refused(job, None)
    assert why in text
    without = {**job, "metadata": {**job["metadata"], "annotations": {}}}
    assert refused(without, None) == []
    assert len(refused(job, without)) == 1
    assert refused(job, job) == [], "what is there already can be changed otherwise"


@pytest.mark.parametrize(("framework", "kind"), [("pod", "Pod"), ("batch/job", "Job")])
def test_a_job_of_its_own_may_ask_for_an_adoption(framework: str, kind: str) -> None:
    job = submitted() if kind == "Job" else wanting(kind, asks=True, **{"kueue.x-k8s.io/managed": "true"})
    job["metadata"]["annotations"] = {ADOPTS_ANNOTATION: "w old-hub r 1"}
    found = refusals(job, None, known_integrations()[framework], has_default_queue=False)
    assert not [each for each in found if each.startswith(FORBIDDEN)]


def test_a_bound_remote_job_is_for_the_dispatch_that_comes() -> None:
    evicted = {"status": {"schedulingStats": {"evictions": [{"reason": "Preempted", "count": 2}]}}}
    assert judge(orphan(), submitted(), evicted, of=BATCH_JOB).epoch == 3
