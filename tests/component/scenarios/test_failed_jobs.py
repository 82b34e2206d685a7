# SPDX-License-Identifier: Apache-2.0
"""A Job that failed on a worker: it stays there for a while, and the hub shows why it failed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import orjson
import pytest

from multikueue.api.constants import FAILED_JOB_LABEL
from multikueue.api.resource import CLUSTER_QUEUES, CONFIG_MAPS, EVENTS, JOBS
from multikueue.cli.cluster import lifecycle, view
from multikueue.core.clock import SystemClock
from multikueue.dispatch.hub.failed_jobs import MAX_KEPT
from multikueue.kube.rest.client import KubeClient
from tests.support.failed_jobs import Logs, fail_job, failed_pod, make_failed_pod
from tests.support.managers import Object, eventually, get, make_job, wait_condition
from tests.support.scenes import Scene, Stage, scene, settings
from tests.support.sites import Site

pytestmark = pytest.mark.anyio
apart = pytest.mark.attacks
"""`make test` has no time for it."""


def logs(site: Site, **text: str) -> Logs:
    """What the kubelets there answer from now on."""
    made = Logs({pod.replace("_", "-"): lines for pod, lines in text.items()})
    site.api.connect_kubelets(made)
    return made


async def failing(made: Scene, winner: Site, *pods: dict[str, Any], job: str = "j") -> str:
    """A Job that has failed on `winner` with these pods; the uid of the remote one."""
    await made.running(winner, job=job)
    found = await winner.job(job, namespace=made.namespace)
    assert found is not None
    uid = str(found["metadata"]["uid"])
    for pod in pods or (failed_pod("p1", job=job, job_uid=uid),):
        pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = uid
        await make_failed_pod(winner.client, pod, namespace=made.namespace)
    await fail_job(winner.client, job, namespace=made.namespace)
    return uid


async def records(client: KubeClient, namespace: str, job: str = "j") -> list[Object]:
    """The ConfigMaps about the Job."""
    page = await client.list_all(CONFIG_MAPS, namespace=namespace, label_selector=f"{FAILED_JOB_LABEL}={job}")
    return [orjson.loads(raw) for raw in page.items]


async def recorded(made: Scene, job: str = "j") -> Object:
    """The one ConfigMap about the Job."""
    found = await eventually(
        lambda: records(made.client, made.namespace, job), what="the failure is recorded", until=lambda seen: bool(seen)
    )
    (one,) = found
    return one


async def events(made: Scene) -> list[Object]:
    """The events about failed remote jobs."""
    page = await made.client.list_all(EVENTS, namespace=made.namespace)
    return [event for event in map(orjson.loads, page.items) if event["reason"] == "RemoteJobFailed"]


async def failed(made: Scene, job: str = "j") -> Object:
    """Its Workload, once the hub knows."""
    return await wait_condition(made.client, job, "Finished", namespace=made.namespace, reason="Failed")


@pytest.mark.also_on_binaries
async def test_the_hub_has_exit_codes_and_last_lines_and_the_job_stays_with_its_quota_free(stage: Stage) -> None:
    async with scene(stage, "failed") as made:
        logs(made.w1, p1="".join(f"line {number}\n" for number in range(100)))
        uid = await failing(made, made.w1)
        await failed(made)
        found = await recorded(made)
        assert "pod p1, container main: exit code 3 (Error)" in found["data"]["summary"]
        lines = found["data"]["p1_main.log"].splitlines()
        assert (lines[0], lines[-1], len(lines)) == ("line 20", "line 99", 80)
        job = await made.job()
        assert job is not None
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Job", job["metadata"]["uid"])
        about = await eventually(lambda: events(made), what="both have an event", until=lambda seen: len(seen) == 2)
        assert {event["regarding"]["kind"] for event in about} == {"Job", "Workload"}
        assert all("exit code 3 (Error)" in event["note"] and event["type"] == "Warning" for event in about)
        assert all(found["metadata"]["name"] in event["note"] for event in about)
        await eventually(
            lambda: get(made.client, CLUSTER_QUEUES, made.name),
            what="the quota is free",
            until=lambda seen: seen is not None and seen["status"].get("reservingWorkloads") == 0,
        )
        kept = await made.w1.job("j", namespace=made.namespace)
        assert kept is not None
        assert kept["metadata"]["uid"] == uid
        assert (await view.cluster(made.client, made.w1.name))["copies"] == 0, "nothing runs there"


@apart
async def test_of_a_namespace_only_the_newest_failed_jobs_are_kept(stage: Stage) -> None:
    async with scene(stage, "many failed") as made:
        logs(made.w1)
        names = [f"j{number}" for number in range(MAX_KEPT + 2)]
        for name in names:
            await failing(made, made.w1, failed_pod(f"p-{name}", job=name, job_uid=""), job=name)
            await failed(made, name)
        for name in names[:2]:
            await made.w1.cleaned(name)
        for name in names[2:]:
            assert await made.w1.job(name, namespace=made.namespace) is not None


@pytest.mark.also_on_binaries
async def test_a_kept_job_goes_when_the_user_deletes_theirs_and_a_new_one_of_the_name_takes_its_place(
    stage: Stage,
) -> None:
    async with scene(stage, "deleted") as made:
        logs(made.w1)
        uid = await failing(made, made.w1)
        await failed(made)
        await made.client.delete(JOBS, "j", namespace=made.namespace, propagation="Background")
        await eventually(made.job, what="it is deleted", until=lambda seen: seen is None)
        # A real API server removes it a moment later, and it is found by the name of the Job.
        await eventually(made.workload, what="its Workload is deleted", until=lambda seen: seen is None)
        workload = await made.submit()
        await made.w1.cleaned("j")
        await made.w1.admits(workload)
        again = await made.w1.starts("j")
        assert again["metadata"]["uid"] != uid
        await made.w1.ends("j")
        await made.finished()


@pytest.mark.transports("pull")
async def test_a_job_is_kept_for_the_configured_time(stage: Stage) -> None:
    async with scene(stage, "for a while", configuration=settings(keepFailedJobs="2s")) as made:
        logs(made.w1, p1="the last line\n")
        await failing(made, made.w1)
        await failed(made)
        await made.w1.cleaned("j")
        assert "the last line" in (await recorded(made))["data"]["p1_main.log"]
        await made.w1.relieved((await made.workload() or {})["metadata"]["name"])


@apart
async def test_with_zero_a_failed_job_is_removed_at_once_and_recorded_all_the_same(stage: Stage) -> None:
    async with scene(stage, "at once", configuration=settings(keepFailedJobs="0s")) as made:
        logs(made.w1, p1="the last line\n")
        await failing(made, made.w1)
        await made.w1.cleaned("j")
        assert "the last line" in (await recorded(made))["data"]["p1_main.log"]


@apart
async def test_a_restart_of_the_manager_keeps_the_job_and_records_nothing_twice(stage: Stage) -> None:
    async with scene(stage, "restarted") as made:
        logs(made.w1, p1="the last line\n")
        uid = await failing(made, made.w1)
        before = await recorded(made)
        await eventually(lambda: events(made), what="both have an event", until=lambda seen: len(seen) == 2)
        await stage.restart()
        workload = await made.submit("next")
        await made.w1.admits(workload)
        await made.w1.starts("next")
        await made.w1.ends("next")
        await made.finished("next")
        kept = await made.w1.job("j", namespace=made.namespace)
        assert kept is not None
        assert kept["metadata"]["uid"] == uid
        assert await recorded(made) == before
        assert len(await events(made)) == 2


@apart
async def test_a_drained_cluster_keeps_no_failed_job(stage: Stage) -> None:
    async with scene(stage, "drained") as made:
        logs(made.w1)
        await failing(made, made.w1)
        await failed(made)
        await recorded(made)
        await lifecycle.drain(made.client, made.w1.name, deadline=timedelta(hours=1), clock=SystemClock())
        await made.w1.cleaned("j")


@apart
@pytest.mark.parametrize("code", [409, 429, 500, 503])
async def test_a_log_that_cannot_be_read_delays_the_end_by_seconds_only_and_follows(stage: Stage, code: int) -> None:
    async with scene(stage, f"log {code}") as made:
        answers = logs(made.w1, p1="the last line\n")
        answers.code = code
        await failing(made, made.w1)
        await failed(made)
        assert await records(made.client, made.namespace) == []
        answers.code = 0
        assert "the last line" in (await recorded(made))["data"]["p1_main.log"]


@apart
async def test_a_job_named_like_a_configmap_of_the_user_leaves_that_alone(stage: Stage) -> None:
    async with scene(stage, "taken") as made:
        logs(made.w1, p1="the last line\n")
        await made.running(made.w1)
        job = await made.job()
        assert job is not None
        name = f"j-failure-{job['metadata']['uid'][:8]}"
        own = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"summary": "mine"}}
        await made.client.create(CONFIG_MAPS, own, namespace=made.namespace)
        copy = await made.w1.job("j", namespace=made.namespace)
        assert copy is not None
        pod = failed_pod("p1", job="j", job_uid=copy["metadata"]["uid"])
        await make_failed_pod(made.w1.client, pod, namespace=made.namespace)
        await fail_job(made.w1.client, "j", namespace=made.namespace)
        await failed(made)
        await make_job(made.client, "after", namespace=made.namespace, queue=made.name)
        found = await made.client.get_object(CONFIG_MAPS, name, namespace=made.namespace)
        assert found["data"] == {"summary": "mine"}
