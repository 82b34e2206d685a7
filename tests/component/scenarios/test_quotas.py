# SPDX-License-Identifier: Apache-2.0
"""S8–S10, S17, S18, B14: quota of the hub's queue that follows the queues of its workers.

The test plays the workers' own Kueue: it says whether a ClusterQueue there is Active.
"""

from __future__ import annotations

import pytest

from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import CLUSTER_QUEUES, CLUSTER_REPORTS, LOCAL_QUEUES, MULTIKUEUE_CONFIGS
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.kube.errors import NotFound
from tests.support.managers import Object, condition, eventually, get
from tests.support.scenes import Scene, Stage, scene, settings
from tests.support.sites import Site, Transport

pytestmark = pytest.mark.anyio

KIND = "MultiKueueManagerQuotaAutomation"
GATE = f"{settings()}featureGates: {{{KIND}: true}}\n"


async def set_management(made: Scene, value: str) -> None:
    """What the config asks for."""
    await made.client.patch(MULTIKUEUE_CONFIGS, made.name, {"spec": {"quotaManagement": value}})


def of_cpu(*flavors: tuple[str, str]) -> list[Object]:
    """Resource groups with those amounts of cpu, by flavor."""
    entries = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]} for name, cpu in flavors]
    return [{"coveredResources": ["cpu"], "flavors": entries}]


async def set_quota(made: Scene, site: Site, *flavors: tuple[str, str]) -> None:
    """Give the worker's queue those amounts of cpu, by flavor."""
    await site.client.patch(CLUSTER_QUEUES, made.name, {"spec": {"resourceGroups": of_cpu(*flavors)}})


async def set_active(made: Scene, site: Site, *, value: str = "True") -> None:
    """Its Kueue says that of the queue."""
    now = format_time(SystemClock().now())
    active = {"type": "Active", "status": value, "reason": "Ready", "message": "", "lastTransitionTime": now}
    await site.client.patch(CLUSTER_QUEUES, made.name, {"status": {"conditions": [active]}}, subresource="status")


async def hub_queue(made: Scene) -> Object | None:
    """The queue on the hub."""
    return await get(made.client, CLUSTER_QUEUES, made.name)


def cpu_of(queue: Object | None) -> str:
    """Its nominal quota."""
    assert queue is not None
    return str(queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"])


async def has(made: Scene, cpu: str) -> Object:
    """The hub's queue once it has that much."""
    found = await eventually(
        lambda: hub_queue(made), what=f"{made.name} has {cpu} cpu", until=lambda seen: cpu_of(seen) == cpu
    )
    assert found is not None
    return found


async def says(made: Scene, status: str, reason: str, *, part: str = "") -> Object:
    """The hub's queue once the condition is that, of the queue as it stands."""

    def said(seen: Object | None) -> bool:
        entry = condition(seen, KIND)
        if seen is None or entry.get("observedGeneration") != seen["metadata"]["generation"]:
            return False
        return (entry["status"], entry["reason"]) == (status, reason) and part in entry["message"]

    found = await eventually(lambda: hub_queue(made), what=f"{KIND}={status} {reason} {part}", until=said)
    assert found is not None
    return found


async def following(made: Scene) -> None:
    """4 cpu at the first worker and 3 at the second, which the hub's queue follows."""
    for site, cpu in ((made.w1, "4"), (made.w2, "3")):
        await set_quota(made, site, ("default", cpu))
        await set_active(made, site)
    await set_management(made, "Automated")
    await has(made, "7")


async def remove(made: Scene, site: Site | None = None) -> None:
    """The LocalQueue goes, on the worker or on the hub."""
    client = made.client if site is None else site.client
    try:
        await client.delete(LOCAL_QUEUES, made.name, namespace=made.namespace)
    except NotFound:
        return


async def restore(made: Scene) -> None:
    """The LocalQueue of the hub is made again."""
    body = {
        "apiVersion": LOCAL_QUEUES.api_version,
        "kind": LOCAL_QUEUES.kind,
        "metadata": {"name": made.name, "namespace": made.namespace},
        "spec": {"clusterQueue": made.name},
    }
    await made.client.create(LOCAL_QUEUES, body, namespace=made.namespace)


async def test_s17_with_the_gate_off_nothing_is_asked_or_written(stage: Stage) -> None:
    async with scene(stage, "s17") as made:
        for site in (made.w1, made.w2):
            await set_active(made, site)
        await set_management(made, "Automated")
        await made.running(made.w1)
        queue = await hub_queue(made)
        assert cpu_of(queue) == "10"
        assert condition(queue, KIND) == {}
        if stage.transport is Transport.PULL:
            report = await get(made.client, CLUSTER_REPORTS, "agent", namespace=mailbox_namespace(made.w1.name))
            assert report is not None
            assert "quotas" not in (report.get("spec") or {})
            assert "quotas" not in report["status"]


async def test_s8_s18_b14_the_hubs_queue_has_the_sum_of_its_workers_active_queues(stage: Stage) -> None:
    async with scene(stage, "s8", configuration=GATE) as made:
        await set_quota(made, made.w1, ("default", "4"), ("spot", "1500m"))
        await set_quota(made, made.w2, ("default", "3"))
        await set_active(made, made.w1)
        await set_management(made, "Automated")
        await has(made, "5500m")
        await set_active(made, made.w2)
        await has(made, "8500m")
        queue = await says(made, "True", "QuotaAutomated", part=f"[{made.w1.name} {made.w2.name}]")
        assert condition(queue, "Active")["status"] == "True", "conditions of others stay"
        await set_management(made, "Manual")
        await says(made, "False", "NotRequested", part="does not ask for it")
        await has(made, "8500m")


async def test_s9_it_follows_a_change_of_a_workers_queue_and_work_is_admitted_by_it(stage: Stage) -> None:
    async with scene(stage, "s9", configuration=GATE) as made:
        await following(made)
        await set_quota(made, made.w2, ("default", "16"))
        await has(made, "20")
        await made.client.patch(CLUSTER_QUEUES, made.name, {"spec": {"resourceGroups": of_cpu(("default", "1"))}})
        await has(made, "20")
        workload = await made.submit(cpu="12")
        await made.w2.admits(workload)
        await set_active(made, made.w2, value="False")
        await has(made, "4")
        await made.w2.starts("j")
        await made.job_says("ready", 1)


async def test_s10_it_follows_the_removal_of_a_local_queue_on_a_worker_and_on_the_hub(stage: Stage) -> None:
    async with scene(stage, "s10", configuration=GATE) as made:
        await following(made)
        await remove(made, made.w1)
        await has(made, "3")
        await remove(made)
        await has(made, "0")
        await restore(made)
        await has(made, "3")


async def test_a_lost_worker_takes_its_quota_along_and_brings_it_back(stage: Stage) -> None:
    async with scene(stage, "quota-loss", configuration=GATE) as made:
        await following(made)
        await made.w2.cut()
        await has(made, "4")
        await says(made, "True", "QuotaAutomated", part=f"without: {made.w2.name} (not connected)")
        await made.w2.mend()
        await has(made, "7")


async def test_a_manager_that_starts_takes_nothing_away_before_the_workers_have_reported(stage: Stage) -> None:
    async with scene(stage, "quota-restart", configuration=GATE) as made:
        await following(made)
        before = await says(made, "True", "QuotaAutomated", part=f"[{made.w1.name} {made.w2.name}]")
        await stage.restart()
        await set_quota(made, made.w1, ("default", "5"))
        after = await has(made, "8")
        assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1, "it was written once"


@pytest.mark.transports("pull")
async def test_a_sum_that_the_server_refuses_is_reported_and_a_later_one_is_accepted(stage: Stage) -> None:
    async with scene(stage, "quota-refused", configuration=GATE) as made:
        await following(made)
        groups = of_cpu(("default", "7"))
        groups[0]["flavors"][0]["resources"][0]["lendingLimit"] = "6"
        spec = {"cohortName": made.name, "resourceGroups": groups}
        await made.client.patch(CLUSTER_QUEUES, made.name, {"spec": spec})
        await set_quota(made, made.w1, ("default", "1"))
        queue = await says(made, "False", "UnsupportedConfiguration", part="lendingLimit")
        assert cpu_of(queue) == "7"
        await set_quota(made, made.w1, ("default", "5"))
        await has(made, "8")
        await says(made, "True", "QuotaAutomated")


@pytest.mark.transports("pull")
async def test_a_queue_of_two_flavors_keeps_its_quota_and_says_why(stage: Stage) -> None:
    async with scene(stage, "quota-flavors", configuration=GATE) as made:
        await following(made)
        groups = of_cpu(("default", "2"), ("another", "2"))
        await made.client.patch(CLUSTER_QUEUES, made.name, {"spec": {"resourceGroups": groups}})
        queue = await says(made, "False", "UnsupportedConfiguration", part="2 flavors")
        assert cpu_of(queue) == "2"
