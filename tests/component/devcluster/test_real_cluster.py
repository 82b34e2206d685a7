# SPDX-License-Identifier: Apache-2.0
"""A cluster of real binaries: it answers, its parts fail and come back alone, its data survive."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from devcluster.cluster import Cluster
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.binaries.storage import ClusterStorage
from devcluster.providers.provider import ClusterSpec
from multikueue.api.crds import manifests
from multikueue.api.resource import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, RESOURCE_FLAVORS
from multikueue.kube.errors import Forbidden, NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient

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


async def test_the_data_of_a_cluster_belong_to_its_folder_and_not_to_its_name(
    binaries_provider: BinariesProvider, tmp_path: Path
) -> None:
    spec = ClusterSpec(controllers=False, scheduler=False)
    for folder in (tmp_path / "first", tmp_path / "second"):
        cluster = await binaries_provider.create("namesake", folder=folder, spec=spec)
        async with cluster, cluster.client() as client:
            await client.create(CONFIG_MAPS, KEPT, namespace="default")
    again = await binaries_provider.create("namesake", folder=tmp_path / "first", spec=spec)
    async with again, again.client() as client:
        assert (await client.get_object(CONFIG_MAPS, "kept", namespace="default"))["data"] == {"a": "1"}


async def test_a_later_cluster_begins_with_the_definitions_of_an_earlier_one_and_shares_nothing_else(
    binaries_provider: BinariesProvider, tmp_path: Path
) -> None:
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {}}
    spec = ClusterSpec(controllers=False, scheduler=False, manifests=[*manifests(), flavor])
    namespaces, definitions = set(), set()
    for name in ("earlier", "later"):
        cluster = await binaries_provider.create(name, folder=tmp_path / name, spec=spec)
        async with cluster, cluster.client() as client:
            namespaces.add((await client.get_object(NAMESPACES, "kube-system"))["metadata"]["uid"])
            definition = await client.get_object(CUSTOM_RESOURCE_DEFINITIONS, "workloads.kueue.x-k8s.io")
            definitions.add(definition["metadata"]["uid"])
            assert (await client.get_object(RESOURCE_FLAVORS, "f"))["kind"] == "ResourceFlavor"
            trusted = await client.get_object(
                CONFIG_MAPS, "extension-apiserver-authentication", namespace="kube-system"
            )
            assert trusted["data"]["client-ca-file"] == cluster.ca.decode()
            await client.create(CONFIG_MAPS, KEPT, namespace="default")
    assert len(namespaces) == len(definitions) == 2


async def test_the_storage_of_a_cluster_is_read_and_written_whole(
    binaries_provider: BinariesProvider, tmp_path: Path
) -> None:
    etcd = Path(binaries_provider.shared[0].log).parents[1] / "etcd"
    entries = {f"key-{number}".encode(): bytes([number % 256]) * 4_000 for number in range(1_000)}
    storage = ClusterStorage(etcd_folder=etcd, prefix=f"/{tmp_path.name}")
    assert await storage.is_empty()
    await storage.write(entries)
    assert await storage.read() == entries
    assert await ClusterStorage(etcd_folder=etcd, prefix=f"/{tmp_path.name}-other").is_empty()


async def test_the_namespace_controller_runs(binaries_cluster: Cluster) -> None:
    async with binaries_cluster.client() as client:
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone-soon"}})
        await client.delete(NAMESPACES, "gone-soon")
        with anyio.fail_after(30):
            while await _exists(client, "gone-soon"):
                await anyio.sleep(0.1)
        assert not await _exists(client, "gone-soon")


async def _exists(client: KubeClient, namespace: str) -> bool:
    try:
        await client.get(NAMESPACES, namespace)
    except NotFound:
        return False
    return True


async def test_a_paused_api_server_answers_again_when_it_continues(
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
