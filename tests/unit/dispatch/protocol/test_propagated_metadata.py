# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.constants import (
    ADOPTS_ANNOTATION,
    ASSIGNMENT_ANNOTATION,
    CLUSTERS_ANNOTATION,
    EPOCH_ANNOTATION,
    ORIGIN_LABEL,
    PREBUILT_WORKLOAD_LABEL,
)
from multikueue.dispatch.protocol.propagated_metadata import bounded_manifest, propagated_annotations, propagated_labels
from multikueue.jobs.framework.protocol import RemoteIdentity
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from tests.support.managers import job_manifest

IDENTITY = RemoteIdentity(
    workload_name="job-j", origin="multikueue", epoch=3, manager_uid="m", cluster="w1", assignment="a"
)


def test_a_user_s_annotations_go_along_and_our_marks_do_not() -> None:
    annotations = {CLUSTERS_ANNOTATION: "w1", EPOCH_ANNOTATION: "9", ADOPTS_ANNOTATION: "w m j 1", "example.com/a": "b"}
    assert propagated_annotations(annotations) == {CLUSTERS_ANNOTATION: "w1", "example.com/a": "b"}


def test_no_label_of_ours_goes_along() -> None:
    assert propagated_labels({"multikueue.io/cluster": "w2", "multikueue.iox": "a", "b": "c"}) == {
        "multikueue.iox": "a",
        "b": "c",
    }


def test_the_marks_on_a_tenant_s_job_do_not_reach_its_remote_job() -> None:
    job = job_manifest("j", namespace="ns", queue="q", labels={"multikueue.io/cluster": "w2", ORIGIN_LABEL: "else"})
    job["metadata"]["annotations"] = {
        EPOCH_ANNOTATION: "99",
        ASSIGNMENT_ANNOTATION: "of-another",
        ADOPTS_ANNOTATION: "w1 m j 1",
        "multikueue.io/anything": "x",
    }
    job["metadata"] |= {"ownerReferences": [{"uid": "u"}], "finalizers": ["example.com/f"]}
    metadata = BATCH_JOB.remote_manifest(job, (), identity=IDENTITY)["metadata"]
    assert set(metadata) == {"name", "namespace", "labels", "annotations"}
    assert metadata["labels"] == {"kueue.x-k8s.io/queue-name": "q", ORIGIN_LABEL: "multikueue"}
    assert metadata["annotations"] == {
        PREBUILT_WORKLOAD_LABEL: "job-j",
        EPOCH_ANNOTATION: "3",
        "multikueue.io/manager-uid": "m",
        "multikueue.io/cluster": "w1",
        ASSIGNMENT_ANNOTATION: "a",
    }


@pytest.mark.parametrize(("named", "kept"), [("job-j", True), ("job-of-another", False)])
def test_a_remote_job_is_charged_to_no_other_workload(named: str, kept: bool) -> None:
    job = job_manifest("j", namespace="ns", queue="q", labels={PREBUILT_WORKLOAD_LABEL: named})
    labels = BATCH_JOB.remote_manifest(job, (), identity=IDENTITY)["metadata"]["labels"]
    assert (PREBUILT_WORKLOAD_LABEL in labels) is kept


def test_an_agent_makes_objects_without_owners_finalizers_and_foreign_marks() -> None:
    sent = {
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "generateName": "x-",
            "ownerReferences": [{"uid": "u"}],
            "finalizers": ["example.com/f"],
            "labels": {"a": "b", "multikueue.io/cluster": "other"},
            "annotations": {"c": "d", EPOCH_ANNOTATION: "9"},
        },
        "spec": {},
        "status": {"active": 1},
    }
    assert bounded_manifest(sent, labels={"l": "m"}, annotations={EPOCH_ANNOTATION: "1"}) == {
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "labels": {"a": "b", "l": "m"},
            "annotations": {"c": "d", EPOCH_ANNOTATION: "1"},
        },
        "spec": {},
    }


@pytest.mark.parametrize("nonsense", [None, 1, "x", []], ids=repr)
def test_metadata_of_the_wrong_type_is_no_error(nonsense: Any) -> None:
    for metadata in (nonsense, {"labels": nonsense, "annotations": nonsense}):
        made = bounded_manifest({"metadata": metadata}, labels={"l": "m"}, annotations={})
        assert made["metadata"]["labels"] == {"l": "m"}
