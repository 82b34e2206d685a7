# SPDX-License-Identifier: Apache-2.0
"""The interface of the providers of clusters: embedded, real binaries, kind.

A provider owns what its clusters share (binaries, one etcd, ports). Other modules use `Cluster` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from devcluster.cluster import Cluster, Component
from devcluster.processes.forkserver import ForkServer
from devcluster.progress import Progress
from multikueue.api.meta import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The specification of a cluster."""

    controllers: bool = True
    """Run the built-in controllers: jobs, garbage collection, namespaces, service accounts."""
    scheduler: bool = True
    """Run the scheduler; a management cluster runs no pods and does not need it."""
    hosts: Sequence[str] = ()
    """Additional host names in the certificate of the API server."""
    context: str = ""
    """The name of the cluster in its kubeconfigs; the default is its name."""
    manifests: Sequence[JsonObject] = ()
    """Objects to create before the controllers start: the garbage collector then finds our CRDs at once instead of at
    its next discovery half a minute later."""
    fairness: bool = False
    """A real API server has API Priority and Fairness, as a production cluster has; without it, requests cost less."""
    forks: ForkServer | None = None
    """The fork server of its Python processes; without it each imports its modules."""


class Provider(Protocol):
    """Creates clusters. An async context manager: shared components run from entry to exit."""

    @property
    def name(self) -> str:
        """The value of `--provider`."""

    @property
    def host(self) -> str:
        """The address of this machine for its API servers, for webhooks; known once a cluster exists."""

    @property
    def shared(self) -> Sequence[Component]:
        """Components that serve several clusters, such as etcd."""

    async def create(self, name: str, *, folder: Path, spec: ClusterSpec) -> Cluster:
        """A cluster with its data in `folder`, not started; existing data is used."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ProviderFactory(Protocol):
    """Creates a provider for one federation."""

    def __call__(self, *, folder: Path, progress: Progress) -> Provider:
        """A provider that stores the data of shared components in `folder`."""
