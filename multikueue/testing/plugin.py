# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: real clusters as fixtures.

Load it with `pytest_plugins = ["multikueue.testing.plugin"]` and give the anyio backend session scope. A machine
without the binaries skips the tests that need them, with a word; `mkctl binaries` makes them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from multikueue.devcluster.binaries import acquire
from multikueue.devcluster.binaries.provider import BinariesProvider
from multikueue.devcluster.binaries.release import Binaries
from multikueue.devcluster.cluster import Cluster
from multikueue.devcluster.errors import BinariesUnavailable
from multikueue.devcluster.provider import ClusterSpec


@pytest.fixture(scope="session")
def kube_binaries() -> Binaries:
    """The folder of real binaries; skips where there are none."""
    try:
        found = acquire.find()
    except BinariesUnavailable as error:
        pytest.skip(str(error))
    if found is None:
        pytest.skip("no Kubernetes binaries here; `mkctl binaries` makes them")
    return found


@pytest.fixture(scope="session")
async def binaries_provider(
    anyio_backend: str, kube_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[BinariesProvider]:
    """A provider with a running etcd, for tests that make clusters of their own."""
    folder = tmp_path_factory.mktemp("clusters")
    async with BinariesProvider(folder=folder, binaries=kube_binaries) as provider:
        yield provider


@pytest.fixture(scope="session")
async def binaries_cluster(
    binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """One real cluster with the built-in controllers and a scheduler, shared by all tests of the session."""
    cluster = await binaries_provider.create("shared", folder=tmp_path_factory.mktemp("shared"), spec=ClusterSpec())
    async with cluster:
        yield cluster
