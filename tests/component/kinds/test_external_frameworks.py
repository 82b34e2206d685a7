# SPDX-License-Identifier: Apache-2.0
"""Kinds whose Workloads another controller makes: sent as docs/jobs/external-frameworks.md says, and nothing more."""

from __future__ import annotations

from itertools import count

import orjson
import pytest

from manager.cache import followed_kind
from multikueue.api.constants import PARTITION_POLICY_ANNOTATION
from multikueue.api.resource import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, WORKLOADS, Resource
from multikueue.core.conditions import is_true_in
from tests.component.kinds.conftest import Clusters
from tests.support.crds.kinds import definition
from tests.support.external_scenes import CRD, PIPELINE, PIPELINES, ROLE, define, external_scene, undefined
from tests.support.kind_scenes import RIGHTS_TO_JOBS
from tests.support.managers import condition, eventually, get
from tests.support.sites import Transport
from tests.support.workers import check_of

pytestmark = pytest.mark.anyio

both_transports = pytest.mark.parametrize("transport", list(Transport), ids=str)
apart = pytest.mark.conformance

FLEETS = {"kind": "Fleet", "listKind": "FleetList", "plural": "fleets", "singular": "fleet"}


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager looks whether a kind was removed or installed each second."""
    monkeypatch.setattr(followed_kind, "_MISSING_SECONDS", 1.0)
    monkeypatch.setattr(followed_kind, "_REMOVED_SECONDS", 1.0)


@both_transports
async def test_an_external_job_runs_on_the_worker_and_its_status_is_shown_until_its_controller_ends_it(
    clusters: Clusters, transport: Transport
) -> None:
    async with external_scene(clusters.hub, clusters.worker, "runs", transport=transport) as scene:
        await scene.submit("nightly")
        remote = await scene.remote("nightly")
        assert remote["spec"] == {"steps": PIPELINE["spec"]["steps"]}
        assert remote["metadata"].keys().isdisjoint({"ownerReferences", "finalizers"})
        await scene.check("pipeline-nightly", "Ready", message=scene.scene.name)
        await scene.says("nightly", phase="Testing", steps=[{"name": "build", "took": 3}])
        shown = await scene.shown("nightly", phase="Testing", steps=[{"name": "build", "took": 3}])
        assert shown["spec"] == PIPELINE["spec"]
        await scene.says("nightly", phase="Passed", steps=None)
        await scene.shown("nightly", phase="Passed")
        await scene.finish("pipeline-nightly")
        await scene.gone("nightly")
        await scene.shown("nightly", phase="Passed")


@apart
@both_transports
async def test_a_worker_without_the_kind_gets_none_until_it_is_installed_and_not_after_it_is_removed(
    clusters: Clusters, transport: Transport
) -> None:
    async with external_scene(clusters.hub, clusters.plain, "crd", transport=transport, on_worker=False) as scene:
        await scene.submit("early")
        await scene.check("pipeline-early", "Pending", message="kind Pipeline is not served by the cluster's agent")
        await define(scene.worker, CRD)
        await scene.remote("early")
        await scene.worker.delete(CUSTOM_RESOURCE_DEFINITIONS, PIPELINES.qualified)
        await scene.workload(
            "pipeline-early",
            "is sent elsewhere, as its object was removed with the kind",
            lambda seen: bool((seen["status"].get("schedulingStats") or {}).get("evictions")),
        )

        async def sent_later() -> str:
            # Before the worker's agent has seen that the kind is gone, it is asked once and then avoided.
            name = f"late-{next(numbers)}"
            await scene.submit(name)
            found = await scene.workload(
                f"pipeline-{name}", "has a check", lambda seen: bool(check_of(seen, scene.scene.name).get("message"))
            )
            return str(check_of(found, scene.scene.name)["message"])

        numbers = count()
        await eventually(
            sent_later,
            what="it is not served any more",
            until=lambda message: "kind Pipeline is not served by the cluster's agent" in message,
        )


@apart
@both_transports
async def test_a_hub_without_the_kind_waits_for_it_and_stops_its_jobs_when_it_is_removed_with_them(
    clusters: Clusters, transport: Transport, quick_looks: None
) -> None:
    crd = {**CRD, "metadata": {"name": "fleets.later.example.com"}}
    crd["spec"] = {**CRD["spec"], "group": "later.example.com", "names": FLEETS}
    rules = tuple({**rule, "apiGroups": ["later.example.com"], "resources": ["fleets"]} for rule in ROLE["rules"])
    scene_of = external_scene(
        clusters.hub, clusters.worker, "late hub", transport=transport, crd=crd, rules=rules, on_hub=False
    )
    async with scene_of as scene:
        await define(scene.hub, crd)
        await scene.submit("first")
        await scene.remote("first")
        # With its object, whose deletion the manager's watch may not report any more.
        await scene.hub.delete(CUSTOM_RESOURCE_DEFINITIONS, "fleets.later.example.com")
        await scene.gone("first")
        await scene.without_workload("fleet-first")
        await undefined(scene.hub, scene.resource)
        await define(scene.hub, crd)
        await scene.submit("second")
        await scene.remote("second")
        await scene.hub.delete(CUSTOM_RESOURCE_DEFINITIONS, "fleets.later.example.com")
        await scene.gone("second")


@apart
async def test_a_job_whose_kind_was_removed_while_no_manager_ran_is_stopped_by_the_next_one(
    clusters: Clusters, quick_looks: None
) -> None:
    push = Transport.PUSH  # of which the scene restarts the manager
    crd = {**CRD, "metadata": {"name": "fleets.gone.example.com"}}
    crd["spec"] = {**CRD["spec"], "group": "gone.example.com", "names": FLEETS}
    rules = tuple({**rule, "apiGroups": ["gone.example.com"], "resources": ["fleets"]} for rule in ROLE["rules"])
    scene_of = external_scene(clusters.hub, clusters.worker, "gone", transport=push, crd=crd, rules=rules)
    async with scene_of as scene:
        await scene.submit("first")
        await scene.remote("first")

        async def remove() -> None:
            await scene.hub.delete(CUSTOM_RESOURCE_DEFINITIONS, "fleets.gone.example.com")
            await undefined(scene.hub, scene.resource)

        await scene.scene.restart(remove)
        await scene.gone("first")
        await scene.without_workload("fleet-first")


@apart
@both_transports
async def test_a_right_that_the_agent_lacks_is_seen_and_the_job_runs_once_it_is_given(
    clusters: Clusters, transport: Transport
) -> None:
    async with external_scene(clusters.hub, clusters.worker, "rights", transport=transport, rules=()) as scene:
        await scene.submit("nightly")
        await scene.check("pipeline-nightly", "Pending", message="kind Pipeline is not served by the cluster's agent")
        await scene.scene.grant(*RIGHTS_TO_JOBS, *ROLE["rules"])
        await scene.remote("nightly")


@apart
@both_transports
async def test_a_preempted_external_job_is_deleted_on_the_worker_and_made_again(
    clusters: Clusters, transport: Transport
) -> None:
    async with external_scene(clusters.hub, clusters.worker, "preempted", transport=transport, cpu="200m") as scene:
        await scene.submit("low")
        before = await scene.remote("low")
        await scene.submit("high", priority="high")
        await scene.remote("high")
        found = await scene.workload("pipeline-low", "is preempted", lambda seen: bool(condition(seen, "Evicted")))
        assert condition(found, "Evicted")["reason"] == "Preempted"
        await scene.gone("low")
        await scene.hub.delete(PIPELINES, "high", namespace=scene.namespace)
        again = await scene.remote("low", epoch=2)
        assert again["metadata"]["uid"] != before["metadata"]["uid"]


@apart
async def test_a_fenced_external_job_is_deleted_when_the_lease_expires(clusters: Clusters) -> None:
    pull = Transport.PULL
    async with external_scene(clusters.hub, clusters.worker, "fenced", transport=pull, lease_seconds=5) as scene:
        await scene.submit("nightly", annotations={PARTITION_POLICY_ANNOTATION: "fenced"})
        await scene.remote("nightly")
        await scene.scene.link.refuse()
        await scene.gone("nightly")
        await scene.scene.link.start()


@both_transports
async def test_an_external_job_that_names_another_controller_is_rejected_and_sent_nowhere(
    clusters: Clusters, transport: Transport
) -> None:
    async with external_scene(clusters.hub, clusters.worker, "other", transport=transport) as scene:
        for name, managed_by in (("none", ""), ("other", "ci.example.com/controller")):
            job = await scene.job(name, managed_by=managed_by)
            workload = await scene.queue(job)
            await scene.rejected(workload, message="Expecting spec.managedBy to be")
            assert await get(scene.worker, PIPELINES, name, namespace=scene.namespace) is None


@apart
@both_transports
async def test_the_workload_of_a_deleted_external_job_goes_and_the_remote_job_with_it(
    clusters: Clusters, transport: Transport
) -> None:
    async with external_scene(clusters.hub, clusters.worker, "deleted", transport=transport) as scene:
        await scene.submit("nightly")
        await scene.remote("nightly")
        await scene.hub.delete(PIPELINES, "nightly", namespace=scene.namespace)
        await scene.gone("nightly")
        await eventually(
            lambda: get(scene.hub, WORKLOADS, "pipeline-nightly", namespace=scene.namespace),
            what="its Workload is gone",
            until=lambda seen: seen is None or not is_true_in(seen.get("status"), "QuotaReserved"),
        )


@apart
@both_transports
async def test_x1_x2_x3_a_ray_cluster_runs_through_the_generic_adapter_without_the_owner_it_has_on_the_hub(
    clusters: Clusters, transport: Transport
) -> None:
    # The group is another one: a kind that the manager knows is no external framework.
    rays = Resource("ray.example.com", "v1", "RayCluster", "rayclusters")
    resources = ("rayclusters", "rayclusters/status")
    rules = tuple(
        {**rule, "apiGroups": [rays.group], "resources": [name]}
        for rule, name in zip(ROLE["rules"], resources, strict=True)
    )
    async with external_scene(
        clusters.hub, clusters.worker, "ray", transport=transport, crd=definition(rays), rules=rules
    ) as scene:
        kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": scene.namespace}}
        owner = orjson.loads(await scene.hub.create(CONFIG_MAPS, kept, namespace=scene.namespace))["metadata"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
        job = await scene.job("ray", ownerReferences=[reference])
        assert job["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue"
        workload = await scene.queue(job)
        remote = await scene.remote("ray")
        assert "managedBy" not in remote["spec"]
        assert "ownerReferences" not in remote["metadata"]
        await scene.says("ray", state="ready", readyWorkerReplicas=2)
        shown = await scene.shown("ray", state="ready", readyWorkerReplicas=2)
        assert shown["metadata"]["ownerReferences"] == [reference]
        await scene.finish(workload)
        await scene.gone("ray")


@apart
@both_transports
async def test_x4_what_was_deleted_while_the_worker_was_away_is_removed_when_it_is_back(
    clusters: Clusters, transport: Transport
) -> None:
    async with external_scene(clusters.hub, clusters.worker, "away", transport=transport) as scene:
        await scene.submit("nightly")
        await scene.remote("nightly")
        await scene.scene.link.refuse()
        await scene.hub.delete(PIPELINES, "nightly", namespace=scene.namespace)
        await eventually(
            lambda: get(scene.hub, PIPELINES, "nightly", namespace=scene.namespace),
            what="the object of the hub is gone",
            until=lambda seen: seen is None,
        )
        assert await get(scene.worker, PIPELINES, "nightly", namespace=scene.namespace) is not None
        await scene.scene.link.start()
        await scene.gone("nightly")
