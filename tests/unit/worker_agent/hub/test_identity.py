# SPDX-License-Identifier: Apache-2.0
"""Where an agent keeps who it is, and how it gets there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.pki import Authority
from multikueue.api.configuration import Configuration
from multikueue.cli.cluster.agent_kinds import AgentKinds
from multikueue.cli.cluster.joining_instructions import command, manifest, newer_manifest
from multikueue.cli.cluster.registering import Registration
from multikueue.core.clock import SystemClock
from multikueue.core.errors import BadInput
from multikueue.jobs.framework.registry import dispatched_integrations
from multikueue.kube.rest import credentials
from multikueue.kube.rest.certificates import new_request, read_request
from tests.support.declared_kinds import RENDER
from worker_agent import options
from worker_agent.hub.identity import (
    FileStore,
    certificate_life,
    is_complete,
    pending,
    pending_request,
    with_certificate,
)

Object = dict[str, Any]
ROOT = Path(__file__).parents[4]
pytestmark = pytest.mark.anyio

HUB: Object = {
    "clusters": [{"name": "hub", "cluster": {"server": "https://hub:6443"}}],
    "users": [{"name": "bootstrap:t1", "user": {"token": "secret-token"}}],
    "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "bootstrap:t1"}}],
    "current-context": "hub",
}


async def test_the_identity_is_replaced_whole_and_read_by_its_owner_only(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "deep" / "hub")
    assert await store.load() is None
    made = new_request("u", ["g"])
    await store.save(pending(name="r", made=made))
    waiting = await store.load()
    assert not is_complete(waiting)
    assert pending_request(waiting, name="r") == made
    assert pending_request(waiting, name="another") is None

    pair = Authority.create("ca").client("system:mk:cluster:w", groups=["system:mk:agents"])
    await store.save(with_certificate(HUB, user="w", certificate=pair.certificate, key=pair.key))
    assert is_complete(await store.load())
    path = tmp_path / "deep" / "hub"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["hub"]
    assert "secret-token" not in path.read_text()
    config = credentials.load(path)
    assert config.server == "https://hub:6443"
    life = certificate_life(yaml.safe_load(path.read_text()))
    assert life is not None
    assert life.at(0.0) == life.begins < life.at(0.5) < life.at(1.0) == life.ends


async def test_a_kubeconfig_without_a_certificate_has_no_life() -> None:
    assert certificate_life(HUB) is None
    with pytest.raises(BadInput, match="current-context"):
        certificate_life({**HUB, "current-context": "other"})


def test_a_certificate_request_has_the_identity_and_nothing_else() -> None:
    found = read_request(new_request("user", ["one", "two"]).request)
    assert (found.user, found.groups, found.other_names) == ("user", ("one", "two"), False)
    with pytest.raises(BadInput):
        read_request(b"nonsense")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--cluster", "w"],
        ["--cluster", "w", "--hub-kubeconfig", "f", "--hub-secret", "a/b"],
    ],
    ids=["no home", "two homes"],
)
def test_an_identity_has_exactly_one_home(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(arguments)
    assert "--hub-" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--hub-secret", "a"], ["--hub-kubeconfig", "f", "--certificate-seconds", "60"]])
def test_settings_that_cannot_be_are_named(more: list[str]) -> None:
    with pytest.raises(BadInput, match=more[-2]):
        options.parse(["--cluster", "w", *more])


def registration() -> Registration:
    expires = SystemClock().now() + timedelta(hours=1)
    return Registration(cluster="w", token_id="t1", kubeconfig=HUB, expires=expires, accepted=False)


def test_the_command_keeps_the_token_out_of_the_arguments_of_a_process() -> None:
    line = command(registration())
    assert "secret-token" not in line
    assert line.count("\n") == 0
    assert line.endswith("mk-worker-agent --cluster w --bootstrap-kubeconfig w.bootstrap --hub-kubeconfig w.hub")


def test_the_manifest_is_the_agent_with_its_rights_and_one_secret_it_may_read() -> None:
    documents = list(yaml.safe_load_all(manifest(registration(), image="example.com/agent:1")))
    kinds = [document["kind"] for document in documents]
    assert kinds.count("Secret") == 1
    (deployment,) = [document for document in documents if document["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "example.com/agent:1"
    given = options.parse(container["command"][1:])
    assert (given.cluster, given.hub_secret) == ("w", "multikueue-system/multikueue-agent-identity")
    (role,) = [document for document in documents if document["kind"] == "Role"]
    readable = [rule for rule in role["rules"] if "get" in rule["verbs"]]
    assert [rule["resourceNames"] for rule in readable] == [["multikueue-agent-identity"]]
    (cluster_role,) = [document for document in documents if document["kind"] == "ClusterRole"]
    assert not any("secrets" in rule["resources"] for rule in cluster_role["rules"])


def test_the_agent_of_the_manifest_and_of_the_command_serves_the_kinds_that_are_named() -> None:
    kinds = AgentKinds.chosen(frameworks="batch/job, ray.io/rayjob,jobset.x-k8s.io/jobset")
    for text in (manifest(registration(), kinds=kinds), newer_manifest("w", kinds=kinds)):
        (deployment,) = [each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        given = options.parse(container["command"][1:])
        assert tuple(each.framework for each in given.integrations) == kinds.frameworks
    line = command(registration(), kinds)
    assert line.endswith("--frameworks batch/job,ray.io/rayjob,jobset.x-k8s.io/jobset")
    assert "--frameworks" not in command(registration())


PIPELINE = "Pipeline.v1.ci.example.com"


def test_the_agent_serves_the_external_kinds_that_are_named_and_gets_their_roles_with_the_manifest() -> None:
    kinds = AgentKinds.chosen(external=f"{PIPELINE}, Fish.v1.example.com=fish")
    for text in (manifest(registration(), kinds=kinds), newer_manifest("w", kinds=kinds)):
        documents = list(yaml.safe_load_all(text))
        (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        given = options.parse(container["command"][1:])
        served = [each.resource.qualified for each in given.integrations]
        assert served == ["jobs.batch", "pipelines.ci.example.com", "fish.example.com"]
        roles = {each["metadata"]["name"]: each for each in documents if each["kind"] == "ClusterRole"}
        (rule,) = roles["multikueue-agent-fish-example-com"]["rules"]
        assert (rule["apiGroups"], rule["resources"]) == (["example.com"], ["fish"])
        assert rule["verbs"] == ["get", "list", "watch", "create", "patch", "delete"]
        bound = [each["roleRef"]["name"] for each in documents if each["kind"] == "ClusterRoleBinding"]
        assert set(bound) == roles.keys()
    line = command(registration(), kinds)
    assert line.endswith("--external-frameworks Pipeline.v1.ci.example.com,Fish.v1.example.com=fish")
    assert kinds.rights() == (
        "get,list,watch,create,patch,delete pipelines.ci.example.com",
        "get,list,watch,create,patch,delete fish.example.com",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("Pipeline", "--external-frameworks: ", id="no group"),
        pytest.param("RayJob.v1.ray.io", "RayJob.v1.ray.io is a built-in integration", id="a known kind"),
        pytest.param(f"{PIPELINE},{PIPELINE}=pipes", "--external-frameworks: ", id="twice"),
        pytest.param("$(id).v1.example.com", "--external-frameworks: ", id="no name: the command is run by a shell"),
        pytest.param("Fish.v1.example.com=a;b", "--external-frameworks: ", id="no plural"),
        pytest.param(" , ", "expected names such as", id="none"),
    ],
)
def test_what_is_no_external_kind_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        AgentKinds.chosen(external=text)


def test_the_files_with_the_roles_of_the_kinds_exist() -> None:
    assert AgentKinds(frameworks=("batch/job", "ray.io/rayjob")).role_files() == (
        "deploy/rbac/kinds/rayjob-agent.yaml",
    )
    assert AgentKinds(frameworks=("pod", "statefulset")).role_files() == ("deploy/rbac/kinds/pod-agent.yaml",)
    for framework in dispatched_integrations():
        assert all((ROOT / each).is_file() for each in AgentKinds(frameworks=(framework,)).role_files())


def configured(*declarations: Object, external: Object | None = None) -> Configuration:
    """The Configuration of a manager with these declarations, and an external framework."""
    return Configuration.model_validate(
        {
            "integrations": {"declarations": list(declarations)},
            "multiKueue": {"externalFrameworks": [external] if external else []},
        }
    )


def test_a_kind_that_the_configuration_declares_is_served_with_its_declaration_and_role(tmp_path: Path) -> None:
    other = {**RENDER, "metadata": {"name": "studio.example.com/sound"}}
    other["spec"] = {**RENDER["spec"], "resource": {**RENDER["spec"]["resource"], "kind": "Sound", "plural": "sounds"}}
    kinds = AgentKinds.chosen(frameworks="batch/job,studio.example.com/render", configuration=configured(RENDER, other))
    assert kinds.role_files() == ()
    assert kinds.rights() == ("get,list,watch,create,patch,delete renders.studio.example.com",)
    for text in (manifest(registration(), kinds=kinds), newer_manifest("w", kinds=kinds)):
        documents = list(yaml.safe_load_all(text))
        (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
        (mounted,) = [each for each in documents if each["kind"] == "ConfigMap"]
        pod = deployment["spec"]["template"]["spec"]
        (volume,) = [
            each["name"] for each in pod["volumes"] if each.get("configMap") == {"name": mounted["metadata"]["name"]}
        ]
        (path,) = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"] if each["name"] == volume]
        for name, content in mounted["data"].items():
            (tmp_path / name).write_text(content)
        flags = [each.replace(path, str(tmp_path)) for each in pod["containers"][0]["command"][1:]]
        served = [each.resource.qualified for each in options.parse(flags).integrations]
        assert served == ["jobs.batch", "renders.studio.example.com"]
        roles = {each["metadata"]["name"] for each in documents if each["kind"] == "ClusterRole"}
        assert "multikueue-agent-renders-studio-example-com" in roles
        bound = [each["roleRef"]["name"] for each in documents if each["kind"] == "ClusterRoleBinding"]
        assert set(bound) == roles


def test_the_command_writes_the_declarations_to_a_file_for_the_agent(tmp_path: Path) -> None:
    kinds = AgentKinds.chosen(frameworks="studio.example.com/render", configuration=configured(RENDER))
    line = command(registration(), kinds)
    writing, _, agent = line.rpartition(" && ")
    subprocess.run(["sh", "-ec", writing], cwd=tmp_path, check=True)
    flags = shlex.split(agent)[1:]
    assert flags[-2:] == ["--job-kinds", "w.job-kinds.yaml"]
    served = options.parse([*flags[:-1], str(tmp_path / flags[-1])]).integrations
    assert [each.resource.qualified for each in served] == ["renders.studio.example.com"]


def test_a_declaration_that_replaces_a_shipped_kind_is_sent_with_its_own_role() -> None:
    replaced = {**RENDER, "metadata": {"name": "ray.io/rayjob"}}
    replaced["spec"] = {
        **RENDER["spec"],
        "resource": {"group": "ray.io", "versions": ["v2"], "kind": "RayJob", "plural": "rayjobs"},
    }
    kinds = AgentKinds.chosen(frameworks="ray.io/rayjob", configuration=configured(replaced))
    assert kinds.declarations == (replaced,)
    assert (kinds.role_files(), kinds.rights()) == ((), ("get,list,watch,create,patch,delete rayjobs.ray.io",))
    assert AgentKinds.chosen(frameworks="ray.io/rayjob", configuration=configured(RENDER)).declarations == ()


def test_an_external_framework_of_the_configuration_may_be_named_among_all_others() -> None:
    fish = {"name": "Fish.v1.example.com", "plural": "fish"}
    for flags in ({"frameworks": "batch/job,Fish.v1.example.com"}, {"external": "Fish.v1.example.com"}):
        kinds = AgentKinds.chosen(**flags, configuration=configured(external=fish))
        assert kinds.external == ("Fish.v1.example.com=fish",)
        assert "Fish.v1.example.com" not in kinds.frameworks
        assert kinds.rights() == ("get,list,watch,create,patch,delete fish.example.com",)


def test_a_kind_that_is_declared_nowhere_or_wrongly_is_refused() -> None:
    with pytest.raises(BadInput, match=r'found "studio.example.com/render"'):
        AgentKinds.chosen(frameworks="studio.example.com/render", configuration=configured())
    broken = {**RENDER, "spec": {"resource": {}}}
    with pytest.raises(BadInput, match="declarations"):
        AgentKinds.chosen(frameworks="studio.example.com/render", configuration=configured(broken))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("batch/jbo", 'found "batch/jbo"', id="one that is unknown"),
        pytest.param("sparkoperator.k8s.io/sparkapplication", "not sent to workers", id="one that no worker runs"),
        pytest.param(" , ", "expected names such as batch/job", id="none"),
    ],
)
def test_frameworks_that_no_agent_serves_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        AgentKinds.chosen(frameworks=text)


def test_the_manifest_for_an_upgrade_is_the_same_without_the_token() -> None:
    first = list(yaml.safe_load_all(manifest(registration(), image="example.com/agent:2")))
    newer = list(yaml.safe_load_all(newer_manifest("w", image="example.com/agent:2")))
    assert newer == [document for document in first if document["kind"] != "Secret"]
    assert newer[0]["kind"] == "Namespace", "applied first"
