# SPDX-License-Identifier: Apache-2.0
"""Conditions and events about these decisions on a running hub, embedded and of real binaries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from devcluster.cluster import Cluster
from multikueue.api.resource import CLUSTER_QUEUES, COHORTS, JOBS, WORKLOADS
from multikueue.engine.cache.tree import MAX_LEVELS
from multikueue.kube.errors import ApiError
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.support.both_providers import running_cluster
from tests.support.managers import (
    Object,
    condition,
    connections_closed,
    eventually,
    get,
    job_manifest,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)

__all__ = ["kube_binaries"]

pytestmark = pytest.mark.anyio
SERVERS = [
    pytest.param("embedded", id="embedded"),
    pytest.param("binaries", id="binaries", marks=pytest.mark.binaries),
]
GATE = "kueue.x-k8s.io/admission-gated-by"
LIMIT = "kueue.x-k8s.io/max-exec-time-seconds"


@pytest.fixture(scope="module", params=SERVERS)
async def hub(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """An API server with our kinds."""
    async with running_cluster(request, tmp_path_factory, "decisions", controllers=False) as cluster:
        yield cluster


@pytest.fixture
async def client(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator."""
    async with connections_closed(), hub.client() as client:
        yield client


async def test_an_elastic_job_and_a_queue_with_a_resource_in_two_groups_are_refused(
    hub: Cluster, client: KubeClient
) -> None:
    async with running_manager(hub):
        await make_queue(client, "refusing", namespace="team-refused")
        job = job_manifest("elastic", namespace="team-refused", queue="refusing")
        job["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
        with pytest.raises(ApiError, match="feature gate ElasticJobsViaWorkloadSlices is off; remove the annotation"):
            await client.create(JOBS, job, namespace="team-refused")
        flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}] * 2
        twice = {"apiVersion": CLUSTER_QUEUES.api_version, "kind": "ClusterQueue", "metadata": {"name": "twice"}}
        with pytest.raises(ApiError, match=r"resourceGroups\[1\]\.coveredResources\[0\]: Duplicate value"):
            await client.create(CLUSTER_QUEUES, twice | {"spec": {"resourceGroups": groups}})


async def test_a_job_that_claims_devices_waits_with_the_reason(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub):
        await make_queue(client, "claimed", namespace="team-claims")
        job = job_manifest("claims", namespace="team-claims", queue="claimed")
        pod = job["spec"]["template"]["spec"]
        pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
        pod["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        await client.create(JOBS, job, namespace="team-claims")
        await make_job(client, "plain", namespace="team-claims", queue="claimed")
        await wait_condition(client, "plain", "Admitted", namespace="team-claims")
        waiting = await wait_condition(
            client, "claims", "QuotaReserved", namespace="team-claims", status="False", reason="Misconfigured"
        )
        assert condition(waiting, "QuotaReserved")["message"].startswith(
            "podSet main: it claims devices, which would not count in the quota: resources.deviceClassMappings"
        )


async def test_a_gate_and_a_limit_that_change_on_the_job_reach_its_workload(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub):
        await make_queue(client, "gated", namespace="team-gated")
        job = job_manifest("held", namespace="team-gated", queue="gated", labels={LIMIT: "600"})
        job["metadata"]["annotations"] = {GATE: "example.com/budget,example.com/data"}
        await client.create(JOBS, job, namespace="team-gated")

        async def workload() -> Object | None:
            return await workload_of(client, "held", namespace="team-gated")

        def shows(limit: int, gates: str) -> Any:
            return lambda found: (
                found is not None
                and found["spec"].get("maximumExecutionTimeSeconds") == limit
                and (found["metadata"].get("annotations") or {}).get(GATE, "") == gates
            )

        await eventually(workload, what="the Workload", until=shows(600, "example.com/budget,example.com/data"))
        changed = {"metadata": {"labels": {LIMIT: "900"}, "annotations": {GATE: "example.com/data"}}}
        await client.patch(JOBS, "held", changed, namespace="team-gated")
        await eventually(workload, what="both changes", until=shows(900, "example.com/data"))
        await client.patch(JOBS, "held", {"metadata": {"annotations": {GATE: None}}}, namespace="team-gated")
        await wait_condition(client, "held", "Admitted", namespace="team-gated")


async def test_a_cohort_that_is_too_deep_has_a_condition_and_others_work(hub: Cluster, client: KubeClient) -> None:
    def cohort(number: int) -> Object:
        parent = {"parentName": f"c{number - 1}"} if number else {}
        return {
            "apiVersion": COHORTS.api_version,
            "kind": "Cohort",
            "metadata": {"name": f"c{number}"},
            "spec": parent,
        }

    async def active(resource: Any, name: str) -> Object:
        return condition(await get(client, resource, name), "Active")

    async with running_manager(hub):
        for number in range(MAX_LEVELS, -1, -1):
            await client.create(COHORTS, cohort(number))
        await make_queue(client, "deep", namespace="team-deep", cohort=f"c{MAX_LEVELS}")
        await make_queue(client, "high", namespace="team-high", cohort="c0")
        told = await eventually(
            lambda: active(COHORTS, f"c{MAX_LEVELS}"), what="the Cohort says so", until=lambda found: bool(found)
        )
        assert (told["status"], told["reason"]) == ("False", "CohortTooDeep")
        await eventually(
            lambda: active(CLUSTER_QUEUES, "deep"),
            what="its queue is inactive",
            until=lambda found: (found.get("status"), found.get("reason")) == ("False", "CohortInvalid"),
        )
        await make_job(client, "up", namespace="team-high", queue="high")
        await wait_condition(client, "up", "Admitted", namespace="team-high")
        await make_job(client, "down", namespace="team-deep", queue="deep")
        await wait_condition(client, "down", "QuotaReserved", namespace="team-deep", status="False", reason="Suspended")
        assert await active(COHORTS, f"c{MAX_LEVELS - 1}") == {}
        await client.patch(COHORTS, "c2", {"spec": {"parentName": "c0"}})
        await eventually(
            lambda: active(COHORTS, f"c{MAX_LEVELS}"),
            what="the Cohort is well again",
            until=lambda found: (found.get("status"), found.get("reason")) == ("True", "Ready"),
        )
        await wait_condition(client, "down", "Admitted", namespace="team-deep")


async def test_with_the_gate_on_a_slice_takes_the_quota_of_the_older_one_which_is_finished(
    hub: Cluster, client: KubeClient
) -> None:
    def slice_of(name: str, count: int, **annotations: str) -> Object:
        pod = {"containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}]}
        pod_set = {"name": "main", "count": count, "template": {"spec": pod | {"restartPolicy": "Never"}}}
        return {
            "apiVersion": WORKLOADS.api_version,
            "kind": "Workload",
            "metadata": {"name": name, "namespace": "team-slices", "annotations": annotations},
            "spec": {"queueName": "sliced", "podSets": [pod_set]},
        }

    async def shown(name: str, kind: str) -> Object:
        return condition(await get(client, WORKLOADS, name, namespace="team-slices"), kind)

    async with running_manager(hub, settings="featureGates: {ElasticJobsViaWorkloadSlices: true}\n"):
        await make_queue(client, "sliced", namespace="team-slices", cpu="5")
        await client.create(WORKLOADS, slice_of("old", 3), namespace="team-slices")
        await eventually(
            lambda: shown("old", "Admitted"), what="the old slice", until=lambda found: found.get("status") == "True"
        )
        newer = slice_of("new", 5, **{"kueue.x-k8s.io/workload-slice-replacement-for": "team-slices/old"})
        await client.create(WORKLOADS, newer, namespace="team-slices")
        await eventually(
            lambda: shown("new", "Admitted"), what="the new slice", until=lambda found: found.get("status") == "True"
        )
        ended = await eventually(lambda: shown("old", "Finished"), what="the old slice is finished")
        assert (ended["status"], ended["reason"]) == ("True", "WorkloadSliceReplaced")
        await eventually(
            lambda: get(client, CLUSTER_QUEUES, "sliced"),
            what="quota is counted once",
            until=lambda queue: (
                queue is not None
                and (queue.get("status") or {}).get("reservingWorkloads") == 1
                and queue["status"]["flavorsReservation"][0]["resources"][0]["total"] == "5"
            ),
        )
