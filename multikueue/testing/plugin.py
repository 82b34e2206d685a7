# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: clusters, and a whole federation, as fixtures (`docs/testing.md`).

Installed with the package as a `pytest11` entry point, so its own import is cheap: what a fixture needs is imported
when it is asked for. The async fixtures want an anyio backend of session scope. `--mk-provider` says what clusters are
made of; a machine without the real binaries, or without docker for kind, skips the tests that need them with a word.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from multikueue.devcluster.binaries.provider import BinariesProvider
    from multikueue.devcluster.binaries.release import Binaries
    from multikueue.devcluster.cluster import Cluster
    from multikueue.devcluster.federation import Federation, FederationSpec
    from multikueue.devcluster.provider import ProviderFactory
    from multikueue.testing.in_process import InProcessFederation

MakeFederation: TypeAlias = "Callable[[FederationSpec], Awaitable[Federation]]"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--mk-provider`."""
    parser.getgroup("multikueue").addoption(
        "--mk-provider",
        choices=("embedded", "binaries", "kind"),
        default="embedded",
        help="what the clusters of `federation`, `hub` and `worker` are made of (embedded)",
    )


@pytest.fixture(scope="session")
def kube_binaries() -> Binaries:
    """The folder of real binaries; skips where there are none."""
    from multikueue.devcluster.binaries import acquire
    from multikueue.devcluster.errors import BinariesUnavailable

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
    from multikueue.devcluster.binaries.provider import BinariesProvider

    folder = tmp_path_factory.mktemp("clusters")
    async with BinariesProvider(folder=folder, binaries=kube_binaries) as provider:
        yield provider


@pytest.fixture(scope="session")
async def binaries_cluster(
    binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """One real cluster with the built-in controllers and a scheduler, shared by all tests of the session."""
    from multikueue.devcluster.provider import ClusterSpec

    cluster = await binaries_provider.create("shared", folder=tmp_path_factory.mktemp("shared"), spec=ClusterSpec())
    async with cluster:
        yield cluster


@pytest.fixture(scope="session")
def mk_provider(request: pytest.FixtureRequest) -> ProviderFactory:
    """What makes the clusters of the fixtures below: `--mk-provider`, or a fixture of this name that a test has."""
    chosen = request.config.getoption("--mk-provider")
    if chosen == "kind":
        return _kind()
    if chosen == "binaries":
        from multikueue.devcluster.binaries.provider import BinariesProvider

        return partial(BinariesProvider, binaries=request.getfixturevalue("kube_binaries"))
    from multikueue.devcluster.embedded.provider import EmbeddedProvider

    return EmbeddedProvider


def _kind() -> ProviderFactory:
    from multikueue.devcluster.kind import containers
    from multikueue.devcluster.kind.provider import KindProvider

    try:
        make = containers.find()
    except containers.KindUnavailable as error:
        pytest.skip(str(error))
    return partial(KindProvider, make=make)


@pytest.fixture(scope="session")
async def federation(
    anyio_backend: str, mk_provider: ProviderFactory, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Federation]:
    """A hub and two workers with manager and agents, shared by all tests of the session: leave it as you found it."""
    from multikueue.devcluster.federation import Federation, FederationSpec

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
    """A federation of one test's own in its event loop, of embedded clusters whatever `--mk-provider` says."""
    from multikueue.testing.in_process import embedded_federation

    async with embedded_federation() as made:
        yield made


@pytest.fixture
async def make_federation(
    anyio_backend: str, mk_provider: ProviderFactory, tmp_path: Path
) -> AsyncIterator[MakeFederation]:
    """Makes federations for one test, which may break them; they are ended after it."""
    from multikueue.devcluster.federation import Federation

    async with AsyncExitStack() as stack:

        async def make(spec: FederationSpec) -> Federation:
            made = Federation(spec, folder=tmp_path / spec.name, provider=mk_provider)
            return await stack.enter_async_context(made)

        yield make
