# SPDX-License-Identifier: Apache-2.0
"""One cluster in the test with its controllers, two virtual nodes, the job kinds, and operators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import orjson

from devcluster.controllers.app import Controllers
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from multikueue.api.objects import JsonObject
from multikueue.api.resource import SERVICE_ACCOUNTS, Resource
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.in_process import InProcessCluster
from tests.support.crds import kinds
from tests.support.operators.operator import Operator, operating

_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Playground:
    """The cluster."""

    client: KubeClient

    async def create(self, resource: Resource, body: JsonObject) -> None:
        """Create an object in the namespace default."""
        await self.client.create(resource, body, namespace="default")

    async def change(self, resource: Resource, name: str, body: JsonObject) -> None:
        """Change an object by a merge patch."""
        await self.client.patch(resource, name, body, namespace="default")

    async def get(self, resource: Resource, name: str) -> JsonObject:
        """The object."""
        return await self.client.get_object(resource, name, namespace="default")

    async def listed(self, resource: Resource) -> list[JsonObject]:
        """The objects of the namespace default, by name."""
        page = await self.client.list_all(resource, namespace="default")
        found = [orjson.loads(raw) for raw in page.items]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait for it."""
        with anyio.move_on_after(_SECONDS):
            while not await holds():
                await anyio.sleep(0.02)
            return
        raise AssertionError(f"never {what}")

    async def status(self, resource: Resource, name: str, what: str, holds: Callable[[JsonObject], bool]) -> JsonObject:
        """Wait for a status, and return it."""
        seen: JsonObject = {}

        async def check() -> bool:
            seen.clear()
            seen.update((await self.get(resource, name)).get("status") or {})
            return holds(seen)

        try:
            await self.until(what, check)
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen}") from None
        return seen


@asynccontextmanager
async def playground(*operators: Callable[[KubeClient], Operator]) -> AsyncIterator[Playground]:
    """The cluster with these operators, whose kinds are installed."""
    cluster = InProcessCluster("worker")
    async with cluster.listener, cluster.client() as client, anyio.create_task_group() as tasks:
        made = Playground(client)
        tasks.start_soon(Controllers(client).run)
        tasks.start_soon(VirtualNodes(client, nodes=several(2)).run)
        running = [operator(client) for operator in operators]
        await kinds.install(client, *(each.resource for each in running))

        async def has_account() -> bool:
            try:
                await client.get(SERVICE_ACCOUNTS, "default", namespace="default")
            except NotFound:
                return False
            return True

        await made.until("with an account", has_account)
        async with operating(*running):
            yield made
        tasks.cancel_scope.cancel()
