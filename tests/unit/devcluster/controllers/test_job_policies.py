# SPDX-License-Identifier: Apache-2.0
"""Pod failure policies, success policies, and the pods that a Job asks for."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.controllers.finished_jobs import removal_time
from devcluster.controllers.job_pods import PodRequest, pod_of
from devcluster.controllers.job_sync import success_policy_message
from devcluster.controllers.pod_failure_policy import Action, verdict_of
from multikueue.api.objects import JsonObject
from multikueue.core.timestamps import format_time
from tests.unit.devcluster.controllers.job_builders import NOW, job, pod


def codes(action: str, operator: str, *values: int, container: str | None = None) -> JsonObject:
    return {
        "action": action,
        "onExitCodes": {"operator": operator, "values": list(values), "containerName": container},
    }


def disruption(action: str) -> JsonObject:
    return {"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize(
    ("rules", "failed", "action"),
    [
        pytest.param([], pod("a", "Failed"), Action.COUNT, id="without a rule it counts"),
        pytest.param([codes("FailJob", "In", 42)], pod("a", "Failed", code=42), Action.FAIL_JOB, id="a listed code"),
        pytest.param([codes("FailJob", "In", 42)], pod("a", "Failed", code=41), Action.COUNT, id="an unlisted code"),
        pytest.param([codes("Ignore", "NotIn", 1)], pod("a", "Failed", code=2), Action.IGNORE, id="a code not listed"),
        pytest.param(
            [codes("FailJob", "NotIn", 1)], pod("a", "Failed", code=0), Action.COUNT, id="code 0 is never matched"
        ),
        pytest.param(
            [codes("FailJob", "In", 1, container="side")], pod("a", "Failed"), Action.COUNT, id="another container"
        ),
        pytest.param([disruption("Ignore")], pod("a", "Failed", disrupted=True), Action.IGNORE, id="a disruption"),
        pytest.param(
            [codes("FailIndex", "In", 1), codes("FailJob", "In", 1)],
            pod("a", "Failed"),
            Action.FAIL_INDEX,
            id="the first rule decides",
        ),
    ],
)
def test_a_failure_is_judged_by(rules: list[JsonObject], failed: JsonObject, action: Action) -> None:
    assert verdict_of({"rules": rules}, failed).action is action


def test_the_message_of_a_failed_job_names_pod_and_rule() -> None:
    verdict = verdict_of({"rules": [disruption("Ignore"), codes("FailJob", "In", 3)]}, pod("a", "Failed", code=3))
    assert verdict.message == "Container main for pod ns/job-a failed with exit code 3 matching FailJob rule at index 1"


@pytest.mark.parametrize(
    ("rules", "succeeded", "message"),
    [
        pytest.param([{"succeededIndexes": "0,2"}], {0, 1}, None, id="one of two that are listed is not enough"),
        pytest.param([{"succeededIndexes": "0,2"}], {0, 2}, "Matched rules at index 0", id="all that are listed"),
        pytest.param([{"succeededCount": 2}], {4, 5}, "Matched rules at index 0", id="enough of any"),
        pytest.param(
            [{"succeededIndexes": "0-3", "succeededCount": 2}], {3, 5}, None, id="only those that are listed count"
        ),
        pytest.param(
            [{"succeededCount": 3}, {"succeededIndexes": "1"}], {1}, "Matched rules at index 1", id="a later rule"
        ),
    ],
)
def test_success_is_judged_by(rules: list[JsonObject], succeeded: set[int], message: str | None) -> None:
    assert success_policy_message({"rules": rules}, succeeded, completions=6) == message


def test_a_pod_is_owned_labelled_and_tracked() -> None:
    of = job()
    of["spec"]["template"]["metadata"] = {"labels": {"job-name": "job"}}
    made = pod_of(of, PodRequest())
    metadata = made["metadata"]
    assert metadata["generateName"] == "job-"
    assert metadata["labels"] == {"job-name": "job"}
    assert metadata["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "job",
            "uid": "job-uid",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert "annotations" not in metadata


def test_a_pod_of_an_index_knows_it() -> None:
    of = job()
    made = pod_of(of, PodRequest(index=4, failures=2, ignored_failures=1))
    index = "batch.kubernetes.io/job-completion-index"
    assert made["metadata"]["generateName"] == "job-4-"
    assert made["metadata"]["labels"][index] == made["metadata"]["annotations"][index] == "4"
    assert made["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "2"
    assert made["metadata"]["annotations"]["batch.kubernetes.io/job-index-ignored-failure-count"] == "1"
    assert made["spec"]["hostname"] == "job-4"
    assert made["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    assert "env" not in of["spec"]["template"]["spec"]["containers"][0], "the Job's own template stays as it is"


def test_a_long_name_is_cut_for_index_and_random_suffix() -> None:
    of = job()
    of["metadata"]["name"] = "j" * 63
    made = pod_of(of, PodRequest(index=12))
    assert len(made["metadata"]["generateName"]) <= 58
    assert made["metadata"]["generateName"].endswith("-12-")
    assert len(made["spec"]["hostname"]) == 63


def ended(**spec: Any) -> JsonObject:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": format_time(NOW)}
    return job({"conditions": [done]}, **spec)


def test_a_finished_job_goes_when_its_time_is_over() -> None:
    at = removal_time(ended(ttlSecondsAfterFinished=30))
    assert at is not None
    assert (at - NOW).total_seconds() == 30


@pytest.mark.parametrize(
    "stays",
    [
        pytest.param(ended(), id="nobody says when"),
        pytest.param(job(ttlSecondsAfterFinished=0), id="it still runs"),
    ],
)
def test_a_job_stays_when(stays: JsonObject) -> None:
    assert removal_time(stays) is None
