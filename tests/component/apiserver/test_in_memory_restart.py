# SPDX-License-Identifier: Apache-2.0
"""An API server that keeps objects in memory only and is started again: its former clients find that out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import orjson

from devcluster.pki import new_key, write_private
from devcluster.ports import PortRegistry

MAPS = "/api/v1/namespaces/default/configmaps"


@asynccontextmanager
async def server(*, key: Path, port: int) -> AsyncIterator[str]:
    """A server process without a data file, and its address."""
    command = ["-m", "devcluster.apiserver", "--signing-key", str(key), "--port", str(port)]
    child = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    try:
        async with asyncio.timeout(30):
            yield (await child.stdout.readline()).decode().strip()
    finally:
        child.terminate()
        await child.wait()


async def test_a_watch_that_the_former_process_served_lists_again(tmp_path: Path) -> None:
    key = tmp_path / "key"
    write_private(key, new_key())
    with PortRegistry() as ports:
        port = ports.take()
        async with server(key=key, port=port) as url, aiohttp.ClientSession(url) as session:
            for index in range(5):
                made = await session.post(MAPS, json={"metadata": {"name": f"map-{index}"}})
                seen = (await made.json())["metadata"]["resourceVersion"]
        async with server(key=key, port=port) as url, aiohttp.ClientSession(url) as session:
            watch = await session.get(MAPS, params={"watch": "true", "resourceVersion": seen})
            event = orjson.loads(await watch.content.readline())

    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
