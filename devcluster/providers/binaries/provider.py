# SPDX-License-Identifier: Apache-2.0
"""The provider of clusters made of real binaries.

Owns one etcd and the ports of all its clusters, from entry to exit. The data stays in the folder, and a later provider
of the same folder uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio
from anyio import to_thread

from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError
from devcluster.manifests import split_definitions
from devcluster.pki import Authority
from devcluster.ports import LOOPBACK, PortRegistry
from devcluster.processes.process import Process
from devcluster.progress import Progress, Step, ignore_progress
from devcluster.providers.binaries import acquire, control_plane, etcd
from devcluster.providers.binaries.release import Binaries
from devcluster.providers.binaries.storage import ClusterStorage
from devcluster.providers.binaries.template import Templates
from devcluster.providers.provider import ClusterSpec

NAME: Final = "binaries"


class BinariesProvider:
    """Creates clusters of real processes; implements `devcluster.providers.provider.Provider`."""

    def __init__(self, *, folder: Path, progress: Progress = ignore_progress, binaries: Binaries | None = None) -> None:
        self._folder = folder.resolve()
        self._progress = progress
        self._binaries = binaries
        self._ports = PortRegistry()
        self._templates = Templates()
        self._etcd: Process | None = None

    @property
    def name(self) -> str:
        """The value of `--provider`."""
        return NAME

    @property
    def host(self) -> str:
        """Its processes run on this machine."""
        return LOOPBACK

    @property
    def shared(self) -> Sequence[Process]:
        """etcd, once entered."""
        return [self._etcd] if self._etcd is not None else []

    async def __aenter__(self) -> Self:
        binaries = self._binaries or acquire.find()
        if binaries is None:
            binaries = await to_thread.run_sync(self._acquire)
        self._binaries = binaries
        folder = self._folder / "etcd"
        folder.mkdir(parents=True, exist_ok=True)
        self._progress(Step("starting etcd"))
        self._etcd = Process(etcd.spec(binaries, folder=folder, log=self._folder / "logs" / "etcd.log"))
        await self._etcd.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            if self._etcd is not None:
                await self._etcd.stop()
        self._ports.close()

    async def create(self, name: str, *, folder: Path, spec: ClusterSpec) -> Cluster:
        """A cluster with its files in `folder`, not started."""
        if self._binaries is None:
            raise DevclusterError(f"cluster {name}: the provider has not been entered")
        port = self._ports.take(kept_in=folder / "port")
        layout = control_plane.ControlPlaneLayout(
            name=name, folder=folder, etcd_folder=self._folder / "etcd", port=port
        )
        layout.pki.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = Authority.load_or_create(layout.pki, name=f"{name}-ca")
        control_plane.prepare(layout, authority, hosts=spec.hosts)
        specs = [control_plane.api_server(self._binaries, layout, ca=authority.certificate, fairness=spec.fairness)]
        if spec.controllers:
            specs.append(control_plane.controller_manager(self._binaries, layout))
        if spec.scheduler:
            specs.append(control_plane.scheduler(self._binaries, layout))
        definitions, _ = split_definitions(spec.manifests)
        storage = ClusterStorage(etcd_folder=layout.etcd_folder, prefix=layout.etcd_prefix)
        return Cluster(
            name=name,
            folder=layout.folder,
            server=layout.server,
            authority=authority,
            components=[Process(spec) for spec in specs],
            manifests=spec.manifests,
            closed=lambda: self._ports.release(port),
            context=spec.context,
            template=self._templates.of(definitions, storage, binaries=self._binaries.folder),
        )

    def _acquire(self) -> Binaries:
        return acquire.acquire(progress=self._progress)
