# SPDX-License-Identifier: Apache-2.0
"""The scenarios of docs/spec/multikueue.md §2: each on both carriers, on the embedded hub.

J, D and R also run on a hub of real binaries, with `make conformance`. A test that only one carrier can have says so
by the mark `carriers`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

import pytest

from multikueue.devcluster.binaries.provider import BinariesProvider
from multikueue.devcluster.embedded.provider import EmbeddedProvider
from tests.support.scenes import Stage
from tests.support.scenes import stage as stage_of
from tests.support.sites import Carrier

_ALSO_ON_BINARIES = re.compile(r"test_([a-z]+\d+_)*[jdr]\d")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The carriers and providers of each scenario."""
    if "stage" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("carriers")
        carriers = tuple(Carrier) if only is None else tuple(map(Carrier, only.args))
        on_binaries = _ALSO_ON_BINARIES.match(metafunc.function.__name__) is not None
        metafunc.parametrize("stage", list(_stages(carriers, on_binaries)), indirect=True, scope="session")


def _stages(carriers: tuple[Carrier, ...], on_binaries: bool) -> Iterator[object]:
    for carrier in carriers:
        yield pytest.param(("embedded", carrier), id=f"{carrier}-embedded")
        if on_binaries:
            marks = [pytest.mark.binaries, pytest.mark.conformance]
            yield pytest.param(("binaries", carrier), id=f"{carrier}-binaries", marks=marks)


@pytest.fixture(scope="session")
async def stage(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    name, carrier = request.param
    folder = tmp_path_factory.mktemp(f"{name}-{carrier}")
    if name == "embedded":
        provider = EmbeddedProvider(folder=folder)
    else:
        provider = BinariesProvider(folder=folder, binaries=request.getfixturevalue("kube_binaries"))
    async with provider, stage_of(provider, carrier, folder=folder) as made:
        yield made
