# SPDX-License-Identifier: Apache-2.0
"""What the identity of an agent can do on the management cluster, found out by trying.

The rights are those that `manager.dispatch.transport.mailboxes` gives, and the refusals are the API server's own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import pytest

from devcluster.cluster import Cluster
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_QUEUES,
    CLUSTER_REGISTRATIONS,
    CLUSTER_REPORTS,
    CLUSTER_ROLE_BINDINGS,
    CONFIG_MAPS,
    JOBS,
    LEASES,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    PODS,
    REMOTE_ASSIGNMENTS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    WORKLOADS,
    Resource,
)
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import agent_client, assignment_manifest, make_mailbox
from tests.support.managers import connections_closed

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

OWN, OTHER = "mk-thief", "mk-victim"
SPEC: Final = {"spec": {"intent": "Run"}}
Attempt = Callable[[KubeClient], Awaitable[object]]


@pytest.fixture
async def thief(cluster: Cluster, client: KubeClient) -> AsyncIterator[KubeClient]:
    """The agent of one cluster, beside the mailbox of another; an assignment "a" stands in both."""
    for name in ("thief", "victim"):
        await make_mailbox(client, name)
        body = assignment_manifest("a", cluster=name, namespace="ns")
        body["metadata"]["name"] = "a"
        await client.create(REMOTE_ASSIGNMENTS, body, namespace=f"mk-{name}")
    async with connections_closed(), agent_client(cluster, "thief") as agent:
        yield agent
    for name in ("thief", "victim"):
        await client.delete(REMOTE_ASSIGNMENTS, "a", namespace=f"mk-{name}")


def lists(resource: Resource, namespace: str | None = None) -> Attempt:
    return lambda agent: agent.list_page(resource, namespace=namespace)


def gets(resource: Resource, name: str, namespace: str | None = None) -> Attempt:
    return lambda agent: agent.get(resource, name, namespace=namespace)


def patches(resource: Resource, name: str, namespace: str | None = None, *, sub: str | None = None) -> Attempt:
    return lambda agent: agent.patch(resource, name, SPEC, namespace=namespace, subresource=sub)


def creates(resource: Resource, namespace: str | None = None) -> Attempt:
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "forged"}}
    return lambda agent: agent.create(resource, body, namespace=namespace)


def deletes(resource: Resource, name: str, namespace: str | None = None) -> Attempt:
    return lambda agent: agent.delete(resource, name, namespace=namespace)


async def watches(agent: KubeClient) -> None:
    async for _ in agent.watch(REMOTE_ASSIGNMENTS, namespace=OTHER, timeout_seconds=1):
        break


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(lists(REMOTE_ASSIGNMENTS, OTHER), id="read another mailbox"),
        pytest.param(lists(REMOTE_ASSIGNMENTS), id="read all mailboxes"),
        pytest.param(watches, id="watch another mailbox"),
        pytest.param(gets(REMOTE_ASSIGNMENTS, "a", OTHER), id="read one assignment of another mailbox"),
        pytest.param(patches(REMOTE_ASSIGNMENTS, "a", OTHER, sub="status"), id="forge a status for another cluster"),
        pytest.param(patches(REMOTE_ASSIGNMENTS, "a", OWN), id="grant itself a workload"),
        pytest.param(creates(REMOTE_ASSIGNMENTS, OWN), id="make up an assignment"),
        pytest.param(deletes(REMOTE_ASSIGNMENTS, "a", OWN), id="remove an assignment"),
        pytest.param(gets(LEASES, "agent", OTHER), id="read the lease of another cluster"),
        pytest.param(patches(LEASES, "agent", OTHER), id="renew the lease of another cluster"),
        pytest.param(gets(LEASES, "other", OWN), id="read another lease of its own mailbox"),
        pytest.param(creates(LEASES, OWN), id="make a lease"),
        pytest.param(patches(CLUSTER_REPORTS, "agent", OTHER, sub="status"), id="report for another cluster"),
        pytest.param(lists(WORKLOADS), id="read workloads"),
        pytest.param(patches(WORKLOADS, "w", "default", sub="status"), id="write the status of a workload"),
        pytest.param(lists(JOBS), id="read jobs"),
        pytest.param(creates(JOBS, OWN), id="create a job on the hub"),
        pytest.param(creates(PODS, OWN), id="create a pod in its own mailbox"),
        pytest.param(lists(SECRETS), id="read secrets"),
        pytest.param(lists(SECRETS, OWN), id="read secrets of its own mailbox"),
        pytest.param(lists(CONFIG_MAPS, "kube-system"), id="read config maps"),
        pytest.param(lists(ADMISSION_CHECKS), id="read admission checks"),
        pytest.param(patches(ADMISSION_CHECKS, "mk", sub="status"), id="write an admission check"),
        pytest.param(lists(CLUSTER_QUEUES), id="read queues"),
        pytest.param(lists(MULTIKUEUE_CLUSTERS), id="read clusters"),
        pytest.param(lists(CLUSTER_REGISTRATIONS), id="read registrations"),
        pytest.param(creates(CLUSTER_REGISTRATIONS), id="register a cluster"),
        pytest.param(lists(NAMESPACES), id="read namespaces"),
        pytest.param(gets(NAMESPACES, OTHER), id="read the namespace of another mailbox"),
        pytest.param(patches(NAMESPACES, OWN), id="write its own namespace"),
        pytest.param(lists(ROLES, OWN), id="read its own rights"),
        pytest.param(creates(ROLE_BINDINGS, OWN), id="give itself rights"),
        pytest.param(creates(CLUSTER_ROLE_BINDINGS), id="give itself rights everywhere"),
        pytest.param(creates(SERVICE_ACCOUNTS, OWN), id="make itself another identity"),
        pytest.param(lists(CERTIFICATE_SIGNING_REQUESTS), id="read certificate requests"),
    ],
)
async def test_a_stolen_identity_cannot(thief: KubeClient, attempt: Attempt) -> None:
    with pytest.raises(Forbidden):
        await attempt(thief)


async def test_what_an_agent_needs_it_may(thief: KubeClient) -> None:
    assert len((await thief.list_page(REMOTE_ASSIGNMENTS, namespace=OWN)).items) == 1
    await thief.patch(REMOTE_ASSIGNMENTS, "a", {"status": {"phase": "Pending"}}, namespace=OWN, subresource="status")
    await thief.patch(LEASES, "agent", {"spec": {"holderIdentity": "thief"}}, namespace=OWN)
    await thief.patch(CLUSTER_REPORTS, "agent", {"status": {"bootID": "b"}}, namespace=OWN, subresource="status")
    await thief.get(NAMESPACES, OWN)


async def test_a_status_write_cannot_change_the_spec(thief: KubeClient) -> None:
    forged = {"spec": {"intent": "Run", "epoch": 9}, "metadata": {"labels": {"x": "y"}}, "status": {"phase": "Pending"}}
    await thief.patch(REMOTE_ASSIGNMENTS, "a", forged, namespace=OWN, subresource="status")
    stored = await thief.get_object(REMOTE_ASSIGNMENTS, "a", namespace=OWN)
    assert (stored["spec"]["intent"], stored["spec"]["epoch"]) == ("Reserve", 1)
    assert "x" not in stored["metadata"]["labels"]
