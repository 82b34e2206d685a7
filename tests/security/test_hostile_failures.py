# SPDX-License-Identifier: Apache-2.0
"""What a worker says about a failed Job reaches users of the hub: it is bounded, printable, and costs only that Job."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from multikueue.api.constants import FAILED_JOB_LABEL
from multikueue.api.remoteassignment import assignment_name, mailbox_namespace
from multikueue.api.resource import CONFIG_MAPS, JOBS, REMOTE_ASSIGNMENTS
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.kube.errors import Invalid
from multikueue.kube.rest.client import PatchKind
from tests.support.failed_jobs import Logs, fail_job, failed_pod, failed_status, make_failed_pod
from tests.support.managers import Object, eventually, wait_condition
from tests.support.scenes import Scene, Stage, scene

pytestmark = [pytest.mark.anyio, pytest.mark.also_on_binaries]

HOSTILE_LINE = "\x1b[2J\x07secret\x00\u202e" * 200
SIZE = 18 * 1024


async def record(made: Scene) -> Object:
    """The one ConfigMap about the Job."""

    async def probe() -> list[Object]:
        page = await made.client.list_all(CONFIG_MAPS, namespace=made.namespace, label_selector=f"{FAILED_JOB_LABEL}=j")
        return [orjson.loads(raw) for raw in page.items]

    (found,) = await eventually(probe, what="the failure is recorded", until=lambda seen: bool(seen))
    return found


def is_safe(data: dict[str, str]) -> bool:
    """Whether it is of a bounded size, and moves no cursor."""
    text = "".join(data.values())
    return len(text.encode()) <= SIZE and all(character.isprintable() or character in "\n\t" for character in text)


async def fails_with(made: Scene, *pods: dict[str, Any], log: str) -> None:
    """The Job has failed on the first worker with these pods, whose logs are that."""
    await made.running(made.w1)
    found = await made.w1.job("j", namespace=made.namespace)
    assert found is not None
    made.w1.api.connect_kubelets(Logs({pod["metadata"]["name"]: log for pod in pods}))
    for pod in pods:
        pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = found["metadata"]["uid"]
        await make_failed_pod(made.w1.client, pod, namespace=made.namespace)
    await fail_job(made.w1.client, "j", namespace=made.namespace)


async def test_the_log_of_a_hostile_container_is_cut_and_escaped(stage: Stage) -> None:
    async with scene(stage, "hostile log") as made:
        pods = [failed_pod(f"p{number}", job="j", job_uid="") for number in range(8)]
        await fails_with(made, *pods, log=f"{HOSTILE_LINE}\n" * 500)
        data = (await record(made))["data"]
        assert is_safe(data)
        assert "5 more failed pods left out" in data["summary"]
        assert "\\x1b[2J" in data["p7_main.log"]


async def test_a_job_that_its_user_calls_failed_is_not_kept_running_outside_its_quota(stage: Stage) -> None:
    async with scene(stage, "called failed") as made:
        await made.running(made.w1)
        job = await made.job()
        assert job is not None
        status = {**failed_status(), "startTime": job["status"].get("startTime")}
        await made.client.patch(JOBS, "j", {"status": status}, namespace=made.namespace, subresource="status")
        await wait_condition(made.client, "j", "Finished", namespace=made.namespace, reason="Failed")
        await made.w1.cleaned("j")


@pytest.mark.transports("pull")
@pytest.mark.parametrize(
    "failure",
    [
        {"containers": [{"pod": "p", "container": "c", "exitCode": 1, "log": HOSTILE_LINE * 3}]},
        {"containers": [{"pod": "../p", "container": "c/d", "exitCode": 1, "log": "x"}], "problem": "\x1b[31m"},
        {"containers": [{"pod": "p", "container": "c", "exitCode": 1, "log": "x" * 16384}] * 6},
        {"containers": [{"pod": "p" * 9999, "container": "c", "exitCode": 1}]},
        {"containers": [{"pod": "p", "container": "c", "exitCode": 1}] * 9},
        {"containers": "all", "omitted": 7},
    ],
    ids=["control characters", "paths as names", "six full logs", "a long name", "many containers", "other types"],
)
async def test_an_agent_that_writes_its_own_report_is_refused_or_cut(stage: Stage, failure: Any) -> None:
    async with scene(stage, f"own report {failure}"[:200]) as made:
        workload = await made.running(made.w1)
        now = format_time(SystemClock().now())
        status = {
            "epoch": 1,
            "phase": "Finished",
            "jobStatus": failed_status(),
            "finished": {"reason": "Failed", "message": "x", "time": now},
            "failure": failure,
        }
        assert made.w1.agent is not None
        patch = [{"op": "add", "path": "/status", "value": status}]
        name, mailbox = assignment_name(Key(made.namespace, workload)), mailbox_namespace(made.w1.name)
        # The agent would write what is true over it, maybe before the hub has read it.
        await made.w1.cut()
        try:
            await made.client.patch(
                REMOTE_ASSIGNMENTS, name, patch, namespace=mailbox, kind=PatchKind.JSON, subresource="status"
            )
        except Invalid:
            await made.w1.mend()
            await made.w1.ends("j")
            await made.finished()
            return
        await wait_condition(made.client, "j", "Finished", namespace=made.namespace, reason="Failed")
        assert is_safe((await record(made))["data"])
        await made.w1.mend()
