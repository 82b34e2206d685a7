# SPDX-License-Identifier: Apache-2.0
"""`mkctl cluster` on a hub whose administrators have declared kinds of their own, embedded and real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import orjson
import pytest
import yaml

from devcluster.cluster import Cluster
from multikueue.api.resource import CLUSTER_REGISTRATIONS, CONFIG_MAPS
from multikueue.cli.cluster import commands
from multikueue.kube.rest.client import KubeClient
from tests.support.declared_kinds import RENDER
from tests.support.managers import make_namespace
from tests.support.tenant_hubs import allow, hub
from tests.support.workers import FakeWorker

__all__ = ["hub"]

pytestmark = pytest.mark.anyio

_CONFIGURATION: Final = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "studio.example.com/render"], "declarations": [RENDER]},
    "multiKueue": {"externalFrameworks": [{"name": "Fish.v1.example.com", "plural": "fish"}]},
}
_KINDS: Final = "batch/job,studio.example.com/render,Fish.v1.example.com"


@pytest.fixture
async def admin(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator of a hub with that Configuration."""
    async with hub.client() as client:
        await make_namespace(client, "kueue-system")
        await client.delete_collection(CLUSTER_REGISTRATIONS)
        await configure(client, _CONFIGURATION)
        yield client
        await client.delete(CONFIG_MAPS, "kueue-manager-config", namespace="kueue-system")


async def configure(client: KubeClient, configuration: Any) -> None:
    text = configuration if isinstance(configuration, str) else yaml.safe_dump(configuration)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": "kueue-system"},
        "data": {"controller_manager_config.yaml": text},
    }
    await client.apply(CONFIG_MAPS, "kueue-manager-config", body, namespace="kueue-system", manager="test")


async def run(*arguments: str) -> int:
    return await anyio.to_thread.run_sync(partial(commands.main, list(arguments)))


def rules_in(text: str) -> set[str]:
    """What the ClusterRoles among these documents are about."""
    return {
        f"{resource}.{group}"
        for each in yaml.safe_load_all(text)
        if each["kind"] == "ClusterRole"
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


async def test_the_manifest_of_a_worker_has_the_declarations_and_the_rights_for_them(
    hub: Cluster, admin: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["register", "east", "--manifest"], ["manifest", "east"]):
        assert await run(*command, "--frameworks", _KINDS, "--kubeconfig", str(hub.kubeconfig)) == 0
        printed = capsys.readouterr().out
        assert {"renders.studio.example.com", "fish.example.com"} <= rules_in(printed)
        (mounted,) = [each for each in yaml.safe_load_all(printed) if each["kind"] == "ConfigMap"]
        assert list(yaml.safe_load_all(mounted["data"]["job-kinds.yaml"])) == [RENDER]
        assert "--external-frameworks=Fish.v1.example.com=fish" in printed


async def test_the_command_of_a_worker_has_the_declarations_and_names_the_rights(
    hub: Cluster, admin: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run("register", "west", "--frameworks", _KINDS, "--kubeconfig", str(hub.kubeconfig)) == 0
    printed = capsys.readouterr()
    assert "--job-kinds west.job-kinds.yaml" in printed.out
    needed = "needs these rights on the worker cluster too: get,list,watch,create,patch,delete"
    for resource in ("renders.studio.example.com", "fish.example.com"):
        assert f"{needed} {resource}" in printed.err


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        pytest.param({**_CONFIGURATION, "integrations": {}}, 'found "studio.example.com/render"', id="none declared"),
        pytest.param("integrations: [", "configuration", id="an unreadable Configuration"),
    ],
)
async def test_a_kind_that_is_not_declared_is_refused_before_anything_is_registered(
    configuration: Any, message: str, hub: Cluster, admin: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await configure(admin, configuration)
    assert await run("register", "south", "--frameworks", _KINDS, "--kubeconfig", str(hub.kubeconfig)) == 2
    assert message in capsys.readouterr().err
    assert not (await admin.list_all(CLUSTER_REGISTRATIONS)).items


async def test_who_may_not_read_the_configuration_can_name_shipped_kinds_only(
    hub: Cluster, admin: KubeClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = [
        {
            "apiGroups": ["multikueue.io", "kueue.x-k8s.io", "rbac.authorization.k8s.io"],
            "resources": ["*"],
            "verbs": ["*"],
        }
    ]
    await allow(admin, "registrar", rules)
    file = tmp_path / "registrar.kubeconfig"
    file.write_bytes(orjson.dumps(hub.issue_client_certificate("registrar")))
    assert await run("register", "north", "--frameworks", _KINDS, "--kubeconfig", str(file)) == 2
    assert "studio.example.com/render" in capsys.readouterr().err


async def test_the_role_for_recovery_has_the_kinds_of_the_hub(
    hub: Cluster, admin: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await FakeWorker(admin, "one").enrol()
    assert await run("recover", "one", "--role", "--kubeconfig", str(hub.kubeconfig)) == 0
    assert rules_in(capsys.readouterr().out) == {"renders.studio.example.com", "fish.example.com"}
