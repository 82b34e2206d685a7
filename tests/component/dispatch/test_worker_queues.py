# SPDX-License-Identifier: Apache-2.0
"""A push worker that has queues of its own: a second manager runs there, as Kueue would."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from devcluster.cluster import Cluster
from devcluster.federation import enrolment
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from manager.dispatch.controller import DispatchController
from multikueue.api.constants import (
    DISPATCHER_ALL_AT_ONCE,
    DISPATCHER_CAPACITY,
    JOB_MIN_PARALLELISM_ANNOTATION,
    MULTIKUEUE_PREEMPTION_GATE,
    ORIGIN_LABEL,
    POD_GROUP_NAME_LABEL,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    PREBUILT_WORKLOAD_LABEL,
    QUEUE_NAME_LABEL,
)
from multikueue.api.crds import manifests
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.kube.rest.client import KubeClient
from tests.component.dispatch.test_push import QUICK_PUSH
from tests.support.agents import make_node
from tests.support.managers import (
    Object,
    condition,
    ensure,
    eventually,
    finish_pods,
    get,
    is_true,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)
from tests.support.names import unique_name
from tests.support.sites import gates_of
from tests.support.workers import KUEUE, PATIENT, SCALED_DOWN, check_of, make_check

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]


@pytest.fixture(scope="module")
async def worker(
    binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """A real cluster with Kueue's kinds."""
    spec = ClusterSpec(controllers=True, scheduler=False, manifests=manifests())
    cluster = await binaries_provider.create("queued", folder=tmp_path_factory.mktemp("queued"), spec=spec)
    async with cluster:
        yield cluster


@dataclass(frozen=True)
class Scene:
    hub: KubeClient
    there: KubeClient
    name: str

    @property
    def namespace(self) -> str:
        return f"ns-{self.name}"

    async def workload(self) -> Object | None:
        return await workload_of(self.hub, "j", namespace=self.namespace)

    async def clone(self) -> Object | None:
        found = await self.workload()
        if found is None:
            return None
        return await get(self.there, WORKLOADS, found["metadata"]["name"], namespace=self.namespace)

    async def job(self) -> Object | None:
        return await get(self.there, JOBS, "j", namespace=self.namespace)


@pytest.fixture
async def scene(
    hub: Cluster, client: KubeClient, worker: Cluster, request: pytest.FixtureRequest
) -> AsyncIterator[Scene]:
    name = unique_name(request.node.name)
    async with worker.client() as there:
        made = Scene(client, there, name)
        await ensure(client, NAMESPACES, enrolment.system_namespace())
        text = base64.b64encode(worker.kubeconfig.read_bytes()).decode()
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"kubeconfig": text}}
        await client.create(SECRETS, secret, namespace="kueue-system")
        await client.create(
            MULTIKUEUE_CLUSTERS,
            {
                "apiVersion": MULTIKUEUE_CLUSTERS.api_version,
                "kind": MULTIKUEUE_CLUSTERS.kind,
                "metadata": {"name": name},
                "spec": {"clusterSource": {"kubeConfig": {"location": name}}},
            },
        )
        await make_check(client, name, (name,))
        await make_queue(client, name, namespace=made.namespace, checks=(name,))
        await make_queue(there, name, namespace=made.namespace, cpu="2", flavor="there")
        await make_node(there, name)
        await there.patch(NODES, name, {"spec": {"taints": None}})
        yield made
        # The next test's manager would go on trying to reach it.
        await client.delete(MULTIKUEUE_CLUSTERS, name)
        await client.delete(SECRETS, name, namespace="kueue-system")
        for resource in (LOCAL_QUEUES, CLUSTER_QUEUES):
            where = made.namespace if resource is LOCAL_QUEUES else None
            await there.delete(resource, name, namespace=where)


@asynccontextmanager
async def managed(
    hub: Cluster, worker: Cluster, scene: Scene, *, settings: str = SCALED_DOWN, there: str = ""
) -> AsyncIterator[None]:
    """A manager on each of the two, the worker's with the settings `there`, and the worker connected."""
    dispatch = partial(DispatchController, push=QUICK_PUSH)
    async with (
        running_manager(worker, identity="engine", settings=there),
        running_manager(hub, settings=settings, dispatch=dispatch),
    ):
        for resource in (MULTIKUEUE_CLUSTERS, CLUSTER_QUEUES):
            await active(scene.hub, resource, scene.name)
        await active(scene.there, CLUSTER_QUEUES, scene.name)
        yield


async def active(client: KubeClient, resource: Resource, name: str) -> None:
    await eventually(
        lambda: get(client, resource, name), what=f"{name} is Active", until=lambda seen: is_true(seen, "Active")
    )


async def test_a_job_runs_when_the_workers_own_queue_admits_it(hub: Cluster, worker: Cluster, scene: Scene) -> None:
    async with managed(hub, worker, scene):
        await make_job(scene.hub, "j", namespace=scene.namespace, queue=scene.name)
        clone = await eventually(
            scene.clone, what="the clone is admitted", until=lambda seen: is_true(seen, "Admitted")
        )
        assert clone is not None
        assert clone["metadata"]["labels"][ORIGIN_LABEL] == "multikueue"
        assert "kueue.x-k8s.io/job-uid" not in clone["metadata"]["labels"] or clone["metadata"].get("ownerReferences")
        job = await eventually(
            scene.job,
            what="the job is started by the engine",
            until=lambda seen: bool(seen and not seen["spec"]["suspend"]),
        )
        assert job is not None
        assert job["metadata"]["labels"][PREBUILT_WORKLOAD_LABEL] == clone["metadata"]["name"]
        await eventually(lambda: finish_pods(scene.there, "j", namespace=scene.namespace), what="its pod ends")
        await wait_condition(scene.hub, "j", "Finished", namespace=scene.namespace, reason="Succeeded")
        await eventually(scene.job, what="the job is removed", until=lambda seen: seen is None)
        await eventually(scene.clone, what="the clone is removed", until=lambda seen: seen is None)


@pytest.mark.parametrize("minimum", ["1", "2"])
async def test_a_job_that_the_hub_admits_partly_runs_there_with_as_many_pods(
    hub: Cluster, worker: Cluster, scene: Scene, minimum: str
) -> None:
    flavors = (await scene.hub.get_object(CLUSTER_QUEUES, scene.name))["spec"]["resourceGroups"][0]["flavors"]
    flavors[0]["resources"] = [{"name": "cpu", "nominalQuota": "2"}]
    quota = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors[:1]}]}
    await scene.hub.patch(CLUSTER_QUEUES, scene.name, {"spec": quota})
    async with managed(hub, worker, scene):
        annotations = {JOB_MIN_PARALLELISM_ANNOTATION: minimum}
        await make_job(
            scene.hub, "j", namespace=scene.namespace, queue=scene.name, parallelism=3, annotations=annotations
        )
        job = await eventually(
            scene.job, what="the job is started", until=lambda seen: bool(seen and not seen["spec"]["suspend"])
        )
        clone = await scene.clone()
        assert job is not None
        assert clone is not None
        assert job["spec"]["parallelism"] == clone["spec"]["podSets"][0]["count"] == 2


async def test_j9_an_eviction_by_the_workers_engine_starts_over(hub: Cluster, worker: Cluster, scene: Scene) -> None:
    async with managed(hub, worker, scene):
        await make_job(scene.hub, "j", namespace=scene.namespace, queue=scene.name)
        await eventually(
            scene.job, what="the job is started", until=lambda seen: bool(seen and not seen["spec"]["suspend"])
        )
        await scene.there.patch(CLUSTER_QUEUES, scene.name, {"spec": {"stopPolicy": "HoldAndDrain"}})
        workload = await eventually(
            scene.workload,
            what="the hub has evicted it",
            until=lambda seen: bool((seen or {})["status"].get("schedulingStats")),
        )
        assert "Workload evicted on worker cluster" in condition(workload, "Evicted")["message"]
        assert check_of(workload, scene.name)["retryCount"] == 1
        await scene.there.patch(CLUSTER_QUEUES, scene.name, {"spec": {"stopPolicy": "None"}})
        job = await eventually(
            scene.job,
            what="it runs again, in epoch 2",
            until=lambda seen: bool(
                seen and not seen["spec"]["suspend"] and seen["metadata"]["annotations"]["multikueue.io/epoch"] == "2"
            ),
        )
        assert job is not None


async def test_j8_a_restarted_manager_finds_job_and_clone(hub: Cluster, worker: Cluster, scene: Scene) -> None:
    dispatch = partial(DispatchController, push=QUICK_PUSH)
    async with managed(hub, worker, scene, settings=PATIENT):
        await make_job(scene.hub, "j", namespace=scene.namespace, queue=scene.name)
        await eventually(
            scene.job, what="the job is started", until=lambda seen: bool(seen and not seen["spec"]["suspend"])
        )
    async with running_manager(hub, settings=PATIENT, dispatch=dispatch):
        await eventually(lambda: finish_pods(scene.there, "j", namespace=scene.namespace), what="its pod ends")
        workload = await wait_condition(scene.hub, "j", "Finished", namespace=scene.namespace, reason="Succeeded")
        assert "evictions" not in (workload["status"].get("schedulingStats") or {})
        await eventually(scene.job, what="the job is removed", until=lambda seen: seen is None)
        await eventually(scene.clone, what="the clone is removed", until=lambda seen: seen is None)


WITH_PODS = "\nintegrations: {frameworks: [batch/job, pod]}\n"
MARKS = ("assignment", "cluster", "epoch", "manager-uid")


async def as_kueue_has_sent_it(scene: Scene, *resources: tuple[Resource, Object | None]) -> None:
    """Take away what only this project writes: a hub with Kueue sends a job and a Workload without it."""
    removed = dict.fromkeys((*(f"multikueue.io/{mark}" for mark in MARKS), "kueue.x-k8s.io/multikueue-origin-uid"))
    for resource, obj in resources:
        assert obj is not None
        annotations = {"metadata": {"annotations": removed}}
        await scene.there.patch(resource, obj["metadata"]["name"], annotations, namespace=scene.namespace)


async def running_job(hub: Cluster, worker: Cluster, scene: Scene, *, sent_by_kueue: bool = True) -> Object:
    """The Job `j` on the worker, which was started there and may seem to be Kueue's; no manager runs afterwards."""
    async with managed(hub, worker, scene, settings=PATIENT):
        await make_job(scene.hub, "j", namespace=scene.namespace, queue=scene.name)
        job = await eventually(
            scene.job, what="the job is started", until=lambda seen: bool(seen and not seen["spec"]["suspend"])
        )
        await eventually(scene.workload, what="it is admitted", until=lambda seen: is_true(seen, "Admitted"))
    assert job is not None
    if sent_by_kueue:
        await as_kueue_has_sent_it(scene, (JOBS, job), (WORKLOADS, await scene.clone()))
    return job


def taking_over(hub: Cluster, settings: str = PATIENT) -> AbstractAsyncContextManager[object]:
    """This project's manager on the hub, in the place of Kueue's."""
    return running_manager(hub, settings=settings, dispatch=partial(DispatchController, push=QUICK_PUSH))


async def test_what_kueue_has_sent_runs_on_when_this_manager_takes_its_place(
    hub: Cluster, worker: Cluster, scene: Scene
) -> None:
    job = await running_job(hub, worker, scene)
    async with taking_over(hub):
        taken = await eventually(scene.job, what="the job is taken over", until=_is_marked)
        assert (taken or {})["metadata"]["uid"] == job["metadata"]["uid"]
        await eventually(scene.clone, what="so is its Workload", until=_is_marked)
        await eventually(lambda: finish_pods(scene.there, "j", namespace=scene.namespace), what="its pod ends")
        workload = await wait_condition(scene.hub, "j", "Finished", namespace=scene.namespace, reason="Succeeded")
        assert "evictions" not in (workload["status"].get("schedulingStats") or {})
        await eventually(scene.job, what="the job is removed", until=lambda seen: seen is None)
        await eventually(scene.clone, what="the clone is removed", until=lambda seen: seen is None)


async def test_what_kueue_has_sent_is_stopped_if_it_was_deactivated_meanwhile(
    hub: Cluster, worker: Cluster, scene: Scene
) -> None:
    await running_job(hub, worker, scene)
    name = (await scene.workload() or {})["metadata"]["name"]
    await scene.hub.patch(WORKLOADS, name, {"spec": {"active": False}}, namespace=scene.namespace)
    async with taking_over(hub):
        await eventually(scene.job, what="the job is removed", until=lambda seen: seen is None)
        await eventually(
            scene.workload, what="its quota is free", until=lambda seen: not is_true(seen, "QuotaReserved")
        )


async def test_a_job_of_that_name_with_other_pods_is_not_taken_over(
    hub: Cluster, worker: Cluster, scene: Scene
) -> None:
    """The Workload leaves the cluster then, and the job there is left to whoever made it."""
    job = await running_job(hub, worker, scene, sent_by_kueue=False)
    await scene.there.delete(JOBS, "j", namespace=scene.namespace, propagation="Background")
    await eventually(scene.job, what="the job is gone", until=lambda seen: seen is None)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "other", "image": "other"}]}}
    metadata = {"name": "j", "labels": job["metadata"]["labels"]}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    await scene.there.create(JOBS, body, namespace=scene.namespace)
    async with taking_over(hub):
        workload = await eventually(
            scene.workload,
            what="the hub has evicted it",
            until=lambda seen: bool((seen or {})["status"].get("schedulingStats")),
        )
        assert "NameConflict" in condition(workload, "Evicted")["message"]
        other = await scene.job()
        assert other is not None
        assert "multikueue.io/assignment" not in (other["metadata"].get("annotations") or {})
        assert not other["spec"].get("suspend")
    await scene.there.delete(JOBS, "j", namespace=scene.namespace, propagation="Background")


async def running_group(hub: Cluster, worker: Cluster, scene: Scene) -> list[Object]:
    """The pods of the group `g` on the worker, where its engine has started them, as Kueue has sent them."""
    pods = [f"g-{index}" for index in range(2)]
    async with managed(hub, worker, scene, settings=f"{PATIENT}{WITH_PODS}", there=WITH_PODS):
        for each in pods:
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
            labels = {QUEUE_NAME_LABEL: scene.name, POD_GROUP_NAME_LABEL: "g"}
            metadata = {"name": each, "labels": labels, "annotations": {POD_GROUP_TOTAL_COUNT_ANNOTATION: "2"}}
            spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            await scene.hub.create(PODS, body, namespace=scene.namespace)
        found = [
            await eventually(
                partial(get, scene.there, PODS, each, namespace=scene.namespace),
                what=f"{each} is started",
                until=lambda seen: bool(seen and not seen["spec"].get("schedulingGates")),
            )
            for each in pods
        ]
        group = await eventually(
            partial(get, scene.hub, WORKLOADS, "g", namespace=scene.namespace),
            what="it is admitted",
            until=lambda seen: is_true(seen, "Admitted"),
        )
    await as_kueue_has_sent_it(scene, *((PODS, pod) for pod in found), (WORKLOADS, group))
    return [pod for pod in found if pod is not None]


async def test_the_pods_of_a_group_that_kueue_has_sent_run_on(hub: Cluster, worker: Cluster, scene: Scene) -> None:
    before = await running_group(hub, worker, scene)
    async with taking_over(hub, f"{PATIENT}{WITH_PODS}"):
        for pod in before:
            name = pod["metadata"]["name"]
            taken = await eventually(
                partial(get, scene.there, PODS, name, namespace=scene.namespace),
                what=f"{name} is taken over",
                until=_is_marked,
            )
            assert (taken or {})["metadata"]["uid"] == pod["metadata"]["uid"]
            status = {"status": {"phase": "Succeeded"}}
            await scene.there.patch(PODS, name, status, namespace=scene.namespace, subresource="status")
        workload = await eventually(
            partial(get, scene.hub, WORKLOADS, "g", namespace=scene.namespace),
            what="the group has ended",
            until=lambda seen: is_true(seen, "Finished"),
        )
        assert "evictions" not in ((workload or {})["status"].get("schedulingStats") or {})
        assert condition(workload, "Finished")["message"] == "Pods succeeded: 2/2."


async def test_what_kueue_has_queued_on_a_worker_keeps_its_place(hub: Cluster, worker: Cluster, scene: Scene) -> None:
    async with managed(hub, worker, scene, settings=PATIENT):
        await make_job(scene.hub, "j", namespace=scene.namespace, queue=scene.name, cpu="3")
        before = await eventually(scene.clone, what="its Workload waits there")
    await as_kueue_has_sent_it(scene, (WORKLOADS, before))
    async with taking_over(hub):
        after = await eventually(scene.clone, what="its Workload is taken over", until=_is_marked)
        assert (after or {})["metadata"]["uid"] == (before or {})["metadata"]["uid"]
        assert await scene.job() is None


def _is_marked(obj: Object | None) -> bool:
    annotations = ((obj or {}).get("metadata") or {}).get("annotations") or {}
    return {f"multikueue.io/{mark}" for mark in MARKS} <= annotations.keys()


async def test_without_quota_there_it_waits_and_nothing_is_started(hub: Cluster, worker: Cluster, scene: Scene) -> None:
    async with managed(hub, worker, scene):
        await make_job(scene.hub, "j", namespace=scene.namespace, queue=scene.name, cpu="3")
        await eventually(scene.clone, what="the clone asks", until=lambda seen: bool(condition(seen, "QuotaReserved")))
        assert await scene.job() is None
        await scene.hub.delete(JOBS, "j", namespace=scene.namespace, propagation="Background")
        page = await eventually(
            lambda: scene.there.list_page(WORKLOADS, namespace=scene.namespace),
            what="the clone is removed",
            until=lambda seen: not seen.items,
        )
        assert not page.items


@pytest.mark.parametrize(
    "dispatcher",
    [
        pytest.param(DISPATCHER_ALL_AT_ONCE, id="its gate is opened when it asks"),
        pytest.param(
            DISPATCHER_CAPACITY,
            id="its gate is opened when no quota is free, and open from the start when some seemed to be",
        ),
    ],
)
async def test_q5_the_workers_engine_preempts_when_the_hub_lets_it(
    hub: Cluster, worker: Cluster, scene: Scene, dispatcher: str
) -> None:
    gate = "featureGates: {MultiKueueOrchestratedPreemption: true}\n"
    settings = (
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        f"{gate}multiKueue: {{workerLostTimeout: 3s, gcInterval: 2s, dispatcherName: {dispatcher}}}\n"
    )
    async with managed(hub, worker, scene, settings=settings, there=gate):
        preempting = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
        await scene.there.patch(CLUSTER_QUEUES, scene.name, preempting)
        await make_job(scene.there, "low", namespace=scene.namespace, queue=scene.name, cpu="2")
        await wait_condition(scene.there, "low", "Admitted", namespace=scene.namespace)
        kind = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "value": 10, "description": "test"}
        await scene.hub.create(WORKLOAD_PRIORITY_CLASSES, {**kind, "metadata": {"name": scene.name}})
        high = {"kueue.x-k8s.io/priority-class": scene.name}
        await make_job(scene.hub, "j", namespace=scene.namespace, queue=scene.name, cpu="2", labels=high)
        await wait_condition(scene.there, "low", "Preempted", namespace=scene.namespace)
        clone = await eventually(
            scene.clone, what="the clone is admitted", until=lambda seen: is_true(seen, "Admitted")
        )
        assert gates_of(clone) == {MULTIKUEUE_PREEMPTION_GATE: "Open"}
        if dispatcher == DISPATCHER_ALL_AT_ONCE:
            blocked = condition(clone, "BlockedOnPreemptionGates")
            assert (blocked["status"], blocked["reason"]) == ("False", "QuotaReserved")
        await eventually(lambda: finish_pods(scene.there, "j", namespace=scene.namespace), what="its pod ends")
        await wait_condition(scene.hub, "j", "Finished", namespace=scene.namespace, reason="Succeeded")
