# SPDX-License-Identifier: Apache-2.0
"""Workers that lie about pods which do not start: in megabytes, in control characters, in times, and all the time.

What they write is shown as one short line, costs the hub a bounded number of writes, and moves nothing before the hub's
own clock says so.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from manager.dispatch.controller import DispatchController
from manager.dispatch.reported.report_limits import CHANGES_AT_ONCE
from multikueue.api.resource import EVENTS, JOBS, PODS, SERVICE_ACCOUNTS
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.dispatch.protocol.job_problems import MAX_MESSAGE
from multikueue.kube.rest.client import KubeClient
from tests.support.hubs import running_hub
from tests.support.managers import (
    Object,
    condition,
    ensure,
    eventually,
    get,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)
from tests.support.scenes import Stage, scene, settings
from tests.support.workers import FakeWorker, make_check

pytestmark = pytest.mark.anyio

NAMESPACE = "team"
HOSTILE = "\x1b[2J\x1b]8;;http://evil\x07\r\u202e\u2028\x00line\n"
SETTINGS = (
    "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    "multiKueue: {podsStartTimeout: 1h, dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-all-at-once}\n"
)


def lie(text: str, *, reason: str = "FailedCreate", time: str = "0001-01-01T00:00:00Z") -> dict[str, Any]:
    """A status of a running job that has no pod, as an agent writes it."""
    entry = {"type": "PodsStarted", "status": "False", "reason": reason, "message": text, "lastTransitionTime": time}
    return {"jobStatus": {"active": 1, "startTime": format_time(SystemClock().now())}, "conditions": [entry]}


async def granted(client: KubeClient, worker: FakeWorker) -> Key:
    """A Job that the worker says it runs."""
    await make_job(client, "j", namespace=NAMESPACE, queue="q")
    found = await wait_condition(client, "j", "QuotaReserved", namespace=NAMESPACE)
    key = Key(NAMESPACE, found["metadata"]["name"])
    await worker.assigned(key)
    await worker.say(key, "Reserved")
    await worker.assigned(key, intent="Run")
    return key


async def the_workload(client: KubeClient) -> Object | None:
    """The Workload of the Job."""
    return await workload_of(client, "j", namespace=NAMESPACE)


async def shown(client: KubeClient, *, part: str) -> Object:
    """The condition of the Workload once it has that text."""
    found = await eventually(
        lambda: the_workload(client),
        what=f"PodsStarted has {part}",
        until=lambda seen: part in condition(seen, "PodsStarted").get("message", ""),
    )
    return condition(found, "PodsStarted")


async def test_an_agent_that_lies_about_pods_causes_few_writes_of_short_lines_and_moves_nothing() -> None:
    async with running_hub() as hub, hub.client() as client:
        worker = FakeWorker(client, "w1")
        async with running_manager(hub.as_cluster, settings=SETTINGS, dispatch=DispatchController) as manager:
            await worker.enrol()
            await worker.connect()
            await make_check(client, "q", ("w1",))
            await make_queue(client, "q", namespace=NAMESPACE, checks=("q",))
            key = await granted(client, worker)
            await worker.say(key, "Running", jobUID="r", **lie(HOSTILE + "x" * 30_000, reason="R" * 1024))
            found = await shown(client, part="\\x1b[2J")
            assert found["reason"] == "PodsNotStarted", "a reason of a thousand characters is none"
            assert found["message"].isprintable()
            assert len(found["message"]) < MAX_MESSAGE + 100
            assert not found["lastTransitionTime"].startswith("0001")

            before = manager.statuses.requests_sent["APPLY", "workloads/status"]
            for number in range(40):
                active = number + 2
                withdrawn: dict[str, Any] = {"jobStatus": {"active": active}}
                await worker.say(key, "Running", jobUID="r", **{**lie(f"cause {number}"), **withdrawn})
                if number % 2:
                    await worker.say(key, "Running", jobUID="r", **withdrawn)
                await eventually(
                    lambda: get(client, JOBS, "j", namespace=NAMESPACE),
                    what=f"lie {number} was read",
                    until=lambda seen, active=active: (seen or {}).get("status", {}).get("active") == active,  # type: ignore[misc]
                )
            writes = manager.statuses.requests_sent["APPLY", "workloads/status"] - before
            assert writes <= CHANGES_AT_ONCE + 2, "the budget, and a minute or two of a slow machine"
            workload = await the_workload(client)
            assert workload is not None
            assert workload["status"]["clusterName"] == "w1"
            assert not workload["status"].get("schedulingStats")
            await worker.say_finished(key)
            ended = await wait_condition(client, "j", "Finished", namespace=NAMESPACE)
            assert not condition(ended, "PodsStarted")


@pytest.mark.attacks
@pytest.mark.also_on_binaries
async def test_pods_of_a_hostile_worker_are_shown_as_one_short_line(stage: Stage) -> None:
    # Its pods are looked at for ten seconds, in which a busy machine may lose the short leases of the stage.
    async with scene(stage, "hostile-pods", configuration=settings(workerLostTimeout="1h")) as made:
        workload = await made.submit()
        await made.w1.admits(workload)
        worker, namespace = made.w1.client, made.namespace
        job = await eventually(
            lambda: made.w1.job("j", namespace=namespace),
            what="the job is created",
            until=lambda seen: seen is not None,
        )
        assert job is not None
        await worker.patch(JOBS, "j", {"spec": {"suspend": False}}, namespace=namespace)
        running = {"active": 1, "ready": 0, "startTime": format_time(SystemClock().now())}
        await worker.patch(JOBS, "j", {"status": running}, namespace=namespace, subresource="status")
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "j-abcde", "labels": job["spec"]["selector"]["matchLabels"]},
            "spec": {"containers": [{"name": "main", "image": "x"}]},
        }
        named = {"name": "default", "namespace": namespace}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named}
        await ensure(worker, SERVICE_ACCOUNTS, account)
        await worker.create(PODS, pod, namespace=namespace)
        waiting = {"reason": "ImagePullBackOff", "message": HOSTILE + "x" * 1_000_000}
        container = {
            "name": "main",
            "image": "x",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"waiting": waiting},
        }
        status = {"phase": "Pending", "containerStatuses": [container]}
        await worker.patch(PODS, "j-abcde", {"status": status}, namespace=namespace, subresource="status")
        found = await eventually(
            made.workload,
            what="the Workload shows it",
            until=lambda seen: condition(seen, "PodsStarted").get("reason") == "ImagePullBackOff",
        )
        text = condition(found, "PodsStarted")["message"]
        assert f"{made.w1.name}" in text
        assert "pod j-abcde, container main: \\x1b[2J" in text
        assert text.isprintable()
        assert len(text) < MAX_MESSAGE + 100

        async def notes() -> list[str]:
            page = await made.client.list_all(EVENTS, namespace=namespace)
            events = [orjson.loads(raw) for raw in page.items]
            return [each["note"] for each in events if each["reason"] == "PodsNotStarted"]

        said = await eventually(notes, what="the events", until=lambda seen: len(seen) >= 2)
        assert all(note.isprintable() for note in said)
        await made.w1.starts("j")
        await eventually(
            made.workload, what="the condition is gone", until=lambda seen: not condition(seen, "PodsStarted")
        )
        await worker.delete(PODS, "j-abcde", namespace=namespace, grace_seconds=0)
        await made.w1.ends("j")
        await made.finished()
