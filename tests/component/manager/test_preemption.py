# SPDX-License-Identifier: Apache-2.0
"""Preemption on a real API server: the victim shows why, stops, releases its quota, and is queued again."""

from __future__ import annotations

import orjson
import pytest

from devcluster.cluster import Cluster
from multikueue.api.constants import JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION, JOB_MIN_PARALLELISM_ANNOTATION
from multikueue.api.resource import JOBS, WORKLOAD_PRIORITY_CLASSES
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import (
    condition,
    ensure,
    eventually,
    finish_pods,
    get,
    job_manifest,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

NAMESPACE = "team-preempt"


async def make_class(client: KubeClient, name: str, value: int) -> None:
    await ensure(
        client,
        WORKLOAD_PRIORITY_CLASSES,
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": name},
            "value": value,
        },
    )


async def started(client: KubeClient, name: str, *, namespace: str = NAMESPACE) -> None:
    await eventually(
        lambda: get(client, JOBS, name, namespace=namespace),
        what=f"job {name} runs a pod",
        until=lambda job: job is not None and job["spec"]["suspend"] is False and bool(job["status"].get("active")),
    )


async def test_a_job_of_higher_priority_takes_the_quota_of_a_lower_one_which_is_queued_again(
    hub: Cluster, client: KubeClient
) -> None:
    async with running_manager(hub):
        await make_class(client, "low", 1)
        await make_class(client, "high", 1000)
        await make_queue(
            client, "tight", namespace=NAMESPACE, cpu="2", preemption={"withinClusterQueue": "LowerPriority"}
        )
        label = "kueue.x-k8s.io/priority-class"
        await make_job(client, "small", namespace=NAMESPACE, queue="tight", cpu="2", labels={label: "low"})
        await started(client, "small")

        await make_job(client, "urgent", namespace=NAMESPACE, queue="tight", cpu="2", labels={label: "high"})
        urgent = await wait_condition(client, "urgent", "Admitted", namespace=NAMESPACE)
        small = await wait_condition(client, "small", "Requeued", namespace=NAMESPACE)

        message = condition(small, "Preempted")["message"]
        assert message == (
            f"Preempted to accommodate a workload (UID: {urgent['metadata']['uid']}, JobUID:"
            f" {urgent['metadata']['labels']['kueue.x-k8s.io/job-uid']}) due to prioritization in the ClusterQueue;"
            " preemptor path: /tight; preemptee path: /tight"
        )
        assert condition(small, "Preempted")["reason"] == "InClusterQueue"
        assert condition(small, "Evicted")["reason"] == "Preempted"
        assert condition(small, "Evicted")["message"] == message
        assert condition(small, "Requeued")["reason"] == "Preempted"
        assert "admission" not in small["status"]
        assert small["status"]["schedulingStats"]["evictions"] == [
            {"reason": "Preempted", "underlyingCause": "", "count": 1}
        ]

        await started(client, "urgent")
        await eventually(lambda: finish_pods(client, "urgent", namespace=NAMESPACE), what="the pod of urgent to end")
        small = await wait_condition(client, "small", "Admitted", namespace=NAMESPACE)
        assert condition(small, "Evicted")["status"] == "False"
        assert condition(small, "Preempted")["message"] == f"Previously: {message}"
        await started(client, "small")


async def test_a_job_that_ends_within_the_delay_of_preemption_is_not_evicted(hub: Cluster, client: KubeClient) -> None:
    namespace = "team-patient"
    async with running_manager(hub, settings="preemptionDelay: 60s"):
        await make_class(client, "low", 1)
        await make_class(client, "high", 1000)
        await make_queue(
            client, "patient", namespace=namespace, cpu="2", preemption={"withinClusterQueue": "LowerPriority"}
        )
        label = "kueue.x-k8s.io/priority-class"
        await make_job(client, "ending", namespace=namespace, queue="patient", cpu="2", labels={label: "low"})
        await started(client, "ending", namespace=namespace)
        await make_job(client, "next", namespace=namespace, queue="patient", cpu="2", labels={label: "high"})
        waiting = await wait_condition(client, "next", "QuotaReserved", namespace=namespace, status="False")
        assert "Pending the preemption of 1 workload(s)" in condition(waiting, "QuotaReserved")["message"]
        await eventually(lambda: finish_pods(client, "ending", namespace=namespace), what="the pod of ending to end")
        await wait_condition(client, "next", "Admitted", namespace=namespace)
        ended = await wait_condition(client, "ending", "Finished", namespace=namespace)
        assert not condition(ended, "Evicted")


async def test_of_several_victims_only_those_are_evicted_that_are_needed_after_the_delay(
    hub: Cluster, client: KubeClient
) -> None:
    namespace = "team-spare"
    async with running_manager(hub, settings="preemptionDelay: 8s"):
        await make_class(client, "low", 1)
        await make_class(client, "lower", 0)
        await make_class(client, "high", 1000)
        await make_queue(
            client, "spare", namespace=namespace, cpu="3", preemption={"withinClusterQueue": "LowerPriority"}
        )
        label = "kueue.x-k8s.io/priority-class"
        # Victims are those of the lowest priority first: "first", then "second".
        for name, value in (("ending", "low"), ("second", "low"), ("first", "lower")):
            await make_job(client, name, namespace=namespace, queue="spare", cpu="1", labels={label: value})
            await started(client, name, namespace=namespace)
        await make_job(client, "next", namespace=namespace, queue="spare", cpu="2", labels={label: "high"})
        waiting = await wait_condition(client, "next", "QuotaReserved", namespace=namespace, status="False")
        assert "Pending the preemption of 2 workload(s)" in condition(waiting, "QuotaReserved")["message"]
        await eventually(lambda: finish_pods(client, "ending", namespace=namespace), what="the pod of ending to end")
        await wait_condition(client, "next", "Admitted", namespace=namespace)
        await wait_condition(client, "first", "Requeued", namespace=namespace)
        spared = await workload_of(client, "second", namespace=namespace)
        assert spared is not None
        assert not condition(spared, "Evicted")
        assert condition(spared, "Admitted")["status"] == "True"


async def test_a_new_value_of_a_priority_class_reaches_the_workloads_that_name_it(
    hub: Cluster, client: KubeClient
) -> None:
    async with running_manager(hub):
        await make_class(client, "moving", 5)
        await make_queue(client, "moved", namespace="team-moved", cpu="1")
        label = "kueue.x-k8s.io/priority-class"
        await make_job(client, "big", namespace="team-moved", queue="moved", cpu="3", labels={label: "moving"})
        workload = await wait_condition(client, "big", "QuotaReserved", namespace="team-moved", status="False")
        assert workload["spec"]["priority"] == 5
        await client.patch(WORKLOAD_PRIORITY_CLASSES, "moving", {"value": 50})
        await eventually(
            lambda: workload_of(client, "big", namespace="team-moved"),
            what="the new value",
            until=lambda seen: seen is not None and seen["spec"]["priority"] == 50,
        )


async def test_a_preempted_job_with_as_many_completions_as_pods_has_its_own_size_again(
    hub: Cluster, client: KubeClient
) -> None:
    label, tight = "kueue.x-k8s.io/priority-class", {"withinClusterQueue": "LowerPriority"}
    async with running_manager(hub):
        await make_class(client, "low", 1)
        await make_class(client, "high", 1000)
        await make_queue(client, "equal", namespace=NAMESPACE, cpu="2", preemption=tight)
        annotations = {JOB_MIN_PARALLELISM_ANNOTATION: "1", JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION: "true"}
        job = job_manifest(
            "whole",
            namespace=NAMESPACE,
            queue="equal",
            parallelism=3,
            labels={label: "low"},
            annotations=annotations,
            suspend=True,
        )
        job["spec"]["completionMode"] = "Indexed"
        await client.create(JOBS, job, namespace=NAMESPACE)
        await started(client, "whole")
        assert await _size(client, "whole") == (2, 2)
        await make_job(client, "first", namespace=NAMESPACE, queue="equal", cpu="2", labels={label: "high"})
        await started(client, "first")
        await eventually(lambda: _size(client, "whole"), what="its own size", until=lambda seen: seen == (3, 3))


async def _size(client: KubeClient, name: str) -> tuple[int, int]:
    job = await get(client, JOBS, name, namespace=NAMESPACE)
    assert job is not None
    return job["spec"]["parallelism"], job["spec"]["completions"]


async def test_a_job_admitted_with_its_minimum_runs_and_its_user_may_label_it(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub):
        await make_queue(client, "short", namespace=NAMESPACE, cpu="2")
        annotations = {JOB_MIN_PARALLELISM_ANNOTATION: "2"}
        await make_job(
            client, "part", namespace=NAMESPACE, queue="short", parallelism=3, annotations=annotations, suspend=True
        )
        await started(client, "part")
        labelled = {"metadata": {"labels": {"owner": "them"}}}
        job = orjson.loads(await client.patch(JOBS, "part", labelled, namespace=NAMESPACE))
        assert (job["spec"]["parallelism"], job["metadata"]["labels"]["owner"]) == (2, "them")
