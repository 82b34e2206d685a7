# SPDX-License-Identifier: Apache-2.0
"""The ordinary faults of `docs/adr/0001`, on a real API server and the embedded one, or a faulty proxy in front."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from aiohttp import web

from devcluster.cluster import API_SERVER, Cluster
from multikueue.api.resource import CONFIG_MAPS, LEASES, NAMESPACES, SERVICE_ACCOUNTS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import ManualClock, SystemClock
from multikueue.core.keys import Key
from multikueue.kube import errors
from multikueue.kube.cache.informer import Informer
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.credentials import ClusterConfig
from multikueue.kube.rest.tls import Pem, TlsSource
from multikueue.kube.rest.tokens import FileToken
from multikueue.kube.runtime.leader import LeaderElector
from tests.support.faulty_proxy import http_proxy, tcp_proxy
from tests.support.stub_api import status_answer

FAST = Backoff(base=0.05, cap=0.5)


@pytest.fixture
async def namespace(api_server: Cluster) -> AsyncIterator[str]:
    name = f"ns-{uuid4().hex[:8]}"
    async with api_server.client() as client:
        await client.create(NAMESPACES, {"metadata": {"name": name}})
        yield name


async def put(client: KubeClient, namespace: str, name: str, **data: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    await client.apply(CONFIG_MAPS, name, body, namespace=namespace, manager="test")


async def until(check: Callable[[], bool], *, seconds: float = 15.0) -> None:
    with anyio.fail_after(seconds):
        while not check():
            await anyio.sleep(0.01)


@asynccontextmanager
async def following(config: ClusterConfig, namespace: str, **options: Any) -> AsyncIterator[Informer]:
    """An informer of the namespace's ConfigMaps that has synced."""
    async with KubeClient(config, idle_watch_seconds=1.0) as client, anyio.create_task_group() as tasks:
        informer = Informer(client, CONFIG_MAPS, namespace=namespace, backoff=FAST, **options)
        tasks.start_soon(informer.run)
        with anyio.fail_after(15):
            await informer.synced.wait()
        yield informer
        tasks.cancel_scope.cancel()


def has(informer: Informer, namespace: str, name: str) -> Callable[[], bool]:
    return lambda: Key(namespace, name) in informer.store


async def test_a_watch_that_is_cut_is_resumed_and_misses_nothing(api_server: Cluster, namespace: str) -> None:
    config = credentials.load(api_server.kubeconfig)
    async with tcp_proxy(api_server.server) as proxy, api_server.client() as direct:
        async with following(replace(config, server=proxy.url), namespace) as informer:
            await put(direct, namespace, "before")
            await until(has(informer, namespace, "before"))
            await proxy.refuse()
            await put(direct, namespace, "during")
            await direct.delete(CONFIG_MAPS, "before", namespace=namespace)
            await proxy.start()
            await until(has(informer, namespace, "during"))
            await until(lambda: not has(informer, namespace, "before")())


async def test_a_half_open_link_is_noticed_and_replaced(api_server: Cluster, namespace: str) -> None:
    config = credentials.load(api_server.kubeconfig)
    async with tcp_proxy(api_server.server) as proxy, api_server.client() as direct:
        async with following(replace(config, server=proxy.url), namespace) as informer:
            proxy.stall()
            await put(direct, namespace, "unseen")
            await until(lambda: not informer.connected)
            proxy.flow()
            await until(has(informer, namespace, "unseen"))


async def test_a_version_that_is_too_old_leads_to_a_new_list_with_synthetic_deletes(
    api_server: Cluster, namespace: str
) -> None:
    async with api_server.client() as client, anyio.create_task_group() as tasks:
        informer = Informer(client, CONFIG_MAPS, namespace=namespace, backoff=FAST)
        await put(client, namespace, "gone")
        await informer.relist()
        await client.delete(CONFIG_MAPS, "gone", namespace=namespace)
        informer._version = "1"  # as after a long sleep: the server answers 410
        tasks.start_soon(informer.run)
        await until(lambda: not has(informer, namespace, "gone")())
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param(429, "TooManyRequests", id="a server that sheds load is asked again"),
        pytest.param(500, "InternalError", id="a server that fails is asked again"),
        pytest.param(410, "Expired", id="a server that has forgotten is listed anew"),
    ],
)
async def test_a_fault_of_the_server_is_survived(api_server: Cluster, namespace: str, code: int, reason: str) -> None:
    left = 8

    async def fault(request: web.Request) -> web.StreamResponse | None:
        nonlocal left
        left -= 1
        return status_answer(code, reason, Retry_After="0") if left > 0 else None

    async with http_proxy(credentials.load(api_server.kubeconfig)) as proxy, api_server.client() as direct:
        proxy.fault = fault
        async with following(proxy.config(), namespace) as informer:
            left = 8
            await put(direct, namespace, f"after-{code}")
            await until(has(informer, namespace, f"after-{code}"))


async def test_a_slow_reply_ends_with_the_requests_own_timeout(api_server: Cluster) -> None:
    async def late(request: web.Request) -> web.StreamResponse | None:
        await anyio.sleep(30)
        return None

    async with http_proxy(credentials.load(api_server.kubeconfig)) as proxy:
        proxy.fault = late
        async with KubeClient(proxy.config()) as client:
            with pytest.raises(errors.Unreachable, match="POST"):
                await client.request("POST", "/api/v1/namespaces", body={}, timeout=0.2)


async def test_an_api_server_that_restarts_is_found_again(api_server: Cluster, namespace: str) -> None:
    async with api_server.client() as direct:
        async with following(credentials.load(api_server.kubeconfig), namespace) as informer:
            await put(direct, namespace, "before")
            await until(has(informer, namespace, "before"))
            await api_server.restart(API_SERVER)
            await put(direct, namespace, "after")
            await until(has(informer, namespace, "after"), seconds=30)
            assert has(informer, namespace, "before")()


async def test_a_rotated_token_is_used_after_the_old_one_was_refused(
    api_server: Cluster, namespace: str, tmp_path: Path
) -> None:
    async with api_server.client() as admin:
        await admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": "agent"}}, namespace=namespace)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        path = SERVICE_ACCOUNTS.path(namespace, "agent", "token")
        token = (await admin.request("POST", path, body=request)).json()["status"]["token"]
    file = tmp_path / "token"
    file.write_text("expired")
    config = ClusterConfig(
        name="real", server=api_server.server, tls=TlsSource(authority=Pem(api_server.ca)), tokens=FileToken(file)
    )
    whoami = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with KubeClient(config) as client:
        with pytest.raises(errors.Unauthorized):
            await client.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=whoami)
        file.write_text(token)  # within the time for which the old one is kept: only the 401 makes it look
        answer = await client.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=whoami)
    assert answer.json()["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:agent"


def elector(client: KubeClient, namespace: str, identity: str, clock: ManualClock | SystemClock) -> LeaderElector:
    return LeaderElector(
        client,
        namespace=namespace,
        name="lock",
        identity=identity,
        lease_seconds=1.5,
        renew_seconds=1.0,
        retry_seconds=0.1,
        clock=clock,
    )


async def test_a_stolen_lease_ends_the_work(api_server: Cluster, namespace: str) -> None:
    started, ended = anyio.Event(), anyio.Event()

    async def lead() -> None:
        started.set()
        await anyio.sleep_forever()

    async with api_server.client() as client, anyio.create_task_group() as tasks:

        async def run() -> None:
            await elector(client, namespace, "one", SystemClock()).run(lead)
            ended.set()

        tasks.start_soon(run)
        with anyio.fail_after(10):
            await started.wait()
            theft = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 15}}
            await client.patch(LEASES, "lock", theft, namespace=namespace)
            await ended.wait()
        lease = await client.get_object(LEASES, "lock", namespace=namespace)
        assert lease["spec"]["holderIdentity"] == "thief"
        tasks.cancel_scope.cancel()


class JumpingClock(SystemClock):
    """A machine whose wall clock is set while it runs; durations are not touched."""

    def __init__(self) -> None:
        self.offset = timedelta()

    def now(self):  # type: ignore[no-untyped-def]
        return super().now() + self.offset


async def test_a_clock_that_jumps_neither_ends_nor_steals_a_leadership(api_server: Cluster, namespace: str) -> None:
    clock = JumpingClock()
    leading: list[str] = []

    def work(name: str) -> Callable[[], Any]:
        async def lead() -> None:
            leading.append(name)
            await anyio.sleep_forever()

        return lead

    async with api_server.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(elector(client, namespace, "one", clock).run, work("one"))
        await until(lambda: leading == ["one"])
        tasks.start_soon(elector(client, namespace, "two", SystemClock()).run, work("two"))
        for hours in (9, -9, 100):
            clock.offset = timedelta(hours=hours)
            await anyio.sleep(0.7)
        assert leading == ["one"]
        tasks.cancel_scope.cancel()
