# SPDX-License-Identifier: Apache-2.0
"""A `mkctl cluster` command that is refused changes nothing on the hub, embedded and real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import orjson
import pytest

from devcluster.cluster import Cluster
from multikueue.api.resource import (
    CLUSTER_REGISTRATIONS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from multikueue.cli.cluster import commands, lifecycle
from multikueue.cli.cluster.removal import remove_cluster
from multikueue.core.clock import SystemClock
from multikueue.kube.errors import Details, Forbidden
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import make_namespace
from tests.support.tenant_hubs import allow, hub
from tests.support.workers import FakeWorker, make_check

__all__ = ["hub"]

pytestmark = pytest.mark.anyio

_KINDS: Final = (
    CLUSTER_REGISTRATIONS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
)
_READS: Final = ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},)
_GROUP: Final = "multikueue.io"
_NO_WAIT: Final = timedelta()
_BUILT_IN: Final = frozenset({"default", "admin", "edit", "view", "cluster-admin"})


@pytest.fixture
async def admin(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator of a hub with the clusters `one` and `two`."""
    async with hub.client() as client:
        await make_namespace(client, "kueue-system")
        for name in ("one", "two"):
            await FakeWorker(client, name).enrol()
        for resource in (MULTIKUEUE_CONFIGS, CLUSTER_REGISTRATIONS):
            await client.delete_collection(resource)
        yield client


async def stored(client: KubeClient) -> dict[str, Any]:
    """What these commands write: which objects there are, and their specs."""
    found = {}
    for resource in _KINDS:
        for raw in (await client.list_all(resource)).items:
            obj = orjson.loads(raw)
            name: str = obj["metadata"]["name"]
            # A fresh server, and its controllers, make these by and by.
            if not name.startswith(("system:", "kube-")) and name not in _BUILT_IN:
                found[f"{resource.plural}/{name}"] = obj.get("spec")
    return found


async def run(*arguments: str) -> int:
    return await anyio.to_thread.run_sync(partial(commands.main, list(arguments)))


async def kubeconfig_of(hub: Cluster, admin: KubeClient, tmp_path: Path, rules: Any) -> str:
    """The kubeconfig of a user with these rights."""
    await allow(admin, "operator", rules)
    file = tmp_path / "operator.kubeconfig"
    file.write_bytes(orjson.dumps(hub.issue_client_certificate("operator")))
    return str(file)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["remove", "one", "--force"], id="remove"),
        pytest.param(["remove", "one", "--wait", "0s"], id="remove and wait"),
        pytest.param(["drain", "one", "--deadline", "0s"], id="drain"),
        pytest.param(["cordon", "one"], id="cordon"),
        pytest.param(["uncordon", "one"], id="uncordon"),
        pytest.param(["register", "three", "--approve"], id="register"),
        pytest.param(["approve", "one", "--wait", "0s"], id="approve"),
    ],
)
async def test_a_command_without_the_rights_for_it_changes_nothing(
    arguments: list[str],
    hub: Cluster,
    admin: KubeClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = await kubeconfig_of(hub, admin, tmp_path, _READS)
    before = await stored(admin)
    assert await run(*arguments, "--kubeconfig", file) != 0
    assert await stored(admin) == before
    assert f"mkctl cluster {arguments[0]}: " in capsys.readouterr().err


async def test_the_only_cluster_of_a_config_is_not_removed_and_not_drained_even_with_force(
    hub: Cluster, admin: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await make_check(admin, "alone", ("one",))
    before = await stored(admin)
    assert await run("remove", "one", "--force", "--kubeconfig", str(hub.kubeconfig)) == 2
    assert await stored(admin) == before
    message = capsys.readouterr().err
    assert "one is the only cluster of MultiKueueConfig alone" in message
    assert "kubectl edit multikueueconfig alone" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["remove", "absent"], "MultiKueueCluster absent not found", id="remove"),
        pytest.param(["cordon", "absent"], "MultiKueueCluster absent not found", id="cordon"),
        pytest.param(["drain", "absent"], "MultiKueueCluster absent not found", id="drain"),
        pytest.param(["register", "Not_A_Name"], "is not a valid cluster name", id="register"),
        pytest.param(["remove", "one", "--deadline", "soon"], '"soon" is not a duration', id="remove, bad deadline"),
        pytest.param(["remove", "one", "--force", "--wait", "x"], '--wait: "x" is not a', id="remove, bad wait"),
        pytest.param(["drain", "one", "--wait", "x"], '--wait: "x" is not a duration', id="drain, bad wait"),
    ],
)
async def test_a_command_with_bad_input_changes_nothing(
    arguments: list[str], message: str, hub: Cluster, admin: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    before = await stored(admin)
    assert await run(*arguments, "--kubeconfig", str(hub.kubeconfig)) == 2
    assert await stored(admin) == before
    assert message in capsys.readouterr().err


async def test_a_write_that_fails_half_way_takes_back_the_drain_and_the_configs(
    hub: Cluster, admin: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_check(admin, "first", ("one", "two"))
    await make_check(admin, "second", ("one", "two"))
    before = await stored(admin)
    write = admin.patch

    async def refusing(resource: Resource, name: str, body: Any, **more: Any) -> bytes:
        if resource == MULTIKUEUE_CONFIGS and name == "second":
            raise refusal("second may not be changed")
        return await write(resource, name, body, **more)

    monkeypatch.setattr(admin, "patch", refusing)
    with pytest.raises(Forbidden):
        await removed(admin)
    assert await stored(admin) == before


async def test_an_interrupted_removal_has_the_next_command_and_completes(
    hub: Cluster, admin: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_check(admin, "both", ("one", "two"))
    delete = admin.delete

    async def refusing(resource: Resource, name: str, **more: Any) -> bytes:
        if resource == SECRETS:
            raise refusal("may not be deleted")
        return await delete(resource, name, **more)

    with monkeypatch.context() as patched:
        patched.setattr(admin, "delete", refusing)
        with pytest.raises(lifecycle.PartlyRemoved, match="To remove the rest:\nmkctl cluster remove one"):
            await removed(admin)
    assert "secrets/one-kubeconfig" in await stored(admin)
    await removed(admin)
    assert "secrets/one-kubeconfig" not in await stored(admin)


def refusal(message: str) -> Forbidden:
    return Forbidden(request="a test", status=403, reason="Forbidden", message=message, details=Details())


async def removed(client: KubeClient) -> list[str]:
    return await remove_cluster(
        client,
        "one",
        deadline=_NO_WAIT,
        timeout=_NO_WAIT,
        force=True,
        namespace="kueue-system",
        clock=SystemClock(),
    )
