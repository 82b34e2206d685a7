# SPDX-License-Identifier: Apache-2.0
"""`mkctl explain` and `timeline` with a tenant's rights: what it may see, what was left out, nothing of others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import orjson
import pytest

from devcluster import manifests
from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from multikueue.api.resource import CLUSTER_QUEUES, CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS, ROLES, WORKLOADS
from multikueue.cli.cluster.lifecycle import set_availability
from multikueue.cli.inspect import explain, timeline
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import (
    connections_closed,
    eventually,
    get,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)
from tests.support.tenant_hubs import hub
from tests.support.workers import SCALED_DOWN, FakeWorker, check_of, make_check

__all__ = ["hub"]

pytestmark = pytest.mark.anyio

OWN, OTHER = "team-ann", "team-bob"
USER_ROLES: Final = Path(__file__).parents[3] / "deploy" / "rbac" / "users.yaml"
FOREIGN: Final = (OTHER, "of-bob")
NAMESPACE_ROLE: Final[Sequence[dict[str, Any]]] = (
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "localqueues"], "verbs": ["get", "list"]},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["get", "list"]},
)
_RBAC: Final = "rbac.authorization.k8s.io"


@pytest.fixture
async def admin(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator of a hub with a manager, one cordoned worker, and two tenants whose queues share a cohort."""
    async with connections_closed(), hub.client() as client:
        await make_check(client, "workers", ("one",))
        async with running_manager(hub, settings=SCALED_DOWN, dispatch=DispatchController):
            worker = FakeWorker(client, "one")
            await worker.enrol()
            await worker.connect()
            await set_availability(client, "one", {"cordoned": True})
            for team in (OWN, OTHER):
                if await get(client, CLUSTER_QUEUES, team) is None:
                    await make_queue(client, team, namespace=team, cpu="4", cohort="teams", checks=("workers",))
                    await make_job(client, f"of-{team.removeprefix('team-')}", namespace=team, queue=team)
                    await make_job(client, "much", namespace=team, queue=team, cpu="50")
            await eventually(
                lambda: workload_of(client, "of-ann", namespace=OWN),
                what="it waits for the cluster",
                until=lambda seen: "is cordoned" in check_of(seen, "workers").get("message", ""),
            )
            await wait_condition(client, "much", "QuotaReserved", namespace=OWN, status="False")
            yield client


async def bind(client: KubeClient, user: str, *, role: str, kind: str, namespace: str = "") -> None:
    """Give the user a role, in one namespace or everywhere."""
    resource = ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS
    name = f"{user}-{role}"
    binding = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}],
    }
    await client.apply(resource, name, binding, namespace=namespace or None, manager="test")


async def kubeconfig_of(hub: Cluster, client: KubeClient, user: str, tmp_path: Path) -> str:
    """The kubeconfig of that user, who has the rights that its name says."""
    if user == "ann-of-a-role":
        body = {
            "apiVersion": ROLES.api_version,
            "kind": ROLES.kind,
            "metadata": {"name": "tenant", "namespace": OWN},
            "rules": list(NAMESPACE_ROLE),
        }
        await client.apply(ROLES, "tenant", body, namespace=OWN, manager="test")
        await bind(client, user, role="tenant", kind="Role", namespace=OWN)
    else:
        await manifests.apply_all(client, manifests.read(USER_ROLES))
        where = OWN if user == "ann-of-the-user-role" else ""
        await bind(client, user, role="kueue-batch-user-role", kind="ClusterRole", namespace=where)
    file = tmp_path / "kubeconfig"
    file.write_bytes(orjson.dumps(hub.issue_client_certificate(user)))
    return str(file)


async def in_force(file: str) -> None:
    """Wait until the rights of that user have come into force."""

    async def readable() -> bool:
        async with KubeClient(credentials.load(file)) as own:
            try:
                await own.list_all(WORKLOADS, namespace=OWN)
            except Forbidden:
                return False
        return True

    await eventually(readable, what="the tenant may read its Workloads")


async def output(main: Any, capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capfd.readouterr()
    code = await anyio.to_thread.run_sync(partial(main, list(arguments)))
    out, err = capfd.readouterr()
    return code, out, err


async def test_a_tenant_sees_its_own_work_and_what_was_left_out_and_nothing_of_others(
    hub: Cluster, admin: KubeClient, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # One manager for all of them: it takes longer to start than all that is asked here.
    for user in ("ann-of-a-role", "ann-of-the-user-role", "ann-of-the-user-role-everywhere"):
        kubeconfig = await kubeconfig_of(hub, admin, user, tmp_path)
        await in_force(kubeconfig)
        await explained(kubeconfig, capfd)
        await timeline_of(kubeconfig, capfd, sees_events=user == "ann-of-a-role")
        if not user.endswith("everywhere"):
            await refused(kubeconfig, capfd)


async def explained(kubeconfig: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Why its Jobs wait."""
    ask = partial(output, explain.main, capfd)
    code, out, err = await ask("job", "of-ann", "-n", OWN, "--kubeconfig", kubeconfig)
    assert (code, err) == (0, "")
    assert "has quota and waits for a cluster: one: is cordoned" in out.splitlines()[0]
    assert "position in the queue, quota and borrowing; needs:" in out
    assert "(kueue.x-k8s.io) in the whole cluster" in out
    assert not [word for word in FOREIGN if word in out]
    code, out, _ = await ask("job", "much", "-n", OWN, "--kubeconfig", kubeconfig)
    first, then, *_ = out.splitlines()
    assert (code, "can never get quota in ClusterQueue team-ann" in first) == (0, True)
    assert then.startswith("Next: reduce the requests of the job")
    assert not [word for word in FOREIGN if word in out]
    code, out, _ = await ask("job", "much", "-n", OWN, "--kubeconfig", kubeconfig, "-o", "json")
    assert {part["what"] for part in orjson.loads(out)["leftOut"]} >= {
        "position in the queue, quota and borrowing",
        "the clusters with their reasons",
    }
    assert not [word for word in FOREIGN if word in out]


async def timeline_of(kubeconfig: str, capfd: pytest.CaptureFixture[str], *, sees_events: bool) -> None:
    """What happened to its Job."""
    code, out, err = await output(timeline.main, capfd, "job", "of-ann", "-n", OWN, "--kubeconfig", kubeconfig)
    assert code == 0
    assert "Job created" in out
    assert "Workload QuotaReserved" in out
    assert ("Job WaitingForCluster" in out) is sees_events
    assert ("# left out: events; needs permission to list events" in err) is not sees_events
    assert "# left out: when clusters were lost and reconnected; needs permission to list multikueueclusters" in err
    assert "needs permission to list remoteassignments (multikueue.io) in the whole cluster" in err
    assert not [word for word in FOREIGN if word in out + err]


async def refused(kubeconfig: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Work of another tenant."""
    for main in (explain.main, timeline.main):
        code, out, err = await output(main, capfd, "job", "of-bob", "-n", OTHER, "--kubeconfig", kubeconfig)
        assert (code, out) == (2, "")
        assert 'cannot list resource "workloads"' in err


async def test_an_administrator_sees_everything(
    hub: Cluster, admin: KubeClient, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ("job", "of-ann", "-n", OWN, "--kubeconfig", str(hub.kubeconfig))
    code, out, err = await output(explain.main, capfd, *arguments)
    assert (code, err) == (0, "")
    assert "Not shown" not in out
    assert "has quota, but no cluster accepts it: one: is cordoned and takes no new work" in out
    assert "Next: an administrator can uncordon one:\n  mkctl cluster uncordon one\n" in out
    code, out, err = await output(timeline.main, capfd, *arguments)
    assert "left out" not in err
