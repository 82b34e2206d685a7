# SPDX-License-Identifier: Apache-2.0
"""Pending workloads through the API server: their order, who may read them, and what others get instead."""

from __future__ import annotations

import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import anyio
import pytest

from devcluster.cluster import Cluster
from manager.app import Manager
from multikueue.api.resource import (
    API_SERVICES,
    CLUSTER_ROLE_BINDINGS,
    NAMESPACES,
    ROLE_BINDINGS,
    SECRETS,
    WORKLOAD_PRIORITY_CLASSES,
)
from multikueue.kube.errors import Forbidden, NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.tls import load_client_certificate
from tests.support.managers import (
    condition,
    ensure,
    eventually,
    get,
    make_job,
    make_namespace,
    make_queue,
    running_manager,
    wait_condition,
)
from tests.support.service_accounts import service_account

pytestmark = pytest.mark.anyio

Object = dict[str, Any]
MANAGER = "system:serviceaccount:kueue-system:kueue-controller-manager"
GROUP = "/apis/visibility.kueue.x-k8s.io"
VERSIONS = ("v1beta1", "v1beta2")
SERVICE = "kueue-visibility-server.kueue-system.svc"


def of_cluster_queue(name: str, *, version: str = "v1beta2", query: str = "") -> str:
    return f"{GROUP}/{version}/clusterqueues/{name}/pendingworkloads{query}"


def of_local_queue(name: str, *, namespace: str, version: str = "v1beta2") -> str:
    return f"{GROUP}/{version}/namespaces/{namespace}/localqueues/{name}/pendingworkloads"


@asynccontextmanager
async def visible(hub: Cluster, client: KubeClient, *, leader_election: bool = False) -> AsyncIterator[Manager]:
    """A manager with no more rights than its roles, whose API the server has found."""
    async with running_manager(hub, user=MANAGER, visibility=True, leader_election=leader_election) as manager:
        for version in VERSIONS:
            await eventually(
                partial(get, client, API_SERVICES, f"{version}.visibility.kueue.x-k8s.io"),
                what=f"{version} is available",
                until=lambda seen: condition(seen, "Available").get("status") == "True",
            )
        yield manager
        for version in VERSIONS:
            await client.delete(API_SERVICES, f"{version}.visibility.kueue.x-k8s.io")


async def full_queue(client: KubeClient, name: str, *jobs: str, priority: dict[str, int] | None = None) -> None:
    """A queue of one cpu that its first job uses, and the others wait."""
    await make_queue(client, name, namespace=name, cpu="1")
    for number, job in enumerate(jobs):
        labels = {}
        if priority and job in priority:
            labels = {"kueue.x-k8s.io/priority-class": f"of-{priority[job]}"}
            value = {"metadata": {"name": f"of-{priority[job]}"}, "value": priority[job]}
            kind = {"apiVersion": WORKLOAD_PRIORITY_CLASSES.api_version, "kind": WORKLOAD_PRIORITY_CLASSES.kind}
            await ensure(client, WORKLOAD_PRIORITY_CLASSES, {**kind, **value})
        await make_job(client, job, namespace=name, queue=name, labels=labels)
        if number == 0:
            await wait_condition(client, job, "Admitted", namespace=name)


async def fetch(client: KubeClient, path: str) -> Object:
    answer: Object = (await client.request("GET", path)).json()
    return answer


async def shown(client: KubeClient, path: str, *, number: int) -> list[Object]:
    """The items, once there are so many."""

    async def items() -> list[Object]:
        return list((await fetch(client, path))["items"])

    return await eventually(items, what=f"{number} workloads are pending", until=lambda found: len(found) == number)


def jobs_of(items: list[Object]) -> list[str]:
    return [owner["name"] for item in items for owner in item["metadata"]["ownerReferences"]]


async def user(hub: Cluster, name: str) -> KubeClient:
    return KubeClient(credentials.from_dict(hub.issue_client_certificate(name)))


async def bind(client: KubeClient, subject: Object, role: str, *, namespace: str | None = None) -> None:
    resource = CLUSTER_ROLE_BINDINGS if namespace is None else ROLE_BINDINGS
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": f"{subject['name']}-{subject.get('namespace', '')}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }
    await client.create(resource, body, namespace=namespace)


def person(name: str) -> Object:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


async def directly(client: KubeClient, port: int, path: str, **headers: str) -> tuple[int, Object]:
    """What the manager itself answers, past the API server."""
    secret = await client.get_object(SECRETS, "kueue-webhook-server-cert", namespace="kueue-system")
    trust = ssl.create_default_context(cadata=b64decode(secret["data"]["ca.crt"]).decode())
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{port}{path}"
        async with session.get(url, headers=named, ssl=trust, server_hostname=SERVICE) as answer:
            found: Object = await answer.json()
            return answer.status, found


async def test_each_queue_shows_what_waits_in_it_in_order(hub: Cluster, client: KubeClient) -> None:
    async with visible(hub, client):
        # Those of one second and one priority have no order that a test could know.
        priority = {"urgent": 1000, "second": 20}
        await full_queue(client, "ordered", "first", "second", "urgent", "third", priority=priority)
        for version in VERSIONS:
            found = await shown(client, of_cluster_queue("ordered", version=version), number=3)
            assert jobs_of(found) == ["urgent", "second", "third"]
            assert [
                (item["priority"], item["localQueueName"], item["positionInClusterQueue"], item["positionInLocalQueue"])
                for item in found
            ] == [(1000, "ordered", 0, 0), (20, "ordered", 1, 1), (0, "ordered", 2, 2)]
            local = of_local_queue("ordered", namespace="ordered", version=version)
            assert await shown(client, local, number=3) == found
            page = await fetch(client, of_cluster_queue("ordered", version=version, query="?limit=1&offset=1"))
            assert (page["kind"], page["apiVersion"]) == (
                "PendingWorkloadsSummary",
                f"visibility.kueue.x-k8s.io/{version}",
            )
            assert page["items"] == found[1:2]
        for missing in (of_cluster_queue("none"), of_local_queue("none", namespace="ordered")):
            with pytest.raises(NotFound, match=r'visibility\.kueue\.x-k8s\.io "none" not found'):
                await fetch(client, missing)


async def test_users_of_a_namespace_see_its_local_queues_and_administrators_all(
    hub: Cluster, client: KubeClient
) -> None:
    async with visible(hub, client), await user(hub, "ann") as ann, await user(hub, "adam") as adam:
        await full_queue(client, "ours", "one", "two")
        await full_queue(client, "theirs", "one", "two")
        await bind(client, person("ann"), "kueue-batch-user-role", namespace="ours")
        await bind(client, person("adam"), "kueue-batch-admin-role")
        await shown(client, of_local_queue("ours", namespace="ours"), number=1)

        async def allowed() -> bool:
            try:
                await fetch(ann, of_local_queue("ours", namespace="ours"))
                await fetch(adam, of_cluster_queue("theirs"))
            except Forbidden:
                return False
            return True

        await eventually(allowed, what="the aggregated roles have their rules")
        for refused in (of_local_queue("theirs", namespace="theirs"), of_cluster_queue("ours")):
            with pytest.raises(Forbidden):
                await fetch(ann, refused)


async def test_discovery_has_the_group_in_both_versions(hub: Cluster, client: KubeClient) -> None:
    async with visible(hub, client):

        async def group() -> Object | None:
            groups = (await fetch(client, "/apis"))["groups"]
            return next((each for each in groups if each["name"] == "visibility.kueue.x-k8s.io"), None)

        found = await eventually(group, what="the group is discovered")
        assert found is not None
        assert found["preferredVersion"]["version"] == "v1beta2"
        for version in VERSIONS:
            names = {each["name"] for each in (await fetch(client, f"{GROUP}/{version}"))["resources"]}
            assert {"clusterqueues/pendingworkloads", "localqueues/pendingworkloads"} <= names


async def test_past_the_api_server_only_a_token_says_who_asks(hub: Cluster, client: KubeClient) -> None:
    async with visible(hub, client) as manager:
        await full_queue(client, "direct", "one", "two")
        await shown(client, of_cluster_queue("direct"), number=1)
        path, port = of_cluster_queue("direct"), manager.visibility_port
        forged = {"X_Remote_User": "kubernetes-admin", "X_Remote_Group": "system:masters"}
        for headers in ({}, forged, {**forged, "Authorization": "Bearer made-up"}, {"Authorization": "Basic eDp5"}):
            status, answer = await directly(client, port, path, **headers)
            assert (status, answer["reason"]) == (401, "Unauthorized"), headers
        stranger = await service_account(client, "stranger", namespace="direct")
        reader = await service_account(client, "reader", namespace="direct")
        account = {"kind": "ServiceAccount", "name": "reader", "namespace": "direct"}
        await bind(client, account, "kueue-batch-admin-role")
        status, answer = await directly(client, port, path, Authorization=f"Bearer {stranger}", **forged)
        assert (status, answer["reason"]) == (403, "Forbidden")
        assert "system:serviceaccount:direct:stranger" in answer["message"]

        async def read() -> tuple[int, Object]:
            return await directly(client, port, path, Authorization=f"Bearer {reader}")

        status, answer = await eventually(read, what="the right is given", until=lambda seen: seen[0] == 200)
        assert jobs_of(answer["items"]) == ["two"]


async def test_a_certificate_of_the_cluster_names_no_other_user(hub: Cluster, client: KubeClient) -> None:
    """Clients of the cluster have certificates too, of another authority than the API server's own."""
    async with visible(hub, client) as manager:
        own = hub.issue_client_certificate("mallory")["users"][0]["user"]
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        pem = b64decode(own["client-certificate-data"]) + b64decode(own["client-key-data"])
        load_client_certificate(context, pem)
        headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
        url = f"https://127.0.0.1:{manager.visibility_port}{of_cluster_queue('any')}"
        with pytest.raises((aiohttp.ClientError, OSError)):
            async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=context) as answer:
                await answer.read()


async def test_a_replica_that_does_not_lead_answers_as_well(hub: Cluster, client: KubeClient) -> None:
    async with visible(hub, client, leader_election=True):
        await full_queue(client, "followed", "one", "two", "three")
        found = await shown(client, of_cluster_queue("followed"), number=2)
        reader = await service_account(client, "reader", namespace="followed")
        account = {"kind": "ServiceAccount", "name": "reader", "namespace": "followed"}
        await bind(client, account, "kueue-batch-admin-role")
        async with running_manager(
            hub, user=MANAGER, visibility=True, leader_election=True, identity="second"
        ) as second:
            await eventually(lambda: _true(second.visibility_port), what="the second one serves")

            async def read() -> list[Object]:
                try:
                    _, answer = await directly(
                        client,
                        second.visibility_port,
                        of_cluster_queue("followed"),
                        Authorization=f"Bearer {reader}",
                    )
                except aiohttp.ClientError:
                    return []
                return list(answer.get("items") or ())

            assert await eventually(read, what="it answers", until=lambda seen: len(seen) == 2) == found
            await make_job(client, "four", namespace="followed", queue="followed")
            later = await eventually(read, what="it follows", until=lambda seen: len(seen) == 3)
            assert sorted(jobs_of(later)) == ["four", "three", "two"]
            assert not second.leading


async def test_namespaces_can_be_deleted_while_it_is_served(hub: Cluster, client: KubeClient) -> None:
    async with visible(hub, client):
        await make_namespace(client, "short-lived")
        await client.delete(NAMESPACES, "short-lived")

        async def gone() -> bool:
            return await get(client, NAMESPACES, "short-lived") is None

        await eventually(gone, what="the namespace is gone")


async def _true(value: object) -> bool:
    await anyio.lowlevel.checkpoint()
    return bool(value)
