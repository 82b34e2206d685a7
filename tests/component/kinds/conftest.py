# SPDX-License-Identifier: Apache-2.0
"""A hub and a worker with every built-in controller and the kinds, embedded and of real binaries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from devcluster.cluster import Cluster
from devcluster.providers.provider import ClusterSpec
from multikueue.api.crds import manifests
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.support.app_sets import app_client, hub
from tests.support.both_providers import BOTH_PROVIDERS, provider_of
from tests.support.crds import kinds

__all__ = ["hub", "kube_binaries"]


@dataclass(frozen=True)
class Clusters:
    """A hub, a worker, and a worker without the kinds."""

    hub: Cluster
    worker: Cluster
    plain: Cluster
    is_embedded: bool = True


@pytest.fixture(scope="module", params=BOTH_PROVIDERS)
async def clusters(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Clusters]:
    folder = tmp_path_factory.mktemp(f"kinds-{request.param}")
    provider = provider_of(request, folder)
    made = []
    async with provider:
        for name in ("hub", "worker", "plain"):
            spec = ClusterSpec(controllers=True, scheduler=True, manifests=manifests() if name == "hub" else ())
            made.append(await provider.create(name, folder=folder / name, spec=spec))
        hub, worker, plain = made
        async with hub, worker, plain:
            for cluster in (hub, worker):
                async with cluster.client() as client:
                    await kinds.install(client, kinds.JOB_SETS)
            yield Clusters(hub, worker, plain, request.param == "embedded")


@pytest.fixture(scope="module")
async def client(hub: Cluster) -> AsyncIterator[KubeClient]:
    """An administrator's, beside a manager that queues Deployments and StatefulSets."""
    async with app_client(hub) as client:
        yield client
