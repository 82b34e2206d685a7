# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs on workers: the remote job grows and shrinks with its slices, on the cluster that it was sent to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from devcluster.providers.provider import ClusterSpec
from multikueue.api.constants import QUEUE_NAME_LABEL
from multikueue.api.crds import manifests
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, PODS, WORKLOADS, Resource
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.support.both_providers import BOTH_PROVIDERS, provider_of, push_apart
from tests.support.crds import kinds
from tests.support.kind_federations import NAMESPACE, KindFederation, kind_federation, open_queue, queue_of
from tests.support.managers import Object, condition, eventually, get, is_true, job_manifest
from tests.support.names import unique_name
from tests.support.operators.played_kinds import PLAYED_KINDS
from tests.support.sites import Transport

__all__ = ["kube_binaries"]

pytestmark = pytest.mark.anyio

RAY_CLUSTER = next(each for each in PLAYED_KINDS if each.resource == kinds.RAY_CLUSTERS)
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
FOREVER = {"multikueue.io/run-for": "forever"}
QUOTA = 6
"""Pods of one job that a queue admits."""


@dataclass(frozen=True)
class Federation:
    """The federation, with an administrator of each worker."""

    kinds: KindFederation
    admins: dict[str, KubeClient] = field(default_factory=dict)


@pytest.fixture(scope="module", params=BOTH_PROVIDERS)
async def federation(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Federation]:
    """A hub with the feature gate, and workers of both transports."""
    folder = tmp_path_factory.mktemp(f"elastic-{request.param}")
    places = [str(each) for each in Transport]
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(provider_of(request, folder))
        clusters = []
        for name in ("hub", *places):
            spec = ClusterSpec(controllers=True, scheduler=True, manifests=manifests() if name == "hub" else ())
            cluster = await provider.create(name, folder=folder / name, spec=spec)
            clusters.append(await stack.enter_async_context(cluster))
        hub, *workers = clusters
        of_places = dict(zip(places, workers, strict=True))
        admins = {name: await stack.enter_async_context(each.client()) for name, each in of_places.items()}
        made = kind_federation(
            hub, of_places, [RAY_CLUSTER], local=False, gates="ElasticJobsViaWorkloadSlices: true", also=[JOBS]
        )
        async with made as found:
            for place in places:
                queue = queue_of(RAY_CLUSTER, place)
                groups = await groups_of(found.hub, queue)
                groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = f"{QUOTA * 100}m"
                await found.hub.patch(CLUSTER_QUEUES, queue, {"spec": {"resourceGroups": groups}})
                await open_queue(found.hub, RAY_CLUSTER, place)
            yield Federation(found, admins)


async def groups_of(hub: KubeClient, queue: str) -> list[Object]:
    found = await get(hub, CLUSTER_QUEUES, queue)
    assert found is not None
    groups: list[Object] = found["spec"]["resourceGroups"]
    return groups


class ElasticJob:
    """A job that its user scales on the hub while it runs on a worker."""

    resource: Resource = JOBS

    def __init__(self, federation: Federation, transport: Transport) -> None:
        self.federation = federation.kinds
        self.place = str(transport)
        self.admin = federation.admins[self.place]
        self.name = unique_name("e")

    async def submit(self, size: int) -> None:
        await self.create(self.body(size))

    async def create(self, body: Object) -> None:
        body["metadata"]["annotations"] = ELASTIC
        body["metadata"]["labels"] = {QUEUE_NAME_LABEL: queue_of(RAY_CLUSTER, self.place)}
        body["metadata"]["namespace"] = NAMESPACE
        await self.federation.hub.create(self.resource, body, namespace=NAMESPACE)

    def body(self, size: int) -> Object:
        body = job_manifest(self.name, namespace=NAMESPACE, queue=None, cpu="100m", parallelism=size)
        del body["spec"]["completions"]
        body["spec"]["template"]["metadata"] = {"annotations": FOREVER}
        body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0
        return body

    def change(self, size: int) -> Object:
        """The merge patch by which its user scales it."""
        return {"spec": {"parallelism": size}}

    async def scale(self, size: int) -> None:
        await self.federation.hub.patch(self.resource, self.name, self.change(size), namespace=NAMESPACE)

    async def delete(self) -> None:
        """Its user deletes it on the hub; then nothing of it is on the worker."""
        await self.federation.hub.delete(self.resource, self.name, namespace=NAMESPACE, propagation="Background")
        await self.until("its remote job is gone", lambda: self.remote() is None and self.ready_pods() == 0)

    def size_of(self, job: Object) -> int:
        return int(job["spec"]["parallelism"])

    def remote(self) -> Object | None:
        return self.federation.workers[self.place].named(self.resource, self.name)

    def on_hub(self) -> Object:
        found = self.federation.seen.named(self.resource, self.name)
        assert found is not None
        return found

    def ready_pods(self) -> int:
        found = self.federation.workers[self.place].of(PODS, containing=f"{self.name}-")
        return sum(is_true(each, "Ready") and "deletionTimestamp" not in each["metadata"] for each in found)

    def slices(self) -> list[Object]:
        """Those that have not been replaced, the oldest first."""
        found = self.federation.seen.of(WORKLOADS, containing=f"-{self.name}-")
        living = [each for each in found if not is_true(each, "Finished")]
        return sorted(
            living, key=lambda each: (each["metadata"]["creationTimestamp"], REPLACES in annotations_of(each))
        )

    def sizes(self) -> list[tuple[int, str]]:
        """Size and state of each of them."""
        return [
            (sum(each["count"] for each in one["spec"]["podSets"]), "admitted" if is_true(one, "Admitted") else "waits")
            for one in self.slices()
        ]

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        async def now() -> tuple[bool, object]:
            remote = self.remote()
            size = None if remote is None else self.size_of(remote)
            return holds(), {"slices": self.sizes(), "remote size": size, "ready pods": self.ready_pods()}

        await eventually(now, what=what, until=lambda seen: seen[0], deadline=90)

    async def runs_with(self, size: int) -> None:
        """As many pods as that are ready on the worker, by an admitted slice of that size."""

        def holds() -> bool:
            return self.ready_pods() == size and self.sizes() == [(size, "admitted")]

        await self.until(f"it runs with {size} pods", holds)


class ElasticRayCluster(ElasticJob):
    """Its size is that of its workers and one head."""

    resource = kinds.RAY_CLUSTERS

    def body(self, size: int) -> Object:
        body = RAY_CLUSTER.sample(self.name, FOREVER)
        (group,) = body["spec"]["workerGroupSpecs"]
        group["replicas"] = size - 1
        return body

    def change(self, size: int) -> Object:
        (group,) = self.on_hub()["spec"]["workerGroupSpecs"]
        return {"spec": {"workerGroupSpecs": [{**group, "replicas": size - 1}]}}

    def size_of(self, job: Object) -> int:
        (group,) = job["spec"]["workerGroupSpecs"]
        return 1 + int(group["replicas"])


def annotations_of(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def uid_of(job: Object | None) -> str:
    assert job is not None
    return str(job["metadata"]["uid"])


async def it_is_scaled_where_it_runs(job: ElasticJob) -> None:
    """Up, further up while it waits for quota, and down; neither the remote job nor a pod of the first size changes."""
    await job.submit(2)
    await job.runs_with(2)
    (first,) = job.slices()
    remote = uid_of(job.remote())
    await job.scale(4)
    await job.runs_with(4)
    (second,) = job.slices()
    assert second["status"]["clusterName"] == first["status"]["clusterName"] == job.place
    replaced = await get(job.federation.hub, WORKLOADS, first["metadata"]["name"], namespace=NAMESPACE)
    assert condition(replaced, "Finished")["reason"] == "WorkloadSliceReplaced"
    assert uid_of(job.remote()) == remote
    await job.scale(QUOTA + 2)
    await job.until("the larger slice waits", lambda: job.sizes() == [(4, "admitted"), (QUOTA + 2, "waits")])
    assert (job.size_of(job.remote() or {}), job.ready_pods()) == (4, 4)
    await job.scale(3)
    await job.runs_with(3)
    (last,) = job.slices()
    assert uid_of(last) == uid_of(second)
    assert uid_of(job.remote()) == remote
    assert job.size_of(job.remote() or {}) == 3


async def finish(job: ElasticJob) -> None:
    """Every pod on the worker succeeds, but those that are being deleted since the job is smaller."""
    for pod in job.federation.workers[job.place].of(PODS, containing=f"{job.name}-"):
        if "deletionTimestamp" in pod["metadata"]:
            continue
        name = pod["metadata"]["name"]
        body = {"status": {"phase": "Succeeded"}}
        await job.admin.patch(PODS, name, body, namespace=NAMESPACE, subresource="status")
    await job.until("it has ended on the hub", lambda: is_true(job.on_hub(), "Complete"))
    await job.until("all its slices have", lambda: not job.slices())


@push_apart
async def test_e1_e2_a_job_is_scaled_up_and_down_and_finishes_on_one_worker(
    federation: Federation, transport: Transport
) -> None:
    job = ElasticJob(federation, transport)
    await it_is_scaled_where_it_runs(job)
    await finish(job)
    await job.until("its remote job is gone", lambda: job.remote() is None)
    ends = {condition(each, "Finished")["reason"] for each in job.federation.seen.of(WORKLOADS, containing=job.name)}
    assert ends == {"WorkloadSliceReplaced", "Succeeded"}


@push_apart
async def test_e3_x19_a_ray_cluster_is_scaled_up_and_down_on_one_worker(
    federation: Federation, transport: Transport
) -> None:
    job = ElasticRayCluster(federation, transport)
    await it_is_scaled_where_it_runs(job)
    await job.delete()


@push_apart
async def test_a_job_that_was_scaled_is_stopped_and_sent_again_in_another_epoch(
    federation: Federation, transport: Transport
) -> None:
    job = ElasticJob(federation, transport)
    await job.submit(1)
    await job.runs_with(1)
    await job.scale(3)
    await job.runs_with(3)
    first = uid_of(job.remote())
    (running,) = job.slices()
    await activate(job, running, active=False)
    await job.until("nothing runs", lambda: job.remote() is None and job.sizes() == [(3, "waits")])
    await activate(job, running, active=True)
    await job.runs_with(3)
    again = job.remote()
    assert again is not None
    assert (uid_of(again) != first, annotations_of(again)["multikueue.io/epoch"]) == (True, "2")
    await job.scale(4)
    await job.runs_with(4)
    assert annotations_of(job.slices()[0])["multikueue.io/first-epoch"] == "2"
    assert uid_of(job.remote()) == uid_of(again)
    await job.delete()


async def activate(job: ElasticJob, workload: Object, *, active: bool) -> None:
    name = workload["metadata"]["name"]
    await job.federation.hub.patch(WORKLOADS, name, {"spec": {"active": active}}, namespace=NAMESPACE)


@push_apart
async def test_the_assignment_of_a_job_goes_with_its_last_slice(federation: Federation, transport: Transport) -> None:
    job = ElasticJob(federation, transport)
    await job.submit(1)
    for size in (1, 2, 3):
        await job.scale(size)
        await job.runs_with(size)
    await job.delete()
    await job.until("its slices are gone", lambda: not job.federation.seen.of(WORKLOADS, containing=job.name))
