# SPDX-License-Identifier: Apache-2.0
"""A server that is killed at any moment has, when it is back, everything that it acknowledged."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from devcluster.pki import new_key

MAPS = "/api/v1/namespaces/default/configmaps"
WRITERS = 4
ROUNDS = 4
MERGE = {"Content-Type": "application/merge-patch+json"}


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A server process on the folder's data, and its address."""
    command = ["-m", "devcluster.apiserver", "--signing-key", str(folder / "key")]
    child = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--data", str(folder / "data.sqlite"), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(30):
            yield child, (await child.stdout.readline()).decode().strip()
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.stdout.read()
        await child.wait()
        child._transport.close()  # type: ignore[attr-defined]


@dataclass
class Writer:
    """One client with names of its own: what the server has acknowledged, and what is on its way."""

    name: str
    rng: random.Random
    kept: dict[str, str] = field(default_factory=dict)
    """Name to content; everything else does not exist."""
    flying: tuple[str, str | None] | None = None
    """Name and content (None for a removal) of the write that has not been answered."""
    versions: list[int] = field(default_factory=list)

    async def write(self, session: aiohttp.ClientSession) -> None:
        """Write until the server is gone."""
        count = 0
        while True:
            count += 1
            name = f"{self.name}-{self.rng.randrange(12)}"
            content = f"{count}-{self.rng.random()}"
            if name not in self.kept:
                self.flying = (name, content)
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": content}}
                await self.send(session, "POST", MAPS, body)
            elif self.rng.random() < 0.3:
                self.flying = (name, None)
                await self.send(session, "DELETE", f"{MAPS}/{name}", None)
            else:
                self.flying = (name, content)
                await self.send(session, "PATCH", f"{MAPS}/{name}", {"data": {"x": content}})

    async def send(self, session: aiohttp.ClientSession, method: str, path: str, body: Any) -> None:
        headers = MERGE if method == "PATCH" else None
        async with session.request(method, path, json=body, headers=headers) as response:
            found = await response.json()
            assert response.status in (200, 201), found
        assert self.flying is not None
        (name, content), self.flying = self.flying, None
        if content is None:
            del self.kept[name]
        else:
            self.kept[name] = content
            self.versions.append(int(found["metadata"]["resourceVersion"]))

    def settle(self, there: dict[str, str]) -> None:
        """What is there must be what was acknowledged; the write on its way may have happened or not."""
        mine = {name: content for name, content in there.items() if name.startswith(f"{self.name}-")}
        if mine != self.kept:
            assert self.flying is not None, (mine, self.kept)
            name, content = self.flying
            after = {key: value for key, value in self.kept.items() if key != name}
            if content is not None:
                after[name] = content
            assert mine == after
        self.kept, self.flying = mine, None


async def test_a_server_that_is_killed_while_it_writes_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(new_key())
    rng = random.Random(7)
    writers = [Writer(f"w{number}", random.Random(number)) for number in range(WRITERS)]
    newest = 0
    for _ in range(ROUNDS):
        async with server(tmp_path) as (child, url), aiohttp.ClientSession(url) as session:
            async with session.get(MAPS) as response:
                listed = await response.json()
            there = {item["metadata"]["name"]: item["data"]["x"] for item in listed["items"]}
            assert int(listed["metadata"]["resourceVersion"]) >= newest
            for writer in writers:
                writer.settle(there)
                writer.versions.clear()
            writing = [asyncio.create_task(writer.write(session)) for writer in writers]
            await asyncio.sleep(0.05 + 0.3 * rng.random())
            child.send_signal(signal.SIGKILL)
            for ended in await asyncio.gather(*writing, return_exceptions=True):
                assert isinstance(ended, aiohttp.ClientError), ended
        versions = [version for writer in writers for version in writer.versions]
        assert len(versions) > WRITERS
        assert len(versions) == len(set(versions))
        assert all(writer.versions == sorted(writer.versions) for writer in writers)
        assert min(versions) > newest
        newest = max(versions)
