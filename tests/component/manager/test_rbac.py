# SPDX-License-Identifier: Apache-2.0
"""The role in deploy/rbac is enough: a manager that has nothing else installs its webhooks and admits a Job."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from devcluster.cluster import Cluster
from multikueue.api.codec import documents
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    EVENTS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import (
    condition,
    eventually,
    finish_pods,
    get,
    make_job,
    make_namespace,
    make_queue,
    running_manager,
    wait_condition,
)

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

RBAC = Path(__file__).parents[3] / "deploy" / "rbac"
RESOURCES = {
    found.kind: found for found in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS)
}
MANAGER = "system:serviceaccount:kueue-system:kueue-controller-manager"


async def test_the_manager_needs_no_more_than_its_role(hub: Cluster, client: KubeClient) -> None:
    await make_namespace(client, "kueue-system")
    for manifest in ("manager.yaml", "users.yaml"):
        for obj in documents((RBAC / manifest).read_text()):
            metadata = obj["metadata"]
            await client.apply(
                RESOURCES[obj["kind"]], metadata["name"], obj, namespace=metadata.get("namespace"), manager="test"
            )
    async with running_manager(hub, user=MANAGER, leader_election=False):
        await make_queue(client, "narrow", namespace="team-narrow")
        await eventually(
            lambda: get(client, CLUSTER_QUEUES, "narrow"),
            what="the queue is active",
            until=lambda seen: condition(seen, "Active").get("status") == "True",
        )
        await make_job(client, "j", namespace="team-narrow", queue="narrow")
        await wait_condition(client, "j", "Admitted", namespace="team-narrow")
        await eventually(lambda: finish_pods(client, "j", namespace="team-narrow"), what="a pod to end")
        await wait_condition(client, "j", "Finished", namespace="team-narrow")

        async def reasons() -> set[str]:
            page = await client.list_all(EVENTS, namespace="team-narrow")
            return {orjson.loads(raw)["reason"] for raw in page.items}

        wanted = {"CreatedWorkload", "QuotaReserved", "Admitted", "Started", "FinishedWorkload"}
        await eventually(reasons, what="events of all steps", until=lambda seen: wanted <= seen)
