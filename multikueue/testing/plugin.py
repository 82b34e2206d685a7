# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: real clusters, and a whole federation, as fixtures.

Load it with `pytest_plugins = ["multikueue.testing.plugin"]` and give the anyio backend session scope. A machine
without the binaries skips the tests that need them, with a word; `mkctl binaries` makes them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from multikueue.devcluster.binaries import acquire
from multikueue.devcluster.binaries.provider import BinariesProvider
from multikueue.devcluster.binaries.release import Binaries
from multikueue.devcluster.cluster import Cluster
from multikueue.devcluster.errors import BinariesUnavailable
from multikueue.devcluster.federation import Federation, FederationSpec
from multikueue.devcluster.provider import ClusterSpec

MakeFederation: TypeAlias = Callable[[FederationSpec], Awaitable[Federation]]


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


@pytest.fixture(scope="session")
async def federation(
    anyio_backend: str, kube_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Federation]:
    """A hub and two workers with manager and agents, shared by all tests of the session: leave it as you found it."""
    provider = partial(BinariesProvider, binaries=kube_binaries)
    async with Federation(FederationSpec(), folder=tmp_path_factory.mktemp("federation"), provider=provider) as made:
        yield made


@pytest.fixture
async def make_federation(anyio_backend: str, kube_binaries: Binaries, tmp_path: Path) -> AsyncIterator[MakeFederation]:
    """Makes federations for one test, which may break them; they are ended after it."""
    async with AsyncExitStack() as stack:

        async def make(spec: FederationSpec) -> Federation:
            provider = partial(BinariesProvider, binaries=kube_binaries)
            return await stack.enter_async_context(Federation(spec, folder=tmp_path / spec.name, provider=provider))

        yield make
