# SPDX-License-Identifier: Apache-2.0
"""Where the kubeconfig of a MultiKueueCluster is read, and which places and contents are refused."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from manager.context import ManagerContext
from manager.dispatch.transport.cluster_profiles import JudgedKubeconfig
from manager.dispatch.transport.kubeconfigs import KubeconfigReader
from multikueue.api import configuration_file
from multikueue.api.resource import CLUSTER_PROFILES, SECRETS, Resource
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.kubeconfigs import KubeconfigProblem

Object = dict[str, Any]

WITH_PROFILES = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {MultiKueueClusterProfile: true}
multiKueue:
  clusterProfile:
    accessProviders: [{name: gke, execConfig: {apiVersion: client.authentication.k8s.io/v1, command: plugin}}]
"""


def kubeconfig(*, user: Object | None = None, **cluster: Any) -> bytes:
    return yaml.safe_dump(
        {
            "clusters": [{"name": "c", "cluster": {"server": "https://worker:6443", **cluster}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
    ).encode()


def reader(
    *, folder: Path = Path("/nowhere"), settings: str = "", objects: dict[tuple[Resource, str], Object] | None = None
) -> KubeconfigReader:
    known = objects or {}

    def view(resource: Resource) -> object:
        return SimpleNamespace(object=lambda key: known.get((resource, str(key))))

    context = SimpleNamespace(
        namespace="kueue-system", configuration=configuration_file.load(settings), caches=SimpleNamespace(view=view)
    )
    return KubeconfigReader(cast(ManagerContext, context), prefix=folder)


def by(location: str, kind: str = "Secret") -> Object:
    return {"spec": {"clusterSource": {"kubeConfig": {"location": location, "locationType": kind}}}}


def in_secret(text: bytes) -> dict[tuple[Resource, str], Object]:
    key = str(Key("kueue-system", "s"))
    return {(SECRETS, key): {"data": {"kubeconfig": base64.b64encode(text).decode()}}}


def test_a_secret_of_the_managers_namespace_is_read() -> None:
    found = reader(objects=in_secret(kubeconfig())).read(by("s"))
    assert isinstance(found, JudgedKubeconfig)
    assert found.kubeconfig["current-context"] == "c"


def test_s2_a_file_that_changes_is_another_access(tmp_path: Path) -> None:
    file = tmp_path / "w"
    file.write_bytes(kubeconfig())
    source = reader(folder=tmp_path)
    first = source.read(by(str(file), "Path"))
    file.write_bytes(kubeconfig(user={"token": "other"}))
    second = source.read(by(str(file), "Path"))
    assert isinstance(first, JudgedKubeconfig)
    assert isinstance(second, JudgedKubeconfig)
    assert first.digest != second.digest
    assert source.recheck_after(by(str(file), "Path")) is not None
    assert source.recheck_after(by("s")) is None


@pytest.mark.parametrize(
    ("text", "reason", "part"),
    [
        (kubeconfig(user={"tokenFile": "/token"}), "InsecureKubeConfig", "tokenFile"),
        (kubeconfig(user={"exec": {"command": "x"}}), "InsecureKubeConfig", "exec"),
        (kubeconfig(user={"auth-provider": {"name": "gcp"}}), "InsecureKubeConfig", "auth-provider"),
        (kubeconfig(user={"username": "u", "password": "p"}), "InsecureKubeConfig", "basic auth"),
        (kubeconfig(user=None, **{"certificate-authority": "/ca"}), "InsecureKubeConfig", "certificate-authority"),
        (kubeconfig(user=None, **{"insecure-skip-tls-verify": True}), "InsecureKubeConfig", "insecure-skip-tls-verify"),
        (kubeconfig(server=""), "InsecureKubeConfig", "server is empty"),
        (b"{}", "BadKubeConfig", "current-context"),
        (b"{ not yaml", "BadKubeConfig", "not YAML"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_s4_s5_it_is_refused_in_a_secret_and_in_a_file(text: bytes, reason: str, part: str, tmp_path: Path) -> None:
    file = tmp_path / "w"
    file.write_bytes(text)
    in_file = reader(folder=tmp_path).problem(by(str(file), "Path"))
    for problem in (reader(objects=in_secret(text)).problem(by("s")), in_file):
        assert problem is not None
        assert problem.reason == reason
        assert part in problem.message
        assert problem.message.startswith("load client config failed: ")


def test_s6_files_are_read_below_one_folder_only(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.write_bytes(kubeconfig())
    (inside / "link").symlink_to(outside)
    source = reader(folder=inside)
    for location in (
        "relative",
        str(inside / ".." / "outside"),
        str(outside),
        str(inside / "link"),
        str(inside / "no"),
    ):
        problem = source.problem(by(location, "Path"))
        assert problem is not None, location
        assert problem.reason == "BadKubeConfig"


def test_s11_s16_a_cluster_profile_needs_the_gate_and_a_provider() -> None:
    cluster = {"spec": {"clusterSource": {"clusterProfileRef": {"name": "p"}}}}
    off = reader().problem(cluster)
    assert off is not None
    assert off.reason == "MultiKueueClusterProfileFeatureDisabled"
    missing = reader(settings=WITH_PROFILES).problem(cluster)
    assert missing is not None
    assert (missing.reason, missing.detail) == ("BadClusterProfile", 'ClusterProfile "kueue-system/p" not found')
    status = {"accessProviders": [{"name": "gke", "cluster": {"server": "https://worker"}}]}
    there = {(CLUSTER_PROFILES, "kueue-system/p"): {"status": status}}
    assert isinstance(reader(settings=WITH_PROFILES, objects=there).read(cluster), JudgedKubeconfig)
    assert not isinstance(reader(objects=there).read(cluster), JudgedKubeconfig)
    assert isinstance(reader(objects=there).read(cluster), KubeconfigProblem)
