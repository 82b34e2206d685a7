# SPDX-License-Identifier: Apache-2.0
"""A mailbox is a namespace that the manager made or was handed over, and nothing keeps it from going."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import anyio
import pytest

from devcluster.cluster import Cluster
from manager.app import Manager
from manager.dispatch.controller import DispatchController
from manager.seals import Seals
from multikueue.api.constants import (
    CLUSTER_LABEL,
    MAILBOX_NAMESPACE_UID_ANNOTATION,
    MAILBOX_SEAL_ANNOTATION,
    MANAGER_UID_ANNOTATION,
)
from multikueue.api.resource import (
    CLUSTER_REPORTS,
    LEASES,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    REMOTE_ASSIGNMENTS,
    ROLE_BINDINGS,
    SECRETS,
)
from multikueue.cli.cluster.registering import RegistrationRequest, register, withdraw
from multikueue.core.clock import SystemClock
from multikueue.core.errors import BadInput
from multikueue.dispatch.protocol.seals import SEAL_SECRET
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import agent_client
from tests.support.hubs import Hub, running_hub
from tests.support.managers import Object, condition, connections_closed, eventually, get, running_manager
from tests.support.tenant_hubs import hub as hub
from tests.support.workers import SCALED_DOWN, FakeWorker

pytestmark = pytest.mark.anyio

CLOCK = SystemClock()


def managing(hub: Hub | Cluster) -> AbstractAsyncContextManager[Manager]:
    cluster = hub.as_cluster if isinstance(hub, Hub) else hub
    return running_manager(cluster, settings=SCALED_DOWN, webhooks=False, dispatch=DispatchController)


async def squat(client: KubeClient, name: str, **annotations: str) -> Object:
    """A namespace as a user creates it who has rights in it."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}}
    await client.create(NAMESPACES, body)
    found = await get(client, NAMESPACES, name)
    assert found is not None
    return found


async def active(client: KubeClient, name: str) -> Object:
    return condition(await get(client, MULTIKUEUE_CLUSTERS, name), "Active")


async def taken(client: KubeClient, name: str) -> str:
    """Wait for the condition that the namespace is another user's; return its message."""
    found = await eventually(
        lambda: active(client, name),
        what="the condition names the namespace",
        until=lambda seen: seen.get("reason") == "MailboxNamespaceTaken",
    )
    assert found["status"] == "False"
    return str(found["message"])


async def left_alone(client: KubeClient, namespace: str) -> None:
    """Nothing of ours is there."""
    for resource in (LEASES, CLUSTER_REPORTS, REMOTE_ASSIGNMENTS, ROLE_BINDINGS):
        assert (await client.list_all(resource, namespace=namespace)).items == [], resource.kind


@pytest.mark.parametrize("marked", [False, True], ids=["unmarked", "with forged marks"])
async def test_a_namespace_of_another_user_gets_nothing_until_it_is_handed_over(marked: bool) -> None:
    async with running_hub() as hub, hub.client() as client:
        worker = FakeWorker(client, "one")
        system = await get(client, NAMESPACES, "kube-system")
        assert system is not None
        marks = {
            CLUSTER_LABEL: "one",
            MANAGER_UID_ANNOTATION: system["metadata"]["uid"],
            MAILBOX_SEAL_ANNOTATION: "0" * 64,
        }
        made = await squat(client, worker.mailbox, **(marks if marked else {}))
        await worker.enrol()
        async with managing(hub):
            message = await taken(client, "one")
            assert f"{MAILBOX_NAMESPACE_UID_ANNOTATION}={made['metadata']['uid']}" in message
            await left_alone(client, worker.mailbox)
            wrong = {"metadata": {"annotations": {MAILBOX_NAMESPACE_UID_ANNOTATION: "another"}}}
            await client.patch(MULTIKUEUE_CLUSTERS, "one", wrong)
            assert "was not created by this manager" in await taken(client, "one")
            right = {"metadata": {"annotations": {MAILBOX_NAMESPACE_UID_ANNOTATION: made["metadata"]["uid"]}}}
            await client.patch(MULTIKUEUE_CLUSTERS, "one", right)
            await worker.connect()
            await eventually(
                lambda: active(client, "one"), what="it is used", until=lambda seen: seen.get("status") == "True"
            )
            # From now on the seal counts.
            gone = {"metadata": {"annotations": {MAILBOX_NAMESPACE_UID_ANNOTATION: None}}}
            await client.patch(MULTIKUEUE_CLUSTERS, "one", gone)
        async with managing(hub):
            await worker.connect()
            assert (await active(client, "one"))["status"] == "True"


async def test_a_namespace_that_takes_the_place_of_a_mailbox_is_not_used_whatever_it_copies() -> None:
    async with running_hub() as hub, hub.client() as client:
        worker = FakeWorker(client, "one")
        await worker.enrol()
        async with managing(hub):
            await worker.connect()
            found = await get(client, NAMESPACES, worker.mailbox)
            assert found is not None
            copied = found["metadata"]["annotations"]
        await client.delete_collection(LEASES, namespace=worker.mailbox)
        await client.delete_collection(CLUSTER_REPORTS, namespace=worker.mailbox)
        await client.delete_collection(ROLE_BINDINGS, namespace=worker.mailbox)
        await remove_namespace(client, worker.mailbox)
        await squat(client, worker.mailbox, **copied)
        async with managing(hub):
            await taken(client, "one")
            await left_alone(client, worker.mailbox)


async def remove_namespace(client: KubeClient, name: str) -> None:
    """Without a namespace controller: empty, and finalized by hand."""
    await client.delete(NAMESPACES, name)
    found = await get(client, NAMESPACES, name)
    if found is not None:
        found["spec"]["finalizers"] = []
        await client.replace(NAMESPACES, name, found, subresource="finalize")


async def test_a_mailbox_of_a_version_without_seals_is_gone_on_with() -> None:
    async with running_hub() as hub, hub.client() as client:
        worker = FakeWorker(client, "one")
        await worker.enrol()
        async with managing(hub):
            await worker.connect()
            await eventually(
                lambda: active(client, "one"), what="it is used", until=lambda seen: seen.get("status") == "True"
            )
        bare = {"metadata": {"annotations": {MAILBOX_SEAL_ANNOTATION: None}}}
        await client.patch(NAMESPACES, worker.mailbox, bare)
        await client.delete(SECRETS, SEAL_SECRET, namespace="kueue-system")
        await anyio.sleep(1.1)  # times of creation are whole seconds
        async with managing(hub):
            found = await eventually(
                lambda: get(client, NAMESPACES, worker.mailbox),
                what="it is sealed",
                until=lambda seen: MAILBOX_SEAL_ANNOTATION in (seen or {})["metadata"]["annotations"],
            )
            assert found is not None
            assert (await active(client, "one"))["status"] == "True"


async def test_a_manager_that_ended_while_it_made_a_mailbox_continues() -> None:
    async with running_hub() as hub, hub.client() as client:
        worker = FakeWorker(client, "one")
        await worker.enrol()
        seals = await Seals.load(client, namespace="kueue-system")
        first = seals.mailbox_seal(namespace=worker.mailbox, cluster="one")
        await squat(client, worker.mailbox, **{CLUSTER_LABEL: "one", MAILBOX_SEAL_ANNOTATION: first})
        async with managing(hub):
            await worker.connect()
            found = await get(client, NAMESPACES, worker.mailbox)
            assert found is not None
            assert found["metadata"]["annotations"][MAILBOX_SEAL_ANNOTATION] != first


async def test_register_refuses_a_namespace_of_another_user(hub: Cluster) -> None:
    async with connections_closed(), hub.client() as client:
        made = await squat(client, "mk-reg")
        wanted = RegistrationRequest(cluster="reg", namespace="kueue-system", ttl=timedelta(hours=1), accept=True)
        with pytest.raises(BadInput, match="namespace mk-reg already exists"):
            await register(client, wanted, clock=CLOCK)
        assert await get(client, MULTIKUEUE_CLUSTERS, "reg") is None
        handing_over = RegistrationRequest(
            cluster="reg", namespace="kueue-system", ttl=timedelta(hours=1), accept=True, use_namespace=True
        )
        await register(client, handing_over, clock=CLOCK)
        found = await get(client, MULTIKUEUE_CLUSTERS, "reg")
        assert found is not None
        assert found["metadata"]["annotations"][MAILBOX_NAMESPACE_UID_ANNOTATION] == made["metadata"]["uid"]
        async with managing(hub):
            await eventually(
                lambda: get(client, LEASES, "agent", namespace="mk-reg"), what="the manager uses it from now on"
            )
        # A cluster whose MultiKueueCluster was taken away has a mailbox that the manager made.
        await client.delete(MULTIKUEUE_CLUSTERS, "reg")
        await register(client, wanted, clock=CLOCK)
        await withdraw(client, "reg", namespace="kueue-system")


@pytest.mark.parametrize("finished", [True, False], ids=["the manager finishes it", "a tenant copied its first seal"])
async def test_register_waits_for_a_mailbox_that_the_manager_is_creating(finished: bool) -> None:
    request = RegistrationRequest(cluster="one", namespace="kueue-system", ttl=timedelta(hours=1), accept=True)
    async with running_hub() as hub, hub.client() as client:
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
        seals = await Seals.load(client, namespace="kueue-system")
        first = seals.mailbox_seal(namespace="mk-one", cluster="one")
        made = await squat(client, "mk-one", **{CLUSTER_LABEL: "one", MAILBOX_SEAL_ANNOTATION: first})
        registering = asyncio.ensure_future(register(client, request, clock=CLOCK))
        if finished:
            await asyncio.sleep(0.1)
            assert not registering.done()
            seal = seals.mailbox_seal(namespace="mk-one", cluster="one", uid=made["metadata"]["uid"])
            await client.patch(NAMESPACES, "mk-one", {"metadata": {"annotations": {MAILBOX_SEAL_ANNOTATION: seal}}})
            assert (await registering).accepted
        else:
            with pytest.raises(BadInput, match="namespace mk-one already exists"):
                await registering


@pytest.mark.parametrize("restarts", [False, True], ids=["while it watches", "while it is away"])
async def test_finalizers_that_an_agent_writes_do_not_keep_its_mailbox(hub: Cluster, restarts: bool) -> None:
    name = f"sticky{int(restarts)}"
    async with connections_closed(), hub.client() as client:
        worker = FakeWorker(client, name)
        await worker.enrol()

        async def stick(agent: KubeClient) -> None:
            held = {"metadata": {"finalizers": ["example.com/mine"]}}
            await agent.patch(LEASES, "agent", held, namespace=worker.mailbox)
            with pytest.raises(Forbidden):
                await agent.patch(CLUSTER_REPORTS, "agent", held, namespace=worker.mailbox)

        async def gone() -> bool:
            return await get(client, NAMESPACES, worker.mailbox) is None

        async with managing(hub):
            await worker.connect()
            async with agent_client(hub, name) as agent:
                await eventually(
                    lambda: get(client, ROLE_BINDINGS, "multikueue-agent", namespace=worker.mailbox), what="its rights"
                )
                await stick(agent)
                await eventually(
                    lambda: get(client, LEASES, "agent", namespace=worker.mailbox),
                    what="the manager takes them away",
                    until=lambda seen: not (seen or {})["metadata"].get("finalizers"),
                )
                if not restarts:
                    await withdraw(client, name, namespace="kueue-system")
                    await eventually(gone, what="the mailbox is gone", deadline=30)
        if restarts:
            async with agent_client(hub, name) as agent:
                await stick(agent)
            await withdraw(client, name, namespace="kueue-system")
            async with managing(hub):
                await eventually(gone, what="the mailbox is gone", deadline=30)
