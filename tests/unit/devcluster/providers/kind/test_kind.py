# SPDX-License-Identifier: Apache-2.0
"""The kind provider against a kind that is played: an embedded API server behind containers that are names only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import yaml

from devcluster.apiserver.http.listener import Listener, Serving
from devcluster.apiserver.server import ApiServer
from devcluster.cluster import API_SERVER
from devcluster.errors import DevclusterError
from devcluster.pki import Authority, new_key
from devcluster.ports import LOOPBACK
from devcluster.providers.kind import containers
from devcluster.providers.kind.provider import KindProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.resource import NAMESPACES

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "asked-for"}}


class PlayedKind:
    """What stands in for docker and for `pytest_kind.KindCluster`: one API server, whatever the cluster's name is."""

    def __init__(self, folder: Path, listener: Listener, authority: Authority) -> None:
        self.docker: list[tuple[str, ...]] = []
        self.clusters: list[str] = []
        self.kubeconfig_path = folder / "of-kind"
        self._authority = authority
        self.kubeconfig_path.write_text(yaml.safe_dump({"clusters": [{"cluster": {"server": listener.url}}]}))

    def __call__(self, name: str) -> PlayedKind:
        self.clusters.append(name)
        return self

    def create(self) -> None:
        self.docker.append(("create", self.clusters[-1]))

    def delete(self) -> None:
        self.docker.append(("delete", self.clusters.pop()))

    def run(self, *arguments: str) -> bytes:
        self.docker.append(arguments)
        if arguments[-1].endswith("ca.crt"):
            return self._authority.certificate
        if arguments[-1].endswith("ca.key"):
            return self._authority.pair.key
        if arguments[0] == "network":
            addresses = [{"Gateway": "fc00::1"}, {"Gateway": "172.18.0.1"}]
            return orjson.dumps([{"IPAM": {"Config": addresses}}])
        return b"what the container printed\n"


@pytest.fixture
async def kind(tmp_path: Path) -> AsyncIterator[PlayedKind]:
    authority = Authority.load_or_create(tmp_path, name="ca")
    certificate, key = authority.serving("apiserver", hosts=[LOOPBACK]).write(tmp_path, name="apiserver")
    serving = Serving(certificate, key, tmp_path / "ca.crt")
    async with Listener(ApiServer(signing_key=new_key()), serving=serving) as listener:
        yield PlayedKind(tmp_path, listener, authority)


async def test_a_cluster_has_the_administrator_and_the_objects_it_was_asked_for(
    tmp_path: Path, kind: PlayedKind
) -> None:
    async with KindProvider(folder=tmp_path, make=kind, run=kind.run) as provider:
        spec = ClusterSpec(manifests=[NAMESPACE])
        async with await provider.create("worker-1", folder=tmp_path / "worker-1", spec=spec) as cluster:
            async with cluster.client() as client:
                assert (await client.get_object(NAMESPACES, "asked-for"))["metadata"]["name"] == "asked-for"
        assert [name.partition("-worker")[2] for name in kind.clusters] == ["-1"]
    assert kind.clusters == []


async def test_its_container_is_frozen_stopped_and_started_as_one(tmp_path: Path, kind: PlayedKind) -> None:
    async with KindProvider(folder=tmp_path, make=kind, run=kind.run) as provider:
        cluster = await provider.create("hub", folder=tmp_path / "hub", spec=ClusterSpec())
        container = f"{kind.clusters[0]}-control-plane"
        kind.docker.clear()
        cluster.pause(API_SERVER)
        cluster.resume(API_SERVER)
        await cluster.kill(API_SERVER)
        assert not cluster.component(API_SERVER).running
        await cluster.start(API_SERVER)
        await cluster.stop(API_SERVER)
        done = [command for command in kind.docker if command[0] != "logs"]
        assert done == [
            ("pause", container),
            ("unpause", container),
            ("kill", container),
            ("start", container),
            ("stop", "--time=10", container),
        ]
        assert cluster.component(API_SERVER).log.read_text() == "what the container printed\n"


async def test_its_clusters_reach_webhooks_by_the_gateway_of_their_network(tmp_path: Path, kind: PlayedKind) -> None:
    assert KindProvider(folder=tmp_path, make=kind, run=kind.run).host == "172.18.0.1"


def test_without_docker_the_message_names_the_embedded_provider(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(containers.KindUnavailable, match="docker is not installed"):
        containers.find()


def test_a_docker_that_does_not_answer_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _pretend(tmp_path, "echo cannot connect to the daemon >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(containers.KindUnavailable, match="does not answer: docker version: cannot connect"):
        containers.find()


def test_a_docker_command_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _pretend(tmp_path, "echo no such container >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(DevclusterError, match="docker pause: no such container"):
        containers.docker("pause", "nobody")


def test_a_test_that_needs_kind_is_skipped_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(mk_provider):\n    raise AssertionError\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "--mk-provider", "kind", "test_it.py"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 skipped" in done.stdout
    assert "docker is not installed, which kind needs" in done.stdout


def _pretend(folder: Path, script: str) -> None:
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
