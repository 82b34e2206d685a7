# SPDX-License-Identifier: Apache-2.0
"""A real API server for the tests of the runtime, one for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from multikueue.devcluster.binaries import acquire
from multikueue.devcluster.binaries.provider import BinariesProvider
from multikueue.devcluster.cluster import Cluster
from multikueue.devcluster.provider import ClusterSpec


@pytest.fixture(scope="session")
async def api_server(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A cluster of etcd and kube-apiserver alone: nothing else writes."""
    if acquire.find() is None:
        pytest.skip("no etcd and kube-apiserver here: run `mkctl binaries` or set KUBEBUILDER_ASSETS")
    folder: Path = tmp_path_factory.mktemp("api-server")
    async with BinariesProvider(folder=folder) as provider:
        cluster = await provider.create(
            "real", folder=folder / "real", spec=ClusterSpec(controllers=False, scheduler=False)
        )
        async with cluster:
            yield cluster
