# SPDX-License-Identifier: Apache-2.0
"""A management cluster of real binaries with our definitions, shared by the session."""

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
async def hub(binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """An API server with its controllers; pods stay pending, tests set their status."""
    spec = ClusterSpec(controllers=True, scheduler=False, manifests=manifests())
    cluster = await binaries_provider.create("hub", folder=tmp_path_factory.mktemp("hub"), spec=spec)
    async with cluster:
        yield cluster


@pytest.fixture
async def client(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator."""
    async with connections_closed(), hub.client() as client:
        yield client
