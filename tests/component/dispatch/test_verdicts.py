# SPDX-License-Identifier: Apache-2.0
"""Why a cluster was chosen stands in its assignment, however often that had to be written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import orjson
import pytest

from devcluster.apiserver.http.audit import Audit
from devcluster.apiserver.http.faults import Fault, Faults
from devcluster.federation.spec import FederationSpec, several_workers
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import JOBS, REMOTE_ASSIGNMENTS, WORKLOADS
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.in_process import embedded_federation
from tests.support.managers import (
    eventually,
    job_manifest,
    make_job,
    make_namespace,
    make_queue,
    wait_condition,
)
from tests.support.workers import make_check

pytestmark = [pytest.mark.anyio]

NAMESPACE = "team"
WORKERS = several_workers(2)
NAMES = tuple(worker.name for worker in WORKERS)
_CREATED = f"/{REMOTE_ASSIGNMENTS.plural}"


async def assignments(hub: KubeClient) -> list[dict[str, Any]]:
    pages = [await hub.list_all(REMOTE_ASSIGNMENTS, namespace=mailbox_namespace(name)) for name in NAMES]
    return [orjson.loads(raw) for page in pages for raw in page.items]


async def nothing(hub: KubeClient) -> bool:
    return not await assignments(hub)


@asynccontextmanager
async def federation_of_two(
    configuration: dict[str, Any] | None = None, *, audit: Audit | None = None
) -> AsyncIterator[tuple[Faults, KubeClient]]:
    """Faults of the hub and its administrator; there is a queue `q`, and the hub knows the capacity of all clusters."""
    spec = FederationSpec(workers=WORKERS, configuration=configuration or {})
    async with embedded_federation(spec, audit=audit) as federation, federation.hub.client() as hub:
        for worker in federation.workers.values():
            async with worker.client() as client:
                await make_namespace(client, NAMESPACE)
        await make_check(hub, "check", NAMES)
        await make_queue(hub, "q", namespace=NAMESPACE, checks=("check",))
        await make_job(hub, "first", namespace=NAMESPACE, queue="q")
        await wait_condition(hub, "first", "Finished", namespace=NAMESPACE, reason="Succeeded")
        await eventually(partial(nothing, hub), what="its assignment is removed")
        yield federation.hub.listener.api.faults, hub


async def make_job_of_three_seconds(hub: KubeClient, name: str) -> None:
    given = job_manifest(name, namespace=NAMESPACE, queue="q")
    given["spec"]["template"]["metadata"] = {"annotations": {"multikueue.io/run-for": "3s"}}
    await hub.create(JOBS, given, namespace=NAMESPACE)


async def scores_are_sent(hub: KubeClient) -> None:
    (found,) = await eventually(lambda: assignments(hub), what="it is sent")
    verdicts = found["metadata"]["annotations"]["multikueue.io/verdicts"]
    assert all(f"{name}: score " in verdicts for name in NAMES)


@pytest.mark.parametrize("code", [409, 429, 500])
async def test_the_scores_are_in_an_assignment_whose_first_creations_failed(code: int) -> None:
    events: list[dict[str, Any]] = []

    async def failed() -> list[dict[str, Any]]:
        return [each for each in events if each["responseStatus"]["code"] == code and _CREATED in each["requestURI"]]

    async with federation_of_two(audit=events.append) as (faults, hub):
        faults.rules = [
            Fault(
                method="POST",
                path=f"/apis/{REMOTE_ASSIGNMENTS.api_version}/namespaces/{mailbox_namespace(name)}/remoteassignments",
                code=code,
            )
            for name in NAMES
        ]
        await make_job_of_three_seconds(hub, "j")
        await eventually(failed, what="its creation failed twice", until=lambda seen: len(seen) > 1)
        assert await assignments(hub) == []
        faults.rules = []
        await scores_are_sent(hub)


async def test_the_scores_are_in_an_assignment_whose_grant_took_long_to_write() -> None:
    # Garbage collection plans Workloads anew that are counted on a cluster and have no assignment.
    async with federation_of_two({"multiKueue": {"gcInterval": "50ms"}}) as (faults, hub):
        path = f"/apis/{WORKLOADS.api_version}/namespaces/{NAMESPACE}/workloads/"
        faults.rules = [Fault(method="PATCH", path=path, seconds=0.5)]
        await make_job_of_three_seconds(hub, "j")
        await scores_are_sent(hub)
