# SPDX-License-Identifier: Apache-2.0
"""A management cluster that was lost is filled again also from clusters that the manager reaches itself (ADR 0010)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from manager.dispatch.controller import DispatchController
from manager.dispatch.transport.push_hosts import PushSettings
from multikueue.api.constants import DEFAULT_NAMESPACE, MANAGER_UID_ANNOTATION, MULTIKUEUE_MANAGED_BY
from multikueue.api.resource import CLUSTER_QUEUES, CLUSTER_REPORTS, JOBS, MULTIKUEUE_CLUSTERS
from multikueue.cli.cluster.recovering import RecoveredOrphans, RecoveryAction, recover
from multikueue.core.backoff import Backoff
from multikueue.core.errors import BadInput
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import QUICK
from tests.support.hubs import Hub, running_hub
from tests.support.jobs import finish_job, run_job
from tests.support.managers import (
    Object,
    condition,
    eventually,
    get,
    job_manifest,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)
from tests.support.push_workers import PushWorker, push_worker
from tests.support.workers import SCALED_DOWN, make_check

pytestmark = [pytest.mark.anyio, pytest.mark.conformance]

TEAM = "team"
WORKER = "one"
PUSH = PushSettings(intervals=QUICK, backoff=Backoff(base=0.2, cap=1.0), first_read_seconds=10.0)


@asynccontextmanager
async def managed(hub: Hub, client: KubeClient) -> AsyncIterator[None]:
    """A queue over the worker, and a manager that has reached it."""
    await make_check(client, TEAM, (WORKER,))
    await make_queue(client, TEAM, namespace=TEAM, cpu="64", checks=(TEAM,))
    dispatch = partial(DispatchController, push=PUSH)
    async with running_manager(hub.as_cluster, settings=SCALED_DOWN, webhooks=False, dispatch=dispatch):
        for resource, name in ((MULTIKUEUE_CLUSTERS, WORKER), (CLUSTER_QUEUES, TEAM)):
            await eventually(
                partial(get, client, resource, name),
                what=f"{resource.singular} {name} is active",
                until=lambda seen: condition(seen, "Active").get("status") == "True",
            )
        yield


@asynccontextmanager
async def rebuilt_after(*names: str) -> AsyncIterator[tuple[KubeClient, PushWorker, dict[str, Object]]]:
    """Jobs run on the worker when the hub is lost; gives a client of the empty one and the copies."""
    async with running_hub() as hub, hub.client() as client, push_worker(client, WORKER, namespace=TEAM) as worker:
        before = {}
        async with managed(hub, client):
            for name in names:
                manifest = job_manifest(name, namespace=TEAM, queue=TEAM, suspend=True)
                manifest["spec"]["managedBy"] = MULTIKUEUE_MANAGED_BY
                await client.create(JOBS, manifest, namespace=TEAM)
                before[name] = await copy_of(worker, name)
                await run_job(worker.client, name, namespace=TEAM)
                await wait_condition(client, name, "Admitted", namespace=TEAM)
        await hub.stop()
        await hub.start()
        await worker.enrol()
        async with managed(hub, client):
            yield client, worker, before


async def copy_of(worker: PushWorker, name: str) -> Object:
    found = await eventually(lambda: get(worker.client, JOBS, name, namespace=TEAM), what=f"{name} is on the worker")
    assert found is not None
    return found


async def asked(client: KubeClient, wanted: RecoveryAction, *, total: int) -> RecoveredOrphans:
    """What comes of asking, once the manager tells of as many copies."""
    await eventually(
        lambda: recover(client, WORKER, action=RecoveryAction.LIST),
        what=f"{total} copies are told of",
        until=lambda seen: len(seen.entries) == total,
    )
    return await recover(client, WORKER, action=wanted)


async def test_what_runs_on_a_push_cluster_is_gone_on_with_by_a_rebuilt_hub() -> None:
    async with rebuilt_after("lost", "another") as (client, worker, before):
        found = await asked(client, RecoveryAction.ADOPT, total=2)
        assert {entry["name"]: entry["action"] for entry in found.entries} == {"lost": "create", "another": "create"}
        for name, job in before.items():
            taken = await eventually(
                partial(get, worker.client, JOBS, name, namespace=TEAM),
                what=f"{name} is taken over",
                until=partial(_is_taken_over, job),
            )
            assert taken is not None
            assert taken["metadata"]["uid"] == job["metadata"]["uid"], "the very copy goes on"
            await finish_job(worker.client, name, namespace=TEAM)
            await wait_condition(client, name, "Finished", namespace=TEAM, reason="Succeeded")
            assert await workload_of(client, name, namespace=TEAM)
        assert (await asked(client, RecoveryAction.LIST, total=0)).entries == []
        assert await get(client, CLUSTER_REPORTS, WORKER, namespace=DEFAULT_NAMESPACE) is None, "nothing is left of it"


async def test_what_is_discarded_is_removed_from_a_push_cluster() -> None:
    async with rebuilt_after("lost") as (client, worker, _):
        found = await asked(client, RecoveryAction.DISCARD, total=1)
        assert [(entry["name"], entry["action"]) for entry in found.entries] == [("lost", "discard")]
        await worker.gone("lost", namespace=TEAM)


async def test_without_a_manager_there_is_no_answer_and_nothing_is_left() -> None:
    async with running_hub() as hub, hub.client() as client, push_worker(client, WORKER, namespace=TEAM):
        with pytest.raises(BadInput, match="cluster one: the manager did not reply within"):
            await recover(client, WORKER, action=RecoveryAction.LIST, patience=0.1)
        assert await get(client, CLUSTER_REPORTS, WORKER, namespace=DEFAULT_NAMESPACE) is None


def _is_taken_over(before: Object, seen: Object | None) -> bool:
    return _manager(seen) not in ("", _manager(before))


def _manager(job: Object | None) -> str:
    return str((job or {}).get("metadata", {}).get("annotations", {}).get(MANAGER_UID_ANNOTATION, ""))
