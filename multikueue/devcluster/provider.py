# SPDX-License-Identifier: Apache-2.0
"""The interface behind which clusters are made: real binaries, the embedded API server, kind.

A provider owns what its clusters share (binaries, one etcd, ports). Everything above sees `Cluster` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from multikueue.api.meta import JsonObject
from multikueue.devcluster.cluster import Cluster, Component
from multikueue.devcluster.processes.forkserver import ForkServer
from multikueue.devcluster.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """What a cluster is to have."""

    controllers: bool = True
    """Run the built-in controllers: jobs, garbage collection, namespaces, service accounts."""
    scheduler: bool = True
    """Run the scheduler; a management cluster runs no pods and needs none."""
    manifests: Sequence[JsonObject] = ()
    """Objects to create before the controllers start: the garbage collector then knows our CRDs from its first second
    instead of at its next discovery half a minute later."""
    forks: ForkServer | None = None
    """What its processes that are ours are forked from; without it each imports for itself."""


class Provider(Protocol):
    """Makes clusters. An async context manager: what the clusters share lives from entry to exit."""

    @property
    def name(self) -> str:
        """The name that `--provider` takes."""

    @property
    def host(self) -> str:
        """The address of this machine as the API servers of its clusters reach it, for webhooks; known once one is."""

    @property
    def shared(self) -> Sequence[Component]:
        """Components that serve several clusters, such as etcd."""

    async def create(self, name: str, *, folder: Path, spec: ClusterSpec) -> Cluster:
        """A cluster whose data live in `folder`, not started yet; an old folder continues its cluster."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ProviderFactory(Protocol):
    """How a provider is made for one federation."""

    def __call__(self, *, folder: Path, progress: Progress) -> Provider:
        """A provider that keeps what its clusters share in `folder`."""
