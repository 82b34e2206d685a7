# SPDX-License-Identifier: Apache-2.0
"""What a tenant, an agent or a user of a worker writes that cannot be read costs that object and nothing else.

Each test has the manager started anew with the object there: what is only read at a start or a failover counts most.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest

from manager.webhooks.configurations import MUTATING_NAME, VALIDATING_NAME
from multikueue.api.constants import ADOPTS_ANNOTATION, EPOCH_ANNOTATION
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import (
    CLUSTER_REPORTS,
    EVENTS,
    JOBS,
    LEASES,
    MULTIKUEUE_CLUSTERS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    REMOTE_ASSIGNMENTS,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    WORKLOADS,
)
from multikueue.kube.errors import ApiError, InternalError, Invalid
from multikueue.kube.rest.client import PatchKind
from tests.support.managers import Object, eventually, get, make_job, wait_condition, webhooks_answer
from tests.support.push_workers import SYSTEM
from tests.support.scenes import Scene, Stage, scene
from tests.support.workers import FakeWorker

pytestmark = pytest.mark.anyio

YEAR_ZERO = "0000-01-01T00:00:00.000000Z"
"""Any API server takes it, and no duration can be taken from it."""


async def goes_on(made: Scene, job: str) -> None:
    """A Job of another tenant is dispatched and ends, by a manager that has not died."""
    assert made.stage.manager.process.running
    workload = await made.running(made.w1, job=job)
    await made.w1.ends(job)
    await made.finished(job)
    await made.w1.relieved(workload)
    assert made.stage.manager.process.running


async def warnings_about(made: Scene, name: str, *, namespace: str) -> list[str]:
    page = await made.client.list_all(EVENTS, namespace=namespace)
    found = [orjson.loads(raw) for raw in page.items]
    return [
        f"{event['reason']}: {event['note']}"
        for event in found
        if event["regarding"]["name"] == name and event["type"] == "Warning"
    ]


@asynccontextmanager
async def taken_over(made: Scene) -> AsyncIterator[FakeWorker]:
    """A third cluster whose agent is the attacker's: it may write its Lease, its report and its statuses."""
    worker = FakeWorker(made.client, f"{made.name}-evil")
    await worker.enrol()
    await worker.connect()
    try:
        yield worker
    finally:
        await made.client.delete(MULTIKUEUE_CLUSTERS, worker.name)
        await made.client.delete(SECRETS, f"{worker.name}-kubeconfig", namespace=SYSTEM)
        await made.client.delete(NAMESPACES, worker.mailbox)


@pytest.mark.also_on_binaries
async def test_a_job_with_a_senseless_adoption_stops_no_manager_and_no_other_job(stage: Stage) -> None:
    async with scene(stage, "senseless-adoption") as made:
        senseless = {ADOPTS_ANNOTATION: "worker-1 m u ²"}
        with pytest.raises(ApiError, match="adopts"):
            await make_job(made.client, "evil", namespace=made.namespace, queue=made.name, annotations=senseless)
        # One that is older than the webhook, or came past it.
        await stage.manager.stop()
        await made.client.delete(MUTATING_WEBHOOK_CONFIGURATIONS, MUTATING_NAME)
        await made.client.delete(VALIDATING_WEBHOOK_CONFIGURATIONS, VALIDATING_NAME)

        async def past_the_webhook() -> Object | None:
            try:
                return await make_job(
                    made.client, "evil", namespace=made.namespace, queue=made.name, annotations=senseless, suspend=True
                )
            except InternalError:
                return None  # the API server still calls the removed webhooks

        await eventually(past_the_webhook, what="it is made past the webhook")
        await stage.manager.start()
        await webhooks_answer(made.client)
        await eventually(
            lambda: warnings_about(made, "evil", namespace=made.namespace),
            what="an event says that it is ignored",
            until=lambda seen: any(each.startswith("AdoptionIgnored") for each in seen),
        )
        await goes_on(made, "good")


async def test_a_report_with_amounts_of_thousands_of_digits_leaves_every_other_cluster_alone(stage: Stage) -> None:
    async with scene(stage, "huge-amounts") as made, taken_over(made) as evil:
        huge = "9" * 5000
        capacity = [
            {"name": "cpu", **dict.fromkeys(("allocatable", "free", "largestFree", "reserved", "largest"), huge)}
        ]
        group = {"labels": {}, "taints": [], "nodes": 1, "capacity": capacity}
        status = {"bootID": "b", "sequence": 1, "time": YEAR_ZERO, "capacity": capacity, "groups": [group]}
        await eventually(
            lambda: get(made.client, CLUSTER_REPORTS, "agent", namespace=evil.mailbox), what="its mailbox has a report"
        )
        await made.client.patch(
            CLUSTER_REPORTS,
            "agent",
            [{"op": "add", "path": "/status", "value": status}],
            namespace=evil.mailbox,
            kind=PatchKind.JSON,
            subresource="status",
        )
        await stage.restart()
        await goes_on(made, "good")


@pytest.mark.also_on_binaries
async def test_a_lease_of_the_year_zero_leaves_every_other_cluster_alone(stage: Stage) -> None:
    async with scene(stage, "year-zero") as made, taken_over(made) as evil:
        spec = {"holderIdentity": evil.name, "leaseDurationSeconds": 2**31 - 1, "renewTime": YEAR_ZERO}
        await made.client.patch(LEASES, "agent", {"spec": spec}, namespace=evil.mailbox)
        await stage.restart()
        await goes_on(made, "good")
        cluster = await get(made.client, MULTIKUEUE_CLUSTERS, evil.name)
        assert cluster is not None


@pytest.mark.transports("pull")
async def test_a_status_with_times_and_epochs_out_of_range_is_as_no_status(stage: Stage) -> None:
    async with scene(stage, "odd-status") as made:
        workload = await made.running(made.w1, job="victim")
        assert made.w1.agent is not None
        mailbox = mailbox_namespace(made.w1.name)
        found = orjson.loads((await made.client.list_all(REMOTE_ASSIGNMENTS, namespace=mailbox)).items[0])
        odd: list[Object] = [
            {"epoch": 1, "phase": "Running", "finished": {"reason": "x", "time": "0000-01-01T00:00:00Z"}},
            {"epoch": -1, "phase": "Finished"},
            {"epoch": 2**63 - 1, "phase": "Finished", "finished": {"reason": "x", "time": "9999-12-31T23:59:59Z"}},
            {"epoch": 1, "phase": "Running", "jobStatus": {"startTime": "0000-01-01T00:00:00Z", "active": "²"}},
        ]
        accepted = 0
        for status in odd:
            try:
                await made.client.patch(
                    REMOTE_ASSIGNMENTS,
                    found["metadata"]["name"],
                    [{"op": "add", "path": "/status", "value": status}],
                    namespace=mailbox,
                    kind=PatchKind.JSON,
                    subresource="status",
                )
            except Invalid:
                continue
            accepted += 1
            await stage.restart()
            assert stage.manager.process.running
        assert accepted >= 2
        await goes_on(made, "good")
        # The agent reports again what is so, and the work ends where it ran.
        await made.w1.ends("victim")
        await made.finished("victim")
        await made.w1.relieved(workload)


@pytest.mark.parametrize("mark", ["²", "9" * 5000, "-1", "1e3", "\u202e1"])
async def test_an_annotation_that_a_worker_user_spoils_affects_that_remote_job_only(stage: Stage, mark: str) -> None:
    async with scene(stage, f"spoiled-{mark[:9]}") as made:
        await made.running(made.w1, job="victim")
        await made.w1.client.patch(
            JOBS, "victim", {"metadata": {"annotations": {EPOCH_ANNOTATION: mark}}}, namespace=made.namespace
        )
        # The manager that begins anew recovers what it pushed from the marks on the worker.
        await stage.restart()
        await goes_on(made, "good")


async def test_a_workload_that_cannot_be_read_is_quarantined_by_name_and_counted(stage: Stage) -> None:
    async with scene(stage, "quarantined") as made:
        await make_job(made.client, "odd", namespace=made.namespace, queue=made.name)
        workload = await wait_condition(made.client, "odd", "QuotaReserved", namespace=made.namespace)
        spoiled = {"status": {"requeueState": {"count": 1, "requeueAt": "0001-01-01T00:00:00Z"}}}
        name = workload["metadata"]["name"]
        await made.client.patch(WORKLOADS, name, spoiled, namespace=made.namespace, subresource="status")
        warned = await eventually(
            lambda: warnings_about(made, name, namespace=made.namespace),
            what="an event names the object",
            until=lambda seen: any("0001-01-01" in each for each in seen),
        )
        assert warned
        metrics = await stage.manager.read_metrics()
        assert 'multikueue_quarantined_objects{reader="scheduler",resource="workloads"} 1.0' in metrics
        await stage.restart()
        await goes_on(made, "good")
