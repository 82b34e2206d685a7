# SPDX-License-Identifier: Apache-2.0
"""The provider of clusters in pure Python: nothing to download, nothing to build.

Owns the ports of its clusters, from entry to exit. Each cluster is one process, API server and controllers together,
since a Python process costs more to start than either; it is forked where there is a fork server. The data stay in the
folder, and a later provider of the same folder goes on with them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from multikueue.devcluster import probes, programs
from multikueue.devcluster.cluster import API_SERVER, Cluster, Component
from multikueue.devcluster.embedded.layout import Layout, prepare
from multikueue.devcluster.pki import Authority
from multikueue.devcluster.ports import LOOPBACK, PortRegistry
from multikueue.devcluster.processes.process import Process, ProcessSpec
from multikueue.devcluster.progress import Progress, silent
from multikueue.devcluster.provider import ClusterSpec

NAME: Final = "embedded"


class EmbeddedProvider:
    """Makes clusters of our own API server; implements `multikueue.devcluster.provider.Provider`."""

    def __init__(self, *, folder: Path, progress: Progress = silent) -> None:
        self._folder = folder.resolve()
        self._ports = PortRegistry()

    @property
    def name(self) -> str:
        """The name that `--provider` takes."""
        return NAME

    @property
    def host(self) -> str:
        """Its processes are beside us."""
        return LOOPBACK

    @property
    def shared(self) -> Sequence[Component]:
        """Embedded clusters share nothing."""
        return []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ports.close()

    async def create(self, name: str, *, folder: Path, spec: ClusterSpec) -> Cluster:
        """A cluster with its files in `folder`, not started yet."""
        port = self._ports.take()
        layout = Layout(name=name, folder=folder, port=port)
        layout.pki.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = Authority.load_or_create(layout.pki, name=f"{name}-ca")
        prepare(layout, authority)
        return Cluster(
            name=name,
            folder=layout.folder,
            server=layout.server,
            authority=authority,
            components=[Process(_process(layout, spec, ca=authority.certificate), forks=spec.forks)],
            manifests=spec.manifests,
            closed=lambda: self._ports.give_back(port),
        )


def _process(layout: Layout, spec: ClusterSpec, *, ca: bytes) -> ProcessSpec:
    async def ready() -> bool:
        return await probes.answers_ok(f"{layout.server}/readyz", ca=ca)

    return ProcessSpec(
        name=API_SERVER,
        owner=layout.name,
        arguments=[
            *(sys.executable, "-m", programs.EMBEDDED),
            *(f"--name={layout.name}", f"--folder={layout.folder}", f"--port={layout.port}"),
            *([] if spec.controllers else ["--no-controllers"]),
            *([] if spec.scheduler else ["--no-scheduler"]),
        ],
        folder=layout.folder,
        log=layout.log,
        ready=ready,
    )
