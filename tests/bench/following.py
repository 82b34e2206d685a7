# SPDX-License-Identifier: Apache-2.0
"""The objects of a namespace as a watch shows them, for the benches that time what happens to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from anyio.abc import TaskGroup

from multikueue.api.resource import Resource
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.watch import BOOKMARK, DELETED


async def follow(
    tasks: TaskGroup,
    client: KubeClient,
    resource: Resource,
    *,
    namespace: str,
    see: Callable[[dict[str, Any]], None],
    see_deleted: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Call `see` with each object that changes from now on, in a task of `tasks`; what is there is not shown.

    One that is deleted goes to `see_deleted`, or to `see` as the others.
    """
    listed = await client.list_page(resource, namespace=namespace, limit=1)

    async def watch() -> None:
        version = listed.resource_version
        while True:
            async for event in client.watch(resource, namespace=namespace, resource_version=version):
                obj = orjson.loads(event.raw)
                version = obj["metadata"]["resourceVersion"]
                if event.type == DELETED and see_deleted is not None:
                    see_deleted(obj)
                elif event.type != BOOKMARK:
                    see(obj)

    tasks.start_soon(watch)
