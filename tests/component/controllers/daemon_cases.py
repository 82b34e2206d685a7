# SPDX-License-Identifier: Apache-2.0
"""What a cluster does with DaemonSets; cases that change nodes are in `daemon_node_cases`."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import anyio

from devcluster.resources import CONTROLLER_REVISIONS, DAEMON_SETS, RESOURCE_QUOTAS
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import PODS
from multikueue.kube.rest.client import PatchKind
from tests.component.controllers.app_stage import GATED, LABELS, NAME, AppStage, template, version
from tests.component.controllers.cluster_cases import Case, Place, case

DAEMON_CASES: Final[list[Case]] = []
_NEVER_READY: Final = {"multikueue.io/never-ready": "true"}
_NAMED: Final = ("node-1", "node-2")
_HOST: Final = "kubernetes.io/hostname"
_HASH: Final = "controller-revision-hash"


class DaemonStage(AppStage):
    """One DaemonSet."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, DAEMON_SETS)

    async def ready(self, count: int) -> None:
        """Wait until so many nodes have one pod each, which is available and of the current template."""
        names = ("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberAvailable")
        await self.shows(count, numberMisscheduled=0, **dict.fromkeys(names, count))

    async def shows(self, pods: int, **counts: int) -> None:
        """Wait until so many pods exist and the status has these counts."""
        await self.until(
            f"counted {counts}",
            lambda status, found: (
                len(found) == pods and all(status.get(name, 0) == count for name, count in counts.items())
            ),
        )

    async def ungate(self, pod: JsonObject) -> None:
        """Let the scheduler bind a pod."""
        body: JsonObject = {"spec": {"schedulingGates": []}}
        await self.client.patch(PODS, pod["metadata"]["name"], body, namespace=self.place.namespace)

    async def end(self, pod: JsonObject, phase: str) -> None:
        """Let a pod that no kubelet runs end."""
        body = {"status": {"phase": phase}}
        name, namespace = pod["metadata"]["name"], self.place.namespace
        await self.client.patch(PODS, name, body, namespace=namespace, kind=PatchKind.STRATEGIC, subresource="status")

    async def replaced(self, pod: JsonObject, *, pods: int) -> None:
        """Wait until a pod is gone and so many exist."""
        uid = pod["metadata"]["uid"]

        def holds(_: JsonObject, found: list[JsonObject]) -> bool:
            return len(found) == pods and uid not in [each["metadata"]["uid"] for each in found]

        await self.until("replaced it", holds)

    async def _seen(self) -> Any:
        """The status of the DaemonSet, its revisions, and its pods by node."""
        revisions = await self.listed(CONTROLLER_REVISIONS)
        hashes = {_labels(each).get(_HASH, ""): f"#{each['revision']}" for each in revisions}
        pods = [
            {
                "node": pod["spec"].get("nodeName", ""),
                "wanted": _wanted(pod),
                "labels": {**pod["metadata"]["labels"], _HASH: hashes.get(pod["metadata"]["labels"].get(_HASH, ""))},
                "phase": pod["status"]["phase"],
                "owner": (controller_of(pod) or {}).get("kind"),
                "named": pod["metadata"].get("generateName"),
            }
            for pod in await self.pods()
        ]
        seen = {
            "status": await self.status(),
            "revisions": sorted(each["revision"] for each in revisions),
            "pods": sorted(pods, key=lambda pod: (pod["wanted"], str(sorted(pod["labels"].items())), pod["phase"])),
        }
        return await self.plain(seen)


def _labels(obj: JsonObject) -> JsonObject:
    found: JsonObject = obj["metadata"].get("labels") or {}
    return found


def _wanted(pod: JsonObject) -> str:
    """The node that the affinity of a pod names; empty for none."""
    required = _required(pod) or {"nodeSelectorTerms": []}
    for term in required["nodeSelectorTerms"]:
        for entry in term.get("matchFields") or ():
            return str(entry["values"][0])
    return ""


def _required(pod: JsonObject) -> JsonObject | None:
    by_node = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    found: JsonObject | None = by_node.get("requiredDuringSchedulingIgnoredDuringExecution")
    return found


def _rolling(**limits: int | str) -> JsonObject:
    return {"type": "RollingUpdate", "rollingUpdate": limits}


def _one(pods: list[JsonObject], node: str) -> JsonObject:
    return next(pod for pod in pods if _wanted(pod) == node)


@case("a DaemonSet runs a pod on each node", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create()
    await stage.ready(2)
    pod = (await stage.pods())[0]
    revision = (await stage.listed(CONTROLLER_REVISIONS))[0]
    metadata = revision["metadata"]
    owner = {key: value for key, value in (controller_of(revision) or {}).items() if key != "uid"}
    about = [sorted(metadata["labels"]), metadata["annotations"], owner, revision["data"], revision["revision"]]
    notes = await stage.notes("DaemonSet", "SuccessfulCreate")
    return [await stage.outcome(), pod["spec"]["tolerations"], about, notes]


@case("pods of a DaemonSet keep the affinity and tolerations of their template", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    named = {"matchExpressions": [{"key": _HOST, "operator": "In", "values": [_NAMED[1]]}]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [named]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": named}],
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": _HOST, "labelSelector": {"matchLabels": {"a": "b"}}}}
            ]
        },
    }
    tolerations = [
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        {"key": "node.kubernetes.io/disk-pressure", "value": "x", "effect": "NoSchedule"},
        {"key": "example.com/other", "operator": "Exists"},
    ]
    await stage.create(template=template(affinity=affinity, tolerations=tolerations, hostNetwork=True))
    await stage.ready(1)
    pod = (await stage.pods())[0]
    return [await stage.outcome(), pod["spec"]["affinity"], pod["spec"]["tolerations"]]


@case("a DaemonSet for one node or none", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create(template=template(nodeSelector={_HOST: _NAMED[0]}))
    await stage.ready(1)
    one = await stage.outcome()
    await stage.change(template={"spec": {"nodeSelector": {_HOST: "nowhere"}}})
    await stage.ready(0)
    none = await stage.outcome()
    await stage.change(template={"spec": {"nodeSelector": None, "nodeName": _NAMED[1]}})
    await stage.ready(1)
    return [one, none, await stage.outcome(), await stage.notes("DaemonSet", "SuccessfulDelete")]


@case("a DaemonSet counts gated pods as scheduled", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create(template=template(**GATED))
    await stage.shows(2, currentNumberScheduled=2)
    gated = await stage.outcome()
    await stage.ungate(_one(await stage.pods(), _NAMED[1]))
    await stage.shows(2, numberAvailable=1)
    return [gated, await stage.outcome()]


@case("a DaemonSet replaces its pods when the template changes, and again when it changes back", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create()
    await stage.ready(2)
    seen = []
    for number in (2, 1):
        await stage.change(**version(number))
        await stage.ready(2)
        seen.append(await stage.outcome())
    return [seen, await stage.notes("DaemonSet", "SuccessfulDelete")]


@case("revisions of a DaemonSet have its annotations of that time", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create()
    await stage.ready(2)
    causes = {"metadata": {"annotations": {"kubernetes.io/change-cause": "second"}}}
    await place.client.patch(DAEMON_SETS, NAME, causes, namespace=place.namespace)
    await stage.change(**version(2))
    await stage.ready(2)
    causes["metadata"]["annotations"]["kubernetes.io/change-cause"] = "third"
    await place.client.patch(DAEMON_SETS, NAME, causes, namespace=place.namespace)
    found = sorted(await stage.listed(CONTROLLER_REVISIONS), key=lambda each: each["revision"])
    return [await stage.outcome(), [each["metadata"]["annotations"] for each in found]]


def _anywhere(seen: Any) -> Any:
    """Without the nodes of pods: it is by chance on which a rollout begins."""
    pods = [{**pod, "node": bool(pod["node"]), "wanted": ""} for pod in seen["pods"]]
    return {**seen, "pods": sorted(pods, key=str)}


_STUCK: Final[dict[str, tuple[JsonObject, int, dict[str, int]]]] = {
    "one node": (_rolling(maxUnavailable=1), 2, {"updatedNumberScheduled": 1, "numberAvailable": 1}),
    "half of its nodes": (_rolling(maxUnavailable="50%"), 2, {"updatedNumberScheduled": 1, "numberAvailable": 1}),
    "a little more than half of its nodes": (_rolling(maxUnavailable="51%"), 2, {"updatedNumberScheduled": 2}),
    "a pod more": (_rolling(maxSurge=1, maxUnavailable=0), 3, {"numberAvailable": 2}),
    "a percentage of pods more": (_rolling(maxSurge="51%", maxUnavailable=0), 4, {"numberAvailable": 2}),
}
for _title, (_strategy, _pods, _counts) in _STUCK.items():

    async def _stuck(
        place: Place, strategy: JsonObject = _strategy, pods: int = _pods, counts: dict[str, int] = _counts
    ) -> Any:
        stage = DaemonStage(place)
        await stage.create(updateStrategy=strategy)
        await stage.ready(2)
        await anyio.sleep(1.1)  # of two pods of one second it is by chance which counts as the older one
        await stage.change(**version(2, **_NEVER_READY))
        await stage.shows(pods, **counts)
        stuck = _anywhere(await stage.outcome())
        await stage.change(template={"metadata": {"annotations": {"multikueue.io/never-ready": None}}})
        await stage.ready(2)
        return [stuck, await stage.outcome()]

    case(f"a rollout of a DaemonSet gets stuck with {_title}, and goes on when mended", DAEMON_CASES)(_stuck)


@case("a rollout of a DaemonSet begins where old pods are not available", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create(template=template(**GATED))
    await stage.shows(2, currentNumberScheduled=2)
    await stage.ungate(_one(await stage.pods(), _NAMED[0]))
    await stage.shows(2, numberAvailable=1)
    changed = version(2, **_NEVER_READY)
    changed["template"]["spec"] = {"schedulingGates": None}
    await stage.change(**changed)
    await stage.until("replaced", lambda status, _: status.get("updatedNumberScheduled", 0) >= 1)
    return await stage.outcome()


@case("old pods of a DaemonSet of which none is available are all replaced at once", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create(template=template(**GATED))
    await stage.shows(2, currentNumberScheduled=2)
    await stage.change(**version(2))
    await stage.shows(2, updatedNumberScheduled=2)
    return await stage.outcome()


@case("a surge of a DaemonSet begins where old pods are not available", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create(template=template(**GATED), updateStrategy=_rolling(maxSurge=1, maxUnavailable=0))
    await stage.shows(2, currentNumberScheduled=2)
    await stage.ungate(_one(await stage.pods(), _NAMED[0]))
    await stage.shows(2, numberAvailable=1)
    await stage.change(**version(2, **_NEVER_READY))
    await stage.until("surged", lambda status, pods: _versions(pods) != {"1": 2})
    return await stage.outcome()


def _versions(pods: list[JsonObject]) -> dict[str, int]:
    return Counter(pod["metadata"]["labels"]["pod-template-generation"] for pod in pods)


@case("a DaemonSet updates a pod only when it is deleted, if so asked", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create(updateStrategy={"type": "OnDelete"})
    await stage.ready(2)
    await stage.change(**version(2))
    await stage.shows(2, updatedNumberScheduled=0)
    before = await stage.outcome()
    pod = _one(await stage.pods(), _NAMED[0])
    await place.client.delete(PODS, pod["metadata"]["name"], namespace=place.namespace)
    await stage.shows(2, updatedNumberScheduled=1, numberAvailable=2)
    return [before, await stage.outcome()]


@case("pods of a DaemonSet are not available before they were ready for a while", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create(minReadySeconds=3600)
    await stage.shows(2, numberReady=2)
    long = await stage.outcome()
    await stage.change(minReadySeconds=1)
    await stage.ready(2)
    return [long, await stage.outcome()]


@case("a DaemonSet makes pods again that ended", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create(template=template(**GATED))
    await stage.shows(2, currentNumberScheduled=2)
    for _ in range(2):
        pod = _one(await stage.pods(), _NAMED[0])
        await stage.end(pod, "Failed")
        await stage.replaced(pod, pods=2)
    pod = _one(await stage.pods(), _NAMED[1])
    await stage.end(pod, "Succeeded")
    await stage.replaced(pod, pods=2)
    await stage.shows(2, currentNumberScheduled=2)
    notes = [await stage.notes("DaemonSet", f"{what}DaemonPod") for what in ("Failed", "Succeeded")]
    return [await stage.outcome(), notes]


@case(
    "a DaemonSet releases a pod that it no longer selects, and pods that it left belong to the next one", DAEMON_CASES
)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create()
    await stage.ready(2)
    pod = _one(await stage.pods(), _NAMED[0])
    body = {"metadata": {"labels": {"app": "other"}}}
    await place.client.patch(PODS, pod["metadata"]["name"], body, namespace=place.namespace)
    await stage.shows(3, numberAvailable=2)
    released = await stage.outcome()
    before = {each["metadata"]["uid"] for each in await stage.pods()}
    await place.client.delete(DAEMON_SETS, NAME, namespace=place.namespace, propagation="Orphan")
    await place.gone(DAEMON_SETS, NAME)
    owners = [each["metadata"].get("ownerReferences", "none") for each in await stage.pods()]
    await stage.create()
    await stage.shows(3, numberAvailable=2)
    same = before == {each["metadata"]["uid"] for each in await stage.pods()}
    return [released, owners, same, await stage.outcome()]


@case("a DaemonSet adopts pods by node, deletes the younger of two, and ignores one without a node", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [_NAMED[0]]}]}]
    wanted = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    specs: dict[str, JsonObject] = {
        "bound": {"nodeName": _NAMED[0]},
        "named": {**GATED, "affinity": wanted},
        "free": dict(GATED),
    }
    for name, more in specs.items():
        spec = {**template()["spec"], **more}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": LABELS}, "spec": spec}
        await place.client.create(PODS, pod, namespace=place.namespace)
    await stage.create(updateStrategy={"type": "OnDelete"})
    await stage.shows(3, desiredNumberScheduled=2, numberAvailable=2, updatedNumberScheduled=1)
    owned = [[each["metadata"]["name"], (controller_of(each) or {}).get("kind")] for each in await stage.pods()]
    return [await stage.plain(owned), await stage.outcome()]


@case("a DaemonSet whose pods are refused tries again", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}, "spec": {"hard": {"pods": 1}}}
    await place.client.create(RESOURCE_QUOTAS, quota, namespace=place.namespace)

    async def counted() -> bool:
        return "used" in ((await place.look(RESOURCE_QUOTAS, "quota") or {}).get("status") or {})

    await place.until(counted, "counted")
    await stage.create()
    await stage.shows(1, desiredNumberScheduled=2, numberAvailable=1)
    notes = await stage.notes("DaemonSet", "FailedCreate")
    await place.client.delete(RESOURCE_QUOTAS, "quota", namespace=place.namespace)
    await stage.ready(2)
    return notes


async def _revision(stage: DaemonStage, name: str, data: JsonObject, **labels: str) -> None:
    """Create a revision without an owner."""
    kind = {"apiVersion": CONTROLLER_REVISIONS.api_version, "kind": CONTROLLER_REVISIONS.kind}
    body = {**kind, "metadata": {"name": name, "labels": labels}, "data": data, "revision": 5}
    await stage.client.create(CONTROLLER_REVISIONS, body, namespace=stage.place.namespace)


@case("a DaemonSet adopts a newer revision of its template, and its pods name that one", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create()
    await stage.ready(2)
    before = {each["metadata"]["uid"] for each in await stage.pods()}
    own = (await stage.listed(CONTROLLER_REVISIONS))[0]
    await _revision(stage, "copy", own["data"], **LABELS)
    await place.gone(CONTROLLER_REVISIONS, own["metadata"]["name"])
    await stage.until("relabelled", lambda _, pods: all(_labels(pod).get(_HASH) == "copy" for pod in pods))
    kept = await place.look(CONTROLLER_REVISIONS, "copy") or {"metadata": {}}
    owner = (controller_of(kept) or {}).get("kind")
    same = before == {each["metadata"]["uid"] for each in await stage.pods()}
    return [await stage.outcome(), _labels(kept), owner, same]


@case("a DaemonSet takes another name for its revision if the first is taken", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create()
    await stage.ready(2)
    name = (await stage.listed(CONTROLLER_REVISIONS))[0]["metadata"]["name"]
    await place.client.delete(DAEMON_SETS, NAME, namespace=place.namespace, propagation="Foreground")
    await place.gone(DAEMON_SETS, NAME)
    await place.gone(CONTROLLER_REVISIONS, name)
    await _revision(stage, name, {"of": "another"})
    await stage.create()
    await stage.ready(2)
    return await stage.outcome()


@case("a DaemonSet keeps as many old revisions as its history limit", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create(revisionHistoryLimit=1)
    await stage.ready(2)
    for number in (2, 3):
        await stage.change(**version(number))
        await stage.ready(2)

    async def two() -> bool:
        return sorted(each["revision"] for each in await stage.listed(CONTROLLER_REVISIONS)) == [2, 3]

    await place.until(two, "left with two revisions")
    return await stage.outcome()


@case("a DaemonSet goes with its pods and revisions", DAEMON_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    for propagation in ("Foreground", "Background"):
        await stage.create()
        await stage.ready(2)
        await place.client.delete(DAEMON_SETS, NAME, namespace=place.namespace, propagation=propagation)

        async def empty() -> bool:
            return not await stage.pods() and not await stage.listed(CONTROLLER_REVISIONS)

        await place.gone(DAEMON_SETS, NAME)
        await place.until(empty, "empty")
