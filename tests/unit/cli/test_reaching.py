# SPDX-License-Identifier: Apache-2.0
"""Which hub is meant, and which workload."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from multikueue.cli.reaching import Reach, Target, add_options, reach, target
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.devcluster.state import ClusterState, Phase, State


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def federation(home: Path, name: str) -> Path:
    folder = home / "multikueue" / name
    folder.mkdir(parents=True)
    clusters = [
        ClusterState(name=each, role=role, server="", kubeconfig=f"/{each}")
        for each, role in (("hub", "hub"), ("worker-1", "worker"))
    ]
    State(name=name, provider="embedded", phase=Phase.UP, supervisor=1, clusters=clusters).write(folder)
    return folder


def asked(*arguments: str) -> Reach:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return reach(parser.parse_args(arguments))


def test_a_kubeconfig_that_is_named_is_the_hub(home: Path) -> None:
    federation(home, "default")
    found = asked("--kubeconfig", "k", "--context", "c", "--manager-namespace", "n")
    assert found == Reach(kubeconfig="k", context="c", namespace="n")


def test_a_federation_gives_its_workers_and_its_configuration_too(home: Path) -> None:
    folder = federation(home, "two")
    (folder / "manager.yaml").write_text("")
    found = asked("--federation", "two")
    assert found == Reach(kubeconfig="/hub", configuration=folder / "manager.yaml", workers={"worker-1": "/worker-1"})


def test_the_default_federation_is_taken_where_kubectl_knows_of_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked() == Reach(kubeconfig=None)
    federation(home, "default")
    assert asked().kubeconfig == "/hub"
    monkeypatch.setenv("KUBECONFIG", "mine")
    assert asked() == Reach(kubeconfig=None)
    monkeypatch.setenv("KUBECONFIG", "/hub")
    assert asked().workers == {"worker-1": "/worker-1"}


def test_a_federation_that_is_not_there_is_said_so() -> None:
    with pytest.raises(BadInput, match="there is no federation 'x'"):
        asked("--federation", "x")


@pytest.mark.parametrize("other", ["--kubeconfig", "--context"])
def test_a_hub_is_not_named_twice(home: Path, other: str) -> None:
    federation(home, "two")
    with pytest.raises(BadInput, match="says which hub already"):
        asked("--federation", "two", other, "k")


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["workload", "a/b"], Target("workload", Key("a", "b"))),
        (["wl/a/b"], Target("workload", Key("a", "b"))),
        (["job/a/b"], Target("job", Key("a", "b"))),
        (["job", "b"], Target("job", Key("", "b"))),
        (["job/b"], Target("job", Key("", "b"))),
    ],
)
def test_a_workload_is_named_as_kubectl_would(words: list[str], want: Target) -> None:
    assert target(words) == want


@pytest.mark.parametrize(
    ("words", "namespace", "want"),
    [
        pytest.param(["b"], "", Target("workload", Key("", "b")), id="a name alone"),
        pytest.param(["b"], "a", Target("workload", Key("a", "b")), id="a name in the namespace"),
        pytest.param(["a/b"], "", Target("workload", Key("a", "b")), id="a namespace and a name"),
        pytest.param(["jobs/b"], "", Target("workload", Key("jobs", "b")), id="a namespace that is called like a kind"),
        pytest.param(["jobs/b"], "a", Target("job", Key("a", "b")), id="a kind, as the namespace is told"),
        pytest.param(["job/a/b"], "a", Target("job", Key("a", "b")), id="the namespace told twice"),
    ],
)
def test_where_workloads_are_meant_the_kind_need_not_be_named(words: list[str], namespace: str, want: Target) -> None:
    assert target(words, kind="workload", namespace=namespace) == want


def test_what_is_named_without_a_namespace_is_in_that_of_the_context() -> None:
    assert target(["job", "b"]).within("team").key == Key("team", "b")
    assert target(["job", "a/b"]).within("team").key == Key("a", "b")


@pytest.mark.parametrize("words", [["a/b"], ["b"], ["pod/a/b"], ["workload", "a//b"], ["job", "a", "b", "c"], ["job/"]])
def test_what_names_no_workload_is_refused(words: list[str]) -> None:
    with pytest.raises(BadInput, match="does not name a workload"):
        target(words)


def test_a_workload_in_two_namespaces_is_refused() -> None:
    with pytest.raises(BadInput, match="not in the namespace c"):
        target(["workload", "a/b"], namespace="c")
