# SPDX-License-Identifier: Apache-2.0
"""A Job in a ClusterQueue without admission checks: queued, admitted, started, finished on the management cluster."""

from __future__ import annotations

import pytest

from devcluster.cluster import Cluster
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import (
    condition,
    eventually,
    finish_pods,
    get,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
)

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]


async def test_a_job_is_admitted_runs_and_finishes_and_its_quota_comes_back(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub):
        await make_queue(client, "local", namespace="team-local")
        await eventually(
            lambda: get(client, CLUSTER_QUEUES, "local"),
            what="the queue is active",
            until=lambda queue: condition(queue, "Active").get("status") == "True",
        )

        job = await make_job(client, "hello", namespace="team-local", queue="local", cpu="2")
        assert job["spec"]["suspend"] is True, "the webhook suspends a job that names a queue"

        workload = await wait_condition(client, "hello", "Admitted", namespace="team-local")
        assert condition(workload, "QuotaReserved")["message"] == "Quota reserved in ClusterQueue local"
        assert workload["status"]["admission"]["podSetAssignments"] == [
            {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "2"}, "count": 1}
        ]
        await eventually(
            lambda: get(client, JOBS, "hello", namespace="team-local"),
            what="the job is started",
            until=lambda seen: seen is not None and seen["spec"]["suspend"] is False,
        )
        queue = await eventually(
            lambda: get(client, CLUSTER_QUEUES, "local"),
            what="the queue shows the admitted workload",
            until=lambda seen: seen is not None and seen["status"].get("admittedWorkloads") == 1,
        )
        assert queue is not None
        assert queue["status"]["flavorsUsage"][0]["resources"] == [{"name": "cpu", "total": "2", "borrowed": "0"}]

        await eventually(lambda: finish_pods(client, "hello", namespace="team-local"), what="a pod to end")
        workload = await wait_condition(client, "hello", "Finished", namespace="team-local")
        assert condition(workload, "Finished")["reason"] == "Succeeded"
        local_queue = await eventually(
            lambda: get(client, LOCAL_QUEUES, "local", namespace="team-local"),
            what="the quota is given back",
            until=lambda seen: seen is not None and seen["status"].get("reservingWorkloads") == 0,
        )
        assert local_queue is not None
        assert local_queue["status"]["flavorsUsage"][0]["resources"] == [{"name": "cpu", "total": "0"}]
