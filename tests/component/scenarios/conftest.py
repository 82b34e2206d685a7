# SPDX-License-Identifier: Apache-2.0
"""The scenarios of docs/spec/multikueue.md §2: each on both transports, on the embedded hub.

`make test` has those of agents, and `make conformance` the same by kubeconfig; J, D and R run on a hub of real binaries
there too. A test that only one transport can have says so by the mark `transports`; one outside of these that runs on
real binaries too by the mark `also_on_binaries`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

import pytest

from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from tests.support.scenes import Stage
from tests.support.scenes import stage as stage_of
from tests.support.sites import Transport

_ALSO_ON_BINARIES = re.compile(r"test_([a-z]+\d+_)*[jdr]\d")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The transports and providers of each scenario."""
    if "stage" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("transports")
        transports = tuple(Transport) if only is None else tuple(map(Transport, only.args))
        marked = metafunc.definition.get_closest_marker("also_on_binaries") is not None
        on_binaries = marked or _ALSO_ON_BINARIES.match(metafunc.function.__name__) is not None
        metafunc.parametrize("stage", list(_stages(transports, on_binaries)), indirect=True, scope="package")


def _stages(transports: tuple[Transport, ...], on_binaries: bool) -> Iterator[object]:
    for transport in transports:
        apart = [pytest.mark.conformance] * (transport is Transport.PUSH and len(transports) > 1)
        yield pytest.param(("embedded", transport), id=f"{transport}-embedded", marks=apart)
        if on_binaries:
            marks = [pytest.mark.binaries, pytest.mark.conformance]
            yield pytest.param(("binaries", transport), id=f"{transport}-binaries", marks=marks)


@pytest.fixture(scope="package")
async def stage(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    name, transport = request.param
    folder = tmp_path_factory.mktemp(f"{name}-{transport}")
    provider: EmbeddedProvider | BinariesProvider
    if name == "embedded":
        provider = EmbeddedProvider(folder=folder)
    else:
        provider = BinariesProvider(folder=folder, binaries=request.getfixturevalue("kube_binaries"))
    async with provider, stage_of(provider, transport, folder=folder) as made:
        yield made
