# SPDX-License-Identifier: Apache-2.0
"""A cluster of real binaries: it answers, its parts fail and come back alone, its data survive."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from multikueue.api.resource import CONFIG_MAPS, NAMESPACES
from multikueue.devcluster.binaries.provider import BinariesProvider
from multikueue.devcluster.cluster import Cluster
from multikueue.devcluster.provider import ClusterSpec
from multikueue.kube import credentials
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import Forbidden

pytestmark = pytest.mark.binaries

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


async def test_a_paused_api_server_answers_again_when_it_goes_on(
    binaries_provider: BinariesProvider, tmp_path: Path
) -> None:
    spec = ClusterSpec(controllers=False, scheduler=False)
    cluster = await binaries_provider.create("pausing", folder=tmp_path, spec=spec)
    async with cluster, cluster.client() as client:
        cluster.pause("apiserver")
        with anyio.move_on_after(0.5) as waited:
            await client.server_version()
        assert waited.cancelled_caught
        cluster.resume("apiserver")
        assert await client.server_version() == "v1.36.3"


async def test_a_client_certificate_is_who_it_says(binaries_cluster: Cluster) -> None:
    config = credentials.from_dict(binaries_cluster.issue_client_certificate("alice", ["dev"]))
    async with KubeClient(config) as client:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await client.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
        with pytest.raises(Forbidden):
            await client.list_all(NAMESPACES)
    user = answer.json()["status"]["userInfo"]
    assert user["username"] == "alice"
    assert user["groups"] == ["dev", "system:authenticated"]
