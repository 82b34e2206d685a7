# SPDX-License-Identifier: Apache-2.0
"""The manager as a process: how it starts, what it prints when it cannot, and how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from devcluster.cluster import Cluster
from tests.support.managers import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

LISTEN = ("--metrics-bind=127.0.0.1:0", "--no-webhooks", "--no-leader-elect")


@contextmanager
def process(*flags: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m manager`, ended at the end whatever happens."""
    started = subprocess.Popen(
        [sys.executable, "-m", "manager", *flags], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait()
        assert started.stderr is not None
        started.stderr.close()


def failed(*flags: str) -> tuple[int, list[str]]:
    """Exit code and lines of a manager that cannot start."""
    with process(*flags) as started:
        _, errors = started.communicate(timeout=20)
        return started.returncode, errors.splitlines()


async def ready(port: int) -> None:
    """Wait until /readyz answers ok."""
    with anyio.fail_after(20):
        while True:
            try:
                async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                    await stream.send(b"GET /readyz HTTP/1.0\r\n\r\n")
                    if b" 200 " in await stream.receive():
                        return
            except (OSError, anyio.EndOfStream):
                pass
            await anyio.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
async def test_it_ends_in_good_order_on_a_signal(hub: Cluster, number: signal.Signals) -> None:
    port = free_port()
    with process(f"--kubeconfig={hub.kubeconfig}", f"--health-bind=127.0.0.1:{port}", *LISTEN) as started:
        await ready(port)
        started.send_signal(number)
        assert await anyio.to_thread.run_sync(started.wait) == 0


async def test_it_ends_as_well_when_the_cluster_cannot_be_reached(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        f"""
apiVersion: v1
kind: Config
current-context: gone
contexts: [{{name: gone, context: {{cluster: gone, user: nobody}}}}]
clusters: [{{name: gone, cluster: {{server: "https://127.0.0.1:{free_port()}"}}}}]
users: [{{name: nobody, user: {{token: x}}}}]
"""
    )
    with process(f"--kubeconfig={config}", "--health-bind=0", *LISTEN) as started:
        assert started.stderr is not None
        line = await anyio.to_thread.run_sync(started.stderr.readline)
        assert "management cluster not available, retrying error=gone: " in line
        started.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(started.wait) == 0


async def test_a_port_in_use_is_one_line_that_names_it(hub: Cluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, lines = failed(f"--kubeconfig={hub.kubeconfig}", f"--health-bind=127.0.0.1:{port}", *LISTEN)
    assert code == 1
    assert [line.split(": ", 1)[1] for line in lines] == [
        f"cannot listen on 127.0.0.1:{port}: the port is in use; stop what listens there"
    ]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("fairSharingg: {}", "fairSharingg", id="an unknown field"),
        pytest.param("integrations: {frameworks: [batch/jobb]}", "batch/jobb", id="an unknown framework"),
        pytest.param("a: [", "not YAML", id="text that is no YAML"),
    ],
)
def test_a_configuration_that_cannot_be_is_one_line_that_names_the_path(tmp_path: Path, text: str, want: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{text}\n")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        ' clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: a, user: {token: x}}]}'
    )
    code, lines = failed(f"--config={config}", f"--kubeconfig={kubeconfig}", "--health-bind=0", *LISTEN)
    assert code == 2
    assert want in lines[0]
    assert "Traceback" not in "".join(lines)


def test_a_kubeconfig_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    code, lines = failed(f"--kubeconfig={tmp_path / 'none'}", "--health-bind=0", *LISTEN)
    assert (code, len(lines)) == (2, 1)
    assert str(tmp_path / "none") in lines[0]
