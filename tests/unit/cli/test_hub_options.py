# SPDX-License-Identifier: Apache-2.0
"""Which hub is meant, and which workload."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from devcluster.federation.state import ClusterState, FederationPhase, FederationState
from multikueue.cli.hub_options import (
    HubOptions,
    WorkloadRef,
    add_options,
    add_workers,
    hub_and_workers,
    hub_options,
    target,
)
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key


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
    FederationState(name=name, provider="embedded", phase=FederationPhase.UP, supervisor=1, clusters=clusters).write(
        folder
    )
    return folder


def asked(*arguments: str) -> HubOptions:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return hub_options(parser.parse_args(arguments))


def test_a_kubeconfig_that_is_named_is_the_hub(home: Path) -> None:
    federation(home, "default")
    found = asked("--kubeconfig", "k", "--context", "c", "--manager-namespace", "n")
    assert found == HubOptions(kubeconfig="k", context="c", manager_namespace="n")


def test_a_federation_gives_its_workers_and_its_configuration_too(home: Path) -> None:
    folder = federation(home, "two")
    (folder / "manager.yaml").write_text("")
    found = asked("--federation", "two")
    assert found == HubOptions(
        kubeconfig="/hub", configuration=folder / "manager.yaml", workers={"worker-1": "/worker-1"}
    )


def with_workers(*arguments: str) -> HubOptions:
    parser = argparse.ArgumentParser()
    add_options(parser)
    add_workers(parser, help="")
    return hub_and_workers(parser.parse_args(arguments))


def test_a_worker_that_is_named_replaces_that_of_the_federation(home: Path) -> None:
    federation(home, "one")
    found = with_workers("--federation", "one", "--worker", "worker-1=/other", "--worker", "east=/a=b")
    assert found.workers == {"worker-1": "/other", "east": "/a=b"}


@pytest.mark.parametrize("text", ["east", "east=", "=file"])
def test_a_worker_without_its_name_or_its_file_is_refused(home: Path, text: str) -> None:
    with pytest.raises(BadInput, match=f"--worker {text}: must be CLUSTER=FILE"):
        with_workers("--kubeconfig", "/hub", "--worker", text)


def test_the_default_federation_is_taken_where_kubectl_knows_of_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked() == HubOptions(kubeconfig=None)
    federation(home, "default")
    assert asked().kubeconfig == "/hub"
    monkeypatch.setenv("KUBECONFIG", "mine")
    assert asked() == HubOptions(kubeconfig=None)
    monkeypatch.setenv("KUBECONFIG", "/hub")
    assert asked().workers == {"worker-1": "/worker-1"}


def test_a_missing_federation_is_an_error() -> None:
    with pytest.raises(BadInput, match="federation 'x' does not exist"):
        asked("--federation", "x")


@pytest.mark.parametrize("other", ["--kubeconfig", "--context"])
def test_a_hub_is_not_named_twice(home: Path, other: str) -> None:
    federation(home, "two")
    with pytest.raises(BadInput, match="already selects the hub"):
        asked("--federation", "two", other, "k")


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["workload", "a/b"], WorkloadRef("workload", Key("a", "b"))),
        (["wl/a/b"], WorkloadRef("workload", Key("a", "b"))),
        (["job/a/b"], WorkloadRef("job", Key("a", "b"))),
        (["job", "b"], WorkloadRef("job", Key("", "b"))),
        (["job/b"], WorkloadRef("job", Key("", "b"))),
        (["JobSet/a/b"], WorkloadRef("jobset", Key("a", "b"))),
        (["renders.studio.example.com", "a/b"], WorkloadRef("renders.studio.example.com", Key("a", "b"))),
    ],
)
def test_a_workload_is_named_as_kubectl_would(words: list[str], want: WorkloadRef) -> None:
    assert target(words) == want


@pytest.mark.parametrize(
    ("words", "namespace", "want"),
    [
        pytest.param(["b"], "", WorkloadRef("workload", Key("", "b")), id="a name alone"),
        pytest.param(["b"], "a", WorkloadRef("workload", Key("a", "b")), id="a name in the namespace"),
        pytest.param(["a/b"], "", WorkloadRef("workload", Key("a", "b")), id="a namespace and a name"),
        pytest.param(
            ["jobs/b"], "", WorkloadRef("workload", Key("jobs", "b")), id="a namespace that is called like a kind"
        ),
        pytest.param(["jobs/b"], "a", WorkloadRef("job", Key("a", "b")), id="a kind, as the namespace is told"),
        pytest.param(["job", "b"], "", WorkloadRef("job", Key("", "b")), id="a kind and a name as two words"),
        pytest.param(["rayjob", "b"], "", WorkloadRef("rayjob", Key("", "b")), id="another kind and a name"),
        pytest.param(["rayjob/b"], "a", WorkloadRef("rayjob", Key("a", "b")), id="another kind than the namespace"),
        pytest.param(["a/b"], "a", WorkloadRef("workload", Key("a", "b")), id="the namespace and a name"),
        pytest.param(["job/a/b"], "a", WorkloadRef("job", Key("a", "b")), id="the namespace told twice"),
    ],
)
def test_where_workloads_are_meant_the_kind_need_not_be_named(
    words: list[str], namespace: str, want: WorkloadRef
) -> None:
    assert target(words, kind="workload", namespace=namespace) == want


def test_what_is_named_without_a_namespace_is_in_that_of_the_context() -> None:
    assert target(["job", "b"]).within("team").key == Key("team", "b")
    assert target(["job", "a/b"]).within("team").key == Key("a", "b")


@pytest.mark.parametrize("words", [["b"], ["workload", "a//b"], ["job", "a", "b", "c"], ["job/"], ["-/a/b"]])
def test_what_names_no_workload_is_refused(words: list[str]) -> None:
    with pytest.raises(BadInput, match="is not a workload"):
        target(words)


def test_a_workload_in_two_namespaces_is_refused() -> None:
    with pytest.raises(BadInput, match="another namespace than --namespace c"):
        target(["workload", "a/b"], namespace="c")
