# SPDX-License-Identifier: Apache-2.0
"""A cluster of real binaries: it answers, its parts fail and come back alone, its data survive."""

from __future__ import annotations

from pathlib import Path

import pytest

from multikueue.api.resource import CONFIG_MAPS, NAMESPACES
from multikueue.devcluster.binaries.provider import BinariesProvider
from multikueue.devcluster.cluster import Cluster
from multikueue.devcluster.provider import ClusterSpec

pytestmark = [pytest.mark.binaries, pytest.mark.xdist_group("binaries")]

KEPT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "1"}}


async def test_a_real_cluster_reports_the_pinned_version(binaries_cluster: Cluster) -> None:
    async with binaries_cluster.client() as client:
        assert await client.server_version() == "v1.36.3"


async def test_data_survive_a_crash_of_the_api_server(binaries_provider: BinariesProvider, tmp_path: Path) -> None:
    spec = ClusterSpec(controllers=False, scheduler=False)
    cluster = await binaries_provider.create("crashing", folder=tmp_path, spec=spec)
    async with cluster, cluster.client() as client:
        await client.create(CONFIG_MAPS, KEPT, namespace="default")
        await cluster.kill("apiserver")
        await cluster.start("apiserver")
        found = await client.get_object(CONFIG_MAPS, "kept", namespace="default")
    assert found["data"] == {"a": "1"}


async def test_the_namespace_controller_runs(binaries_cluster: Cluster) -> None:
    async with binaries_cluster.client() as client:
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone-soon"}})
        await client.delete(NAMESPACES, "gone-soon")
