# SPDX-License-Identifier: Apache-2.0
"""A hub of real binaries with a manager, and a worker that joined it by the command that `mkctl` printed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import orjson
import pytest

from devcluster.cluster import Cluster
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from manager.dispatch.controller import DispatchController
from multikueue.api.crds import manifests
from multikueue.api.resource import NODES
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import binaries_provider
from tests.support.agents import make_node
from tests.support.managers import Object, connections_closed, eventually, make_namespace, make_queue, running_manager
from tests.support.workers import SCALED_DOWN, FakeWorker, make_check

__all__ = ["binaries_provider"]

NAMESPACE = "team"
ENTRY = "import sys; from multikueue.cli.main import main; sys.argv[0] = 'mkctl'; main()"


@dataclass(frozen=True)
class Joined:
    """The hub, the worker w1 that joined, and w2 of which only the hub knows."""

    hub: Cluster
    worker: Cluster
    admin: KubeClient
    folder: Path
    line: str

    @property
    def identity(self) -> Path:
        """The kubeconfig that w1's agent was given: what a thief would take."""
        return self.folder / "w1.hub"

    def thief(self) -> KubeClient:
        """The hub as w1's agent."""
        return KubeClient(credentials.load(self.identity))


async def mkctl(hub: Cluster, *arguments: str) -> str:
    """Standard output of `mkctl cluster …` as the hub's administrator."""
    command = [sys.executable, "-c", ENTRY, "cluster", *arguments, "--kubeconfig", str(hub.kubeconfig)]
    ended = await anyio.run_process(command, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode().strip()


async def described(hub: Cluster, name: str) -> Object:
    """`mkctl cluster describe -o json`."""
    found: Object = orjson.loads(await mkctl(hub, "describe", name, "-o", "json"))
    return found


@asynccontextmanager
async def agent_process(line: str, *, folder: Path, worker: Cluster) -> AsyncIterator[subprocess.Popen[bytes]]:
    """What the shell makes of the line that `register` printed, beside the worker."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "KUBECONFIG": str(worker.kubeconfig), "PATH": path}
    quick = " --renew-seconds 0.5 --lease-seconds 4 --status-window-seconds 0.1"
    # `exec`, so that what is ended is the agent and not a shell around it.
    script = line.replace("&& mk-worker-agent", "&& exec mk-worker-agent") + f"{quick} >> agent.log 2>&1"
    process = subprocess.Popen(["bash", "-c", script], cwd=folder, env=env)  # noqa: ASYNC220
    try:
        yield process
    finally:
        process.terminate()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(process.wait)


@pytest.fixture(scope="module")
async def joined(
    binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Joined]:
    """Everything up, w1 let in by hand."""
    folder = tmp_path_factory.mktemp("joining")
    hub = await binaries_provider.create(
        "hub",
        folder=tmp_path_factory.mktemp("hub"),
        spec=ClusterSpec(controllers=True, scheduler=False, manifests=manifests()),
    )
    worker = await binaries_provider.create(
        "w1", folder=tmp_path_factory.mktemp("w1"), spec=ClusterSpec(controllers=False, scheduler=False)
    )
    async with hub, worker, connections_closed(), hub.client() as admin, worker.client() as on_worker:
        async with running_manager(hub, settings=SCALED_DOWN, dispatch=DispatchController):
            await FakeWorker(admin, "w2").enrol()
            await FakeWorker(admin, "w2").connect()
            await make_namespace(on_worker, NAMESPACE)
            await make_node(on_worker, "n1")
            # No controller is there that would take away what a new node is tainted with.
            await on_worker.patch(NODES, "n1", {"spec": {"taints": None}})
            await make_check(admin, "mk", ("w1",))
            await make_queue(admin, "q", namespace=NAMESPACE, checks=("mk",))
            line = await mkctl(hub, "register", "w1")
            async with agent_process(line, folder=folder, worker=worker):
                found = await eventually(
                    lambda: described(hub, "w1"),
                    what="the request waits for approval",
                    until=lambda seen: seen["registered"]["reason"] == "WaitsForApproval",
                )
                assert not found["accepted"]
                assert "w1 is approved" in await mkctl(hub, "approve", "w1")
                await eventually(
                    lambda: described(hub, "w1"), what="w1 is Active", until=lambda seen: bool(seen["active"])
                )
                yield Joined(hub, worker, admin, folder, line)
