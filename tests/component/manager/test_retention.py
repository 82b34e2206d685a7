# SPDX-License-Identifier: Apache-2.0
"""What is removed when it has been over for long enough (`docs/spec/kueue-api.md §9`)."""

from __future__ import annotations

from typing import Final

import pytest

from multikueue.api.constants import MAX_EXEC_TIME_LABEL
from multikueue.api.resource import JOBS, WORKLOADS
from tests.support.hubs import running_hub
from tests.support.managers import (
    eventually,
    get,
    job_manifest,
    make_namespace,
    make_queue,
    running_manager,
    wait_condition,
)

pytestmark = pytest.mark.anyio

TEAM = "team"
SHORT: Final = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
objectRetentionPolicies: {workloads: {afterDeactivatedByKueue: 1s}}
"""


async def test_a_job_that_kueue_deactivated_is_deleted_and_one_of_its_user_is_kept() -> None:
    async with running_hub() as hub, hub.client() as client:
        await make_namespace(client, TEAM)
        await make_queue(client, TEAM, namespace=TEAM, cpu="64")
        async with running_manager(hub.as_cluster, settings=SHORT, webhooks=False):
            for name, labels in (("overdue", {MAX_EXEC_TIME_LABEL: "1"}), ("unwanted", {})):
                manifest = job_manifest(name, namespace=TEAM, queue=TEAM, labels=labels, suspend=True)
                await client.create(JOBS, manifest, namespace=TEAM)
            workload = await wait_condition(client, "unwanted", "Admitted", namespace=TEAM)
            await client.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}}, namespace=TEAM)
            await wait_condition(client, "unwanted", "Evicted", namespace=TEAM, reason="Deactivated")
            await eventually(
                lambda: get(client, JOBS, "overdue", namespace=TEAM),
                what="the overdue job is deleted",
                until=lambda seen: seen is None,
            )
            assert await get(client, JOBS, "unwanted", namespace=TEAM) is not None
