# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs of several clusters and users: no two entries share a name, so that kubectl can merge them."""

from __future__ import annotations

from pathlib import Path

import yaml

from devcluster import kubeconfigs
from devcluster.cluster import Cluster
from devcluster.pki import Authority
from worker_agent.hub.identity import with_certificate


def cluster(folder: Path, name: str, *, context: str = "", port: int = 1) -> Cluster:
    folder.mkdir(parents=True, exist_ok=True)
    return Cluster(
        name=name,
        folder=folder,
        server=f"https://127.0.0.1:{port}",
        authority=Authority.create(name),
        components=[],
        context=context,
    )


def test_cluster_context_and_user_of_an_administrator_have_the_name_of_the_cluster(tmp_path: Path) -> None:
    config = yaml.safe_load(cluster(tmp_path, "hub", context="east-hub").write_kubeconfig().read_text())
    assert [config[section][0]["name"] for section in ("clusters", "contexts", "users")] == ["east-hub"] * 3
    assert config["contexts"][0]["context"] == {"cluster": "east-hub", "user": "east-hub"}
    assert config["current-context"] == "east-hub"


def test_the_kubeconfig_of_another_user_has_a_context_and_a_user_of_its_own(tmp_path: Path) -> None:
    config = cluster(tmp_path, "hub").issue_client_certificate("alice")
    assert config["clusters"][0]["name"] == "hub"
    assert config["contexts"] == [
        {"name": "alice@hub", "context": {"cluster": "hub", "user": config["users"][0]["name"]}}
    ]
    assert config["users"][0]["name"] == "alice@hub"


def test_a_kubeconfig_with_the_names_of_an_older_version_is_written_anew(tmp_path: Path) -> None:
    made = cluster(tmp_path, "worker-1")
    pair = Authority.create("old").client("multikueue-admin")
    old = kubeconfigs.kubeconfig(cluster="worker-1", server=made.server, ca=made.ca, user="multikueue-admin", pair=pair)
    kubeconfigs.write(old, made.kubeconfig)
    written = made.write_kubeconfig().read_text()
    assert "multikueue-admin" not in written
    assert made.write_kubeconfig().read_text() == written


def test_a_renewed_identity_of_an_agent_keeps_the_name_of_its_cluster(tmp_path: Path) -> None:
    config = cluster(tmp_path, "hub", context="east-hub").issue_client_certificate("agent")
    renewed = with_certificate(config, user="system:multikueue:agent:w", certificate=b"c", key=b"k")
    assert renewed["clusters"] == config["clusters"]
    assert renewed["current-context"] == renewed["users"][0]["name"] == "system:multikueue:agent:w@east-hub"
