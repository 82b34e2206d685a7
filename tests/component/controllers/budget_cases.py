# SPDX-License-Identifier: Apache-2.0
"""What a cluster does with PodDisruptionBudgets: their counts, evictions, and pods that stay after one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import anyio
import orjson

from devcluster.resources import DEPLOYMENTS, DISRUPTION_BUDGETS, REPLICA_SETS, STATEFUL_SETS
from multikueue.api.objects import JsonObject
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, JOBS, PODS, Resource
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.kube.errors import ApiError
from multikueue.kube.rest.client import PatchKind
from tests.component.controllers.app_stage import LABELS, AppStage, template
from tests.component.controllers.cluster_cases import Case, Place, case

BUDGET_CASES: Final[list[Case]] = []
_NAME: Final = "budget"
_NEVER_READY: Final = {"multikueue.io/never-ready": "true"}
_NO_UIDS: Final = ("11111111-2222-4333-8444-555555555555", "66666666-7777-4888-8999-000000000000")


class BudgetStage(AppStage):
    """A budget of the pods with the label app."""

    def __init__(self, place: Place, resource: Resource = DEPLOYMENTS) -> None:
        super().__init__(place, resource)

    async def budget(self, name: str = _NAME, **spec: Any) -> None:
        """Create it."""
        made = {"selector": {"matchLabels": LABELS}, **spec}
        body = {
            "apiVersion": DISRUPTION_BUDGETS.api_version,
            "kind": DISRUPTION_BUDGETS.kind,
            "metadata": {"name": name},
            "spec": {key: value for key, value in made.items() if value is not None},
        }
        await self.client.create(DISRUPTION_BUDGETS, body, namespace=self.place.namespace)

    async def seen(
        self, name: str = _NAME, *, reason: str = "", disrupted: int | None = None, **counts: int
    ) -> JsonObject:
        """The status of the budget once it has these counts, that reason and so many evicted pods."""
        found: JsonObject = {}

        async def check() -> bool:
            budget = await self.place.look(DISRUPTION_BUDGETS, name) or {"metadata": {}}
            status = budget.get("status") or {}
            found.clear()
            found.update(status)
            reasons = [each["reason"] for each in status.get("conditions") or ()]
            current = status.get("observedGeneration") == budget["metadata"].get("generation")
            wanted = (current and not reason) or (bool(reason) and reasons == [reason])
            settled = disrupted is None or len(status.get("disruptedPods") or ()) == disrupted
            return wanted and settled and all(status.get(key, 0) == count for key, count in counts.items())

        try:
            await self.place.until(check, f"{name} counted {counts} {reason}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {found}") from None
        if "disruptedPods" in found:
            found["disruptedPods"] = len(found["disruptedPods"])
        shown: JsonObject = await self.plain(found)
        return shown

    async def pod(self, name: str, *, owner: JsonObject | None = None, **metadata: Any) -> None:
        """Create a pod with the label, which runs for ever."""
        made = {"name": name, "labels": LABELS, **template()["metadata"], **metadata}
        if owner is not None:
            made["ownerReferences"] = [{"controller": True, **owner}]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template()["spec"]}
        await self.client.create(PODS, body, namespace=self.place.namespace)

    async def evict(self, name: str, **options: Any) -> Any:
        """Evict a pod; what the server says."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name},
            "deleteOptions": options,
        }
        try:
            await self.client.request("POST", PODS.path(self.place.namespace, name, "eviction"), body=body)
        except ApiError as error:
            return [error.status, error.reason, error.message, [cause.message for cause in error.details.causes]]
        return "evicted"

    async def set_status(self, resource: Resource, name: str, status: JsonObject) -> None:
        """Write a part of the status."""
        kind = PatchKind.STRATEGIC if resource is PODS else PatchKind.MERGE
        await self.client.patch(
            resource, name, {"status": status}, namespace=self.place.namespace, kind=kind, subresource="status"
        )


def _ago(**since: int) -> str:
    return format_time(SystemClock().now() - timedelta(**since))


@case("a budget of a percentage counts the pods of a Deployment, and a dry run uses none up", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    await stage.create(replicas=3)
    await stage.ready(3)
    await stage.budget(minAvailable="50%")
    first = await stage.seen(expectedPods=3, currentHealthy=3)
    dry = [await stage.evict(pod["metadata"]["name"], dryRun=["All"]) for pod in await stage.pods()]
    unchanged = await stage.seen(disruptionsAllowed=1)
    return [first, dry, unchanged]


@case("a budget is used up by an eviction until another pod is ready", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place, STATEFUL_SETS)
    # Each controller needs a moment to see a pod that is being deleted, before there is another of its name.
    made = template(terminationGracePeriodSeconds=5)
    await stage.create(replicas=3, podManagementPolicy="Parallel", updateStrategy={"type": "OnDelete"}, template=made)
    await stage.ready(3)
    await stage.budget(maxUnavailable=1)
    first = await stage.seen(disruptionsAllowed=1)
    # The next pods are never ready.
    await stage.change(template={"metadata": {"annotations": _NEVER_READY}})
    answers = [await stage.evict("web-0")]

    async def replaced() -> bool:
        pod = await place.look(PODS, "web-0") or {"metadata": {}}
        return "multikueue.io/never-ready" in (pod["metadata"].get("annotations") or {})

    await place.until(replaced, "replaced web-0")
    used = await stage.seen(disruptionsAllowed=0, currentHealthy=2, disrupted=0)
    answers.append(await stage.evict("web-1"))
    await stage.change(template={"metadata": {"annotations": {"multikueue.io/never-ready": None}}})
    await place.client.delete(PODS, "web-0", namespace=place.namespace)
    return [first, answers, used, await stage.seen(disruptionsAllowed=1)]


_UNAVAILABLE: Final[dict[str, JsonObject]] = {
    "a third": {"maxUnavailable": "30%"},
    "all": {"maxUnavailable": "100%"},
    "more than all": {"maxUnavailable": 9},
    "none": {"maxUnavailable": 0},
}
for _title, _spec in _UNAVAILABLE.items():

    @case(f"a budget of {_title} of a ReplicaSet unavailable", BUDGET_CASES)
    async def _(place: Place, spec: JsonObject = _spec) -> Any:
        stage = BudgetStage(place, REPLICA_SETS)
        await stage.budget(**spec)
        await stage.create(replicas=4)
        await stage.ready(4)
        return await stage.seen(expectedPods=4, currentHealthy=4)


_AVAILABLE: Final[dict[str, JsonObject]] = {
    "two": {"minAvailable": 2},
    "half": {"minAvailable": "50%"},
    "more than there are": {"minAvailable": 5},
    "any": {"minAvailable": 0},
}
for _title, _spec in _AVAILABLE.items():

    @case(f"a budget of {_title} of pods without a controller", BUDGET_CASES)
    async def _(place: Place, spec: JsonObject = _spec) -> Any:
        stage = BudgetStage(place)
        for name in ("a", "b", "c"):
            await stage.pod(name)
        await stage.budget(**spec)
        status = await stage.seen(currentHealthy=3)
        return [status, await stage.evict("a", dryRun=["All"])]


@case("a budget without a number allows nothing", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    await stage.pod("a")
    await stage.budget()
    return await stage.seen(currentHealthy=1)


@case("a budget counts pods that have ended and those that are not ready", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    await stage.pod("runs")
    await stage.pod("ends", annotations={"multikueue.io/run-for": "100ms"})
    await stage.pod("unready", annotations=_NEVER_READY)
    await place.until(lambda: _phase(place, "unready", "Running"), "runs")
    await stage.budget(minAvailable=1)
    return await stage.seen(currentHealthy=1)


async def _phase(place: Place, name: str, phase: str) -> bool:
    return ((await place.look(PODS, name) or {}).get("status") or {}).get("phase") == phase


@case("a budget of no pods says so", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    await stage.pod("a")
    await stage.budget("others", selector={"matchLabels": {"app": "other"}}, minAvailable=1)
    await stage.budget("none", selector=None, maxUnavailable=1)
    await stage.budget("all", selector={}, minAvailable=1)
    found = [await stage.seen("others"), await stage.seen("none"), await stage.seen("all", currentHealthy=1)]
    return [found, await stage.notes("PodDisruptionBudget", "NoPods")]


@case("a budget of a Job's pods is counted by pods only", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    made = template(restartPolicy="Never")
    spec = {"parallelism": 2, "completions": 2, "template": made}
    made["metadata"]["annotations"] = {"multikueue.io/run-for": "forever"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}
    await place.client.create(JOBS, job, namespace=place.namespace)

    async def ready() -> bool:
        status = (await place.look(JOBS, "job") or {}).get("status") or {}
        return status.get("ready") == 2

    await place.until(ready, "ran the Job")
    await stage.budget("share", maxUnavailable=1)
    failed = await stage.seen("share", reason="SyncFailed")
    notes = await stage.notes("PodDisruptionBudget", "CalculateExpectedPodCountFailed")
    pod = (await stage.pods())[0]["metadata"]["name"]
    refused = await stage.evict(pod)
    await place.client.delete(DISRUPTION_BUDGETS, "share", namespace=place.namespace)
    await stage.budget("number", minAvailable=1)
    return [failed, notes, refused, await stage.seen("number", currentHealthy=2)]


@case("a budget of pods of unknown controllers fails", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    unknown = {"apiVersion": "example.com/v1", "kind": "Nothing", "name": "x", "uid": _NO_UIDS[0]}
    await stage.pod("of-no-kind", owner=unknown)
    await place.until(lambda: _phase(place, "of-no-kind", "Running"), "running")
    await stage.budget(maxUnavailable=1)
    return [
        await stage.seen(reason="SyncFailed"),
        await stage.notes("PodDisruptionBudget", "CalculateExpectedPodCountFailed"),
    ]


@case("a budget of pods whose controller is gone fails", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    gone = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": _NO_UIDS[1]}
    await stage.pod("left", owner=gone, finalizers=["example.com/held"])

    async def collected() -> bool:
        return "deletionTimestamp" in (await place.look(PODS, "left") or {"metadata": {}})["metadata"]

    await place.until(collected, "told the pod to go")
    await stage.budget(maxUnavailable=1)
    found = [
        await stage.seen(reason="SyncFailed"),
        await stage.notes("PodDisruptionBudget", "CalculateExpectedPodCountFailed"),
    ]
    await place.client.patch(PODS, "left", {"metadata": {"finalizers": None}}, namespace=place.namespace)
    return found


async def _custom(place: Place, kind: str, *, scale: bool) -> JsonObject:
    """Define a kind with or without the subresource scale; a reference to an object of it that wants five pods."""
    group = f"{place.namespace}.example.com"
    plural = f"{kind.lower()}s"
    preserved = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: JsonObject = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": preserved, "status": preserved}}},
    }
    if scale:
        paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        version["subresources"] = {"scale": paths}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [version],
        },
    }
    await place.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    resource = Resource(group, "v1", kind, plural)
    made: list[JsonObject] = []

    async def created() -> bool:
        body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "x"}, "spec": {"replicas": 5}}
        try:
            made.append(orjson.loads(await place.client.create(resource, body, namespace=place.namespace)))
        except ApiError:
            return False
        return True

    await place.until(created, f"with a {kind}")
    return {"apiVersion": f"{group}/v1", "kind": kind, "name": "x", "uid": made[0]["metadata"]["uid"]}


async def _known(stage: BudgetStage) -> None:
    """Wait until the controller knows the kind: a real one learns it within half a minute, and does not ask again."""
    number = 0

    async def check() -> bool:
        nonlocal number
        number += 1
        change = {"metadata": {"annotations": {"example.com/try": str(number)}}}
        await stage.client.patch(DISRUPTION_BUDGETS, _NAME, change, namespace=stage.place.namespace)
        await anyio.sleep(0.5)
        budget = await stage.place.look(DISRUPTION_BUDGETS, _NAME) or {}
        conditions = (budget.get("status") or {}).get("conditions") or [{"message": "no matches"}]
        return not conditions[0]["message"].startswith("no matches")

    await stage.place.until(check, "knew the kind")


@case("a budget of pods of a custom resource goes by its scale", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    owner = await _custom(place, "Gang", scale=True)
    for name in ("a", "b", "c", "d"):
        await stage.pod(name, owner=owner)
    await stage.budget(minAvailable="50%")
    await _known(stage)
    return await stage.seen(expectedPods=5, currentHealthy=4)


@case("a budget of pods of a custom resource without a scale fails", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    owner = await _custom(place, "Lump", scale=False)
    await stage.pod("a", owner=owner)
    await stage.budget(minAvailable="50%")
    await _known(stage)
    return await stage.seen(reason="SyncFailed")


@case("a budget is counted again when it or its pods change", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    await stage.create(replicas=2)
    await stage.budget(maxUnavailable="50%")
    first = await stage.seen(expectedPods=2, currentHealthy=2)
    await stage.scale(4)
    second = await stage.seen(expectedPods=4, currentHealthy=4)
    change = {"spec": {"maxUnavailable": None, "minAvailable": 3}}
    await place.client.patch(DISRUPTION_BUDGETS, _NAME, change, namespace=place.namespace)
    third = await stage.seen(desiredHealthy=3)
    await stage.scale(1)
    return [first, second, third, await stage.seen(expectedPods=1, currentHealthy=1)]


@case("an evicted pod that stays counts again after two minutes", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    for name in ("a", "b", "c"):
        await stage.pod(name)
    await stage.budget(minAvailable=1)
    await stage.seen(currentHealthy=3)
    noted: JsonObject = {"a": _ago(seconds=1), "gone": _ago(seconds=1)}
    await stage.set_status(DISRUPTION_BUDGETS, _NAME, {"disruptedPods": noted})
    early = await stage.seen(currentHealthy=2, disrupted=1)
    noted = {"a": _ago(seconds=300), "b": _ago(seconds=118), "gone": None}
    await stage.set_status(DISRUPTION_BUDGETS, _NAME, {"disruptedPods": noted})
    late = await stage.seen(currentHealthy=3, disrupted=0)
    return [early, late, await stage.notes("Pod", "NotDeleted")]


@case("a pod that was to be evicted and stays is told so after two minutes", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    reasons = {"a": "EvictionByEvictionAPI", "kubelet": "TerminationByKubelet", "soon": "PreemptionByScheduler"}
    for name, reason in reasons.items():
        await stage.pod(name)
        await place.until(lambda name=name: _phase(place, name, "Running"), "running")  # type: ignore[misc]
        since = _ago(seconds=118 if name == "soon" else 600)
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": since}
        await stage.set_status(PODS, name, {"conditions": [condition]})

    async def target(name: str) -> JsonObject:
        found = ((await place.look(PODS, name) or {}).get("status") or {}).get("conditions") or ()
        return next((each for each in found if each["type"] == "DisruptionTarget"), {})

    async def cleaned() -> bool:
        return (await target("a")).get("status") == (await target("soon")).get("status") == "False"

    await place.until(cleaned, "cleaned the conditions")
    return await stage.plain([await target(name) for name in reasons])


@case("a pod of two budgets is not evicted", BUDGET_CASES)
async def _(place: Place) -> Any:
    stage = BudgetStage(place)
    await stage.budget("one", minAvailable=0)
    await stage.budget("two", minAvailable=0)
    found = [await stage.seen("one"), await stage.seen("two")]
    await stage.pod("a")
    await place.until(lambda: _phase(place, "a", "Running"), "running")
    answer = await stage.evict("a")
    notes = await stage.notes("Pod", "MultiplePodDisruptionBudgets")
    return [found, answer, sorted({note.partition("Chose")[0] for note in notes})]
