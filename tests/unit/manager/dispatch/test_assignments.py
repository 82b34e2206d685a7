# SPDX-License-Identifier: Apache-2.0
"""What an assignment says of a Job that is admitted partly on the hub."""

from __future__ import annotations

from typing import Any

import pytest

from manager.dispatch.assignments import Dispatch, assignment
from multikueue.api.constants import PartitionPolicy
from multikueue.api.remoteassignment import Intent
from multikueue.dispatch.hub.facts import Adoption
from multikueue.jobs.kinds.batch_job import BATCH_JOB

MINIMUM = "kueue.x-k8s.io/job-min-parallelism"


def sent(admitted: int, *, adopts: Adoption | None = None) -> dict[str, Any]:
    """The spec of the assignment of a Job of three pods, for a worker with queues."""
    template = {"spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}}
    metadata = {"name": "j", "namespace": "team", "uid": "u", "annotations": {MINIMUM: "2"}}
    pod_sets = [{"name": "main", "count": 3, "minCount": 2, "template": template}]
    admission = {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": admitted}]}
    workload = {"metadata": {"name": "w", "namespace": "team", "uid": "v"}, "spec": {"podSets": pod_sets}}
    dispatch = Dispatch(
        workload=workload | {"status": {"admission": admission}},
        job={"metadata": metadata, "spec": {"parallelism": 3, "completions": 3, "template": template}},
        integration=BATCH_JOB,
        flavors={},
        origin="hub",
        manager_uid="m",
        epoch=1,
        lease_seconds=60,
        adopts=adopts,
    )
    spec: dict[str, Any] = assignment(dispatch, "east", policy=PartitionPolicy.FENCED, intent=Intent.RUN)["spec"]
    return spec


def sizes(spec: dict[str, Any]) -> tuple[int, str | None, int, int | None]:
    """Of the remote Job and its minimum, and of the Workload in the queue of the worker."""
    manifest, (pod_set,) = spec["job"]["manifest"], spec["workloadSpec"]["podSets"]
    minimum = manifest["metadata"]["annotations"].get(MINIMUM)
    return manifest["spec"]["parallelism"], minimum, pod_set["count"], pod_set.get("minCount")


@pytest.mark.parametrize(
    ("admitted", "want"),
    [
        pytest.param(2, (2, None, 2, None), id="as many pods as the hub has quota for, and no fewer"),
        pytest.param(3, (3, "2", 3, 2), id="all of them, or fewer if the worker has no more quota"),
    ],
)
def test_a_job_that_is_admitted_partly_is_sent_with_that_size(
    admitted: int, want: tuple[int, str | None, int, int | None]
) -> None:
    assert sizes(sent(admitted)) == want


def test_the_workload_that_a_kueue_has_sent_is_taken_over_with_its_own_size() -> None:
    adoption = Adoption(cluster="east", manager_uid="m", job_uid="j", epoch=1)
    assert sizes(sent(2, adopts=adoption))[2:] == (3, 2)
