# SPDX-License-Identifier: Apache-2.0
"""Events about work that passes by the queues, on an embedded hub and on a real one."""

from __future__ import annotations

import orjson
import pytest

from devcluster.cluster import Cluster
from multikueue.api.constants import QUEUE_NAME_LABEL
from multikueue.api.resource import EVENTS, JOBS, PODS, SERVICE_ACCOUNTS
from multikueue.kube.rest.client import KubeClient
from tests.support.hubs import running_hub
from tests.support.managers import Object, ensure, eventually, job_manifest, make_namespace, make_queue, running_manager

pytestmark = pytest.mark.anyio


async def events(client: KubeClient, namespace: str) -> dict[str, str]:
    """The events about queues on each object, by its kind and name."""
    page = await client.list_all(EVENTS, namespace=namespace)
    found: list[Object] = [orjson.loads(raw) for raw in page.items]
    return {
        f"{each['regarding']['kind']}/{each['regarding']['name']}": each["reason"]
        for each in found
        if each["reason"].startswith("QueueName")
    }


async def hints(cluster: Cluster, client: KubeClient, *, queue: str) -> None:
    """A Job without a label and a Pod with one get an event; those in a namespace without a LocalQueue do not."""
    team, bare = f"team-{queue}", f"bare-{queue}"
    await make_namespace(client, bare)
    async with running_manager(cluster, webhooks=False):
        await make_queue(client, queue, namespace=team)
        for namespace in (bare, team):
            body = job_manifest("unlabelled", namespace=namespace, queue=None, suspend=True)
            await client.create(JOBS, body, namespace=namespace)
            account: Object = {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": namespace},
            }  # for a hub without controllers
            await ensure(client, SERVICE_ACCOUNTS, account)
            pod: Object = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "labelled", "namespace": namespace, "labels": {QUEUE_NAME_LABEL: queue}},
                "spec": {"containers": [{"name": "c", "image": "none"}]},
            }
            await client.create(PODS, pod, namespace=namespace)
        found = await eventually(
            lambda: events(client, team),
            what="both have an event",
            until=lambda seen: {"Job/unlabelled", "Pod/labelled"} <= seen.keys(),
        )
        assert found["Job/unlabelled"] == "QueueNameMissing"
        assert found["Pod/labelled"] == "QueueNameIgnored"
        assert await events(client, bare) == {}


async def test_work_that_is_not_queued_gets_an_event_from_an_embedded_hub() -> None:
    async with running_hub() as hub, hub.client() as client:
        await hints(hub.as_cluster, client, queue="hints")


@pytest.mark.binaries
async def test_work_that_is_not_queued_gets_an_event_from_a_real_hub(hub: Cluster, client: KubeClient) -> None:
    await hints(hub, client, queue="hints")
