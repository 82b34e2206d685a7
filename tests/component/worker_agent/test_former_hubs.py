# SPDX-License-Identifier: Apache-2.0
"""An agent of this version beside a hub whose definitions are of the version before."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import anyio
import pytest

from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.server import ApiServer
from multikueue.api.crds import manifests
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import CLUSTER_REPORTS, CUSTOM_RESOURCE_DEFINITIONS
from multikueue.dispatch.dispatchers.cluster_capacity import report_of
from tests.component.worker_agent.test_quotas import TEAM, client_of, scene
from tests.support.agents import QUICK
from tests.support.embedded import ADMIN, signing_key
from tests.support.managers import Object, eventually, get, make_namespace, make_queue
from worker_agent.app import Agent

pytestmark = pytest.mark.anyio


def former(definition: Object) -> Object:
    """The definition as it was before reports told of free quota."""
    made = deepcopy(definition)
    if made["metadata"]["name"].startswith(CLUSTER_REPORTS.plural):
        for version in made["spec"]["versions"]:
            status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
            del status["clusterQueues"]
            for field in ("clusterQueue", "reason"):
                del status["localQueues"]["items"]["properties"][field]
    return made


async def test_a_hub_of_the_former_version_takes_what_it_knows_of_a_report() -> None:
    api = ApiServer(signing_key=signing_key(), static_tokens={"own": ADMIN})
    async with scene() as worker, Listener(api) as listener, client_of(listener.url, "own") as hub:
        for definition in manifests():
            await hub.create(CUSTOM_RESOURCE_DEFINITIONS, former(definition))
        mailbox = mailbox_namespace("w")
        await make_namespace(hub, mailbox)
        body = {"apiVersion": CLUSTER_REPORTS.api_version, "kind": CLUSTER_REPORTS.kind, "metadata": {"name": "agent"}}
        await hub.create(CLUSTER_REPORTS, body, namespace=mailbox)
        await make_queue(worker.client, "batch", namespace=TEAM, cpu="4")
        agent = Agent(hub, worker.worker, cluster="w", intervals=QUICK, random=Random(1))

        async def told() -> Object:
            found = await get(hub, CLUSTER_REPORTS, "agent", namespace=mailbox)
            return (found or {}).get("status") or {}

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.run)
            status = await eventually(told, what="it has a report", until=lambda seen: bool(seen.get("localQueues")))
            tasks.cancel_scope.cancel()
        assert status["localQueues"] == [{"namespace": TEAM, "name": "batch", "active": True}]
        assert "clusterQueues" not in status
        read = report_of(status)
        assert read is not None
        assert read.engine == "kueue"
        assert [local.cluster_queue for local in read.local_queues.values()] == [""]
