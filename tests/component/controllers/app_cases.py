# SPDX-License-Identifier: Apache-2.0
"""What a cluster does with Deployments and ReplicaSets."""

from __future__ import annotations

from typing import Any, Final

from devcluster.resources import DEPLOYMENTS, REPLICA_SETS, RESOURCE_QUOTAS
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import PODS
from tests.component.controllers.app_stage import BY_HAND, GATED, LABELS, NAME, AppStage, template, version
from tests.component.controllers.cluster_cases import Case, Place, case

APP_CASES: Final[list[Case]] = []
_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_NEVER_READY: Final = {"multikueue.io/never-ready": "true"}


@case("a ReplicaSet runs its pods and counts them", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, REPLICA_SETS)
    await stage.create(replicas=3)
    await stage.ready(3)
    notes = await stage.notes("ReplicaSet", "SuccessfulCreate")
    await stage.scale(1)
    await stage.ready(1)
    return [notes, await stage.notes("ReplicaSet", "SuccessfulDelete"), await stage.outcome()]


@case("a ReplicaSet adopts a pod that it selects, and releases one that it no longer does", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, REPLICA_SETS)
    metadata = {"name": "orphan", "labels": LABELS}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template()["spec"]}
    await place.client.create(PODS, pod, namespace=place.namespace)
    await stage.create(replicas=2)
    await stage.ready(2)
    adopted = await place.look(PODS, "orphan") or {}
    owner = {key: value for key, value in (controller_of(adopted) or {}).items() if key != "uid"}
    await place.client.patch(PODS, "orphan", {"metadata": {"labels": {"app": "other"}}}, namespace=place.namespace)
    await stage.until("replaced it", lambda status, pods: len(pods) == 3 and _all_running(status, pods))
    released = await place.look(PODS, "orphan") or {}
    return [owner, released["metadata"].get("ownerReferences", "none"), await stage.outcome()]


def _all_running(status: JsonObject, pods: list[JsonObject]) -> bool:
    counted = status.get("readyReplicas") == status.get("availableReplicas") == 2
    return counted and all(pod["status"]["phase"] == "Running" for pod in pods)


@case("a ReplicaSet deletes the pods first whose deletion costs least", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, REPLICA_SETS)
    given = template()
    given["metadata"]["labels"]["example.com/cost"] = "unknown"
    await stage.create(replicas=3, template=given)
    await stage.ready(3)
    for number, pod in enumerate(await stage.pods()):
        body = {"metadata": {"annotations": {_COST: str(number * 10 - 10)}, "labels": {"example.com/cost": None}}}
        await place.client.patch(PODS, pod["metadata"]["name"], body, namespace=place.namespace)
    # Only this count shows that the controller has seen the pods as they are now.
    await stage.until("saw the costs", lambda status, pods: not status.get("fullyLabeledReplicas"))
    await stage.scale(1)
    await stage.ready(1)
    return [pod["metadata"]["annotations"][_COST] for pod in await stage.pods()]


@case("a ReplicaSet replaces a pod that failed and one that was deleted", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, REPLICA_SETS)
    await stage.create(replicas=2, template=template(**BY_HAND))
    await stage.counted(replicas=2)
    first, second = await stage.pods()
    await stage.fail(first)
    await stage.until("replaced it", lambda status, pods: len(pods) == 3 and status.get("replicas") == 2)
    await place.client.delete(PODS, second["metadata"]["name"], namespace=place.namespace)
    gone = second["metadata"]["uid"]
    await stage.until(
        "replaced both",
        lambda status, pods: (
            len(pods) == 3 and status.get("replicas") == 2 and gone not in [pod["metadata"]["uid"] for pod in pods]
        ),
    )
    return await stage.outcome()


@case("a ReplicaSet whose pods are refused says so until they are not", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, REPLICA_SETS)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}, "spec": {"hard": {"pods": 1}}}
    await place.client.create(RESOURCE_QUOTAS, quota, namespace=place.namespace)

    async def counted() -> bool:
        return "used" in ((await place.look(RESOURCE_QUOTAS, "quota") or {}).get("status") or {})

    await place.until(counted, "counted")
    await stage.create(replicas=3)
    await stage.condition("ReplicaFailure", "FailedCreate")
    await stage.counted(replicas=1, readyReplicas=1)
    refused = await stage.outcome()
    notes = await stage.notes("ReplicaSet", "FailedCreate")
    await place.client.delete(RESOURCE_QUOTAS, "quota", namespace=place.namespace)
    await stage.ready(3)
    await stage.condition("ReplicaFailure", None)
    return [refused, notes, await stage.outcome()]


@case("pods of a ReplicaSet are not available before they were ready for a while", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, REPLICA_SETS)
    await stage.create(replicas=2, minReadySeconds=3600)
    await stage.counted(replicas=2, readyReplicas=2)
    long = await stage.outcome()
    await stage.change(minReadySeconds=1)
    await stage.ready(2)
    return [long, await stage.outcome()]


@case("pods of a ReplicaSet that left orphans belong to the next one", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, REPLICA_SETS)
    await stage.create(replicas=2)
    await stage.ready(2)
    before = {pod["metadata"]["uid"] for pod in await stage.pods()}
    await place.client.delete(REPLICA_SETS, NAME, namespace=place.namespace, propagation="Orphan")
    await place.gone(REPLICA_SETS, NAME)
    owners = [pod["metadata"].get("ownerReferences", "none") for pod in await stage.pods()]
    await stage.create(replicas=2)
    await stage.ready(2)
    return [owners, before == {pod["metadata"]["uid"] for pod in await stage.pods()}]


@case("a Deployment goes with its ReplicaSets and pods", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, DEPLOYMENTS)
    for propagation in ("Foreground", "Background"):
        await stage.create(replicas=2)
        await stage.ready(2)
        await place.client.delete(DEPLOYMENTS, NAME, namespace=place.namespace, propagation=propagation)

        async def empty() -> bool:
            return not await stage.pods() and not await stage.sets()

        await place.gone(DEPLOYMENTS, NAME)
        await place.until(empty, "empty")


@case("a Deployment makes a ReplicaSet", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, DEPLOYMENTS)
    await stage.create(replicas=3)
    await stage.ready(3)
    return [await stage.outcome(), await stage.notes("Deployment", "ScalingReplicaSet")]


@case("a Deployment with gated pods is not available", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, DEPLOYMENTS)
    await stage.create(replicas=2, template=template(**GATED))
    await stage.counted(replicas=2, updatedReplicas=2, unavailableReplicas=2)
    return await stage.outcome()


@case("a Deployment replaces its pods when the template changes, and again when it changes back", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, DEPLOYMENTS)
    await stage.create(replicas=3)
    await stage.ready(3)
    await stage.change(**version(2))
    await stage.sizes(0, 3)
    await stage.ready(3)
    second = await stage.outcome()
    await stage.change(**version(1))
    await stage.sizes(0, 3)
    await stage.ready(3)
    return [second, await stage.outcome()]


@case("a Deployment that recreates has no old pods when new ones start", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, DEPLOYMENTS)
    await stage.create(replicas=2, strategy={"type": "Recreate"})
    await stage.ready(2)
    await stage.change(**version(2))
    await stage.sizes(0, 2)
    await stage.ready(2)
    return [await stage.outcome(), await stage.notes("Deployment", "ScalingReplicaSet", count=3)]


@case("a paused Deployment is scaled, but not rolled out until it is resumed", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, DEPLOYMENTS)
    await stage.create(replicas=1)
    await stage.ready(1)
    await stage.change(paused=True)
    await stage.condition("Progressing", "DeploymentPaused")
    await stage.change(**version(2), replicas=2)
    await stage.sizes(2)
    await stage.counted(replicas=2, availableReplicas=2)
    paused = await stage.outcome()
    await stage.change(paused=False)
    await stage.sizes(0, 2)
    await stage.ready(2)
    return [paused, await stage.outcome()]


@case("a Deployment is scaled through its subresource", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, DEPLOYMENTS)
    await stage.create(replicas=1)
    await stage.ready(1)
    await stage.scale(4)
    await stage.ready(4)
    await stage.scale(2)
    await stage.ready(2)
    return [await stage.outcome(), await stage.notes("Deployment", "ScalingReplicaSet", count=3)]


@case("a Deployment to zero", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, DEPLOYMENTS)
    await stage.create(replicas=2)
    await stage.ready(2)
    await stage.scale(0)
    await stage.ready(0)
    await stage.sizes(0)
    return await stage.outcome()


@case("a Deployment that makes no progress says so after its deadline", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, DEPLOYMENTS)
    await stage.create(replicas=1, progressDeadlineSeconds=2, template=template(**BY_HAND))
    await stage.counted(replicas=1, updatedReplicas=1)
    await stage.condition("Progressing", "ProgressDeadlineExceeded")
    return await stage.outcome()


@case("a rollout whose pods are never ready ends at its limits, and is scaled in proportion", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, DEPLOYMENTS)
    rolling = {"maxSurge": "25%", "maxUnavailable": 2}
    await stage.create(replicas=10, strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
    await stage.ready(10)
    await stage.change(**version(2, **_NEVER_READY))
    await stage.sizes(8, 5)
    await stage.counted(replicas=13, availableReplicas=8)
    stuck = await stage.outcome()
    await stage.scale(15)
    await stage.counted(replicas=19, availableReplicas=12)
    return [stuck, await stage.outcome()]


@case("a Deployment keeps as many old ReplicaSets as its history limit", APP_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, DEPLOYMENTS)
    await stage.create(replicas=1, revisionHistoryLimit=1)
    await stage.ready(1)
    await stage.change(**version(2))
    await stage.sizes(0, 1)
    await stage.ready(1)
    await stage.change(**version(3))

    async def two() -> bool:
        found = [each["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for each in await stage.sets()]
        return found == ["2", "3"]

    await place.until(two, "left with two ReplicaSets")
    await stage.ready(1)
    return await stage.outcome()
