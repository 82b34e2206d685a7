# SPDX-License-Identifier: Apache-2.0
"""A Workload whose job is gone, while nobody collects garbage."""

from __future__ import annotations

import pytest

from multikueue.api.resource import JOBS, WORKLOADS
from multikueue.devcluster.cluster import Cluster
from multikueue.kube.client import KubeClient
from tests.support.managers import (
    condition,
    eventually,
    get,
    is_true,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

_COLLECTOR = "controller-manager"


async def test_a_workload_whose_job_went_while_nobody_managed_is_removed(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub):
        await make_queue(client, "gone", namespace="team-gone")
        await make_job(client, "gone", namespace="team-gone", queue="gone")
        await wait_condition(client, "gone", "Admitted", namespace="team-gone")
    workload = await workload_of(client, "gone", namespace="team-gone")
    assert workload is not None
    name = workload["metadata"]["name"]
    hub.pause(_COLLECTOR)
    try:
        await client.delete(JOBS, "gone", namespace="team-gone", propagation="Background")
        async with running_manager(hub):
            await eventually(
                lambda: get(client, WORKLOADS, name, namespace="team-gone"),
                what="the workload is gone",
                until=lambda seen: seen is None,
            )
    finally:
        hub.resume(_COLLECTOR)


async def test_a_workload_that_outlives_its_job_on_purpose_is_left_alone(hub: Cluster, client: KubeClient) -> None:
    hub.pause(_COLLECTOR)
    try:
        async with running_manager(hub):
            await make_queue(client, "kept", namespace="team-kept")
            await make_job(client, "kept", namespace="team-kept", queue="kept")
            await wait_condition(client, "kept", "Admitted", namespace="team-kept")
            workload = await workload_of(client, "kept", namespace="team-kept")
            assert workload is not None
            name = workload["metadata"]["name"]
            # As the collector orphans it: the owner is taken off before the job goes.
            await client.patch(WORKLOADS, name, {"metadata": {"ownerReferences": None}}, namespace="team-kept")
            await client.delete(JOBS, "kept", namespace="team-kept", propagation="Background")
            left = await eventually(
                lambda: get(client, WORKLOADS, name, namespace="team-kept"),
                what="the workload is told that nobody owns it, or is gone",
                until=lambda seen: seen is None or is_true(seen, "Finished"),
            )
            assert left is not None
            assert condition(left, "Finished")["reason"] == "OwnerNotFound"
    finally:
        hub.resume(_COLLECTOR)
