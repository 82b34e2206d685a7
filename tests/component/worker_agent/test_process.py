# SPDX-License-Identifier: Apache-2.0
"""The agent as a process: probes, metrics, waiting for a hub, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import anyio
import orjson
import pytest

from devcluster import kubeconfigs
from devcluster.cluster import Cluster
from devcluster.federation.enrolment import agent_user
from multikueue.api.constants import AGENT_GROUP
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import make_mailbox
from tests.support.managers import eventually, free_port

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

NAME = "process"


@contextmanager
def agent_process(cluster: Cluster, folder: Path, port: int, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    hub = folder / "hub.kubeconfig"
    kubeconfigs.write(cluster.issue_client_certificate(agent_user(NAME), [AGENT_GROUP]), hub)
    command = [sys.executable, "-m", "worker_agent", "--cluster", NAME, "--hub-kubeconfig", str(hub)]
    command += ["--kubeconfig", str(cluster.kubeconfig), "--health-bind", f"127.0.0.1:{port}", *more]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def answer(port: int, path: str) -> tuple[int, str]:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
            return response.status, await response.text()
    except aiohttp.ClientError:
        return 0, ""


async def ended(process: subprocess.Popen[bytes]) -> int | None:
    return process.poll()


async def test_it_waits_for_its_mailbox_serves_it_and_ends_in_order(
    cluster: Cluster, client: KubeClient, tmp_path: Path
) -> None:
    port = free_port()
    with agent_process(cluster, tmp_path, port) as process:
        await eventually(
            lambda: answer(port, "/readyz"),
            what="it says that it has no mailbox",
            until=lambda seen: seen[0] == 500 and "the mailbox has not been read yet" in seen[1],
        )
        assert await answer(port, "/healthz") == (200, "ok")
        await make_mailbox(client, NAME)
        await eventually(lambda: answer(port, "/readyz"), what="it is ready", until=lambda seen: seen == (200, "ok"))
        _, metrics = await answer(port, "/metrics")
        assert "multikueue_agent_lease_valid 1.0" in metrics
        assert 'multikueue_agent_requests_total{cluster="hub",resource="remoteassignments"' in metrics

        process.send_signal(signal.SIGTERM)
        await eventually(lambda: ended(process), what="it ends", until=lambda code: code is not None)
        assert process.returncode == 0
    lines = [orjson.loads(line) for line in (tmp_path / "log").read_bytes().splitlines()]
    assert (lines[-1]["msg"], lines[-1]["signal"]) == ("stopping; running jobs are left as they are", "SIGTERM")
    assert {line["cluster"] for line in lines} == {NAME}


async def test_a_port_in_use_is_one_line_of_error(cluster: Cluster, tmp_path: Path) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener:
        with agent_process(cluster, tmp_path, port) as process:
            code = await eventually(
                lambda: ended(process), what="it gives up", deadline=15, until=lambda seen: seen is not None
            )
    assert code == 1
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line == f"mk-worker-agent: cannot listen on 127.0.0.1:{port}: the port is in use; stop what listens there"


async def test_a_kubeconfig_that_is_missing_is_one_line_of_error(cluster: Cluster, tmp_path: Path) -> None:
    with agent_process(cluster, tmp_path, free_port(), "--kubeconfig", str(tmp_path / "none")) as process:
        await eventually(lambda: ended(process), what="it gives up", deadline=15, until=lambda seen: seen is not None)
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.startswith("mk-worker-agent: ")
    assert "none" in line
