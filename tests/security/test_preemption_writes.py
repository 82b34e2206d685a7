# SPDX-License-Identifier: Apache-2.0
"""A preemption whose write fails: it is asked for again, and one that is refused for good does not block anybody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import orjson
import pytest

from devcluster.apiserver.http.faults import Fault
from manager.app import Manager
from multikueue.api.resource import EVENTS, WORKLOAD_PRIORITY_CLASSES
from multikueue.kube.rest.client import KubeClient
from tests.support.hubs import Hub, running_hub
from tests.support.managers import (
    condition,
    ensure,
    eventually,
    is_true,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)

pytestmark = pytest.mark.anyio

NAMESPACE = "team"
PRIORITY = "kueue.x-k8s.io/priority-class"


@asynccontextmanager
async def full_queue(*victims: str) -> AsyncIterator[tuple[Hub, KubeClient, Manager]]:
    """A hub whose one queue is full of jobs of low priority, and its manager."""
    async with running_hub() as hub, hub.client() as client:
        for name, value in (("low", 1), ("high", 1000)):
            priority = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": value}
            await ensure(client, WORKLOAD_PRIORITY_CLASSES, {**priority, "metadata": {"name": name}})
        preemption = {"withinClusterQueue": "LowerPriority"}
        await make_queue(client, "q", namespace=NAMESPACE, cpu=str(len(victims)), preemption=preemption)
        async with running_manager(hub.as_cluster, webhooks=False) as manager:
            for name in victims:
                await make_job(client, name, namespace=NAMESPACE, queue="q", labels={PRIORITY: "low"}, suspend=True)
                await wait_condition(client, name, "Admitted", namespace=NAMESPACE)
            yield hub, client, manager


async def status_path(client: KubeClient, job: str) -> str:
    """Where the status of its Workload is written."""
    found = await workload_of(client, job, namespace=NAMESPACE)
    assert found is not None
    name = found["metadata"]["name"]
    return f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads/{name}/status"


def status_writes(manager: Manager) -> int:
    """How many the manager has sent."""
    return manager.statuses.requests_sent["APPLY", "workloads/status"]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(code=409), id="with a conflict"),
        pytest.param(Fault(code=429, retry_after=0), id="because the server sheds load"),
        pytest.param(Fault(code=500), id="with an internal error"),
        pytest.param(Fault(drop=True), id="without an answer"),
    ],
)
async def test_an_eviction_that_fails_is_asked_for_again(fault: Fault) -> None:
    async with full_queue("small") as (hub, client, manager):
        rule = {"user": fault.user, "method": "PATCH", "path": await status_path(client, "small")}
        own = {"code": fault.code, "drop": fault.drop, "retry_after": fault.retry_after}
        hub.api.faults.rules = [Fault(**rule, **own)]  # type: ignore[arg-type]
        await make_job(client, "urgent", namespace=NAMESPACE, queue="q", labels={PRIORITY: "high"}, suspend=True)
        # The reason why `urgent` waits is written to it once its preemption was decided; the other writes fail.
        await wait_condition(client, "urgent", "QuotaReserved", namespace=NAMESPACE, status="False")
        before = status_writes(manager)
        if fault.code != 409:
            await eventually(partial(_more, manager, before), what="the eviction is written again")
        hub.api.faults.rules = []
        urgent = await wait_condition(client, "urgent", "Admitted", namespace=NAMESPACE)
        small = await workload_of(client, "small", namespace=NAMESPACE)
        assert condition(small, "Preempted")["reason"] == "InClusterQueue"
        assert small is not None
        assert [entry["count"] for entry in small["status"]["schedulingStats"]["evictions"]] == [1]
        assert is_true(urgent, "QuotaReserved")


async def _more(manager: Manager, before: int) -> bool:
    return status_writes(manager) > before


async def test_a_victim_whose_eviction_is_refused_is_reported_and_another_one_is_evicted() -> None:
    async with full_queue("first", "second") as (hub, client, _):
        # Of the same priority, the one that was admitted last goes first.
        hub.api.faults.rules = [Fault(method="PATCH", path=await status_path(client, "second"), code=422)]
        await make_job(client, "urgent", namespace=NAMESPACE, queue="q", labels={PRIORITY: "high"}, suspend=True)
        await wait_condition(client, "urgent", "Admitted", namespace=NAMESPACE)
        assert is_true(await workload_of(client, "first", namespace=NAMESPACE), "Preempted")
        assert is_true(await workload_of(client, "second", namespace=NAMESPACE), "Admitted")
        told = await eventually(partial(_refusals, client), what="both are told", until=lambda seen: len(seen) == 2)
        assert any(note.startswith("The API server refused its eviction for team/") for note in told)
        assert any("looking for other victims" in note for note in told)


async def _refusals(client: KubeClient) -> list[str]:
    page = await client.list_all(EVENTS, namespace=NAMESPACE)
    found = [orjson.loads(raw) for raw in page.items]
    return [event["note"] for event in found if event["reason"] == "WriteRefused"]
