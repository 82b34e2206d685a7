# SPDX-License-Identifier: Apache-2.0
"""Whoever may exec, forward ports or use proxies on an embedded cluster reaches virtual pods and nothing else."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import anyio
import pytest
from yarl import URL

from devcluster.kubelet.kubelet_server import MAX_SESSIONS
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec
from devcluster.resources import ENDPOINT_SLICES
from multikueue.api.resource import NODES, SERVICE_ACCOUNTS, SERVICES, Resource
from tests.support.virtual_pods import VirtualPods, virtual_pods

_PODS: Final = "/api/v1/namespaces/default/pods"
_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles", True)
_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", True)
_COMMAND: Final = "v5.channel.k8s.io"
_FORWARD: Final = "v4.channel.k8s.io"


@dataclass
class Outsider:
    """A process of the machine that is no pod; counts who connects."""

    port: int = 0
    connections: list[str] = field(default_factory=list)


@pytest.fixture
async def outsider() -> AsyncIterator[Outsider]:
    """It listens on loopback."""
    found = Outsider()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections.append("a client")
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    await server.wait_closed()


@pytest.fixture
async def pods(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VirtualPods]:
    """A cluster with the pod `one`."""
    folder = tmp_path_factory.mktemp("access")
    async with EmbeddedProvider(folder=folder) as provider:
        cluster = await provider.create("access", folder=folder / "cluster", spec=ClusterSpec())
        async with cluster, virtual_pods(cluster) as made:
            await made.make("one", "netexec")
            yield made


class Tenant:
    """A service account with some rights in the namespace default."""

    def __init__(self, pods: VirtualPods, token: str, session: aiohttp.ClientSession, tls: ssl.SSLContext) -> None:
        self.server = pods.cluster.server
        self._token = token
        self.session = session
        self.tls = tls

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text of an answer; the path is sent as it is written."""
        async with self.session.get(
            URL(self.server + path, encoded=True), ssl=self.tls, headers=self.headers
        ) as answer:
            return answer.status, await answer.text()

    async def connect(self, path: str, protocol: str) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket. Raises `aiohttp.WSServerHandshakeError`."""
        return await self.session.ws_connect(
            self.server + path, protocols=[protocol], ssl=self.tls, headers=self.headers
        )

    async def run(self, *words: str) -> tuple[str, str]:
        """What a command in the pod `one` prints on both outputs."""
        query = "&".join(f"command={word}" for word in words)
        printed = {1: "", 2: ""}
        async with await self.connect(f"{_PODS}/one/exec?stdout=1&stderr=1&{query}", _COMMAND) as socket:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY and message.data[0] in printed:
                    printed[message.data[0]] += message.data[1:].decode()
        return printed[1], printed[2]

    @property
    def headers(self) -> dict[str, str]:
        """The credentials of a request."""
        return {"Authorization": f"Bearer {self._token}"}


async def tenant(pods: VirtualPods, session: aiohttp.ClientSession, *rights: tuple[str, str]) -> Tenant:
    """One who may do these verbs with these resources."""
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": [verb]} for verb, resource in rights]
    named = {"metadata": {"name": "tenant"}}
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
    for resource, more in (
        (SERVICE_ACCOUNTS, {}),
        (_ROLES, {"rules": rules}),
        (_BINDINGS, {"subjects": [subject], "roleRef": reference}),
    ):
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **named, **more}
        await pods.client.create(resource, body, namespace="default")
    path = f"{SERVICE_ACCOUNTS.path('default')}/tenant/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await pods.client.request("POST", path, body=asked)).json()["status"]["token"]
    return Tenant(pods, token, session, ssl.create_default_context(cadata=pods.cluster.ca.decode()))


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Connections of tenants."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as made:
        yield made
    await asyncio.sleep(0)


async def service_to(pods: VirtualPods, outsider: Outsider, **target: Any) -> None:
    """A Service whose slice names the outsider."""
    ports = [{"port": 80, "targetPort": outsider.port}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "svc"}, "spec": {"ports": ports}}
    await pods.client.create(SERVICES, service, namespace="default")
    made = {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": {"name": "svc-by-hand", "labels": {"kubernetes.io/service-name": "svc"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], **target}],
        "ports": [{"name": "", "port": outsider.port, "protocol": "TCP"}],
    }
    await pods.client.create(ENDPOINT_SLICES, made, namespace="default")


@pytest.mark.parametrize(
    "target",
    [
        pytest.param({}, id="an address alone"),
        pytest.param(
            {"targetRef": {"kind": "Pod", "name": "one", "namespace": "default"}}, id="a pod that has another"
        ),
    ],
)
async def test_a_proxy_of_a_service_reaches_no_process_that_is_no_pod(
    pods: VirtualPods, session: aiohttp.ClientSession, outsider: Outsider, target: dict[str, Any]
) -> None:
    who = await tenant(pods, session, ("get", "services/proxy"))
    await service_to(pods, outsider, **target)
    status, text = await who.get("/api/v1/namespaces/default/services/svc:80/proxy/")
    assert (status, "no endpoints available" in text, outsider.connections) == (503, True, [])


async def test_a_proxy_of_a_pod_reaches_only_its_programs(
    pods: VirtualPods, session: aiohttp.ClientSession, outsider: Outsider
) -> None:
    who = await tenant(pods, session, ("get", "pods/proxy"))
    status, text = await who.get(f"{_PODS}/one:{outsider.port}/proxy/")
    assert (status, "nothing in pod default/one listens" in text, outsider.connections) == (503, True, [])


@pytest.mark.parametrize(
    "path",
    [
        "/one:8080/proxy/../../../../../containerLogs/default/secret/c",
        "/one:8080/proxy/%2e%2e/%2e%2e/%2e%2e/%2e%2e/containerLogs/default/secret/c",
        "/one:8080%2f..%2f..%2f..%2f..%2fcontainerLogs%2fdefault%2fsecret%2fc/proxy/",
        "/one:8080/proxy/x%3f/../../containerLogs/default/secret/c",
    ],
)
async def test_a_path_behind_a_proxy_leads_to_nothing_else_of_the_kubelet(
    pods: VirtualPods, session: aiohttp.ClientSession, path: str
) -> None:
    await pods.make("secret", "entrypoint-tester", "confidential", phase="Succeeded")
    who = await tenant(pods, session, ("get", "pods/proxy"))
    status, text = await who.get(f"{_PODS}{path}")
    assert "confidential" not in text
    assert status in (200, 400, 403, 404)


async def test_a_command_reaches_no_process_that_is_no_pod(
    pods: VirtualPods, session: aiohttp.ClientSession, outsider: Outsider
) -> None:
    who = await tenant(pods, session, ("get", "pods/exec"), ("create", "pods/exec"))
    await service_to(pods, outsider)
    for host in (f"127.0.0.1:{outsider.port}", f"localhost:{outsider.port}", f"[::1]:{outsider.port}", "svc"):
        _, errors = await who.run("curl", "-sS", f"http://{host}/")
        assert "curl: (7)" in errors
    assert outsider.connections == []


async def test_a_forwarded_port_reaches_no_process_that_is_no_pod(
    pods: VirtualPods, session: aiohttp.ClientSession, outsider: Outsider
) -> None:
    who = await tenant(pods, session, ("get", "pods/portforward"), ("create", "pods/portforward"))
    async with await who.connect(f"{_PODS}/one/portforward?ports={outsider.port}", _FORWARD) as socket:
        heard = [await socket.receive_bytes() for _ in range(3)]
    assert b"nothing in pod default/one listens" in heard[2]
    assert outsider.connections == []


@pytest.mark.parametrize("what", ["exec?command=hostname&stdout=1", "attach?stdout=1", "portforward?ports=8080"])
async def test_who_may_only_get_a_stream_is_refused_it(
    pods: VirtualPods, session: aiohttp.ClientSession, what: str
) -> None:
    who = await tenant(pods, session, ("get", f"pods/{what.partition('?')[0]}"))
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await who.connect(f"{_PODS}/one/{what}", _FORWARD)
    assert refused.value.status == 403


async def test_a_kubelet_answers_only_the_api_server(pods: VirtualPods, session: aiohttp.ClientSession) -> None:
    node = await pods.client.get_object(NODES, "node-1")
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    url = f"https://127.0.0.1:{port}/containerLogs/default/one/c"
    bare = ssl.create_default_context(cadata=pods.cluster.ca.decode())
    with pytest.raises((aiohttp.ClientError, OSError)):
        await session.get(url, ssl=bare)
    known = ssl.create_default_context(cadata=pods.cluster.ca.decode())
    pki = pods.cluster.folder / "pki"
    known.load_cert_chain(pki / "kubelet.crt", pki / "kubelet.key")
    try:
        async with session.get(url, ssl=known) as answer:
            assert answer.status == 403
    except (aiohttp.ClientError, ssl.SSLError):
        return  # a certificate of a server is refused before anything is asked


async def test_input_that_is_not_read_ends_the_stream(pods: VirtualPods, session: aiohttp.ClientSession) -> None:
    who = await tenant(pods, session, ("get", "pods/exec"), ("create", "pods/exec"))
    path = f"{_PODS}/one/exec?stdin=1&stdout=1&command=sleep&command=600"
    async with await who.connect(path, _COMMAND) as socket:
        for _ in range(10):
            await socket.send_bytes(b"\0" + b"x" * 500_000)
        with anyio.fail_after(30):
            heard = await socket.receive()
    assert (heard.type, heard.data) == (aiohttp.WSMsgType.CLOSE, 1009)


async def test_very_many_streams_are_refused_until_some_end(pods: VirtualPods, session: aiohttp.ClientSession) -> None:
    who = await tenant(pods, session, ("get", "pods/exec"), ("create", "pods/exec"))
    path = f"{_PODS}/one/exec?stdout=1&command=sleep&command=600"
    open_ones = [await who.connect(path, _COMMAND) for _ in range(MAX_SESSIONS)]
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await who.connect(path, _COMMAND)
    assert refused.value.status == 429
    for socket in open_ones:
        await socket.close()
    with anyio.fail_after(30):
        while True:
            try:
                last = await who.connect(path, _COMMAND)
            except aiohttp.WSServerHandshakeError:
                await anyio.sleep(0.05)
            else:
                break
    await last.close()


@pytest.mark.parametrize("what", ["exec?stdout=1&command=true", "portforward?ports=x"])
async def test_after_a_refused_upgrade_the_connection_is_not_the_kubelets(
    pods: VirtualPods, session: aiohttp.ClientSession, what: str
) -> None:
    # Else a second request on it would be answered by the kubelet, which takes it for one of the API server.
    await pods.make("secret", "entrypoint-tester", "confidential", phase="Succeeded")
    resource = f"pods/{what.partition('?')[0]}"
    who = await tenant(pods, session, ("get", resource), ("create", resource))
    host, port = pods.cluster.server.removeprefix("https://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=who.tls)
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: none.of.these"
    bearer = f"Authorization: {who.headers['Authorization']}"
    writer.write(f"GET {_PODS}/one/{what} HTTP/1.1\r\nHost: x\r\n{bearer}\r\n{upgrade}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"GET /containerLogs/default/secret/c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    with anyio.fail_after(30):
        rest = await reader.read()
    writer.close()
    assert head.startswith(b"HTTP/1.1 400")
    assert b"confidential" not in rest


@pytest.mark.parametrize("what", ["exec?command=hostname&stdout=1", "portforward?ports=8080", "proxy/"])
async def test_a_node_whose_process_is_away_is_a_503_that_says_so(
    pods: VirtualPods, session: aiohttp.ClientSession, what: str
) -> None:
    resource = f"pods/{what.partition('?')[0].rstrip('/')}"
    who = await tenant(pods, session, ("get", resource), ("create", resource))
    pods.nodes.cancel()
    with anyio.fail_after(30):
        while True:
            status, text = await _upgrade(who, f"{_PODS}/{'one:8080' if what == 'proxy/' else 'one'}/{what}")
            if "does not answer; its process does not run" in text:
                break
            await anyio.sleep(0.05)
    assert status == 503


async def _upgrade(who: Tenant, path: str) -> tuple[int, str]:
    if path.endswith("/proxy/"):
        return await who.get(path)
    headers = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
    async with who.session.get(URL(who.server + path), ssl=who.tls, headers={**who.headers, **headers}) as answer:
        return answer.status, await answer.text()
