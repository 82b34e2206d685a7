# SPDX-License-Identifier: Apache-2.0
"""A Job whose queue label is changed between a queue of the hub and one of workers."""

from __future__ import annotations

import orjson
import pytest

from multikueue.api.constants import MULTIKUEUE_MANAGED_BY, QUEUE_NAME_LABEL
from multikueue.api.resource import CLUSTER_QUEUES, EVENTS, JOBS, LOCAL_QUEUES
from multikueue.kube.errors import Invalid
from tests.support.managers import Object, eventually, make_job, make_queue, wait_condition
from tests.support.scenes import Scene, Stage, scene
from tests.support.workers import check_of

pytestmark = [pytest.mark.anyio, pytest.mark.also_on_binaries]


async def relabel(made: Scene, queue: str) -> None:
    """What `kubectl label job j kueue.x-k8s.io/queue-name=QUEUE --overwrite` does."""
    body = {"metadata": {"labels": {QUEUE_NAME_LABEL: queue}}}
    await made.client.patch(JOBS, "j", body, namespace=made.namespace)


async def event(made: Scene, reason: str) -> Object:
    async def probe() -> Object | None:
        page = await made.client.list_all(EVENTS, namespace=made.namespace)
        found: list[Object] = [orjson.loads(raw) for raw in page.items]
        return next((each for each in found if each["reason"] == reason), None)

    found = await eventually(probe, what=f"an event {reason}")
    assert found is not None
    return found


async def removed(made: Scene, queue: str) -> None:
    await made.client.delete(LOCAL_QUEUES, queue, namespace=made.namespace)
    await made.client.delete(CLUSTER_QUEUES, queue)


async def test_a_job_of_the_hub_that_is_moved_to_workers_shows_what_to_do_and_then_continues(stage: Stage) -> None:
    async with scene(stage, "moved") as made:
        plain = f"{made.name}-plain"
        await make_queue(made.client, plain, namespace=made.namespace, cpu="0")  # it waits there
        await make_job(made.client, "j", namespace=made.namespace, queue=plain)
        await wait_condition(made.client, "j", "QuotaReserved", namespace=made.namespace, status="False")
        with pytest.raises(Invalid, match="managedBy"):  # what no API server permits, also of a suspended Job
            await made.client.patch(JOBS, "j", {"spec": {"managedBy": MULTIKUEUE_MANAGED_BY}}, namespace=made.namespace)
        await relabel(made, made.name)
        found = await eventually(
            made.workload,
            what="it is rejected and inactive",
            until=lambda it: it is not None and it["spec"].get("active") is False,
        )
        assert "delete the job and create it again" in str(found)
        said = await event(made, "QueueTargetMismatch")
        command = f"kubectl delete job j -n {made.namespace} && kubectl create -n {made.namespace} -f FILE"
        assert command in said["note"]

        # The way back needs no one's help: the check that rejected it is none of its queue's any more.
        await relabel(made, plain)
        found = await eventually(
            made.workload,
            what="it is active and waits for quota again",
            until=lambda it: (
                it is not None
                and it["spec"].get("active") is not False
                and it["spec"]["queueName"] == plain
                and check_of(it, made.name) == {}
            ),
        )

        # The way on is the command of the message.
        await made.client.delete(JOBS, "j", namespace=made.namespace, propagation="Background")
        await eventually(made.job, what="the Job is gone", until=lambda it: it is None)
        await made.w1.asked(await made.submit())
        await removed(made, plain)


async def test_a_job_that_was_rejected_runs_in_the_queue_that_it_came_from(stage: Stage) -> None:
    async with scene(stage, "back") as made:
        plain = f"{made.name}-plain"
        await make_queue(made.client, plain, namespace=made.namespace, cpu="0")
        await make_job(made.client, "j", namespace=made.namespace, queue=plain)
        await wait_condition(made.client, "j", "QuotaReserved", namespace=made.namespace, status="False")
        await relabel(made, made.name)
        await eventually(
            made.workload,
            what="it is inactive",
            until=lambda it: it is not None and it["spec"].get("active") is False,
        )
        group = {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
        }
        await made.client.patch(CLUSTER_QUEUES, plain, {"spec": {"resourceGroups": [group]}})
        await relabel(made, plain)
        await wait_condition(made.client, "j", "Admitted", namespace=made.namespace)
        await eventually(
            made.job, what="it runs here", until=lambda it: it is not None and it["spec"]["suspend"] is False
        )
        await made.client.delete(JOBS, "j", namespace=made.namespace, propagation="Background")
        await removed(made, plain)
