# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs on the management cluster: they grow by another slice, shrink in place, and run all the while.

Those on workers are in tests/component/kinds/test_remote_elastic_jobs.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from devcluster.cluster import Cluster
from devcluster.operators import definitions
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.crds import manifests
from multikueue.api.resource import CLUSTER_QUEUES, EVENTS, JOBS, PODS, WORKLOADS, Resource
from multikueue.kube.errors import ApiError
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.support.managers import (
    Object,
    condition,
    connections_closed,
    eventually,
    get,
    is_true,
    job_manifest,
    make_queue,
    running_manager,
)

__all__ = ["kube_binaries"]

pytestmark = pytest.mark.anyio
SERVERS = [
    pytest.param("embedded", id="embedded"),
    pytest.param("binaries", id="binaries", marks=pytest.mark.binaries),
]
ON = "featureGates: {ElasticJobsViaWorkloadSlices: true}\nintegrations: {frameworks: [batch/job, ray.io/raycluster]}\n"
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
CHAIN = "kueue.x-k8s.io/workload-slice-name"
GATE = "kueue.x-k8s.io/elastic-job"


@pytest.fixture(scope="module", params=SERVERS)
async def hub(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """An API server with our kinds and its controllers; pods stay pending."""
    folder = tmp_path_factory.mktemp(f"elastic-{request.param}")
    if request.param == "embedded":
        provider: Any = EmbeddedProvider(folder=folder)
    else:
        provider = BinariesProvider(folder=folder, binaries=request.getfixturevalue("kube_binaries"))
    async with provider:
        kinds = [*manifests(), definitions.shipped_definition(definitions.RAY_CLUSTERS)]
        spec = ClusterSpec(controllers=True, scheduler=False, manifests=kinds)
        async with await provider.create("hub", folder=folder / "hub", spec=spec) as cluster:
            yield cluster


@pytest.fixture
async def client(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator."""
    async with connections_closed(), hub.client() as client:
        yield client


class ElasticJob:
    """A Job that its user scales."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def submit(self, size: int) -> None:
        manifest = job_manifest(
            "e", namespace=self.namespace, queue=self.namespace, parallelism=size, annotations=ELASTIC
        )
        del manifest["spec"]["completions"]
        await self.client.create(JOBS, manifest, namespace=self.namespace)

    async def scale(self, size: int) -> None:
        await self.client.patch(JOBS, "e", {"spec": {"parallelism": size}}, namespace=self.namespace)

    async def slices(self) -> list[Object]:
        """The oldest first."""
        found = await listed(self.client, WORKLOADS, self.namespace)
        return sorted(found, key=lambda each: (each["metadata"]["creationTimestamp"], REPLACES in annotations_of(each)))

    async def sizes(self) -> list[tuple[int, str]]:
        """Size and state of each slice that has not been replaced, the oldest first."""
        return [
            (each["spec"]["podSets"][0]["count"], "admitted" if is_true(each, "Admitted") else "pending")
            for each in await self.slices()
            if not is_true(each, "Finished")
        ]

    async def become(self, *wanted: tuple[int, str]) -> None:
        await eventually(self.sizes, what=f"the slices are {wanted}", until=lambda seen: seen == [*wanted])

    async def pods(self) -> tuple[int, int]:
        """How many may start, and how many wait for a slice."""
        found = [
            each
            for each in await listed(self.client, PODS, self.namespace)
            if "deletionTimestamp" not in each["metadata"]
        ]
        waiting = [each for each in found if {"name": GATE} in (each["spec"].get("schedulingGates") or [])]
        return len(found) - len(waiting), len(waiting)

    async def have_pods(self, *, started: int, waiting: int = 0) -> None:
        await eventually(
            self.pods,
            what=f"{started} pods may start, and {waiting} wait",
            until=lambda seen: seen == (started, waiting),
        )

    async def used(self) -> str:
        """The cpu that is reserved in its ClusterQueue."""
        queue = await get(self.client, CLUSTER_QUEUES, self.namespace)
        assert queue is not None
        shown = queue.get("status", {}).get("flavorsReservation") or [{"resources": [{"total": ""}]}]
        return str(shown[0]["resources"][0]["total"])

    async def uses(self, cpu: str) -> None:
        await eventually(self.used, what=f"{cpu} cpu are reserved", until=lambda seen: seen == cpu)

    async def was_never_stopped(self) -> None:
        events = await listed(self.client, EVENTS, self.namespace)
        assert [each["message"] for each in events if each["reason"] == "Stopped"] == []
        job = await get(self.client, JOBS, "e", namespace=self.namespace)
        assert job is not None
        assert job["spec"]["suspend"] is False


async def listed(client: KubeClient, resource: Resource, namespace: str) -> list[Object]:
    return [orjson.loads(raw) for raw in (await client.list_all(resource, namespace=namespace)).items]


def annotations_of(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


async def test_a_job_grows_by_a_slice_that_takes_over_and_shrinks_in_place(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub, settings=ON):
        await make_queue(client, "grows", namespace="grows", cpu="5")
        job = ElasticJob(client, "grows")
        await job.submit(2)
        await job.become((2, "admitted"))
        await job.have_pods(started=2)

        await job.scale(4)
        await job.become((4, "admitted"))
        await job.have_pods(started=4)
        await job.uses("4")
        old, new = await job.slices()
        assert condition(old, "Finished")["reason"] == "WorkloadSliceReplaced"
        assert annotations_of(new)[REPLACES] == f"grows/{old['metadata']['name']}"
        assert annotations_of(new)[CHAIN] == annotations_of(old)[CHAIN] == old["metadata"]["name"]

        await job.scale(1)
        await job.become((1, "admitted"))
        await job.uses("1")
        assert len(await job.slices()) == 2, "it shrinks in place"

        await job.scale(3)
        await job.become((3, "admitted"))
        await job.have_pods(started=3)
        await job.uses("3")
        await job.was_never_stopped()
        left = await eventually(job.slices, what="one former slice is kept", until=lambda seen: len(seen) == 2)
        assert [is_true(each, "Finished") for each in left] == [True, False]


async def test_pods_beyond_the_admitted_size_wait_until_there_is_quota(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub, settings=ON):
        await make_queue(client, "waits", namespace="waits", cpu="3")
        job = ElasticJob(client, "waits")
        await job.submit(2)
        await job.have_pods(started=2)

        await job.scale(5)
        await job.become((2, "admitted"), (5, "pending"))
        await job.have_pods(started=2, waiting=3)
        pending = (await job.slices())[1]["metadata"]["uid"]

        await job.scale(6)
        await job.become((2, "admitted"), (6, "pending"))
        assert (await job.slices())[1]["metadata"]["uid"] == pending, "it keeps its place in the queue"

        await job.scale(2)
        await job.become((2, "admitted"))
        await job.have_pods(started=2)

        await job.scale(4)
        await job.become((2, "admitted"), (4, "pending"))
        await client.patch(
            CLUSTER_QUEUES,
            "waits",
            {
                "spec": {
                    "resourceGroups": [
                        {
                            "coveredResources": ["cpu"],
                            "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
                        }
                    ]
                }
            },
        )
        await job.become((4, "admitted"))
        await job.have_pods(started=4)
        await job.was_never_stopped()


async def test_an_eviction_stops_the_job_and_it_starts_again_at_its_own_size(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub, settings=ON):
        await make_queue(client, "evicted", namespace="evicted", cpu="3")
        job = ElasticJob(client, "evicted")
        await job.submit(2)
        await job.become((2, "admitted"))
        await job.scale(4)
        await job.become((2, "admitted"), (4, "pending"))
        (current, _) = await job.slices()
        await client.patch(WORKLOADS, current["metadata"]["name"], {"spec": {"active": False}}, namespace="evicted")
        await job.become((4, "pending"))
        await job.have_pods(started=0)
        await job.scale(3)
        await job.become((3, "pending"))
        await client.patch(WORKLOADS, current["metadata"]["name"], {"spec": {"active": True}}, namespace="evicted")
        await job.become((3, "admitted"))
        await job.have_pods(started=3)


async def test_a_job_that_has_grown_is_stopped_with_the_template_of_its_user(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub, settings=ON):
        await make_queue(client, "restored", namespace="restored", cpu="3")
        job = ElasticJob(client, "restored")
        await job.submit(1)
        await job.become((1, "admitted"))
        await job.scale(2)
        await job.become((2, "admitted"))
        await job.have_pods(started=2)
        newest = (await job.slices())[-1]
        template = newest["spec"]["podSets"][0]["template"]
        assert "schedulingGates" not in template["spec"]
        await client.patch(WORKLOADS, newest["metadata"]["name"], {"spec": {"active": False}}, namespace="restored")
        await job.become((2, "pending"))
        stopped = await eventually(
            lambda: get(client, JOBS, "e", namespace="restored"),
            what="the gate is taken out of the template",
            until=lambda seen: seen is not None and "schedulingGates" not in seen["spec"]["template"]["spec"],
        )
        assert stopped is not None
        assert stopped["spec"]["suspend"] is True
        assert GATE not in stopped["spec"]["template"]["metadata"].get("labels", {})


async def test_a_ray_cluster_grows_and_shrinks(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub, settings=ON):
        await make_queue(client, "ray", namespace="ray", cpu="5")
        await client.create(definitions.RAY_CLUSTERS, ray_cluster(2), namespace="ray")

        async def sizes() -> list[tuple[list[int], bool]]:
            found = await listed(client, WORKLOADS, "ray")
            return [
                ([pod_set["count"] for pod_set in each["spec"]["podSets"]], is_true(each, "Admitted"))
                for each in found
                if not is_true(each, "Finished")
            ]

        async def scaled(replicas: int, *wanted: tuple[list[int], bool]) -> None:
            groups = ray_cluster(replicas)["spec"]["workerGroupSpecs"]
            stored = await get(client, definitions.RAY_CLUSTERS, "r", namespace="ray")
            assert stored is not None
            template = stored["spec"]["workerGroupSpecs"][0]["template"]
            groups = [{**groups[0], "template": template}]
            await client.patch(definitions.RAY_CLUSTERS, "r", {"spec": {"workerGroupSpecs": groups}}, namespace="ray")
            await eventually(sizes, what=f"it has {replicas} replicas", until=lambda seen: seen == [*wanted])

        await eventually(sizes, what="it is admitted", until=lambda seen: seen == [([1, 2], True)])
        await eventually(
            lambda: get(client, definitions.RAY_CLUSTERS, "r", namespace="ray"),
            what="it is started",
            until=lambda seen: seen is not None and seen["spec"]["suspend"] is False,
        )
        await scaled(4, ([1, 4], True))
        await scaled(1, ([1, 1], True))
        cluster = await get(client, definitions.RAY_CLUSTERS, "r", namespace="ray")
        assert cluster is not None
        assert cluster["spec"]["suspend"] is False
        for spec in (cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]):
            assert spec["template"]["spec"]["schedulingGates"] == [{"name": GATE}]


async def test_what_an_elastic_job_may_not_be_is_refused(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub, settings=ON):
        await make_queue(client, "refused", namespace="refused")
        plain = job_manifest("plain", namespace="refused", queue="refused")
        await client.create(JOBS, plain, namespace="refused")
        with pytest.raises(ApiError, match="field is immutable"):
            await client.patch(JOBS, "plain", {"metadata": {"annotations": ELASTIC}}, namespace="refused")
        minimum = ELASTIC | {"kueue.x-k8s.io/job-min-parallelism": "1"}
        partial = job_manifest("partial", namespace="refused", queue="refused", parallelism=2, annotations=minimum)
        with pytest.raises(ApiError, match="may not be combined with an elastic job"):
            await client.create(JOBS, partial, namespace="refused")
        cluster = ray_cluster(1)
        cluster["metadata"] |= {"namespace": "refused", "annotations": {}}
        cluster["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "refused"}
        await client.create(definitions.RAY_CLUSTERS, cluster, namespace="refused")
        with pytest.raises(ApiError, match="field is immutable"):
            await client.patch(
                definitions.RAY_CLUSTERS, "r", {"metadata": {"annotations": ELASTIC}}, namespace="refused"
            )


def ray_cluster(replicas: int) -> Object:
    pod = {"spec": {"containers": [{"name": "ray", "image": "none", "resources": {"requests": {"cpu": "1"}}}]}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": "r",
            "namespace": "ray",
            "labels": {"kueue.x-k8s.io/queue-name": "ray"},
            "annotations": ELASTIC,
        },
        "spec": {
            "headGroupSpec": {"template": pod},
            "workerGroupSpecs": [{"groupName": "small", "replicas": replicas, "template": pod}],
        },
    }
