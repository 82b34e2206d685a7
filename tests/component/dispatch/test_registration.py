# SPDX-License-Identifier: Apache-2.0
"""Registration, renewal, drain and removal on a real management cluster, whose own controller signs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import anyio
import pytest
import yaml

from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from multikueue.api.resource import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_REGISTRATIONS,
    LEASES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    REMOTE_ASSIGNMENTS,
)
from multikueue.cli.cluster import joining_instructions, lifecycle, view
from multikueue.cli.cluster.registering import Registration, RegistrationRequest, approve, register, registration_of
from multikueue.core.clock import SystemClock
from multikueue.core.errors import BadInput
from multikueue.kube.errors import KubeError
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.component.dispatch.test_dispatch import Scene, managed, scene
from tests.support.managers import Object, condition, eventually, get, make_namespace, running_manager
from tests.support.names import unique_name
from tests.support.workers import SCALED_DOWN
from worker_agent.hub.enrolment import Refused, Renewer, enrol
from worker_agent.hub.identity import FileStore, SecretStore, certificate_life
from worker_agent.options import Renewal

__all__ = ["scene"]

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

CLOCK = SystemClock()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return unique_name(request.node.name)


@asynccontextmanager
async def managing(hub: Cluster) -> AsyncIterator[None]:
    async with running_manager(hub, settings=SCALED_DOWN, dispatch=DispatchController):
        yield


async def registered(client: KubeClient, name: str, *, accept: bool = True, uid: str = "") -> Registration:
    wanted = RegistrationRequest(
        cluster=name, namespace="kueue-system", ttl=timedelta(hours=1), accept=accept, cluster_uid=uid
    )
    return await register(client, wanted, clock=CLOCK)


async def enrolled(made: Registration, path: Path, *, uid: str = "cluster-1", seconds: int = 600) -> Object:
    with anyio.fail_after(30):
        return await enrol(
            made.kubeconfig,
            cluster=made.cluster,
            token_id=made.token_id,
            uid=uid,
            store=FileStore(path),
            clock=CLOCK,
            seconds=seconds,
        )


@asynccontextmanager
async def asking(hub: KubeClient, mailbox: str) -> AsyncIterator[list[KubeError]]:
    """Ask again and again; gives the failures."""
    failures: list[KubeError] = []

    async def ask() -> None:
        while True:
            try:
                await hub.list_page(REMOTE_ASSIGNMENTS, namespace=mailbox)
            except KubeError as error:
                failures.append(error)
            await anyio.sleep(0.02)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        yield failures
        tasks.cancel_scope.cancel()


async def test_a_certificate_is_renewed_without_a_gap(
    client: KubeClient, hub: Cluster, name: str, tmp_path: Path
) -> None:
    async with managing(hub):
        made = await registered(client, name)
        first = await enrolled(made, tmp_path / "hub")
        await eventually(lambda: get(client, LEASES, "agent", namespace=f"mk-{name}"), what="the mailbox is made")
        life = certificate_life(first)
        assert life is not None
        # The signer dates certificates back by some minutes, so that a third of this one is over when it is issued.
        soon = (CLOCK.now() - life.begins + timedelta(seconds=1)) / (life.ends - life.begins)
        store = FileStore(tmp_path / "hub")

        async def uid() -> str:
            return "cluster-1"

        async with KubeClient(credentials.load(tmp_path / "hub")) as agent, asking(agent, f"mk-{name}") as failures:
            renewer = Renewer(
                agent,
                cluster=name,
                uid=uid,
                store=store,
                clock=CLOCK,
                random=Random(1),
                renewal=Renewal(earliest=soon, latest=soon, seconds=600),
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(renewer.run)
                await eventually(store.load, what="another certificate is there", until=lambda seen: seen != first)
                await anyio.sleep(0.2)
                tasks.cancel_scope.cancel()
            assert not failures
            assert renewer.problem == ""
        assert (tmp_path / "hub").stat().st_mode & 0o777 == 0o600


async def test_a_request_waits_for_approval_by_hand_and_outlives_a_restart_of_its_agent(
    client: KubeClient, hub: Cluster, name: str, tmp_path: Path
) -> None:
    async with managing(hub):
        made = await registered(client, name, accept=False)
        with anyio.move_on_after(2):
            await enrolled(made, tmp_path / "hub")

        async def reason() -> str:
            found = condition(await get(client, CLUSTER_REGISTRATIONS, name), "Registered")
            return str(found.get("reason"))

        await eventually(reason, what="it waits", until=lambda seen: seen == "WaitsForApproval")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enrolled, made, tmp_path / "hub")
            assert "has its certificate; cluster uid cluster-1" in await approve(client, name, wait_seconds=20)
        found = await view.cluster(client, name)
        assert (found["accepted"], found["clusterUID"], found["registered"]["reason"]) == (True, "cluster-1", "Issued")


async def test_only_the_cluster_that_was_named_is_let_in(
    client: KubeClient, hub: Cluster, name: str, tmp_path: Path
) -> None:
    async with managing(hub):
        made = await registered(client, name, uid="expected")
        with pytest.raises(Refused, match="ClusterUIDMismatch"):
            await enrolled(made, tmp_path / "hub", uid="other")


async def test_an_agent_that_is_not_accepted_any_more_is_not_renewed(
    client: KubeClient, hub: Cluster, name: str, tmp_path: Path
) -> None:
    async with managing(hub):
        first = await enrolled(await registered(client, name), tmp_path / "hub")
        await client.patch(CLUSTER_REGISTRATIONS, name, {"spec": {"accepted": False}})

        async def uid() -> str:
            return "cluster-1"

        async with KubeClient(credentials.load(tmp_path / "hub")) as agent:
            store = FileStore(tmp_path / "hub")
            at_once = Renewal(earliest=0.0, latest=0.0, seconds=600)
            renewer = Renewer(agent, cluster=name, uid=uid, store=store, clock=CLOCK, random=Random(1), renewal=at_once)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(renewer.run)

                async def problem() -> str:
                    return renewer.problem

                await eventually(problem, what="the refusal is said", until=lambda seen: "NotAccepted" in seen)
                tasks.cancel_scope.cancel()
            assert await store.load() == first


async def test_an_identity_in_a_secret_is_found_again_by_the_next_pod(client: KubeClient, name: str) -> None:
    store = SecretStore(client, namespace="default", name=name)
    assert await store.load() is None
    await store.save({"pending": {"name": "r"}})
    await store.save({"current-context": "hub"})
    assert await SecretStore(client, namespace="default", name=name).load() == {"current-context": "hub"}


async def test_the_manifest_for_a_worker_is_taken_by_a_real_api_server(client: KubeClient, name: str) -> None:
    made = await registered(client, name)
    await make_namespace(client, joining_instructions.NAMESPACE)
    for document in yaml.safe_load_all(joining_instructions.manifest(made, image="example.com/agent:1")):
        version, kind = document["apiVersion"], document["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        where = document["metadata"].get("namespace")
        path = f"{root}/{f'namespaces/{where}/' if where else ''}{kind.lower()}s"
        if kind != "Namespace":
            answer = await client.request("POST", path, query={"dryRun": "All"}, body=document)
            assert answer.status == 201, kind


async def test_only_a_cluster_that_was_registered_has_an_agent_to_print(client: KubeClient, name: str) -> None:
    with pytest.raises(BadInput, match=f"ClusterRegistration {name} not found; create it with"):
        await registration_of(client, name)
    await registered(client, name)
    assert (await registration_of(client, name))["metadata"]["name"] == name


async def test_a_namespace_that_is_nobodys_mailbox_stays_when_a_cluster_of_such_a_name_is_removed(
    client: KubeClient, name: str
) -> None:
    await make_namespace(client, f"mk-{name}")
    # Beside a config that has no spec, as its schema allows.
    bare = {"apiVersion": MULTIKUEUE_CONFIGS.api_version, "kind": MULTIKUEUE_CONFIGS.kind, "metadata": {"name": name}}
    await client.create(MULTIKUEUE_CONFIGS, bare)
    await lifecycle.remove(client, name, namespace="kueue-system")
    await client.delete(MULTIKUEUE_CONFIGS, name)
    found = await get(client, NAMESPACES, f"mk-{name}")
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]


async def test_a_cluster_that_the_manager_reaches_itself_is_not_given_to_an_agent(
    client: KubeClient, name: str
) -> None:
    source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
    body = {
        "apiVersion": MULTIKUEUE_CLUSTERS.api_version,
        "kind": MULTIKUEUE_CLUSTERS.kind,
        "metadata": {"name": name},
        "spec": {"clusterSource": source},
    }
    await client.create(MULTIKUEUE_CLUSTERS, body)
    with pytest.raises(BadInput, match=f"mkctl cluster remove {name}"):
        await registered(client, name)
    assert await get(client, CLUSTER_REGISTRATIONS, name) is None
    await client.delete(MULTIKUEUE_CLUSTERS, name)


async def test_who_takes_over_a_name_is_accepted_anew(client: KubeClient, name: str) -> None:
    await registered(client, name)
    await client.patch(CLUSTER_REGISTRATIONS, name, {"status": {"clusterUID": "former"}}, subresource="status")
    wanted = RegistrationRequest(cluster=name, namespace="kueue-system", ttl=timedelta(hours=1), accept=False)
    assert (await register(client, wanted, clock=CLOCK)).accepted, "it is the same cluster, by its uid"
    assert not (await register(client, replace(wanted, replace=True), clock=CLOCK)).accepted
    found = await registration_of(client, name)
    assert (found["spec"]["accepted"], "clusterUID" in found["status"]) == (False, False)


@pytest.mark.parametrize("ttl", [timedelta(seconds=10), timedelta(hours=25)], ids=["too short", "too long"])
def test_a_token_is_good_for_ten_minutes_to_a_day(ttl: timedelta) -> None:
    with pytest.raises(BadInput, match="--ttl"):
        RegistrationRequest(cluster="w", namespace="kueue-system", ttl=ttl, accept=False)


async def test_a_drain_moves_what_runs_at_the_deadline_and_what_waits_at_once(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.granted(scene.w1)
        await lifecycle.drain(scene.client, scene.w1.name, deadline=timedelta(seconds=3), clock=CLOCK)
        assert await lifecycle.workloads_on(scene.client, scene.w1.name) == [str(key)]
        waiting = await scene.submit("k")
        await scene.w2.assigned(waiting)
        assert await scene.w1.assignment(waiting) is None
        await scene.w1.assigned(key, intent="Evict")
        assert await lifecycle.workloads_on(scene.client, scene.w1.name) == [str(key)], "it stops there yet"
        await scene.w1.say(key, "Evicted", jobStatus={"active": 0}, jobUID="r")
        await scene.w2.assigned(key, epoch=2)
        left = await lifecycle.wait_until_empty(scene.client, scene.w1.name, timeout=timedelta(seconds=10))
        assert left == []
        (drained,) = [each for each in await view.clusters(scene.client) if each["name"] == scene.w1.name]
        assert view.availability(drained) == "drained"


async def test_a_drain_without_a_deadline_waits_and_ends_with_uncordon(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.granted(scene.w1)
        await lifecycle.drain(scene.client, scene.w1.name, deadline=None, clock=CLOCK)
        await anyio.sleep(1.0)
        workload = await scene.workload()
        assert workload is not None
        assert workload["status"]["clusterName"] == scene.w1.name
        await lifecycle.set_availability(scene.client, scene.w1.name, {"cordoned": False, "drain": False})
        await scene.w1.say_finished(key)
        other = await scene.submit("k")
        await scene.w1.assigned(other)


async def test_a_removed_cluster_leaves_its_configs_and_nothing_behind(scene: Scene) -> None:
    async with managed(scene):
        await registered(scene.client, scene.w1.name)
        assert await lifecycle.remove(scene.client, scene.w1.name, namespace="kueue-system") == [scene.name]
        config = await get(scene.client, MULTIKUEUE_CONFIGS, scene.name)
        assert config is not None
        assert config["spec"]["clusters"] == [scene.w2.name]
        for resource in (MULTIKUEUE_CLUSTERS, CLUSTER_REGISTRATIONS):
            assert await get(scene.client, resource, scene.w1.name) is None
        await eventually(
            lambda: get(scene.client, NAMESPACES, scene.w1.mailbox),
            what="the mailbox is gone",
            until=lambda seen: seen is None,
        )
        page = await scene.client.list_page(CERTIFICATE_SIGNING_REQUESTS)
        assert not [raw for raw in page.items if scene.w1.mailbox.encode() in raw]
        with pytest.raises(BadInput, match="is the only cluster of MultiKueueConfig"):
            await lifecycle.remove(scene.client, scene.w2.name, namespace="kueue-system")
