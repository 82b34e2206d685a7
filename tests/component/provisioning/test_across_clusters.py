# SPDX-License-Identifier: Apache-2.0
"""Provisioning that is delegated to worker clusters, by pull and by push (ADR 0018).

One runs with `make test`, the others with `make conformance`; those that name `binaries` on real API servers.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from devcluster.provisioner.answers import ATOMIC_SCALE_UP, CAPACITY_LABEL
from devcluster.provisioner.controller import Provisioner
from devcluster.provisioner.settings import NAME
from devcluster.provisioner.settings import NAMESPACE as SYSTEM
from multikueue.api.configuration import Configuration
from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE
from multikueue.api.resource import CLUSTER_QUEUES, CONFIG_MAPS, JOBS, NODES, PROVISIONING_REQUESTS
from multikueue.cli.inspect.explanation_view import lines
from multikueue.cli.inspect.hub_facts import add_job, listed
from multikueue.cli.inspect.live_explanation import explain_workload
from tests.support.across_clusters import PROVISIONING_CHECK, AcrossClusters, Where, across_clusters, queue_is
from tests.support.managers import Object, eventually
from tests.support.provisioning import TIME
from tests.support.provisioning_sites import NAMESPACE, EmbeddedServers, ProvisioningSite

pytestmark = pytest.mark.anyio


def _where(*names: str, quick: str = "") -> pytest.MarkDecorator:
    """On these servers and transports, of which only `quick` runs with `make test`."""
    params = []
    for name in names:
        servers, _, transport = name.rpartition("-")
        marks = [] if name == quick else [pytest.mark.conformance, *[pytest.mark.binaries] * bool(servers)]
        params.append(pytest.param(servers or "embedded", transport, marks=marks, id=name))
    # Without the scope, that of `transport` would be taken, and each test would start servers of its own.
    return pytest.mark.parametrize(("servers", "transport"), params, indirect=["servers"], scope="package")


QUICK = _where("pull", "push", "binaries-pull", "binaries-push", quick="pull")
EMBEDDED = _where("pull", "push")
REAL = _where("pull", "push", "binaries-pull")
REAL_BOTH = _where("pull", "push", "binaries-pull", "binaries-push")


@QUICK
async def test_pvx1_one_cluster_provisions_and_then_runs_the_job_whose_pods_consume_the_capacity(
    where: Where,
) -> None:
    selector = {"nodeSelector": [{"key": "pool", "valueFromProvisioningClassDetail": "Pool"}]}
    async with across_clusters(where, podSetUpdates=selector) as scene:
        await scene.submit(annotations={"provreq.kueue.x-k8s.io/zone": "b"})
        site = await scene.asked()
        request = await site.autoscaler.request()
        assert await scene.other(site).autoscaler.requests() == []
        await scene.answer(site, "Accepted", Accepted="ETA 12:05")
        await scene.check("Pending", message=f"{site.name}: ProvisioningRequest {request['metadata']['name']}")
        await scene.check("Pending", message="ETA 12:05")
        assert await site.job() is None
        await scene.answer(site, "Provisioned", details={"Pool": "pool-7"}, Provisioned="3 nodes")
        job = await scene.runs_on(site)
        template = job["spec"]["template"]
        consumed = template["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"]
        assert consumed == request["metadata"]["name"]
        assert template["spec"]["nodeSelector"]["pool"] == "pool-7"
        await scene.check("Ready", message=f"Provisioned on {site.name}: 3 nodes")
        await scene.check("Ready", name="mk")
        await scene.remove_job()
        await scene.nothing_left()


@REAL_BOTH
async def test_pvx2_of_two_that_race_the_first_is_granted_and_the_other_withdraws_its_request(where: Where) -> None:
    async with across_clusters(where, dispatcher=DISPATCHER_ALL_AT_ONCE) as scene:
        await scene.submit()
        for each in (scene.w1, scene.w2):
            await each.autoscaler.request()
        await scene.answer(scene.w2, "Provisioned")
        await scene.runs_on(scene.w2)
        await scene.nothing_left(scene.w1)
        assert await scene.w1.job() is None
        await scene.remove_job()
        await scene.nothing_left()


@REAL
async def test_pvx3_what_one_cluster_cannot_provision_the_next_is_asked_for(where: Where) -> None:
    async with across_clusters(where) as scene:
        await scene.submit()
        first = await scene.asked()
        await scene.answer(first, "Failed", Failed="no machines")
        second = await scene.asked(without=first)
        await scene.check("Pending", message="no machines")
        await scene.answer(second, "Provisioned")
        await scene.runs_on(second)
        await scene.nothing_left(first)
        await scene.remove_job()
        await scene.nothing_left()


@REAL
async def test_pvx4_each_attempt_asks_all_clusters_and_after_the_last_the_workload_is_deactivated(
    where: Where,
) -> None:
    async with across_clusters(where) as scene:
        await scene.submit()
        for epoch in (1, 2):
            first = await scene.asked(epoch=epoch)
            await scene.answer(first, "Failed", epoch=epoch, Failed="no machines")
            second = await scene.asked(without=first, epoch=epoch)
            await scene.answer(second, "Failed", epoch=epoch, Failed="no quota")
        await eventually(
            scene.workload,
            what="the workload is deactivated",
            until=lambda seen: (seen.get("spec") or {}).get("active") is False,
        )
        await scene.nothing_left()


@REAL_BOTH
async def test_pvx5_capacity_that_is_revoked_while_the_job_runs_sends_it_elsewhere(where: Where) -> None:
    async with across_clusters(where) as scene:
        await scene.submit()
        first = await scene.asked()
        await scene.answer(first, "Provisioned")
        await scene.runs_on(first)
        await scene.answer(first, "CapacityRevoked", CapacityRevoked="spot")
        await eventually(
            lambda: _suspended(scene, first.name), what="the job is stopped", until=lambda stopped: stopped
        )
        await _pods_end(scene, first.name)
        second = await scene.asked(without=first, epoch=2)
        assert second is not first
        await scene.nothing_left(first)
        await scene.remove_job()
        await scene.nothing_left()


@REAL_BOTH
async def test_pvx6_a_cluster_lost_while_it_provisions_is_replaced_and_cleans_up_when_it_returns(
    where: Where,
) -> None:
    async with across_clusters(where) as scene:
        await scene.submit()
        first = await scene.asked()
        await first.autoscaler.request()
        await first.disconnect()
        second = await scene.asked(without=first)
        await scene.answer(first, "Provisioned")
        await scene.answer(second, "Provisioned")
        await scene.runs_on(second)
        assert await first.job() is None
        await first.reconnect()
        await scene.nothing_left(first)
        assert await first.job() is None
        assert await second.job() is not None


@REAL
async def test_pvx10_a_queue_that_is_drained_withdraws_the_request_and_asks_again_when_it_is_resumed(
    where: Where,
) -> None:
    async with across_clusters(where) as scene:
        await scene.submit()
        first = await scene.asked()
        before = await first.autoscaler.request()
        await _hold(scene, "HoldAndDrain")
        await scene.nothing_left()
        await _hold(scene, "None")
        again = await (await scene.asked()).autoscaler.request()
        assert again["metadata"]["uid"] != before["metadata"]["uid"]
        await scene.remove_job()
        await scene.nothing_left()


@REAL
async def test_pvx11_capacity_that_is_revoked_before_the_grant_counts_as_a_failure(where: Where) -> None:
    async with across_clusters(where) as scene:
        await scene.submit()
        first = await scene.asked()
        await scene.answer(first, "CapacityRevoked", CapacityRevoked="spot")
        second = await scene.asked(without=first)
        await scene.check("Pending", message=f"{first.name}: ProvisioningRequest")
        await scene.answer(second, "Provisioned")
        await scene.runs_on(second)
        await scene.nothing_left(first)


@REAL
async def test_pvx12_the_provisioner_of_local_clusters_adds_nodes_where_it_can_and_they_go_with_the_job(
    where: Where,
) -> None:
    async with (
        across_clusters(where, provisioningClassName=ATOMIC_SCALE_UP) as scene,
        _provisioner(scene.w1, fail="no machines"),
        _provisioner(scene.w2),
    ):
        await scene.submit()
        await scene.runs_on(scene.w2)
        await scene.nothing_left(scene.w1)
        assert await scene.w1.job() is None
        assert await _added_nodes(scene.w2) == 1
        await scene.remove_job()
        await scene.nothing_left()
        await eventually(lambda: _added_nodes(scene.w2), what="its nodes are gone", until=lambda count: count == 0)


@REAL
async def test_pvx13_explain_shows_which_cluster_is_asked_since_when_and_until_when(where: Where) -> None:
    async with across_clusters(where) as scene:
        await scene.submit()
        site = await scene.asked()
        await scene.answer(site, "Accepted", Accepted="ETA 12:05")
        await scene.check("Pending", message="ETA 12:05")
        text = await _explained(scene)
        assert "scale-up: Pending since" in text
        assert re.search(rf"{site.name}: ProvisioningRequest .*-scale-up-1 of class \S+ since 20\S+: ETA 12:05", text)
        if where.transport == "pull":
            assert f"{site.name}: Asked (nominated)\n    provisions capacity: ProvisioningRequest" in text


@REAL
async def test_pvx14_a_request_of_another_owner_is_neither_used_nor_deleted(where: Where) -> None:
    async with across_clusters(where) as scene:
        await _hold(scene, "Hold")
        await scene.submit()
        workload = await eventually(scene.workload, what="the Workload is there")
        name = f"{workload['metadata']['name']}-{PROVISIONING_CHECK}-1"
        for each in (scene.w1, scene.w2):
            body = {
                "apiVersion": PROVISIONING_REQUESTS.api_version,
                "kind": PROVISIONING_REQUESTS.kind,
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "provisioningClassName": "of-another.example.com",
                    "podSets": [{"podTemplateRef": {"name": "t"}, "count": 1}],
                },
            }
            await each.client.create(PROVISIONING_REQUESTS, body, namespace=NAMESPACE)
        await _hold(scene, "None")
        await scene.asked(epoch=2)
        for each in (scene.w1, scene.w2):
            assert name in [request["metadata"]["name"] for request in await each.autoscaler.requests()]


@REAL
async def test_pvx7_a_job_that_is_deleted_leaves_no_request(where: Where) -> None:
    async with across_clusters(where) as scene:
        await scene.submit()
        site = await scene.asked()
        await scene.answer(site, "Accepted")
        await scene.remove_job()
        await scene.nothing_left()


@REAL
async def test_pvx8_a_cluster_with_free_capacity_runs_it_without_a_request(where: Where) -> None:
    async with across_clusters(where) as scene:
        await scene.submit(cpu="500m")
        await scene.check("Ready", message="has free capacity")
        assert await scene.w1.autoscaler.requests() == []
        assert await scene.w2.autoscaler.requests() == []


@EMBEDDED
async def test_pvx9_the_queue_names_the_cluster_that_cannot_provision(where: Where) -> None:
    async with across_clusters(where, able=False) as scene:
        missing = "w2: provisioningrequests.autoscaling.x-k8s.io is not installed there"
        await queue_is(scene.client, "False", "MultiKueueWithProvisioningRequest", message=missing)


@REAL
async def test_pvx15_a_booking_that_expires_before_the_grant_counts_as_a_failure_and_after_it_is_in_use(
    where: Where,
) -> None:
    async with across_clusters(where) as scene:
        await scene.submit()
        first = await scene.asked()
        await scene.answer(first, "BookingExpired", BookingExpired="not used in time")
        second = await scene.asked(without=first)
        await scene.check("Pending", message="not used in time")
        await scene.answer(second, "Provisioned")
        await scene.runs_on(second)
        await scene.check("Ready")
        await scene.answer(second, "BookingExpired")
        await scene.nothing_left(first)
        assert (await scene.workload())["status"]["clusterName"] == second.name
        await scene.remove_job()
        await scene.nothing_left()


@REAL_BOTH
async def test_pvx16_a_manager_that_restarts_while_a_cluster_provisions_asks_no_other(where: Where) -> None:
    async with across_clusters(where) as scene:
        await scene.submit()
        site = await scene.asked()
        before = await site.autoscaler.request()
        await scene.manager.stop()
        await scene.answer(site, "Accepted", Accepted="ETA 12:05")
        scene.manager.start()
        await scene.check("Pending", message="ETA 12:05")
        await scene.manager.stop()
        await scene.answer(site, "Provisioned")
        scene.manager.start()
        await scene.runs_on(site)
        await _only(site, before, scene)
        await scene.remove_job()
        await scene.nothing_left()


@REAL_BOTH
async def test_pvx17_an_agent_that_restarts_while_it_provisions_takes_its_request_up_again(where: Where) -> None:
    async with across_clusters(where) as scene:
        await scene.submit()
        site = await scene.asked()
        before = await site.autoscaler.request()
        await site.restart()
        await scene.answer(site, "Accepted", Accepted="ETA 12:05")
        await scene.check("Pending", message="ETA 12:05")
        await site.disconnect()
        await scene.answer(site, "Provisioned")
        await site.reconnect()
        await scene.runs_on(site)
        await _only(site, before, scene)
        await scene.remove_job()
        await scene.nothing_left()


@EMBEDDED
async def test_pvx18_a_hub_restored_to_before_the_request_asks_again_and_only_one_cluster(
    where: Where, tmp_path: Path
) -> None:
    async with _restorable(where, tmp_path) as (scene, hub):
        await _hold(scene, "Hold")
        await scene.submit()
        await eventually(scene.workload, what="the Workload is there")
        hub.back_up()
        await _hold(scene, "None")
        before = await (await scene.asked()).autoscaler.request()
        await hub.restore(scene)
        # The restored hub does not know of the request, and the queue is held again.
        await scene.nothing_left()
        await _hold(scene, "None")
        site = await scene.asked()
        again = await site.autoscaler.request()
        assert again["metadata"]["uid"] != before["metadata"]["uid"]
        await scene.answer(site, "Provisioned")
        await scene.runs_on(site)
        await scene.check("Ready")
        await _only(site, again, scene)
        await scene.remove_job()
        await scene.nothing_left()


@EMBEDDED
async def test_pvx19_a_hub_restored_to_before_the_job_deletes_its_request(where: Where, tmp_path: Path) -> None:
    async with _restorable(where, tmp_path) as (scene, hub):
        hub.back_up()
        await scene.submit()
        site = await scene.asked()
        await scene.answer(site, "Provisioned")
        await scene.runs_on(site)
        await hub.restore(scene)
        await scene.nothing_left()


@EMBEDDED
async def test_pvx20_a_hub_restored_to_while_another_cluster_provisioned_lets_only_one_run_it(
    where: Where, tmp_path: Path
) -> None:
    async with _restorable(where, tmp_path) as (scene, hub):
        await scene.submit()
        first = await scene.asked()
        await scene.answer(first, "Accepted", Accepted="ETA 12:05")
        await scene.check("Pending", message="ETA 12:05")
        hub.back_up()
        await scene.answer(first, "Failed", Failed="no machines")
        second = await scene.asked(without=first)
        await hub.restore(scene)
        # The restored hub asks the cluster that it had asked, reads the failure again, and asks the other.
        await scene.check("Pending", message="no machines")
        assert await scene.asked(without=first) is second
        await scene.answer(second, "Provisioned")
        await scene.runs_on(second)
        await scene.nothing_left(first)
        assert len(await second.autoscaler.requests()) == 1
        await scene.remove_job()
        await scene.nothing_left()


async def _only(site: ProvisioningSite, before: Object, scene: AcrossClusters) -> None:
    """That request is the only one on the two clusters."""
    uids = [each["metadata"]["uid"] for each in await site.autoscaler.requests()]
    assert uids == [before["metadata"]["uid"]]
    assert await scene.other(site).autoscaler.requests() == []


class _BackedUpHub:
    """The hub's database, and a copy of it."""

    def __init__(self, servers: EmbeddedServers, database: Path) -> None:
        self._servers = servers
        self._database = database
        self._copy = database.with_suffix(".backup")

    def back_up(self) -> None:
        """Copy what is stored now."""
        with closing(sqlite3.connect(self._database)) as source, closing(sqlite3.connect(self._copy)) as target:
            source.backup(target)

    async def restore(self, scene: AcrossClusters) -> None:
        """End the manager and the hub, and start both with what the copy has."""
        hub = self._servers.running
        assert hub is not None, "it runs"
        await scene.manager.stop()
        await hub.stop()
        await hub.start(database=self._copy, restored=True)
        scene.manager.start()


@asynccontextmanager
async def _restorable(where: Where, folder: Path) -> AsyncIterator[tuple[AcrossClusters, _BackedUpHub]]:
    servers = EmbeddedServers(database=folder / "hub.db")
    async with across_clusters(Where(where.transport, servers)) as scene:
        yield scene, _BackedUpHub(servers, folder / "hub.db")


@asynccontextmanager
async def _provisioner(site: ProvisioningSite, **data: str) -> AsyncIterator[None]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": SYSTEM}}
    await site.client.create(CONFIG_MAPS, {**body, "data": {"delaySeconds": "0", **data}}, namespace=SYSTEM)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Provisioner(site.client).run)
        try:
            yield
        finally:  # the API servers are shared, and a test that is run again makes it again
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await site.client.delete(CONFIG_MAPS, NAME, namespace=SYSTEM)


async def _added_nodes(site: ProvisioningSite) -> int:
    return len((await site.client.list_all(NODES, label_selector=CAPACITY_LABEL)).items)


async def _explained(scene: AcrossClusters) -> str:
    objects = await listed(scene.client, Configuration(), namespace=NAMESPACE)
    workload = await scene.workload()
    await add_job(scene.client, objects, workload)
    explained = explain_workload(objects, workload, now=datetime.now(UTC))
    return "\n".join(lines(explained))


async def _hold(scene: AcrossClusters, policy: str) -> None:
    await scene.client.patch(CLUSTER_QUEUES, NAMESPACE, {"spec": {"stopPolicy": policy}})


async def _suspended(scene: AcrossClusters, name: str) -> bool:
    site = scene.w1 if scene.w1.name == name else scene.w2
    job = await site.job()
    return job is None or bool(job["spec"].get("suspend"))


async def _pods_end(scene: AcrossClusters, name: str) -> None:
    """No Job controller runs on the worker: the test sets what it would."""

    site = scene.w1 if scene.w1.name == name else scene.w2
    stopped = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "lastTransitionTime": TIME}
    await site.client.patch(
        JOBS, "j", {"status": {"active": 0, "conditions": [stopped]}}, namespace=NAMESPACE, subresource="status"
    )
