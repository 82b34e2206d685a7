# SPDX-License-Identifier: Apache-2.0
"""kubectl, written in Go, with the streams of virtual pods: on the embedded API server and on a real one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

import anyio
import pytest

from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.binaries.release import Binaries
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.testing.plugin import binaries_provider
from tests.support.virtual_pods import VirtualPods, virtual_pods_apart

__all__ = ["binaries_provider"]

pytestmark = pytest.mark.binaries

_WAYS: Final[Mapping[str, Mapping[str, str]]] = {
    "WebSocket": {},
    "SPDY": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"},
}
ways = pytest.mark.parametrize("way", list(_WAYS))


class Kubectl:
    """The program, as the administrator of one cluster."""

    def __init__(self, program: Path, pods: VirtualPods) -> None:
        self.pods = pods
        self._command = [str(program), "--kubeconfig", str(pods.cluster.kubeconfig)]

    async def __call__(self, *arguments: str, way: str = "WebSocket", stdin: bytes = b"") -> CompletedProcess[bytes]:
        """What it prints."""
        environment = {**os.environ, **_WAYS[way]}
        with anyio.fail_after(30):
            return await anyio.run_process([*self._command, *arguments], input=stdin, check=False, env=environment)

    async def forwarded(self, pod: str, port: int, request: bytes, *, way: str) -> tuple[bytes, bytes]:
        """What a port of a pod answers, and what kubectl says of it."""
        environment = {**os.environ, **_WAYS[way]}
        command = [*self._command, "port-forward", "--address=127.0.0.1", f"pod/{pod}", f":{port}"]
        async with await anyio.open_process(command, env=environment, stderr=-2) as process:
            assert process.stdout is not None
            said = b""
            with anyio.fail_after(30):
                while b"\n" not in said:
                    said += await process.stdout.receive()
                local = int(said.split(b" -> ")[0].rpartition(b":")[2])
                async with await anyio.connect_tcp("127.0.0.1", local) as stream:
                    await stream.send(request)
                    answer = b""
                    try:
                        while True:
                            answer += await stream.receive()
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        pass
            process.terminate()
            with anyio.fail_after(30):
                while True:
                    try:
                        said += await process.stdout.receive()
                    except anyio.EndOfStream:
                        break
        return answer, said


@pytest.fixture(scope="module", params=["embedded", "binaries"])
async def kubectl(
    anyio_backend: str,
    request: pytest.FixtureRequest,
    kube_binaries: Binaries,
    binaries_provider: BinariesProvider,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Kubectl]:
    """kubectl and the pods `one` and `two`, which serve HTTP."""
    folder = tmp_path_factory.mktemp("streams")
    async with EmbeddedProvider(folder=folder) as embedded:
        provider = embedded if request.param == "embedded" else binaries_provider
        cluster = await provider.create("streams", folder=folder / "cluster", spec=ClusterSpec())
        async with cluster, virtual_pods_apart(cluster) as pods:
            await pods.make("one", "netexec")
            await pods.make("two", "netexec")
            yield Kubectl(kube_binaries.path("kubectl"), pods)


@ways
async def test_a_command_prints_on_both_outputs_and_ends_with_its_code(kubectl: Kubectl, way: str) -> None:
    found = await kubectl("exec", "one", "--", "sh", "-c", "hostname; cat /nothing", way=way)
    assert (found.returncode, found.stdout) == (1, b"one\n")
    assert b"cat: /nothing: No such file" in found.stderr
    assert b"command terminated with exit code 1" in found.stderr


@ways
async def test_a_command_reads_what_it_is_sent_to_its_end(kubectl: Kubectl, way: str) -> None:
    sent = b"line\n" * 100_000
    found = await kubectl("exec", "-i", "one", "--", "cat", way=way, stdin=sent)
    assert (found.returncode, found.stdout) == (0, sent)


@ways
async def test_a_pod_reaches_another_by_its_address_and_by_a_service(kubectl: Kubectl, way: str) -> None:
    pods = kubectl.pods
    name = f"by-{way.lower()}"
    address = await pods.make(name, "netexec", "--http-port=9090")
    by_address = await kubectl("exec", "one", "--", "curl", "-sS", f"http://{address}:9090/hostname", way=way)
    assert (by_address.stdout, by_address.stderr) == (name.encode(), b"")
    missing = await kubectl("exec", "one", "--", "curl", "-sS", f"http://{address}:9091/", way=way)
    assert b"curl: (7) Failed to connect" in missing.stderr
    made = await kubectl("expose", "pod", name, "--port=80", "--target-port=9090")
    assert made.returncode == 0
    with anyio.fail_after(30):
        while True:
            by_name = await kubectl("exec", "one", "--", "wget", "-qO-", f"http://{name}.default.svc/hostname", way=way)
            if by_name.returncode == 0:
                break
    assert by_name.stdout == name.encode()


@ways
async def test_a_program_ends_with_the_code_that_another_pod_asks_for(kubectl: Kubectl, way: str) -> None:
    pods = kubectl.pods
    name = f"ends-{way.lower()}"
    address = await pods.make(name, "netexec")
    command = f'curl "http://{address}:8080/exit?code=3&timeout=2s&wait=100ms"'
    assert (await kubectl("exec", "one", "--", "/bin/sh", "-c", command, way=way)).returncode == 0
    ended = await pods.until(name, "Failed")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


@ways
async def test_a_port_is_forwarded_to_the_program_behind_it(kubectl: Kubectl, way: str) -> None:
    request = b"GET /echo?msg=%s HTTP/1.1\r\nHost: x\r\nConnection: %s\r\n\r\n"
    sent = request % (b"first", b"keep-alive") + request % (b"second", b"close")
    answer, _ = await kubectl.forwarded("one", 8080, sent, way=way)
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.endswith(b"second")


@ways
async def test_a_port_that_nothing_listens_on_is_refused_with_a_message(kubectl: Kubectl, way: str) -> None:
    answer, said = await kubectl.forwarded("one", 22, b"hello", way=way)
    assert answer == b""
    assert b"nothing in pod default/one listens on port 22" in said


async def test_an_attached_client_sees_the_program_to_its_end(kubectl: Kubectl) -> None:
    pods = kubectl.pods
    address = await pods.make("watched", "netexec")
    async with anyio.create_task_group() as tasks:

        async def end() -> None:
            await kubectl("exec", "one", "--", "curl", "-s", f"{address}:8080/exit?wait=1s&timeout=1s")

        tasks.start_soon(end)
        found = await kubectl("attach", "watched")
    assert b"Started HTTP server on port 8080" in found.stdout
    assert found.returncode == 0


async def test_a_pod_of_a_known_program_ends_as_it_does_when_it_is_deleted(kubectl: Kubectl) -> None:
    pods = kubectl.pods
    await pods.make("serves", "netexec")
    logs = await kubectl("logs", "serves")
    assert logs.stdout == b"Started HTTP server on port 8080\n"
    assert (await kubectl("delete", "pod", "serves", "--wait")).returncode == 0
