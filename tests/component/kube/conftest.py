# SPDX-License-Identifier: Apache-2.0
"""The API servers for the tests of the runtime, one of each for all of them: a real one, and the embedded one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from devcluster.providers.binaries import acquire
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from tests.support.embedded_process import embedded_cluster


@pytest.fixture(scope="package", params=["embedded", pytest.param("binaries", marks=pytest.mark.binaries)])
async def api_server(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """A cluster of an API server alone: nothing else writes."""
    if request.param == "embedded":
        with embedded_cluster(tmp_path_factory.mktemp("embedded")) as cluster:
            async with cluster:
                yield cluster
        return
    if acquire.find() is None:
        pytest.skip("no etcd and kube-apiserver here: run `mkctl binaries` or set KUBEBUILDER_ASSETS")
    folder: Path = tmp_path_factory.mktemp("api-server")
    async with BinariesProvider(folder=folder) as provider:
        cluster = await provider.create(
            "real", folder=folder / "real", spec=ClusterSpec(controllers=False, scheduler=False)
        )
        async with cluster:
            yield cluster
