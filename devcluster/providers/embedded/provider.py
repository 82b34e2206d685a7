# SPDX-License-Identifier: Apache-2.0
"""The provider of clusters in pure Python: nothing to download or build.

Owns the ports of its clusters, from entry to exit. Each cluster is one process with API server and controllers, as the
start of a Python process costs more than either; it is forked if there is a fork server. The data stays in the folder,
and a later provider of the same folder uses it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from devcluster import probes
from devcluster.cluster import API_SERVER, Cluster, Component
from devcluster.pki import Authority
from devcluster.ports import LOOPBACK, PortRegistry
from devcluster.processes import programs
from devcluster.processes.process import Process, ProcessSpec
from devcluster.progress import Progress, ignore_progress
from devcluster.providers.embedded.layout import Layout, prepare
from devcluster.providers.provider import ClusterSpec

NAME: Final = "embedded"


class EmbeddedProvider:
    """Creates clusters with the embedded API server; implements `devcluster.providers.provider.Provider`."""

    def __init__(self, *, folder: Path, progress: Progress = ignore_progress) -> None:
        self._folder = folder.resolve()
        self._ports = PortRegistry()

    @property
    def name(self) -> str:
        """The value of `--provider`."""
        return NAME

    @property
    def host(self) -> str:
        """Its processes run on this machine."""
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
        """A cluster with its files in `folder`, not started."""
        port = self._ports.take(kept_in=folder / "port")
        layout = Layout(name=name, folder=folder, port=port)
        layout.pki.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = Authority.load_or_create(layout.pki, name=f"{name}-ca")
        prepare(layout, authority, hosts=spec.hosts)
        return Cluster(
            name=name,
            folder=layout.folder,
            server=layout.server,
            authority=authority,
            components=[Process(_process(layout, spec, ca=authority.certificate), forks=spec.forks)],
            manifests=spec.manifests,
            closed=lambda: self._ports.release(port),
            context=spec.context,
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
