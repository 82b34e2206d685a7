# SPDX-License-Identifier: Apache-2.0
"""Our runtime on the embedded server of the same event loop, whose own faults are injected by Python call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.http.requests import MASTERS, User
from devcluster.apiserver.server import ApiServer
from multikueue.api.resource import CONFIG_MAPS
from multikueue.core.backoff import Backoff
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Informer
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.credentials import ClusterConfig
from multikueue.kube.rest.tls import TlsSource
from multikueue.kube.rest.tokens import FixedToken
from tests.support.embedded import signing_key

FAST = Backoff(base=0.02, cap=0.2)
SPACE = "default"


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    users = {name: User(name, (MASTERS, "system:authenticated")) for name in ("one", "two")}
    async with Listener(ApiServer(signing_key=signing_key(), static_tokens=users)) as found:
        yield found


def client(listener: Listener, user: str) -> KubeClient:
    config = ClusterConfig(name="embedded", server=listener.url, tls=TlsSource(), tokens=FixedToken(user))
    return KubeClient(config, idle_watch_seconds=1.0)


@asynccontextmanager
async def following(listener: Listener, user: str = "one") -> AsyncIterator[Informer]:
    """An informer that has synced."""
    async with client(listener, user) as found, anyio.create_task_group() as tasks:
        informer = Informer(found, CONFIG_MAPS, namespace=SPACE, backoff=FAST)
        tasks.start_soon(informer.run)
        with anyio.fail_after(15):
            await informer.synced.wait()
        yield informer
        tasks.cancel_scope.cancel()


async def put(writer: KubeClient, name: str, **data: str) -> None:
    await writer.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": data}, namespace=SPACE)


async def until(check: Callable[[], bool]) -> None:
    with anyio.fail_after(15):
        while not check():
            await anyio.sleep(0.005)


def has(informer: Informer, name: str) -> Callable[[], bool]:
    return lambda: Key(SPACE, name) in informer.store


async def test_many_pages_are_listed_while_others_write(listener: Listener) -> None:
    async with client(listener, "two") as writer:
        for number in range(1_200):
            await put(writer, f"map-{number:04}")
        async with following(listener) as informer:
            await writer.delete(CONFIG_MAPS, "map-0700", namespace=SPACE)
            await put(writer, "new")
            await until(has(informer, "new"))
            assert len(list(informer.store.keys())) == 1_200
            assert not has(informer, "map-0700")()


async def test_a_cut_watch_continues_without_a_list(listener: Listener) -> None:
    async with following(listener) as informer, client(listener, "two") as writer:
        for number in range(5):
            listener.api.cut_watches(user="one")
            await put(writer, f"map-{number}")
        await until(lambda: all(has(informer, f"map-{number}")() for number in range(5)))


async def test_a_compaction_under_a_running_watch_leads_to_a_new_list(listener: Listener) -> None:
    async with client(listener, "two") as writer:
        await put(writer, "before")
        async with following(listener) as informer:
            listener.api.faults.rules = [Fault(user="one", drop=True)]
            await writer.delete(CONFIG_MAPS, "before", namespace=SPACE)
            await put(writer, "after")
            listener.api.compact()
            assert has(informer, "before")()
            listener.api.faults.rules = []
            await until(has(informer, "after"))
            assert not has(informer, "before")()


async def test_a_partition_of_one_client_leaves_the_other_alone_and_heals(listener: Listener) -> None:
    async with following(listener, "one") as cut_off, following(listener, "two") as other:
        listener.api.faults.rules = [Fault(user="one", hang=True)]
        async with client(listener, "two") as writer:
            await put(writer, "map")
        await until(has(other, "map"))
        await until(lambda: not cut_off.connected)
        assert not has(cut_off, "map")()
        listener.api.faults.rules = []
        await until(has(cut_off, "map"))


async def test_a_server_that_sheds_half_of_its_load_is_still_followed(listener: Listener) -> None:
    listener.api.faults.rules = [Fault(user="one", share=0.5, code=429, retry_after=0)]
    async with following(listener) as informer, client(listener, "two") as writer:
        await put(writer, "map")
        listener.api.cut_watches(user="one")
        await put(writer, "other")
        await until(lambda: has(informer, "map")() and has(informer, "other")())
