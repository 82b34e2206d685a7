# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: clusters and federations as fixtures (`docs/testing.md`).

Installed as a `pytest11` entry point, so other modules are imported only when a fixture needs them. The async fixtures
need an anyio backend of session scope. `--mk-provider` selects the provider of the clusters; tests that need binaries
or docker are skipped with a message if these are not available.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from devcluster.cluster import Cluster
    from devcluster.federation.federation import Federation
    from devcluster.federation.spec import FederationSpec
    from devcluster.providers.binaries.provider import BinariesProvider
    from devcluster.providers.binaries.release import Binaries
    from devcluster.providers.provider import ProviderFactory
    from multikueue.testing.in_process import InProcessFederation

MakeFederation: TypeAlias = "Callable[[FederationSpec], Awaitable[Federation]]"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--mk-provider`."""
    parser.getgroup("multikueue").addoption(
        "--mk-provider",
        choices=("embedded", "binaries", "kind"),
        default="embedded",
        help="provider of the clusters of `federation`, `hub` and `worker` (default: embedded)",
    )


@pytest.fixture(scope="session")
def kube_binaries() -> Binaries:
    """The real binaries; skips the test if there are none."""
    from devcluster.errors import BinariesUnavailable
    from devcluster.providers.binaries import acquire

    try:
        found = acquire.find()
    except BinariesUnavailable as error:
        pytest.skip(str(error))
    if found is None:
        pytest.skip("no Kubernetes binaries; run `mkctl binaries`")
    return found


@pytest.fixture(scope="session")
async def binaries_provider(
    anyio_backend: str, kube_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[BinariesProvider]:
    """A provider with a running etcd, for tests that create clusters."""
    from devcluster.providers.binaries.provider import BinariesProvider

    folder = tmp_path_factory.mktemp("clusters")
    async with BinariesProvider(folder=folder, binaries=kube_binaries) as provider:
        yield provider


@pytest.fixture(scope="session")
async def binaries_cluster(
    binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """One real cluster with the built-in controllers and a scheduler, shared by all tests of the session."""
    from devcluster.providers.provider import ClusterSpec

    cluster = await binaries_provider.create("shared", folder=tmp_path_factory.mktemp("shared"), spec=ClusterSpec())
    async with cluster:
        yield cluster


@pytest.fixture(scope="session")
def mk_provider(request: pytest.FixtureRequest) -> ProviderFactory:
    """The provider of the fixtures below, from `--mk-provider`; tests may override this fixture."""
    chosen = request.config.getoption("--mk-provider")
    if chosen == "kind":
        return _kind()
    if chosen == "binaries":
        from devcluster.providers.binaries.provider import BinariesProvider

        return partial(BinariesProvider, binaries=request.getfixturevalue("kube_binaries"))
    from devcluster.providers.embedded.provider import EmbeddedProvider

    return EmbeddedProvider


def _kind() -> ProviderFactory:
    from devcluster.providers.kind import containers
    from devcluster.providers.kind.provider import KindProvider

    try:
        make = containers.find()
    except containers.KindUnavailable as error:
        pytest.skip(str(error))
    return partial(KindProvider, make=make)


@pytest.fixture(scope="session")
async def federation(
    anyio_backend: str, mk_provider: ProviderFactory, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Federation]:
    """A hub and two workers with manager and agents, shared by all tests of the session: undo your changes."""
    from devcluster.federation.federation import Federation
    from devcluster.federation.spec import FederationSpec

    folder = tmp_path_factory.mktemp("federation")
    async with Federation(FederationSpec(), folder=folder, provider=mk_provider) as made:
        yield made


@pytest.fixture(scope="session")
async def hub(federation: Federation) -> Cluster:
    """The management cluster of `federation`."""
    return federation.hub


@pytest.fixture(scope="session")
async def worker(federation: Federation) -> Cluster:
    """The first worker cluster of `federation`."""
    return next(iter(federation.workers.values()))


@pytest.fixture
async def in_process_federation(anyio_backend: str) -> AsyncIterator[InProcessFederation]:
    """A federation of embedded clusters in the event loop of one test, regardless of `--mk-provider`."""
    from multikueue.testing.in_process import embedded_federation

    async with embedded_federation() as made:
        yield made


@pytest.fixture
async def make_federation(
    anyio_backend: str, mk_provider: ProviderFactory, tmp_path: Path
) -> AsyncIterator[MakeFederation]:
    """Creates federations for one test, which may break them; they are stopped after the test."""
    from devcluster.federation.federation import Federation

    async with AsyncExitStack() as stack:

        async def make(spec: FederationSpec) -> Federation:
            made = Federation(spec, folder=tmp_path / spec.name, provider=mk_provider)
            return await stack.enter_async_context(made)

        yield make
