# SPDX-License-Identifier: Apache-2.0
"""Admission checks whose controllers are not ours: every state, and writes at the same time as ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest

from devcluster.cluster import Cluster
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
    WORKLOADS,
)
from multikueue.kube.rest.client import KubeClient
from tests.support.check_controllers import (
    apply_check,
    check_of,
    entry,
    listed_check,
    make_foreign_check,
    patch_check,
    set_active,
)
from tests.support.managers import (
    condition,
    connections_closed,
    eventually,
    get,
    is_true,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)
from tests.support.tenant_hubs import hub as hub

pytestmark = pytest.mark.anyio

Object = dict[str, Any]
Write = Callable[[KubeClient, Object, Object], Awaitable[Object]]
WRITES: dict[str, Write] = {"applied": apply_check, "patched": patch_check}
"""Both ways to write, by the name of the Job whose check is written so."""
UPDATES = [{"name": "main", "nodeSelector": {"pool": "a"}, "annotations": {"budget": "7"}}]


@pytest.fixture
async def client(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator, beside a manager."""
    async with connections_closed(), running_manager(hub), hub.client() as client:
        yield client


async def stop(client: KubeClient, queue: str, policy: str) -> None:
    await client.patch(LOCAL_QUEUES, queue, {"spec": {"stopPolicy": policy}}, namespace=queue)


async def queue_with(client: KubeClient, name: str, *checks: str) -> None:
    for check in checks:
        await make_foreign_check(client, check)
    await make_queue(client, name, namespace=name, checks=checks)
    await eventually(
        lambda: get(client, CLUSTER_QUEUES, name), what="active", until=lambda seen: is_true(seen, "Active")
    )


async def live(client: KubeClient, workload: Object) -> Object:
    metadata = workload["metadata"]
    return await client.get_object(WORKLOADS, metadata["name"], namespace=metadata["namespace"])


async def jobs_of(client: KubeClient, queue: str) -> dict[str, Object]:
    """A Job for each way to write, in a queue whose check has the same name; their Workloads, with quota."""
    await queue_with(client, queue, queue)
    for job in WRITES:
        await make_job(client, job, namespace=queue, queue=queue)
    return {job: await listed_check(client, job, queue, namespace=queue) for job in WRITES}


async def test_ready_admits_with_the_updates_of_the_check(client: KubeClient) -> None:
    for job, workload in (await jobs_of(client, "ready")).items():
        await WRITES[job](client, workload, entry("ready", "Ready", "granted", podSetUpdates=UPDATES))
    for name in WRITES:
        await wait_condition(client, name, "Admitted", namespace="ready")
        template = (await started(client, name, namespace="ready"))["spec"]["template"]
        assert template["spec"]["nodeSelector"] == {"pool": "a"}
        assert template["metadata"]["annotations"]["budget"] == "7"


async def started(client: KubeClient, name: str, *, namespace: str) -> Object:
    found = await eventually(
        lambda: get(client, JOBS, name, namespace=namespace),
        what="the job is started",
        until=lambda seen: seen is not None and seen["spec"]["suspend"] is False,
    )
    assert found is not None
    return found


async def test_retry_gives_the_quota_back_for_as_long_as_the_check_asks(client: KubeClient) -> None:
    for job, workload in (await jobs_of(client, "retry")).items():
        retry = entry("retry", "Retry", "not now", requeueAfterSeconds=2, retryCount=4, podSetUpdates=UPDATES)
        await WRITES[job](client, workload, retry)
    for job, write in WRITES.items():
        again = await wait_condition(client, job, "Requeued", namespace="retry", reason="BackoffFinished")
        assert 'AdmissionCheck in Retry state: "retry" (not now)' in condition(again, "Evicted")["message"]
        shown = check_of(again, "retry")
        assert (shown["state"], shown["retryCount"], shown["requeueAfterSeconds"]) == ("Pending", 5, 2)
        assert shown["message"] == "Reset to Pending after eviction. Previously: Retry"
        assert "podSetUpdates" not in shown, "an eviction drops them, whoever owns them"
        again = await listed_check(client, job, "retry", namespace="retry")
        await write(client, again, entry("retry", "Ready", "now"))
        await wait_condition(client, job, "Admitted", namespace="retry")


async def test_rejected_deactivates_until_a_user_activates_it(client: KubeClient) -> None:
    for job, workload in (await jobs_of(client, "rejected")).items():
        await WRITES[job](client, workload, entry("rejected", "Rejected", "never"))
    for job in WRITES:
        seen = await wait_condition(
            client, job, "QuotaReserved", namespace="rejected", status="False", reason="Deactivated"
        )
        assert seen["spec"]["active"] is False
        assert condition(seen, "Evicted")["reason"] == "DeactivatedDueToAdmissionCheck"
        await client.patch(WORKLOADS, seen["metadata"]["name"], {"spec": {"active": True}}, namespace="rejected")
        again = await listed_check(client, job, "rejected", namespace="rejected")
        assert condition(again, "Requeued")["reason"] == "Reactivated"


async def test_updates_of_two_checks_are_merged_and_a_conflict_is_reported_on_the_workload(client: KubeClient) -> None:
    await queue_with(client, "two", "two-a", "two-b")
    for job, pool in (("merged", "a"), ("conflicting", "b")):
        await make_job(client, job, namespace="two", queue="two")
        workload = await listed_check(client, job, "two-a", namespace="two")
        await apply_check(client, workload, entry("two-a", "Ready", podSetUpdates=UPDATES))
        other = [{"name": "main", "nodeSelector": {"pool": pool}, "labels": {"tier": "gold"}}]
        await apply_check(client, workload, entry("two-b", "Ready", podSetUpdates=other), manager="other")
    merged = await started(client, "merged", namespace="two")
    assert merged["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "a"}
    assert merged["spec"]["template"]["metadata"]["labels"]["tier"] == "gold"

    async def reported() -> Object | None:
        found = await workload_of(client, "conflicting", namespace="two")
        return found if condition(found, "Finished") or is_true(found, "Evicted") else None

    found = await eventually(reported, what="the conflict is reported")
    shown = condition(found, "Finished") or condition(found, "Evicted")
    assert 'conflicting values "a" and "b" for "pool"' in shown["message"]
    stopped = await get(client, JOBS, "conflicting", namespace="two")
    assert stopped is not None
    assert stopped["spec"]["suspend"] is True


async def test_a_check_of_one_flavor_is_asked_only_when_that_flavor_is_assigned(client: KubeClient) -> None:
    await make_foreign_check(client, "gpu-only")
    for flavor in ("cpu-nodes", "gpu-nodes"):
        await client.create(
            RESOURCE_FLAVORS,
            {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": flavor}},
        )
    await make_queue(client, "flavored", namespace="flavored", flavor="cpu-nodes", cpu="1")
    flavors = [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": "1"}]} for name in ("cpu-nodes", "gpu-nodes")
    ]
    strategy = {"admissionChecks": [{"name": "gpu-only", "onFlavors": ["gpu-nodes"]}]}
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    await client.patch(
        CLUSTER_QUEUES, "flavored", {"spec": {"resourceGroups": groups, "admissionChecksStrategy": strategy}}
    )
    await make_job(client, "first", namespace="flavored", queue="flavored")
    first = await wait_condition(client, "first", "Admitted", namespace="flavored")
    assert check_of(first, "gpu-only") == {}
    await make_job(client, "second", namespace="flavored", queue="flavored")
    second = await listed_check(client, "second", "gpu-only", namespace="flavored")
    assert not is_true(second, "Admitted")


async def test_an_entry_goes_with_its_check_whoever_wrote_it(client: KubeClient) -> None:
    for job, workload in (await jobs_of(client, "gone")).items():
        await WRITES[job](client, workload, entry("gone", "Pending", "asking"))
    await client.patch(CLUSTER_QUEUES, "gone", {"spec": {"admissionChecksStrategy": None}})
    for job in WRITES:
        assert check_of(await wait_condition(client, job, "Admitted", namespace="gone"), "gone") == {}


async def test_a_controller_can_take_its_updates_back_after_we_have_written_the_status(client: KubeClient) -> None:
    await queue_with(client, "back", "back")
    await make_job(client, "one", namespace="back", queue="back")
    workload = await listed_check(client, "one", "back", namespace="back")
    await apply_check(
        client, workload, entry("back", "Pending", "asking", podSetUpdates=UPDATES, requeueAfterSeconds=9)
    )
    await stop(client, "back", "Hold")
    await wait_condition(client, "one", "QuotaReserved", namespace="back", status="False", reason="Suspended")
    after = await apply_check(client, workload, entry("back", "Pending", "asking again"))
    assert sorted(check_of(after, "back")) == ["lastTransitionTime", "message", "name", "state"]


async def test_no_write_of_ours_overwrites_an_entry_that_is_written_at_the_same_time(client: KubeClient) -> None:
    await queue_with(client, "busy", "busy-applied", "busy-patched")
    await make_job(client, "one", namespace="busy", queue="busy")
    workload = await listed_check(client, "one", "busy-applied", namespace="busy")
    lost: list[str] = []
    done = 0

    async def follow(name: str, write: Write) -> None:
        nonlocal done
        last = ""
        for number in range(30):
            shown = check_of(await live(client, workload), name)
            if last and shown.get("message") != last:
                lost.append(f"{name}: wrote {last!r}, found {shown}")
            last = f"step {number}"
            await write(client, workload, entry(name, "Pending", last, requeueAfterSeconds=number + 1))
        done += 1

    async def make_us_write() -> None:
        while done < 2:
            for policy, reserved in (("Hold", "False"), ("None", "True")):
                await stop(client, "busy", policy)
                await wait_condition(client, "one", "QuotaReserved", namespace="busy", status=reserved)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, "busy-applied", apply_check)
        tasks.start_soon(follow, "busy-patched", patch_check)
        tasks.start_soon(make_us_write)
    assert lost == []
    final = await live(client, workload)
    assert [check_of(final, name)["message"] for name in ("busy-applied", "busy-patched")] == ["step 29", "step 29"]


async def test_a_queue_is_active_only_while_the_controller_of_its_check_is_alive(client: KubeClient) -> None:
    await make_foreign_check(client, "alive", active=False)
    await make_queue(client, "alive", namespace="alive", checks=("alive",))

    async def becomes(status: str) -> Object:
        found = await eventually(
            lambda: get(client, CLUSTER_QUEUES, "alive"),
            what=f"Active={status}",
            until=lambda seen: condition(seen, "Active").get("status") == status,
        )
        return condition(found, "Active")

    assert (await becomes("False"))["reason"] == "AdmissionCheckInactive", "no controller has set Active"
    await set_active(client, "alive", generation=1)
    await becomes("True")
    parameters = {"apiGroup": "example.com", "kind": "Budget", "name": "b"}
    await client.patch(ADMISSION_CHECKS, "alive", {"spec": {"parameters": parameters}})
    assert (await becomes("False"))["reason"] == "AdmissionCheckInactive", "it has not read the new spec"
    await set_active(client, "alive", generation=2)
    await becomes("True")
    await set_active(client, "alive", generation=2, status="False")
    await becomes("False")
