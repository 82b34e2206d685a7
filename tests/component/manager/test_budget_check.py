# SPDX-License-Identifier: Apache-2.0
"""The example of an admission check: its controller, with its rights, beside a manager."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from devcluster import manifests
from devcluster.cluster import Cluster
from multikueue.api.resource import ADMISSION_CHECKS, CLUSTER_QUEUES, CONFIG_MAPS, JOBS, WORKLOADS
from multikueue.core.backoff import Backoff
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.check_controllers import check_of
from tests.support.managers import (
    condition,
    connections_closed,
    eventually,
    get,
    is_true,
    make_job,
    running_manager,
    wait_condition,
    workload_of,
)
from tests.support.tenant_hubs import hub as hub

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[3] / "deploy" / "examples" / "budget-check"
TEAM = "budgeted"
ACCOUNT = f"system:serviceaccount:{TEAM}:budget-check"


def example() -> Any:
    """The module of the example, which is no package."""
    spec = importlib.util.spec_from_file_location("budget_check", FOLDER / "budget_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
async def client(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator, beside a manager."""
    async with connections_closed(), running_manager(hub), hub.client() as client:
        await manifests.apply_when_served(client, manifests.read(FOLDER))
        yield client


async def test_jobs_run_within_the_budget_of_their_namespace(hub: Cluster, client: KubeClient) -> None:
    queue = await eventually(
        lambda: get(client, CLUSTER_QUEUES, TEAM),
        what="it is looked at",
        until=lambda seen: bool(condition(seen, "Active")),
    )
    assert condition(queue, "Active")["reason"] == "AdmissionCheckInactive", "the controller does not run yet"
    own = KubeClient(credentials.from_dict(hub.issue_client_certificate(ACCOUNT)))
    async with own, anyio.create_task_group() as tasks:
        check = example().BudgetCheck(own, backoff=Backoff(base=1, factor=2, cap=4))
        tasks.start_soon(check.controller.run)
        await eventually(
            lambda: get(client, CLUSTER_QUEUES, TEAM), what="active", until=lambda seen: is_true(seen, "Active")
        )

        await make_job(client, "first", namespace=TEAM, queue="jobs", cpu="3")
        first = await wait_condition(client, "first", "Admitted", namespace=TEAM)
        assert check_of(first, "budget")["message"] == "3 of the budget of 4 CPUs are used"

        await make_job(client, "larger", namespace=TEAM, queue="jobs", cpu="5")
        larger = await wait_condition(
            client, "larger", "QuotaReserved", namespace=TEAM, status="False", reason="Deactivated"
        )
        assert "it requests 5 CPUs, and the budget is 4 in all" in condition(larger, "Evicted")["message"]

        await make_job(client, "second", namespace=TEAM, queue="jobs", cpu="2")

        async def retries() -> int:
            found = await workload_of(client, "second", namespace=TEAM)
            return int(check_of(found, "budget").get("retryCount") or 0)

        await eventually(retries, what="it is retried twice", until=lambda count: count >= 2)
        second = await workload_of(client, "second", namespace=TEAM)
        assert not is_true(second, "Admitted")
        assert "3 of the budget of 4 are used" in condition(second, "Evicted")["message"]

        await client.delete(JOBS, "first", namespace=TEAM, propagation="Background")
        second = await wait_condition(client, "second", "Admitted", namespace=TEAM)
        assert check_of(second, "budget")["message"] == "2 of the budget of 4 CPUs are used"

        await client.patch(CONFIG_MAPS, "budget", {"data": {"cpu": "8"}}, namespace=TEAM)
        name = larger["metadata"]["name"]
        await client.patch(WORKLOADS, name, {"spec": {"active": True}}, namespace=TEAM)
        larger = await wait_condition(client, "larger", "Admitted", namespace=TEAM)
        assert check_of(larger, "budget")["message"] == "7 of the budget of 8 CPUs are used"

        active = condition(await get(client, ADMISSION_CHECKS, "budget"), "Active")
        assert (active["status"], active["observedGeneration"]) == ("True", 1)
        tasks.cancel_scope.cancel()
