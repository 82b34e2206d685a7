# SPDX-License-Identifier: Apache-2.0
"""Jobs of other kinds than Job that a lost hub has left on a worker: adopted through the frame, or left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import orjson
import pytest

from multikueue.api.constants import (
    ASSIGNMENT_ANNOTATION,
    MANAGER_UID_ANNOTATION,
    MULTIKUEUE_MANAGED_BY,
    ORIGIN_UID_ANNOTATION,
    QUEUE_NAME_LABEL,
    REMOTE_POD_LABEL,
)
from multikueue.api.resource import CLUSTER_QUEUES, PODS
from multikueue.cli.cluster.recovering import RecoveryAction, recover
from multikueue.jobs.declared.external import external_integration
from multikueue.jobs.framework.protocol import JobIntegration, RemoteIdentity
from multikueue.jobs.framework.registry import known_integrations
from multikueue.jobs.kinds.pod import BARE_POD
from multikueue.jobs.kinds.remote_pods import remote_pods_label
from tests.component.kinds.conftest import Clusters
from tests.support.both_providers import push_apart
from tests.support.crds.kinds import JOB_SETS
from tests.support.external_scenes import NAME, PIPELINE, PIPELINES, external_scene
from tests.support.kind_scenes import KindScene, kind_scene
from tests.support.managers import Object, condition, eventually, get
from tests.support.operators.samples import job_set, pod_template
from tests.support.pod_scenes import PodScene, is_gated, pod_scene, ready
from tests.support.sites import Transport

pytestmark = pytest.mark.anyio

both_transports = pytest.mark.parametrize("transport", list(Transport), ids=str)
apart = pytest.mark.conformance
LOST = "a-lost-hub"
JOB_SET = known_integrations()["jobset.x-k8s.io/jobset"]
FORMER = RemoteIdentity(
    workload_name="former", origin="multikueue", epoch=3, manager_uid=LOST, cluster="", assignment="former"
)


async def left_behind(scene: KindScene, of: JobIntegration, job: Object, *, assignment: str = "former") -> Object:
    """The remote job that the agent of a lost hub created of that job."""
    identity = replace(FORMER, cluster=scene.name, assignment=assignment)
    body = of.remote_manifest(job, (), identity=identity)
    if of is BARE_POD:
        body["metadata"]["labels"][REMOTE_POD_LABEL] = remote_pods_label(assignment)
    made: Object = orjson.loads(await scene.worker.create(of.resource, body, namespace=scene.namespace))
    return made


async def orphans(
    scene: KindScene, action: RecoveryAction, *, total: int, kinds: Iterable[JobIntegration] | None = None
) -> dict[str, tuple[str, str]]:
    """What is or would be done about each orphan and why, once as many are reported."""

    async def ask() -> dict[str, tuple[str, str]]:
        dry = await recover(scene.hub, scene.name, action=action, dry_run=True, manager_uid=LOST, kinds=kinds)
        return {each["name"]: (each["action"], each["why"]) for each in dry.entries}

    found = await eventually(ask, what=f"{total} orphans are reported", until=lambda seen: len(seen) == total)
    if action is RecoveryAction.LIST:
        return found
    done = await recover(scene.hub, scene.name, action=action, manager_uid=LOST, kinds=kinds)
    return {each["name"]: (each["action"], each["why"]) for each in done.entries}


async def hold(scene: KindScene, policy: str) -> None:
    """Stop or release the queue, and wait until it is."""
    await scene.hub.patch(CLUSTER_QUEUES, scene.name, {"spec": {"stopPolicy": policy}})
    await eventually(
        lambda: get(scene.hub, CLUSTER_QUEUES, scene.name),
        what=f"the queue has the stop policy {policy}",
        until=lambda seen: condition(seen, "Active").get("status") == ("True" if policy == "None" else "False"),
    )


async def taken_over(scene: PodScene, name: str, *, uid: str) -> Object:
    """The pod of that uid once it belongs to an assignment of this hub, and the hub shows it."""
    pod = await scene.remote(
        name,
        "adopted",
        lambda seen: seen["metadata"]["annotations"][MANAGER_UID_ANNOTATION] != LOST,
    )
    assert pod["metadata"]["uid"] == uid, "the very pod runs on"
    shown = await scene.shown(name, "ready", ready)
    assert is_gated(shown)
    marks = pod["metadata"]["annotations"]
    assert marks[ORIGIN_UID_ANNOTATION] == shown["metadata"]["uid"]
    assert pod["metadata"]["labels"][REMOTE_POD_LABEL] == remote_pods_label(marks[ASSIGNMENT_ANNOTATION])
    return pod


@push_apart
async def test_a_pod_of_a_lost_hub_is_adopted_and_goes_with_the_pod_that_was_created_for_it(
    clusters: Clusters, transport: Transport
) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "adopts", transport=transport) as scene:
        before = await left_behind(scene.scene, BARE_POD, scene.manifest("one"))
        await scene.remote("one", "ready", ready)
        assert await orphans(scene.scene, RecoveryAction.ADOPT, total=1) == {
            "one": ("create", "the hub has no job of that name")
        }
        await taken_over(scene, "one", uid=before["metadata"]["uid"])
        assert await scene.names(scene.worker) == ["one"]
        await scene.hub.delete(PODS, "one", namespace=scene.namespace)
        await scene.gone(scene.worker, "one")


@apart
@both_transports
async def test_a_pod_that_its_user_has_submitted_again_is_bound_to_the_one_that_runs(
    clusters: Clusters, transport: Transport
) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "binds", transport=transport) as scene:
        before = await left_behind(scene.scene, BARE_POD, scene.manifest("one"))
        await hold(scene.scene, "Hold")
        await scene.submit(scene.manifest("one"))
        await scene.workload("one", "made", lambda seen: True)
        assert (await orphans(scene.scene, RecoveryAction.ADOPT, total=1))["one"][0] == "bind"
        await hold(scene.scene, "None")
        await taken_over(scene, "one", uid=before["metadata"]["uid"])


@push_apart
async def test_the_pods_of_a_group_are_left_with_the_reason_and_the_others_adopted(
    clusters: Clusters, transport: Transport
) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "groups", transport=transport) as scene:
        for index in range(2):
            await left_behind(scene.scene, BARE_POD, scene.manifest(f"g-{index}", group="g", total=2))
        before = await left_behind(scene.scene, BARE_POD, scene.manifest("one"), assignment="of-one")
        found = await orphans(scene.scene, RecoveryAction.ADOPT, total=3)
        assert {name: action for name, (action, _) in found.items()} == {
            "g-0": "leave",
            "g-1": "leave",
            "one": "create",
        }
        assert "a pod group is not created again from its pods on a worker" in found["g-0"][1]
        await taken_over(scene, "one", uid=before["metadata"]["uid"])
        assert await scene.names(scene.hub) == ["one"]
        assert await scene.names(scene.worker) == ["g-0", "g-1", "one"], "what is left is not stopped"
        await orphans(scene.scene, RecoveryAction.DISCARD, total=2)
        for index in range(2):
            await scene.gone(scene.worker, f"g-{index}")


@push_apart
async def test_a_job_set_of_a_lost_hub_is_adopted_and_ends_as_the_job_set_of_its_user(
    clusters: Clusters, transport: Transport
) -> None:
    async with kind_scene(clusters.hub, clusters.worker, "adopts", transport=transport) as scene:
        body = job_set("set", pod_template({"multikueue.io/run-for": "forever"}, terminationGracePeriodSeconds=0))
        body["metadata"] |= {"namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: scene.name}}
        before = await left_behind(scene, JOB_SET, body)
        assert (await orphans(scene, RecoveryAction.ADOPT, total=1))["set"][0] == "create"
        adopted = await scene.runs("set")
        assert adopted["metadata"]["uid"] == before["metadata"]["uid"]
        here = await get(scene.hub, JOB_SETS, "set", namespace=scene.namespace)
        assert here is not None
        assert here["spec"]["managedBy"] == MULTIKUEUE_MANAGED_BY
        await scene.hub.delete(JOB_SETS, "set", namespace=scene.namespace)
        await scene.gone("set")


@apart
@both_transports
async def test_a_kind_that_the_hub_does_not_serve_is_left(clusters: Clusters, transport: Transport) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "unserved", transport=transport) as scene:
        await left_behind(scene.scene, BARE_POD, scene.manifest("one"))
        found = await orphans(scene.scene, RecoveryAction.ADOPT, total=1, kinds=(JOB_SET,))
        assert found == {"one": ("leave", "the hub does not serve the kind Pod; name it in its Configuration")}
        assert await scene.names(scene.hub) == []


@push_apart
async def test_an_external_job_of_a_lost_hub_is_adopted_once_its_controller_has_made_the_workload(
    clusters: Clusters, transport: Transport
) -> None:
    kinds = (external_integration(NAME),)
    async with external_scene(clusters.hub, clusters.worker, "adopts", transport=transport) as scene:
        job = {**PIPELINE, "metadata": {"name": "nightly", "namespace": scene.namespace}}
        before = await left_behind(scene.scene, kinds[0], job)
        assert (await orphans(scene.scene, RecoveryAction.ADOPT, total=1, kinds=kinds))["nightly"][0] == "create"
        here = await get(scene.hub, PIPELINES, "nightly", namespace=scene.namespace)
        assert here is not None
        assert here["spec"] == PIPELINE["spec"]
        workload = await scene.queue(here)
        adopted = await scene.remote("nightly")
        assert adopted["metadata"]["uid"] == before["metadata"]["uid"]
        await scene.check(workload, "Ready", message=scene.scene.name)
        await scene.says("nightly", phase="Passed")
        await scene.shown("nightly", phase="Passed")
        await scene.finish(workload)
        await scene.gone("nightly")


@apart
@both_transports
async def test_an_external_job_that_its_user_has_submitted_again_is_bound_and_another_is_left(
    clusters: Clusters, transport: Transport
) -> None:
    kinds = (external_integration(NAME),)
    async with external_scene(clusters.hub, clusters.worker, "binds", transport=transport) as scene:
        before = {}
        for name in ("nightly", "other"):
            job = {**PIPELINE, "metadata": {"name": name, "namespace": scene.namespace}}
            before[name] = await left_behind(scene.scene, kinds[0], job, assignment=name)
        await hold(scene.scene, "Hold")
        workload = await scene.queue(await scene.job("nightly"))
        changed = await scene.job("other")
        await scene.hub.patch(PIPELINES, "other", {"spec": {"steps": ["another"]}}, namespace=scene.namespace)
        found = await orphans(scene.scene, RecoveryAction.ADOPT, total=2, kinds=kinds)
        assert found["nightly"][0] == "bind"
        assert found["other"] == ("leave", "the job of that name on the hub is another one: its pods differ")
        assert changed["spec"]["managedBy"] == MULTIKUEUE_MANAGED_BY
        await hold(scene.scene, "None")
        adopted = await scene.remote("nightly")
        assert adopted["metadata"]["uid"] == before["nightly"]["metadata"]["uid"]
        await scene.check(workload, "Ready", message=scene.scene.name)
