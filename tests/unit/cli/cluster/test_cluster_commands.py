# SPDX-License-Identifier: Apache-2.0
"""The options of `mkctl cluster`: the manager's namespace under both of its names, and durations."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from multikueue.api.resource import Resource
from multikueue.cli.cluster import commands
from multikueue.cli.cluster.agent_kinds import AgentKinds
from multikueue.cli.cluster.registering import Registration
from multikueue.cli.hub_options import HubOptions
from multikueue.core.errors import BadInput
from multikueue.kube.errors import ApiError, Details, InternalError, NotFound, TooManyRequests


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[HubOptions]:
    """The hub options of the commands that were run; none of them reaches a hub."""
    found: list[HubOptions] = []

    def refuse(options: HubOptions, call: Any) -> None:
        found.append(options)
        raise BadInput("no hub in this test")

    monkeypatch.setattr(commands, "_on_hub", refuse)
    return found


@pytest.mark.parametrize(
    ("option", "warns"),
    [("--manager-namespace", False), ("--namespace", True)],
)
def test_the_managers_namespace_has_its_former_name_with_a_warning(
    option: str, warns: bool, used: list[HubOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["describe", "w", option, "elsewhere", "--kubeconfig", "k"]) == 2
    assert [options.manager_namespace for options in used] == ["elsewhere"]
    warning = "warning: --namespace is deprecated; use --manager-namespace"
    assert (warning in capsys.readouterr().err) is warns


@pytest.mark.parametrize("command", ["register", "describe", "remove", "recover"])
def test_only_the_new_name_is_in_the_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--manager-namespace" in shown
    assert " --namespace" not in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("soon", '--wait: "soon" is not a duration such as 30s, 5m or 1h30m', id="not a duration"),
        pytest.param("-5s", "--wait: -5s is negative", id="negative"),
    ],
)
def test_an_invalid_duration_is_refused_with_its_option(
    text: str, message: str, used: list[HubOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["drain", "w", f"--wait={text}", "--kubeconfig", "k"]) == 2
    assert (message in capsys.readouterr().err, used) == (True, [])


def test_the_roles_of_the_chosen_kinds_are_named_beside_the_manifests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = AgentKinds.chosen(frameworks="batch/job,ray.io/rayjob")
    monkeypatch.setattr(commands, "_on_hub", lambda options, call: kinds)
    assert commands.main(["manifest", "w", "--frameworks", "batch/job,ray.io/rayjob", "--kubeconfig", "k"]) == 0
    shown = capsys.readouterr()
    assert "--frameworks=batch/job,ray.io/rayjob" in shown.out
    assert "roles to the worker cluster too: deploy/rbac/kinds/rayjob-agent.yaml" in shown.err


def test_the_rights_for_external_kinds_are_named_beside_the_command_and_are_in_the_manifest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expires = datetime(2026, 1, 1, tzinfo=UTC)
    made = Registration(cluster="w", token_id="t", kubeconfig={}, expires=expires, accepted=True)
    kinds = AgentKinds.chosen(external="Pipeline.v1.ci.example.com")
    monkeypatch.setattr(commands, "_on_hub", lambda options, call: (kinds, made))
    named = ["register", "w", "--external-frameworks", "Pipeline.v1.ci.example.com", "--kubeconfig", "k"]
    assert commands.main(named) == 0
    shown = capsys.readouterr()
    assert "--external-frameworks Pipeline.v1.ci.example.com" in shown.out
    right = "needs these rights on the worker cluster too: get,list,watch,create,patch,delete pipelines.ci.example.com"
    assert right in shown.err
    assert commands.main([*named, "--manifest"]) == 0
    shown = capsys.readouterr()
    assert "multikueue-agent-pipelines-ci-example-com" in shown.out
    assert "needs these rights" not in shown.err


@pytest.mark.parametrize("command", ["register", "manifest"])
def test_an_unknown_kind_is_refused_before_anything_is_written(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    async def get_object(resource: Resource, name: str, *, namespace: str) -> None:
        asked.append(name)
        raise NotFound(request="r", status=404, reason="NotFound", message="", details=Details())

    hub = SimpleNamespace(get_object=get_object)  # any other request fails
    monkeypatch.setattr(commands, "_on_hub", lambda options, call: anyio.run(call, hub))
    assert commands.main([command, "w", "--frameworks", "ray.io/rayjbo", "--kubeconfig", "k"]) == 2
    assert ('found "ray.io/rayjbo"' in capsys.readouterr().err, asked) == (True, ["kueue-manager-config"])


@pytest.mark.parametrize("kind", [InternalError, TooManyRequests])
def test_a_hub_that_does_not_give_its_configuration_has_the_command_refused(
    kind: type[ApiError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def get_object(resource: Resource, name: str, *, namespace: str) -> None:
        raise kind(request="GET configmaps", status=kind.code, reason="", message="broken", details=Details())

    hub = SimpleNamespace(get_object=get_object)
    monkeypatch.setattr(commands, "_on_hub", lambda options, call: anyio.run(call, hub))
    assert commands.main(["register", "w", "--frameworks", "batch/job", "--kubeconfig", "k"]) != 0
    assert "broken" in capsys.readouterr().err
