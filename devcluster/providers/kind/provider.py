# SPDX-License-Identifier: Apache-2.0
"""The provider of kind clusters: a real Kubernetes in one container each.

Owns the clusters from `create` to its exit, which deletes their containers. `create` returns a running cluster; its
only component is the container, which can be stopped, killed and frozen as a whole. Client certificates are signed with
the CA of kubeadm in the container.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio
import orjson
import yaml
from anyio import to_thread

from devcluster import probes
from devcluster.cluster import API_SERVER, Cluster, Component
from devcluster.errors import DevclusterError, TimedOut
from devcluster.pki import Authority, KeyPair
from devcluster.progress import Progress, Step, ignore_progress
from devcluster.providers.kind import containers
from devcluster.providers.kind.containers import Docker, MakeCluster
from devcluster.providers.provider import ClusterSpec

NAME: Final = "kind"
_PKI: Final = "/etc/kubernetes/pki"
_READY_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.2


class KindContainer:
    """The container of a kind cluster; implements `devcluster.cluster.Component`."""

    def __init__(self, cluster: str, *, server: str, ca: bytes, log: Path, run: Docker) -> None:
        self._container = f"{cluster}-control-plane"
        self._server = server
        self._ca = ca
        self._log = log
        self._run = run
        self._running = True

    @property
    def name(self) -> str:
        """The name of the API server, as the container includes it."""
        return API_SERVER

    @property
    def log(self) -> Path:
        """The container's output until it was last stopped."""
        return self._log

    @property
    def running(self) -> bool:
        """Whether it has been started."""
        return self._running

    @property
    def pid(self) -> int | None:
        """None, as the processes are children of docker."""
        return None

    async def start(self) -> None:
        """Start it if it was stopped, and wait until the API server is ready."""
        if not self._running:
            await to_thread.run_sync(self._run, "start", self._container)
            self._running = True
        with anyio.move_on_after(_READY_SECONDS):
            while True:
                if await probes.answers_ok(f"{self._server}/readyz", ca=self._ca):
                    return
                await anyio.sleep(_POLL_SECONDS)
        raise TimedOut(f"container {self._container}: not ready after {_READY_SECONDS:.0f} s")

    async def stop(self, *, grace: float = 10.0) -> None:
        """Stop it and keep its data."""
        if self._running:
            await to_thread.run_sync(self._end, "stop", f"--time={grace:.0f}")

    async def kill(self) -> None:
        """Kill all its processes."""
        if self._running:
            await to_thread.run_sync(self._end, "kill")

    def pause(self) -> None:
        """Freeze all its processes."""
        self._run("pause", self._container)

    def resume(self) -> None:
        """Continue all its processes."""
        self._run("unpause", self._container)

    def _end(self, *command: str) -> None:
        self._run(*command, self._container)
        self._running = False
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log.write_bytes(self._run("logs", self._container))


class KindProvider:
    """Creates kind clusters; implements `devcluster.providers.provider.Provider`."""

    def __init__(
        self,
        *,
        folder: Path,
        progress: Progress = ignore_progress,
        make: MakeCluster | None = None,
        run: Docker = containers.docker,
    ) -> None:
        """Raises `KindUnavailable` if kind cannot be used; tests replace `make` and `run`."""
        self._make = make or containers.find(run=run)
        self._run = run
        self._progress = progress
        # Two concurrent runs on one machine must not use each other's clusters.
        self._prefix = f"mk-{sha256(str(folder.resolve()).encode()).hexdigest()[:6]}"
        self._made: list[containers.KindCluster] = []

    @property
    def name(self) -> str:
        """The value of `--mk-provider`."""
        return NAME

    @property
    def host(self) -> str:
        """The address of this machine for the containers: the gateway of kind's network."""
        networks = orjson.loads(self._run("network", "inspect", "kind"))
        for entry in networks[0]["IPAM"]["Config"]:
            gateway = entry.get("Gateway", "")
            if gateway and ipaddress.ip_address(gateway).version == 4:
                return str(gateway)
        raise DevclusterError("docker network kind has no IPv4 gateway, which clusters need to reach webhooks")

    @property
    def shared(self) -> Sequence[Component]:
        """Kind clusters share nothing."""
        return []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            for cluster in reversed(self._made):
                await to_thread.run_sync(cluster.delete)
        self._made.clear()

    async def create(self, name: str, *, folder: Path, spec: ClusterSpec) -> Cluster:
        """A running cluster; it always has controllers and a scheduler."""
        full = f"{self._prefix}-{name}"
        self._progress(Step(f"creating kind cluster {full}"))
        made = self._make(full)
        self._made.append(made)
        await to_thread.run_sync(made.create)
        authority, server = await to_thread.run_sync(self._facts, full, made, folder)
        log = folder / "logs" / "container.log"
        return Cluster(
            name=name,
            folder=folder,
            server=server,
            authority=authority,
            components=[KindContainer(full, server=server, ca=authority.certificate, log=log, run=self._run)],
            manifests=spec.manifests,
            context=spec.context,
        )

    def _facts(self, full: str, made: containers.KindCluster, folder: Path) -> tuple[Authority, str]:
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = (
            self._run("exec", f"{full}-control-plane", "cat", f"{_PKI}/{file}") for file in ("ca.crt", "ca.key")
        )
        config = yaml.safe_load(Path(str(made.kubeconfig_path)).read_bytes())
        server: str = config["clusters"][0]["cluster"]["server"]
        return Authority(KeyPair(certificate, key)), server
