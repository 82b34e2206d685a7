# SPDX-License-Identifier: Apache-2.0
"""Names as kind gives them."""

from __future__ import annotations

from devcluster.federation.installed.kind_names import kind_clusters, merged_kubeconfig


def kubeconfig(server: str) -> dict[str, object]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }


def test_several_clusters_are_the_manager_and_its_workers() -> None:
    found = kind_clusters("kind", hub="hub", workers=["worker1", "worker2"])
    assert found == {"hub": "kind-manager", "worker1": "kind-worker1", "worker2": "kind-worker2"}


def test_one_cluster_alone_has_the_plain_name() -> None:
    assert kind_clusters("kind", hub="hub", workers=[]) == {"hub": "kind"}


def test_the_kubeconfig_has_a_context_for_each_and_starts_at_the_first() -> None:
    found = merged_kubeconfig({"a-manager": kubeconfig("https://1"), "a-worker1": kubeconfig("https://2")})
    assert [each["name"] for each in found["contexts"]] == ["kind-a-manager", "kind-a-worker1"]
    assert found["current-context"] == "kind-a-manager"
    assert found["contexts"][1]["context"] == {"cluster": "kind-a-worker1", "user": "kind-a-worker1"}
    assert found["clusters"][1] == {"name": "kind-a-worker1", "cluster": {"server": "https://2"}}
    assert found["users"][1] == {"name": "kind-a-worker1", "user": {"token": "https://2"}}
