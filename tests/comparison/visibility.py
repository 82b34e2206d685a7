# SPDX-License-Identifier: Apache-2.0
"""The answers of a manager's visibility API as lines: pending workloads of queues, pages of them, and refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import aiohttp
import anyio
import orjson

from multikueue.api.resource import CLUSTER_QUEUES, LOCAL_QUEUES
from multikueue.kube.rest.client import KubeClient
from tests.comparison.courses.course import RESERVED_SECONDS
from tests.comparison.hub import NAMESPACE, ComparedHub
from tests.comparison.looks import Look
from tests.comparison.reader import reader_token
from tests.comparison.shown import comparable, leaves

_GROUP: Final = "visibility.kueue.x-k8s.io"
_VERSIONS: Final = ("v1beta1", "v1beta2")
_PATHS: Final = (
    "clusterqueues/q",
    "clusterqueues/none",
    f"namespaces/{NAMESPACE}/localqueues/q",
    f"namespaces/{NAMESPACE}/localqueues/r",
    f"namespaces/{NAMESPACE}/localqueues/none",
    "namespaces/none/localqueues/q",
)
_QUERIES: Final = ("", "?limit=1", "?limit=1&offset=1", "?offset=9", "?limit=0", "?limit=-1", "?limit=some")


async def pending_course(hub: ComparedHub) -> AsyncIterator[Look]:
    """Jobs of different priorities wait in two queues; one that cannot run is passed; the queue is held."""
    await hub.queue(cpu="2")
    await hub.make(LOCAL_QUEUES, "r", {"clusterQueue": "q"})
    yield Look("nothing waits")
    await hub.submit("a", cpu="2")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.submit("b", cpu="2", priority_class="low")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.submit("c", cpu="9", queue_name="r")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.submit("d", cpu="1", queue_name="r", priority_class="high")
    yield Look("three wait")
    await hub.activate("d", active=False)
    yield Look("one is deactivated")
    await hub.change(CLUSTER_QUEUES, "q", {"spec": {"stopPolicy": "Hold"}})
    yield Look("the queue is held")
    await hub.client.delete(LOCAL_QUEUES, "r", namespace=NAMESPACE)
    yield Look("a LocalQueue is deleted")


async def visibility_token(client: KubeClient) -> str:
    """The token of a service account that may read what waits."""
    queues = ["clusterqueues/pendingworkloads", "localqueues/pendingworkloads"]
    return await reader_token(client, [{"apiGroups": [_GROUP], "resources": queues, "verbs": ["get"]}])


async def pending(url: str, token: str) -> list[str]:
    """What is answered to each path, in each version."""
    found: list[str] = []
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for version in _VERSIONS:
            for path in _PATHS:
                for query in _QUERIES if path == "clusterqueues/q" else ("",):
                    asked = f"{version} {path}{query}"
                    full = f"{url}/apis/{_GROUP}/{version}/{path}/pendingworkloads{query}"
                    try:
                        async with session.get(full, ssl=False) as answer:
                            found.append(f"{asked}: {answer.status}")
                            body = orjson.loads(await answer.read())
                    except aiohttp.ServerDisconnectedError:
                        found.append(f"{asked}: no answer")
                        continue
                    found += (f"{asked}: {key}: {value}" for key, value in leaves(body))
    return [comparable(line) for line in found]
