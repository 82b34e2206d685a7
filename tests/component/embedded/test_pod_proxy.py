# SPDX-License-Identifier: Apache-2.0
"""Proxies of pods and services on an embedded cluster; a real API server would dial addresses that lead nowhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.resource import SERVICES
from multikueue.kube.errors import ApiError, NotFound, ServiceUnavailable
from tests.support.virtual_pods import VirtualPods, virtual_pods_apart

NAMESPACE = "/api/v1/namespaces/default"


@pytest.fixture(scope="module")
async def pods(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VirtualPods]:
    """A cluster with the pod `one`."""
    folder = tmp_path_factory.mktemp("proxy")
    async with EmbeddedProvider(folder=folder) as provider:
        cluster = await provider.create("proxy", folder=folder / "cluster", spec=ClusterSpec())
        async with cluster, virtual_pods_apart(cluster) as made:
            await made.make("one", "netexec")
            yield made


async def ask(pods: VirtualPods, path: str, method: str = "GET") -> str:
    return (await pods.client.request(method, f"{NAMESPACE}/{path}")).body.decode()


@pytest.mark.parametrize("name", ["one:8080", "http:one:8080"])
async def test_a_program_answers_through_the_proxy_of_its_pod(pods: VirtualPods, name: str) -> None:
    assert await ask(pods, f"pods/{name}/proxy/hostname") == "one"
    assert await ask(pods, f"pods/{name}/proxy/echo?msg=a%26b") == "a&b"
    assert await ask(pods, f"pods/{name}/proxy/echo?msg=posted", "POST") == "posted"


async def test_the_status_of_a_program_is_that_of_the_answer(pods: VirtualPods) -> None:
    with pytest.raises(ApiError) as failed:
        await ask(pods, "pods/one:8080/proxy/echo?code=418")
    assert failed.value.status == 418


@pytest.mark.parametrize(
    ("path", "error", "says"),
    [
        ("pods/one:22/proxy/", ServiceUnavailable, "nothing in pod default/one listens on port 22"),
        ("pods/https:one:8080/proxy/", ServiceUnavailable, "speaks no TLS"),
        ("pods/one:http/proxy/", ApiError, "the port of a pod is a number"),
        ("pods/ftp:one:80/proxy/", ApiError, "invalid pod request"),
        ("pods/none:8080/proxy/", NotFound, 'pods "none" not found'),
        ("services/none:80/proxy/", NotFound, 'services "none" not found'),
    ],
)
async def test_what_no_program_answers_is_refused_with_the_reason(
    pods: VirtualPods, path: str, error: type[ApiError], says: str
) -> None:
    with pytest.raises(error) as refused:
        await ask(pods, path)
    assert says in str(refused.value)


async def test_a_program_ends_through_the_proxy(pods: VirtualPods) -> None:
    await pods.make("ends", "netexec")
    with pytest.raises(ServiceUnavailable, match=r"EOF|is not running"):  # a GET may be tried again
        await ask(pods, "pods/ends:8080/proxy/exit?code=0")
    await pods.until("ends", "Succeeded")


async def test_a_service_leads_to_a_ready_pod_by_number_and_name_of_its_port(pods: VirtualPods) -> None:
    ports = [{"name": "web", "port": 80, "targetPort": 8080}, {"name": "none", "port": 81, "targetPort": 9}]
    body: dict[str, Any] = {"metadata": {"name": "svc"}, "spec": {"selector": {"app": "one"}, "ports": ports}}
    await pods.client.create(SERVICES, {"apiVersion": "v1", "kind": "Service", **body}, namespace="default")
    with anyio.fail_after(30):
        while True:
            try:
                found = await ask(pods, "services/svc:80/proxy/hostname")
            except ServiceUnavailable:
                await anyio.sleep(0.05)
            else:
                break
    assert found == await ask(pods, "services/svc:web/proxy/hostname") == "one"
    with pytest.raises(ServiceUnavailable, match="no service port 7"):
        await ask(pods, "services/svc:7/proxy/")
    with pytest.raises(ServiceUnavailable, match="listens on port 9"):
        await ask(pods, "services/svc:none/proxy/")
