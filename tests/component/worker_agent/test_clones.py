# SPDX-License-Identifier: Apache-2.0
"""The clones of an agent in the queues of its cluster: which of them it writes to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from multikueue.api.constants import (
    ASSIGNMENT_ANNOTATION,
    CLUSTER_LABEL,
    EPOCH_ANNOTATION,
    MANAGER_UID_ANNOTATION,
    ORIGIN_LABEL,
    PREBUILT_WORKLOAD_LABEL,
    RESOURCE_IN_USE_FINALIZER,
)
from multikueue.api.remoteassignment import Intent
from multikueue.api.resource import CONFIG_MAPS, JOBS, NAMESPACES, WORKLOADS
from tests.component.worker_agent.test_quotas import TEAM, Scene, scene
from tests.support.assignment_specs import of_job, reservation, workload_spec
from tests.support.managers import Object, eventually, get, job_manifest, make_queue
from worker_agent.local.dependencies import job_objects
from worker_agent.local.queueing import engine_stops

pytestmark = pytest.mark.anyio


def marks(*, assignment: str, manager: str, epoch: int = 1) -> Object:
    """Of whom a copy is."""
    annotations = {
        ASSIGNMENT_ANNOTATION: assignment,
        CLUSTER_LABEL: "w",
        EPOCH_ANNOTATION: str(epoch),
        MANAGER_UID_ANNOTATION: manager,
    }
    return {"labels": {ORIGIN_LABEL: "multikueue"}, "annotations": annotations}


def desired(*, priority: int = 0) -> Object:
    return reservation(TEAM, workload=workload_spec(TEAM, priority=priority))


async def asked(made: Scene) -> None:
    """The assignment, which the agent has answered, on a cluster without its LocalQueue yet."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
    await made.client.create(NAMESPACES, namespace)
    made.mailbox.put(desired())
    await says(made, "Refused")


async def says(made: Scene, phase: str) -> None:
    async def probe() -> str:
        status: Object = (made.mailbox.get("a") or {}).get("status") or {}
        return str(status.get("phase", ""))

    await eventually(probe, what=f"the agent says {phase}", until=lambda seen: seen == phase)


async def make_clone(
    made: Scene, name: str, *, assignment: str, manager: str, epoch: int = 1, finalizers: Sequence[str] = ()
) -> None:
    metadata = {"name": name, "namespace": TEAM, **marks(assignment=assignment, manager=manager, epoch=epoch)}
    metadata["finalizers"] = list(finalizers)
    body = {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": metadata,
        "spec": workload_spec(TEAM, priority=0, active=True),
    }
    await made.client.create(WORKLOADS, body, namespace=TEAM)


async def test_an_adopted_clone_with_its_former_name_gets_a_new_priority() -> None:
    async with scene() as made:
        await asked(made)
        await make_clone(made, "former", assignment="a", manager="m")
        made.mailbox.put(desired(priority=7))
        found = await eventually(
            lambda: get(made.client, WORKLOADS, "former", namespace=TEAM),
            what="it has the new priority",
            until=lambda seen: seen is not None and seen["spec"].get("priority") == 7,
        )
        assert found is not None


async def test_work_is_stopped_also_while_the_engine_of_the_worker_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_stops, "ENGINE_SECONDS", 0.5)
    async with scene() as made:
        await asked(made)
        job = job_manifest("j", namespace=TEAM, queue="batch")
        job["metadata"] |= marks(assignment="a", manager="m")
        job["metadata"]["labels"][PREBUILT_WORKLOAD_LABEL] = "wl"
        job["spec"]["suspend"] = False
        await make_clone(made, "wl", assignment="a", manager="m")
        await made.client.create(JOBS, job, namespace=TEAM)
        await make_queue(made.client, "batch", namespace=TEAM)
        await says(made, "Running")
        made.mailbox.set_intent("a", Intent.EVICT)
        clone = await eventually(
            lambda: get(made.client, WORKLOADS, "wl", namespace=TEAM),
            what="the engine is told to stop it",
            until=lambda seen: seen is not None and not seen["spec"]["active"],
        )
        assert clone is not None
        await eventually(
            lambda: get(made.client, JOBS, "j", namespace=TEAM),
            what="the agent stops it",
            until=lambda seen: seen is not None and seen["spec"]["suspend"],
        )


async def make_suspended_job(made: Scene, *, named: str) -> None:
    """A job of the assignment that has no pods, and names that Workload."""
    job = job_manifest("j", namespace=TEAM, queue="batch")
    job["metadata"] |= marks(assignment="a", manager="m")
    job["metadata"]["labels"][PREBUILT_WORKLOAD_LABEL] = named
    job["spec"]["suspend"] = True
    await made.client.create(JOBS, job, namespace=TEAM)
    stopped = {"conditions": [{"type": "Suspended", "status": "True"}]}
    await made.client.patch(JOBS, "j", {"status": stopped}, namespace=TEAM, subresource="status")
    await make_queue(made.client, "batch", namespace=TEAM)


@pytest.mark.parametrize(
    ("named", "active", "phase"), [("wl", True, "Running"), ("gone", True, "Evicted"), ("wl", False, "Evicted")]
)
async def test_a_suspended_job_waits_for_the_engine_only_if_its_workload_is_there_and_active(
    named: str, active: bool, phase: str
) -> None:
    async with scene() as made:
        await asked(made)
        await make_clone(made, "wl", assignment="a", manager="m")
        await made.client.patch(WORKLOADS, "wl", {"spec": {"active": active}}, namespace=TEAM)
        await make_suspended_job(made, named=named)
        made.mailbox.set_intent("a", Intent.RUN)
        await says(made, phase)


async def waits_for_the_engine(made: Scene) -> None:
    """A job of the assignment that its engine has not started yet."""
    await asked(made)
    await make_clone(made, "wl", assignment="a", manager="m")
    await make_suspended_job(made, named="wl")
    made.mailbox.set_intent("a", Intent.RUN)
    await says(made, "Running")


async def test_a_job_that_the_engine_is_about_to_start_has_stopped_once_it_cannot_any_more() -> None:
    async with scene() as made:
        await waits_for_the_engine(made)
        made.mailbox.set_intent("a", Intent.EVICT)
        await says(made, "Evicted")
        clone = await get(made.client, WORKLOADS, "wl", namespace=TEAM)
        assert clone is not None
        assert not clone["spec"]["active"], "its engine would have started it after that report"


@pytest.mark.parametrize("gone", ["deleted", "finished"])
async def test_a_suspended_job_whose_workload_is_gone_or_finished_has_stopped(gone: str) -> None:
    async with scene() as made:
        await waits_for_the_engine(made)
        if gone == "finished":
            condition = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done"}
            moment = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
            body = {"status": {"conditions": [condition | moment]}}
            await made.client.patch(WORKLOADS, "wl", body, namespace=TEAM, subresource="status")
        made.mailbox.set_intent("a", Intent.EVICT)
        if gone == "deleted":
            await made.client.delete(WORKLOADS, "wl", namespace=TEAM)
        await says(made, "Evicted")
        assert await get(made.client, JOBS, "j", namespace=TEAM) is not None, "it was not deleted for that"


async def test_a_job_that_is_resumed_after_it_was_reported_as_stopped_is_stopped_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_stops, "ENGINE_SECONDS", 0.5)
    async with scene() as made:
        await asked(made)
        await make_clone(made, "wl", assignment="a", manager="m")
        await made.client.patch(WORKLOADS, "wl", {"spec": {"active": False}}, namespace=TEAM)
        await make_suspended_job(made, named="wl")
        made.mailbox.set_intent("a", Intent.EVICT)
        await says(made, "Evicted")
        await made.client.patch(JOBS, "j", {"spec": {"suspend": False}}, namespace=TEAM)
        await eventually(
            lambda: get(made.client, JOBS, "j", namespace=TEAM),
            what="it is suspended again",
            until=lambda seen: seen is not None and seen["spec"]["suspend"],
        )


async def test_work_is_stopped_next_to_a_clone_of_another_owner() -> None:
    async with scene() as made:
        await asked(made)
        job = job_manifest("j", namespace=TEAM, queue="batch")
        job["metadata"] |= marks(assignment="a", manager="m")
        job["spec"]["suspend"] = False
        await made.client.create(JOBS, job, namespace=TEAM)
        await says(made, "Running")
        await make_clone(made, "wl", assignment="b", manager="another")
        await make_queue(made.client, "batch", namespace=TEAM)
        await eventually(made.local_queues, what="the agent has seen the queue")
        made.mailbox.set_intent("a", Intent.EVICT)
        await eventually(
            lambda: get(made.client, JOBS, "j", namespace=TEAM),
            what="the job is told to stop",
            until=lambda seen: seen is not None and seen["spec"]["suspend"],
        )
        theirs = await get(made.client, WORKLOADS, "wl", namespace=TEAM)
        assert theirs is not None
        assert theirs["spec"]["active"]


async def test_the_clone_of_a_newer_job_stays_as_long_as_that_job() -> None:
    async with scene() as made:
        await asked(made)
        job = job_manifest("j", namespace=TEAM, queue="batch")
        # The finalizer stands for pods that take their time to end.
        job["metadata"] |= {**marks(assignment="a", manager="m", epoch=2), "finalizers": ["example.com/pods"]}
        job["spec"]["suspend"] = False
        await made.client.create(JOBS, job, namespace=TEAM)
        await says(made, "Refused")
        await make_clone(made, "wl", assignment="a", manager="m", epoch=2)
        await make_queue(made.client, "batch", namespace=TEAM)
        await eventually(made.local_queues, what="the agent has seen the queue")
        made.mailbox.put(desired(priority=1))
        await made.reported()
        found = await get(made.client, WORKLOADS, "wl", namespace=TEAM)
        assert found is not None
        assert found["metadata"]["annotations"][EPOCH_ANNOTATION] == "2", "its pods use that capacity"
        assert (made.mailbox.get("a") or {})["status"]["reason"] == "NewerCopy"


async def test_a_clone_is_deleted_and_whoever_else_holds_it_lets_go_himself() -> None:
    async with scene() as made:
        await asked(made)
        held = (RESOURCE_IN_USE_FINALIZER, "example.com/x")
        await make_clone(made, "wl", assignment="a", manager="m", finalizers=held)
        made.mailbox.remove("a")
        found = await eventually(
            lambda: get(made.client, WORKLOADS, "wl", namespace=TEAM),
            what="the engine's finalizer is gone",
            until=lambda seen: (seen or {}).get("metadata", {}).get("finalizers") == ["example.com/x"],
        )
        assert found is not None
        assert found["metadata"]["deletionTimestamp"]


async def test_the_clone_of_a_former_hub_is_an_orphan_unless_its_job_is_there() -> None:
    async def orphans(request: str, **wanted: object) -> Object:
        made.mailbox.request_recovery({"request": request, **wanted})

        async def probe() -> Object:
            return (made.mailbox.report.get("status") or {}).get("orphans") or {}

        return await eventually(probe, what="it answers", until=lambda seen: seen.get("request") == request)

    async with scene() as made:
        await asked(made)
        job = job_manifest("orphan", namespace=TEAM, queue="batch")
        job["metadata"] |= marks(assignment="runs", manager="former")
        await made.client.create(JOBS, job, namespace=TEAM)
        await made.reported()
        await make_clone(made, "runs", assignment="runs", manager="former")
        await make_clone(made, "waits", assignment="waits", manager="former", finalizers=[RESOURCE_IN_USE_FINALIZER])
        await make_clone(made, "wl", assignment="a", manager="m")
        await made.reported()
        found = {each["kind"]: each for each in (await orphans("1"))["items"]}
        shown = [(kind, each["name"], each["managerUID"]) for kind, each in found.items()]
        assert sorted(shown) == [("Job", "orphan", "former"), ("Workload", "waits", "former")]
        assert "spec" not in found["Workload"]["manifest"]
        await orphans("2", discard=[found["Workload"]["uid"]])
        assert await get(made.client, WORKLOADS, "waits", namespace=TEAM) is None
        for name in ("runs", "wl"):
            assert await get(made.client, WORKLOADS, name, namespace=TEAM) is not None


async def test_a_clone_that_waits_is_kept_when_an_object_goes_missing_and_the_grant_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What was found is looked for again at once, and not after seconds.
    monkeypatch.setattr(job_objects, "FOUND_SECONDS", 0.0)

    def needing(*, priority: int) -> Object:
        body = reservation(TEAM, workload=workload_spec(TEAM, priority=priority))
        pod = body["spec"]["job"]["manifest"]["spec"]["template"]["spec"]
        pod["volumes"] = [{"name": "v", "configMap": {"name": "settings"}}]
        return body

    async def clone() -> Object | None:
        return await get(made.client, WORKLOADS, "wl", namespace=TEAM)

    async with scene() as made:
        await asked(made)
        await make_queue(made.client, "batch", namespace=TEAM)
        await eventually(made.local_queues, what="the agent has seen the queue")
        settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
        await made.client.create(CONFIG_MAPS, settings, namespace=TEAM)
        made.mailbox.put(needing(priority=0))
        await eventually(clone, what="there is a clone", until=lambda seen: seen is not None)
        await made.client.delete(CONFIG_MAPS, "settings", namespace=TEAM)
        made.mailbox.put(needing(priority=7))
        await eventually(
            clone, what="it is reconciled", until=lambda seen: (seen or {}).get("spec", {}).get("priority") == 7
        )
        await says(made, "Pending")
        made.mailbox.set_intent("a", Intent.RUN)
        await says(made, "Refused")
        assert (made.mailbox.get("a") or {})["status"]["reason"] == "DependencyNotFound"
        assert await get(made.client, JOBS, "j", namespace=TEAM) is None


async def test_a_refused_grant_asks_no_queue_that_appears_later() -> None:
    """The hub may have granted it elsewhere: a clone here would hold quota for nothing."""

    async def clone_of(name: str) -> None:
        await eventually(
            lambda: get(made.client, WORKLOADS, f"wl-{name}", namespace=TEAM), what=f"{name} is in the queue"
        )

    async with scene() as made:
        await made.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        made.mailbox.put(of_job(desired(), "a", Intent.RUN))
        await says(made, "Refused")
        made.mailbox.put(of_job(desired(), "asked", Intent.RESERVE))
        await make_queue(made.client, "batch", namespace=TEAM)
        await clone_of("asked")
        # By now the agent has reconciled both with the queue, or does so before the next assignment.
        made.mailbox.put(of_job(desired(), "later", Intent.RESERVE))
        await clone_of("later")
        assert await get(made.client, WORKLOADS, "wl-a", namespace=TEAM) is None
        await says(made, "Refused")
