# SPDX-License-Identifier: Apache-2.0
"""What a cluster does with StatefulSets."""

from __future__ import annotations

from typing import Any, Final

from devcluster.resources import CONTROLLER_REVISIONS, STATEFUL_SETS, VOLUME_CLAIMS
from multikueue.api.objects import JsonObject
from multikueue.api.resource import PODS
from tests.component.controllers.app_stage import BY_HAND, GATED, NAME, AppStage, template, version
from tests.component.controllers.cluster_cases import Case, Place, case

STATEFUL_CASES: Final[list[Case]] = []
_NEVER_READY: Final = {"multikueue.io/never-ready": "true"}


async def _ungate(stage: AppStage, name: str) -> None:
    body: JsonObject = {"spec": {"schedulingGates": []}}
    await stage.client.patch(PODS, name, body, namespace=stage.place.namespace)


@case("a StatefulSet names its pods by number", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    await stage.create(replicas=3)
    await stage.ready(3)
    revision = (await stage.listed(CONTROLLER_REVISIONS))[0]
    about = [sorted(revision["metadata"]["labels"]), sorted(revision["data"]["spec"]["template"])]
    return [await stage.outcome(), about, await stage.notes("StatefulSet", "SuccessfulCreate", count=3)]


@case("a StatefulSet waits for a gated pod before it makes the next", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    await stage.create(replicas=2, template=template(**GATED))
    await stage.counted(replicas=1, updatedReplicas=1)
    first = await stage.outcome()
    await _ungate(stage, f"{NAME}-0")
    await stage.counted(replicas=2, readyReplicas=1, updatedReplicas=2)
    second = await stage.outcome()
    await _ungate(stage, f"{NAME}-1")
    await stage.ready(2)
    return [first, second, await stage.outcome()]


@case("a parallel StatefulSet does not wait for gated pods", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    await stage.create(replicas=3, podManagementPolicy="Parallel", template=template(**GATED))
    await stage.counted(replicas=3, updatedReplicas=3)
    gated = await stage.outcome()
    await _ungate(stage, f"{NAME}-1")
    await stage.counted(replicas=3, readyReplicas=1)
    return [gated, await stage.outcome()]


@case("a StatefulSet shrinks from its last pod and grows again", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    await stage.create(replicas=3)
    await stage.ready(3)
    await stage.scale(1)
    await stage.ready(1)
    notes = await stage.notes("StatefulSet", "SuccessfulDelete", count=2)
    small = await stage.outcome()
    await stage.scale(2)
    await stage.ready(2)
    return [notes, small, await stage.outcome()]


@case("a StatefulSet to zero", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    await stage.create(replicas=2)
    await stage.ready(2)
    await stage.scale(0)
    await stage.ready(0)
    return await stage.outcome()


@case("a StatefulSet updates the pods above its partition, then the others", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    await stage.create(replicas=3, updateStrategy=strategy)
    await stage.ready(3)
    await stage.change(**version(2))
    await stage.counted(replicas=3, availableReplicas=3, updatedReplicas=1)
    partly = await stage.outcome()
    await stage.change(updateStrategy={"rollingUpdate": {"partition": 0}})
    await stage.ready(3)
    await stage.until("complete", _complete)
    return [partly, await stage.outcome()]


def _complete(status: JsonObject, _: list[JsonObject]) -> bool:
    return bool(status["currentRevision"] == status["updateRevision"])


@case("a pod below the partition comes back as it was", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    await stage.create(replicas=2, updateStrategy=strategy)
    await stage.ready(2)
    await stage.change(**version(2))
    await stage.counted(replicas=2, availableReplicas=2, updatedReplicas=1)
    pod = (await stage.pods())[0]
    await place.client.delete(PODS, f"{NAME}-0", namespace=place.namespace)
    gone = pod["metadata"]["uid"]
    await stage.until(
        "replaced",
        lambda status, pods: (
            status.get("availableReplicas") == 2 and gone not in [pod["metadata"]["uid"] for pod in pods]
        ),
    )
    return await stage.outcome()


@case("a StatefulSet updates a pod only when it is deleted, if so asked", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    await stage.create(replicas=2, updateStrategy={"type": "OnDelete"})
    await stage.ready(2)
    await stage.change(**version(2))
    await stage.until("seen", lambda status, _: status["currentRevision"] != status["updateRevision"])
    await place.client.delete(PODS, f"{NAME}-1", namespace=place.namespace)
    await stage.counted(replicas=2, availableReplicas=2, updatedReplicas=1)
    return await stage.outcome()


@case("a template that comes back is the newest revision of a StatefulSet", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    await stage.create(replicas=1)
    await stage.ready(1)
    for number in (2, 1):
        await stage.change(**version(number))
        await stage.ready(1)
        await stage.until("complete", _complete)
    return await stage.outcome()


@case("the numbers of a StatefulSet's pods may start later", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    await stage.create(replicas=2, ordinals={"start": 5})
    await stage.ready(2)
    before = await stage.outcome()
    await stage.change(ordinals={"start": 6})
    await stage.until(
        "moved",
        lambda status, pods: (
            [pod["metadata"]["name"] for pod in pods] == [f"{NAME}-6", f"{NAME}-7"]
            and status.get("availableReplicas") == status.get("replicas") == 2
        ),
    )
    return [before, await stage.outcome()]


@case("a StatefulSet makes a pod again that failed", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    await stage.create(replicas=1, template=template(**BY_HAND))
    await stage.counted(replicas=1)
    pod = (await stage.pods())[0]
    await stage.fail(pod)
    uid = pod["metadata"]["uid"]
    await stage.until(
        "made again", lambda status, pods: len(pods) == status["replicas"] == 1 and pods[0]["metadata"]["uid"] != uid
    )
    return [await stage.outcome(), await stage.notes("StatefulSet", "SuccessfulDelete")]


@case("a StatefulSet updates one pod at a time, also if more may be unavailable", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    await stage.create(replicas=4, podManagementPolicy="Parallel", updateStrategy=strategy)
    await stage.ready(4)
    await stage.change(**version(2, **_NEVER_READY))
    await stage.counted(replicas=4, readyReplicas=3, updatedReplicas=1)
    kept = (await place.look(STATEFUL_SETS, NAME) or {})["spec"]["updateStrategy"]
    return [kept, await stage.outcome()]


@case("each pod of a StatefulSet has its own claims", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    resources = {"requests": {"storage": "1Gi"}}
    data = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}
    await stage.create(
        replicas=2,
        podManagementPolicy="Parallel",
        template=template(**GATED),
        volumeClaimTemplates=[data],
        persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete", "whenScaled": "Delete"},
    )
    await stage.counted(replicas=2, updatedReplicas=2)
    claims = [
        [each["metadata"]["name"], each["metadata"]["labels"], [o["kind"] for o in each["metadata"]["ownerReferences"]]]
        for each in await stage.listed(VOLUME_CLAIMS)
    ]
    volumes = [[v for v in pod["spec"]["volumes"] if v["name"] == "data"] for pod in await stage.pods()]
    await stage.scale(1)
    await stage.counted(replicas=1)

    async def deleted() -> bool:
        found = await place.look(VOLUME_CLAIMS, f"data-{NAME}-1")
        return found is None or "deletionTimestamp" in found["metadata"]

    await place.until(deleted, "deleted the claim of the pod")
    kept = await place.look(VOLUME_CLAIMS, f"data-{NAME}-0") or {"metadata": {}}
    return [claims, volumes, "deletionTimestamp" in kept["metadata"]]


@case("a StatefulSet goes with its pods and revisions", STATEFUL_CASES)
async def _(place: Place) -> Any:
    stage = AppStage(place, STATEFUL_SETS)
    for propagation in ("Foreground", "Background"):
        await stage.create(replicas=2)
        await stage.ready(2)
        await place.client.delete(STATEFUL_SETS, NAME, namespace=place.namespace, propagation=propagation)

        async def empty() -> bool:
            return not await stage.pods() and not await stage.listed(CONTROLLER_REVISIONS)

        await place.gone(STATEFUL_SETS, NAME)
        await place.until(empty, "empty")
