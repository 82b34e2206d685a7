# SPDX-License-Identifier: Apache-2.0
"""One API server that is hub and worker at once, and an agent with nothing but its own identity on the hub."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from devcluster.cluster import Cluster
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.crds import manifests
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import binaries_provider, kube_binaries
from tests.support.managers import connections_closed

__all__ = ["binaries_provider", "kube_binaries"]


@pytest.fixture(scope="package")
async def cluster(
    binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """An API server with its controllers; nobody schedules, tests say what becomes of pods."""
    spec = ClusterSpec(controllers=True, scheduler=False, manifests=manifests())
    cluster = await binaries_provider.create("both", folder=tmp_path_factory.mktemp("both"), spec=spec)
    async with cluster:
        yield cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator of both."""
    async with connections_closed(), cluster.client() as client:
        yield client
