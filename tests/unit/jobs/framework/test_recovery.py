# SPDX-License-Identifier: Apache-2.0
"""What becomes of a copy that its management cluster does not know."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.constants import ADOPTS_ANNOTATION, CLUSTER_LABEL, ORIGIN_LABEL, QUEUE_NAME_LABEL
from multikueue.jobs.framework.protocol import PodSetInfo, RemoteIdentity
from multikueue.jobs.framework.recovery import OrphanAction, adoption_annotation, judge, recreated
from multikueue.jobs.kinds.batch_job import BATCH_JOB

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
        pytest.param(noted(submitted()), None, OrphanAction.WAIT, "taken over", id="on its way already"),
    ],
)
def test_the_action_for_an_orphan(job: Object | None, workload: Object | None, fate: OrphanAction, why: str) -> None:
    verdict = judge(orphan(), job, workload, of=BATCH_JOB)
    assert verdict.action is fate
    assert why in verdict.why


def test_a_bound_remote_job_is_for_the_dispatch_that_comes() -> None:
    evicted = {"status": {"schedulingStats": {"evictions": [{"reason": "Preempted", "count": 2}]}}}
    assert judge(orphan(), submitted(), evicted, of=BATCH_JOB).epoch == 3
