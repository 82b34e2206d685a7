# SPDX-License-Identifier: Apache-2.0
"""Definitions on both servers, in force before a case begins."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.conformance.harness import Both, Exchange, Server

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OLD_GROUP: Final = "old.conformance.test"
PATIENCE: Final = 60.0
"""Seconds: pytest ends a test after two minutes, and the event loop of all tests of the folder with it."""


async def install(both: Both, *definitions: dict[str, Any]) -> None:
    """Create what is not there on both servers, and wait until each version is served."""
    await asyncio.gather(*(_install(server, definitions) for server in (both.embedded, both.real)))


async def _install(server: Server, definitions: tuple[dict[str, Any], ...]) -> None:
    async with asyncio.timeout(PATIENCE):
        for definition in definitions:
            await create(server, definition)
        for definition in definitions:
            spec = definition["spec"]
            for version in spec["versions"]:
                if version["served"]:
                    await served(server, f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}")


async def create(server: Server, definition: dict[str, Any]) -> None:
    """Create a definition that may be there already: a folder's fixtures run anew whenever xdist comes back to it.

    A request without an answer is repeated until the caller's timeout.
    """
    exchange = Exchange("POST", DEFINITIONS, definition)
    while not (found := await server.send(exchange)).status:
        await asyncio.sleep(0.05)
    if found.status not in (201, 409):
        raise AssertionError(f"{server.name}: {definition['metadata']['name']}: {found.body}")


async def served(server: Server, path: str) -> None:
    """Wait until a path lists; a request without an answer is repeated."""
    while True:
        if (await server.send(Exchange("GET", f"{path}?limit=1"))).status == 200:
            return
        await asyncio.sleep(0.05)


def without_conversion(definition: dict[str, Any]) -> dict[str, Any]:
    """The same definition, its objects the same in all versions."""
    return {**definition, "spec": {**definition["spec"], "conversion": {"strategy": "None"}}}


def old_version(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition's older version as a separate kind, so that no conversion is needed."""
    spec, names = definition["spec"], definition["spec"]["names"]
    version = {**spec["versions"][0], "storage": True}
    return {
        **definition,
        "metadata": {"name": f"{names['plural']}.{OLD_GROUP}"},
        "spec": {**spec, "group": OLD_GROUP, "versions": [version], "conversion": {"strategy": "None"}},
    }
