# SPDX-License-Identifier: Apache-2.0
"""ProvisioningRequests of a lost hub, once another hub is rebuilt at its address (ADR 0010, ADR 0018)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from multikueue.api.constants import MANAGER_UID_ANNOTATION
from multikueue.api.resource import MULTIKUEUE_CLUSTERS, NAMESPACES, SECRETS, Resource
from multikueue.cli.cluster.recovering import RecoveryAction, recover
from tests.support.across_clusters import PROVISIONING_CHECK, AcrossClusters, Where, across_clusters, queue_is
from tests.support.jobs import finish_job, run_job
from tests.support.managers import Object, ensure, eventually, make_namespace, make_queue, wait_condition
from tests.support.provisioning import make_provisioning_check
from tests.support.provisioning_sites import NAMESPACE, EmbeddedServers, ProvisioningSite
from tests.support.push_workers import SYSTEM
from tests.support.workers import FakeWorker, make_check

pytestmark = pytest.mark.anyio

transports = pytest.mark.parametrize("transport", ["pull", "push"])
apart = pytest.mark.conformance


class LostHub:
    """The hub, which can be lost with all that it knows."""

    def __init__(self, servers: EmbeddedServers, scene: AcrossClusters, transport: str) -> None:
        self._servers = servers
        self._scene = scene
        self._transport = transport

    async def rebuild(self) -> None:
        """Another hub at the same address, with the queue, the checks and the clusters, and nothing else."""
        hub, client, scene = self._servers.running, self._scene.client, self._scene
        assert hub is not None, "it runs"
        names = [each.name for each in (scene.w1, scene.w2)]
        kept: list[tuple[Resource, Object]] = []
        if self._transport == "push":
            for name in names:
                cluster = await client.get_object(MULTIKUEUE_CLUSTERS, name)
                secret = await client.get_object(
                    SECRETS, cluster["spec"]["clusterSource"]["kubeConfig"]["location"], namespace=SYSTEM
                )
                kept += [(SECRETS, _bare(secret)), (MULTIKUEUE_CLUSTERS, _bare(cluster))]
        await scene.manager.stop()
        await hub.stop()
        await hub.start()
        await make_namespace(client, NAMESPACE)
        await ensure(client, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        await make_provisioning_check(client, PROVISIONING_CHECK)
        await make_check(client, "mk", tuple(names))
        await make_queue(client, NAMESPACE, namespace=NAMESPACE, checks=(PROVISIONING_CHECK, "mk"))
        if self._transport == "pull":
            for name in names:
                await FakeWorker(client, name).enrol()
        for resource, body in kept:
            await client.create(resource, body, namespace=body["metadata"].get("namespace"))
        scene.manager.start()
        await queue_is(client, "True", "Ready")

    async def orphans(self, site: ProvisioningSite, kinds: Sequence[str], *, action: RecoveryAction) -> list[Object]:
        """What comes of `mkctl cluster recover` once the agent reports orphans of these kinds."""
        client = self._scene.client
        await eventually(
            lambda: recover(client, site.name, action=RecoveryAction.LIST),
            what=f"{', '.join(kinds)} are orphans",
            until=lambda seen: sorted(each["kind"] for each in seen.entries) == sorted(kinds),
        )
        return (await recover(client, site.name, action=action)).entries


def _bare(obj: Object) -> Object:
    """As a user would create it."""
    kept = {name: value for name, value in obj["metadata"].items() if name in ("name", "namespace", "annotations")}
    return {**{name: value for name, value in obj.items() if name != "status"}, "metadata": kept}


@asynccontextmanager
async def lost_hub(transport: str) -> AsyncIterator[tuple[AcrossClusters, LostHub]]:
    servers = EmbeddedServers()
    async with across_clusters(Where(transport, servers)) as scene:
        yield scene, LostHub(servers, scene, transport)


async def provisioned_and_runs(scene: AcrossClusters) -> tuple[ProvisioningSite, Object]:
    """The Job runs with capacity that its cluster has provisioned."""
    await scene.submit()
    site = await scene.asked()
    await scene.answer(site, "Provisioned")
    job = await scene.runs_on(site)
    await run_job(site.client, "j", namespace=NAMESPACE)
    return site, job


@transports
async def test_pvx21_a_request_of_a_lost_hub_that_no_job_consumes_is_removed_when_an_administrator_recovers(
    transport: str,
) -> None:
    async with lost_hub(transport) as (scene, hub):
        await scene.submit()
        site = await scene.asked()
        await scene.answer(site, "Accepted", Accepted="ETA 12:05")
        await scene.check("Pending", message="ETA 12:05")
        before = await site.autoscaler.request()
        await hub.rebuild()
        (listed,) = await hub.orphans(site, ["ProvisioningRequest"], action=RecoveryAction.LIST)
        assert (listed["name"], listed["action"]) == (before["metadata"]["name"], "discard")
        assert [each["metadata"]["uid"] for each in await site.autoscaler.requests()] == [before["metadata"]["uid"]]
        await hub.orphans(site, ["ProvisioningRequest"], action=RecoveryAction.ADOPT)
        await scene.nothing_left()


@apart
@transports
async def test_pvx22_a_request_that_an_adopted_job_consumes_stays_while_it_runs_and_goes_with_it(
    transport: str,
) -> None:
    async with lost_hub(transport) as (scene, hub):
        site, before = await provisioned_and_runs(scene)
        request = await site.autoscaler.request()
        await hub.rebuild()
        (adopted,) = await hub.orphans(site, ["Job"], action=RecoveryAction.ADOPT)
        assert adopted["action"] == "create"
        await eventually(
            site.job,
            what="the job is adopted",
            until=lambda seen: seen is not None and _manager(seen) not in ("", _manager(before)),
        )
        await wait_condition(scene.client, "j", "Admitted", namespace=NAMESPACE)
        assert [each["metadata"]["uid"] for each in await site.autoscaler.requests()] == [request["metadata"]["uid"]]
        await finish_job(site.client, "j", namespace=NAMESPACE)
        await wait_condition(scene.client, "j", "Finished", namespace=NAMESPACE, reason="Succeeded")
        await scene.nothing_left()


@apart
@transports
async def test_pvx23_the_request_of_a_discarded_job_goes_with_it(transport: str) -> None:
    async with lost_hub(transport) as (scene, hub):
        site, _ = await provisioned_and_runs(scene)
        await hub.rebuild()
        await hub.orphans(site, ["Job"], action=RecoveryAction.DISCARD)
        await scene.nothing_left()


@apart
@transports
async def test_pvx24_an_adopted_job_that_is_cancelled_leaves_no_request(transport: str) -> None:
    async with lost_hub(transport) as (scene, hub):
        site, before = await provisioned_and_runs(scene)
        await hub.rebuild()
        await hub.orphans(site, ["Job"], action=RecoveryAction.ADOPT)
        await eventually(
            site.job,
            what="the job is adopted",
            until=lambda seen: seen is not None and _manager(seen) not in ("", _manager(before)),
        )
        await scene.remove_job()
        await scene.nothing_left()


def _manager(job: Object) -> str:
    return str((job["metadata"].get("annotations") or {}).get(MANAGER_UID_ANNOTATION, ""))
