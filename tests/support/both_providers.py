# SPDX-License-Identifier: Apache-2.0
"""What a test runs on: clusters of both providers, by both transports. `make test` has the quicker half."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from devcluster.cluster import Cluster
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec, Provider
from multikueue.api.crds import manifests
from tests.support.sites import Transport

BOTH_PROVIDERS: Final = (
    pytest.param("embedded", id="embedded"),
    pytest.param("binaries", id="binaries", marks=[pytest.mark.binaries, pytest.mark.conformance]),
)
"""The parameters of such a fixture; its module needs the fixture `kube_binaries`."""


def provider_of(request: pytest.FixtureRequest, folder: Path) -> Provider:
    """The provider that the parameter of the fixture names, not started yet, with its files in that folder."""
    if request.param == "embedded":
        return EmbeddedProvider(folder=folder)
    return BinariesProvider(folder=folder, binaries=request.getfixturevalue("kube_binaries"))


@asynccontextmanager
async def running_cluster(
    request: pytest.FixtureRequest, factory: pytest.TempPathFactory, title: str, *, controllers: bool
) -> AsyncIterator[Cluster]:
    """A cluster of that provider with our kinds; pods are not scheduled."""
    folder = factory.mktemp(f"{title}-{request.param}")
    async with provider_of(request, folder) as provider:
        spec = ClusterSpec(controllers=controllers, scheduler=False, manifests=manifests())
        async with await provider.create("hub", folder=folder / "hub", spec=spec) as cluster:
            yield cluster


push_apart: Final = pytest.mark.parametrize(
    "transport", [Transport.PULL, pytest.param(Transport.PUSH, marks=pytest.mark.conformance)], ids=str
)
"""A test by both transports, by push with `make conformance` only."""
