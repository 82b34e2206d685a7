# SPDX-License-Identifier: Apache-2.0
"""R, N, G, P, H and B: clusters of several roles, enabled kinds, garbage, provisioning, and priorities."""

from __future__ import annotations

import pytest

from multikueue.api.resource import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES, WORKLOADS
from tests.support.managers import (
    eventually,
    finish_pods,
    get,
    is_true,
    job_manifest,
    make_job,
    make_queue,
    wait_condition,
)
from tests.support.scenes import Scene, Stage, scene, settings
from tests.support.workers import KUEUE, check_of

pytestmark = pytest.mark.anyio


async def test_r1_b13_a_worker_runs_jobs_of_its_own_beside(stage: Stage) -> None:
    async with scene(stage, "r1") as made:
        own = job_manifest("own", namespace=made.namespace, queue=None)
        await made.w1.client.create(JOBS, own, namespace=made.namespace)
        before = await made.w1.job("own", namespace=made.namespace)
        workload = await made.running(made.w1)
        await made.w1.ends("j")
        await made.finished()
        await made.w1.cleaned("j")
        await made.w1.relieved(workload)
        assert await made.w1.job("own", namespace=made.namespace) == before


async def test_r2_the_hub_runs_jobs_of_its_own_beside(stage: Stage) -> None:
    async with scene(stage, "r2") as made:
        plain = f"{made.name}-plain"
        await make_queue(made.client, plain, namespace=made.namespace)
        await make_job(made.client, "local", namespace=made.namespace, queue=plain)
        await eventually(
            lambda: finish_pods(made.client, "local", namespace=made.namespace),
            what="it runs here",
            until=lambda count: count > 0,
        )
        await wait_condition(made.client, "local", "Finished", namespace=made.namespace, reason="Succeeded")
        job = await made.job("local")
        assert job is not None
        assert "managedBy" not in job["spec"]
        await made.w1.asked(await made.submit())
        await made.client.delete(LOCAL_QUEUES, plain, namespace=made.namespace)
        await made.client.delete(CLUSTER_QUEUES, plain)


async def test_r3_a_job_of_that_name_that_was_there_is_left_alone_and_the_work_goes_elsewhere(stage: Stage) -> None:
    async with scene(stage, "r3") as made:
        own = job_manifest("j", namespace=made.namespace, queue=None)
        await made.w1.client.create(JOBS, own, namespace=made.namespace)
        before = await made.w1.job("j", namespace=made.namespace)
        workload = await made.submit()
        await made.w1.admits(workload)
        await made.w2.admits(workload, epoch=2)
        await made.w2.starts("j", epoch=2)
        await made.w2.ends("j")
        await made.finished()
        await made.w2.cleaned("j")
        assert await made.w1.job("j", namespace=made.namespace) == before


async def test_n1_a_job_of_an_enabled_kind_is_sent(stage: Stage) -> None:
    async with scene(stage, "n1") as made:
        await made.running(made.w1)


async def test_n2_work_of_a_kind_that_is_not_enabled_is_rejected_and_sent_nowhere(stage: Stage) -> None:
    async with scene(stage, "n2") as made:
        template = job_manifest("mpi", namespace=made.namespace, queue=None)["spec"]["template"]
        owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "mpi", "uid": "u", "controller": True}
        body = {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "metadata": {"name": "mpi", "namespace": made.namespace, "ownerReferences": [owner]},
            "spec": {"queueName": made.name, "podSets": [{"name": "main", "count": 1, "template": template}]},
        }
        await made.client.create(WORKLOADS, body, namespace=made.namespace)
        found = await eventually(
            lambda: get(made.client, WORKLOADS, "mpi", namespace=made.namespace),
            what="the check is Rejected, or the owner is found gone",
            until=lambda seen: "No multikueue adapter found" in str(seen) or seen is None,
        )
        if found is not None:
            assert 'owner kind "MPIJob"' in str(found)
        assert await made.w1.clone("mpi") is None


async def test_g1_with_garbage_collection_off_a_deleted_job_is_removed_from_the_workers(stage: Stage) -> None:
    async with scene(stage, "g1", configuration=settings(gcInterval="0s")) as made:
        workload = await made.running(made.w1)
        await made.client.delete(JOBS, "j", namespace=made.namespace, propagation="Background")
        await made.w1.cleaned("j")
        await made.w1.relieved(workload)


async def test_g2_a_rejected_check_takes_the_copies_away(stage: Stage) -> None:
    async with scene(stage, "g2") as made:
        workload = await made.submit()
        await made.w1.asked(workload)
        await made.w2.asked(workload)
        await made.pass_check(made.name, state="Rejected")
        await made.w1.relieved(workload)
        await made.w2.relieved(workload)
        await eventually(
            made.workload, what="it is deactivated", until=lambda it: it is not None and it["spec"]["active"] is False
        )


async def test_p1_a_worker_that_has_to_provision_first_gets_the_job_when_it_has(stage: Stage) -> None:
    async with scene(stage, "p1", clusters=(1,)) as made:
        workload = await made.submit()
        await made.w1.asked(workload)
        # Its own ProvisioningRequest is on the way: it has quota, and not all of its checks.
        await made.w1.reserves(workload)
        found = await made.check("Pending")
        assert not found["status"].get("clusterName")
        assert await get(made.w1.client, JOBS, "j", namespace=made.namespace) is None
        await made.w1.admits(workload)
        await made.check("Ready", message=made.w1.name)
        await made.w1.starts("j")
        await made.w1.ends("j")
        await made.finished()


async def test_p2_those_that_have_quota_only_are_kept_until_one_is_admitted(stage: Stage) -> None:
    async with scene(stage, "p2") as made:
        workload = await made.submit()
        for worker in (made.w1, made.w2):
            await worker.asked(workload)
            await worker.reserves(workload)
        found = await made.check("Pending")
        assert not found["status"].get("clusterName")
        assert await made.w1.clone(workload) is not None
        await made.w2.admits(workload)
        await made.check("Ready", message=made.w2.name)
        await made.w1.relieved(workload)


async def test_h1_b7_b10_higher_priority_takes_the_place_on_a_worker_and_the_other_comes_again(stage: Stage) -> None:
    async with scene(stage, "h1", clusters=(1,)) as made:
        low = await made.running(made.w1, job="low")
        high = await made.submit("high")
        await made.w1.asked(high)
        await made.w1.evicts(low, "low")
        await made.w1.admits(high)
        await made.w1.starts("high")
        await made.check("Pending", job="low", retries=1)
        await made.w1.cleaned("low")
        await made.w1.asked(low, epoch=2)
        await made.w1.ends("high")
        await made.finished("high")
        await made.w1.admits(low, epoch=2)
        await made.w1.starts("low", epoch=2)
        await made.w1.ends("low")
        await made.finished("low")


async def test_h2_b9_of_several_workers_the_one_that_has_capacity_first_gets_it(stage: Stage) -> None:
    async with scene(stage, "h2") as made:
        low = await made.running(made.w1, job="low")
        other = await made.submit("other")
        await made.w2.admits(other)
        await made.w2.starts("other")
        high = await made.submit("high")
        await made.w1.asked(high)
        await made.w2.asked(high)
        await made.w1.evicts(low, "low")
        await made.w1.admits(high)
        await made.check("Ready", job="high", message=made.w1.name)
        await made.w2.relieved(high)
        await made.check("Pending", job="low", retries=1)
        assert await made.evictions("low") == 1
        assert await made.evictions("other") == 0


async def test_h3_b11_b12_another_priority_class_reaches_the_copy_on_the_worker(stage: Stage) -> None:
    async with scene(stage, "h3") as made:
        kind = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass"}
        for name, value in (("low", 10), ("high", 20)):
            body = {**kind, "metadata": {"name": f"{made.name}-{name}"}, "value": value, "description": "test"}
            await made.client.create(WORKLOAD_PRIORITY_CLASSES, body)
        label = "kueue.x-k8s.io/priority-class"
        workload = await made.submit(labels={label: f"{made.name}-low"})
        assert (await made.w1.asked(workload))["spec"]["priority"] == 10
        await made.w1.admits(workload)
        await made.w1.starts("j")
        await made.job_says("ready", 1)
        change = {"metadata": {"labels": {label: f"{made.name}-high"}}}
        await made.client.patch(JOBS, "j", change, namespace=made.namespace)
        await copy_has_priority(made, workload, 20)
        # B12: and it keeps it when the job is looked at again, as after a pod that failed.
        failed = {"status": {"failed": 1, "active": 1, "ready": 1}}
        await made.w1.client.patch(JOBS, "j", failed, namespace=made.namespace, subresource="status")
        await made.job_says("failed", 1)
        await copy_has_priority(made, workload, 20)
        await made.w1.ends("j")
        await made.finished()


async def copy_has_priority(made: Scene, workload: str, value: int) -> None:
    found = await eventually(
        lambda: made.w1.clone(workload),
        what=f"the copy has priority {value}",
        until=lambda seen: seen is not None and seen["spec"]["priority"] == value,
    )
    assert is_true(found, "Admitted")


async def test_a_job_that_another_controller_is_to_run_is_rejected(stage: Stage) -> None:
    async with scene(stage, "managed-by") as made:
        body = job_manifest("j", namespace=made.namespace, queue=made.name)
        body["spec"]["managedBy"] = "example.com/else"
        await made.client.create(JOBS, body, namespace=made.namespace)
        found = await eventually(
            made.workload, what="the check is Rejected", until=lambda it: "Rejected" in str(check_of(it, made.name))
        )
        assert "Expecting spec.managedBy" in str(found)
