# SPDX-License-Identifier: Apache-2.0
"""The JobSet operator of tests behaves as the kind's controller where tests look."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from multikueue.api.objects import JsonObject
from multikueue.api.resource import JOBS, NODES, PODS
from multikueue.core.conditions import is_true_in
from tests.support.crds.kinds import JOB_SETS
from tests.support.operators.job_sets import CONTROLLER, JobSetOperator
from tests.support.operators.playground import Playground, playground
from tests.support.operators.samples import job_set, pod_template

# They test what tests use: not with each `make test`.
pytestmark = pytest.mark.conformance

QUICK = pod_template({"multikueue.io/run-for": "100ms"})
LONG = pod_template({"multikueue.io/run-for": "forever"}, terminationGracePeriodSeconds=0)
FAILING = pod_template({"multikueue.io/run-for": "50ms", "multikueue.io/exit-code": "1"})


def counts(status: JsonObject, name: str) -> list[tuple[Any, ...]]:
    """The count of each replicated job."""
    return [(each["name"], each[name]) for each in status.get("replicatedJobsStatus") or ()]


async def finished(cluster: Playground, condition: str) -> JsonObject:
    return await cluster.status(JOB_SETS, "set", condition, lambda status: is_true_in(status, condition))


async def test_a_job_set_makes_a_job_for_each_replica_and_completes_with_them() -> None:
    async with playground(JobSetOperator) as cluster:
        await cluster.create(JOB_SETS, job_set("set", QUICK))
        status = await finished(cluster, "Completed")
        assert counts(status, "succeeded") == [("leader", 1), ("workers", 2)]
        jobs = await cluster.listed(JOBS)
        assert [job["metadata"]["name"] for job in jobs] == ["set-leader-0", "set-workers-0", "set-workers-1"]
        labels = jobs[2]["spec"]["template"]["metadata"]["labels"]
        assert labels["jobset.sigs.k8s.io/replicatedjob-name"] == "workers"
        assert labels["jobset.sigs.k8s.io/job-index"] == "1"
        assert status["terminalState"] == "Completed"


async def test_a_suspended_job_set_has_suspended_jobs_and_resumes_with_its_new_node_selector() -> None:
    async with playground(JobSetOperator) as cluster:
        await cluster.create(JOB_SETS, job_set("set", LONG, suspend=True))
        status = await finished(cluster, "Suspended")
        assert counts(status, "ready") == [("leader", 0), ("workers", 0)]
        listed = (await cluster.client.list_all(NODES)).items
        node = {"kubernetes.io/hostname": orjson.loads(listed[0])["metadata"]["name"]}
        changed = job_set("set", pod_template({"multikueue.io/run-for": "forever"}, nodeSelector=node))
        await cluster.change(JOB_SETS, "set", {"spec": {**changed["spec"], "suspend": False}})
        await cluster.status(JOB_SETS, "set", "ready", lambda seen: counts(seen, "ready") == counts_of(1, 2))
        assert {tuple(pod["spec"]["nodeSelector"].items()) for pod in await cluster.listed(PODS)} == {
            tuple(node.items())
        }


async def test_a_running_job_set_is_suspended_and_resumed() -> None:
    async with playground(JobSetOperator) as cluster:
        await cluster.create(JOB_SETS, job_set("set", LONG))
        await cluster.status(JOB_SETS, "set", "ready", lambda seen: counts(seen, "ready") == counts_of(1, 2))
        await cluster.change(JOB_SETS, "set", {"spec": {"suspend": True}})
        status = await cluster.status(
            JOB_SETS, "set", "suspended", lambda seen: counts(seen, "suspended") == counts_of(1, 2)
        )
        assert is_true_in(status, "Suspended")

        async def empty() -> bool:
            return not await cluster.listed(PODS)

        await cluster.until("without pods", empty)
        await cluster.change(JOB_SETS, "set", {"spec": {"suspend": False}})
        status = await cluster.status(
            JOB_SETS, "set", "ready again", lambda seen: counts(seen, "ready") == counts_of(1, 2)
        )
        assert not is_true_in(status, "Suspended")


@pytest.mark.parametrize(
    ("restarts", "spec"),
    [
        pytest.param(0, {}, id="at the first failure"),
        pytest.param(1, {"failurePolicy": {"maxRestarts": 1}}, id="after as many restarts as its policy allows"),
    ],
)
async def test_a_job_set_fails(restarts: int, spec: JsonObject) -> None:
    async with playground(JobSetOperator) as cluster:
        await cluster.create(JOB_SETS, job_set("set", FAILING, **spec))
        status = await finished(cluster, "Failed")
        assert (status["restarts"], status["terminalState"]) == (restarts, "Failed")


async def test_a_job_set_succeeds_with_the_jobs_that_its_policy_names() -> None:
    policy = {"operator": "All", "targetReplicatedJobs": ["leader"]}
    made = job_set("set", LONG, successPolicy=policy)
    made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = QUICK
    async with playground(JobSetOperator) as cluster:
        await cluster.create(JOB_SETS, made)
        await finished(cluster, "Completed")

        async def cleaned() -> bool:
            return [job["metadata"]["name"] for job in await cluster.listed(JOBS)] == ["set-leader-0"]

        await cluster.until("without the other Jobs", cleaned)


async def test_a_job_set_of_another_controller_is_left_alone() -> None:
    async with playground(JobSetOperator) as cluster:
        await cluster.create(JOB_SETS, job_set("foreign", QUICK, managedBy="kueue.x-k8s.io/multikueue"))
        await cluster.create(JOB_SETS, job_set("set", QUICK, managedBy=CONTROLLER))
        await finished(cluster, "Completed")
        assert "status" not in await cluster.get(JOB_SETS, "foreign")
        assert all(job["metadata"]["name"].startswith("set-") for job in await cluster.listed(JOBS))


def counts_of(leader: int, workers: int) -> list[tuple[Any, ...]]:
    """What `counts` gives."""
    return [("leader", leader), ("workers", workers)]
