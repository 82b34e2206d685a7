# SPDX-License-Identifier: Apache-2.0
"""A Deployment, ReplicaSet, StatefulSet or DaemonSet named web in a namespace of its own, and what is to be seen of it.

Names that differ from run to run are replaced: ReplicaSets and ControllerRevisions by their revision, pods by an x.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from devcluster.resources import CONTROLLER_REVISIONS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import EVENTS, PODS, Resource
from multikueue.kube.rest.client import PatchKind
from tests.component.controllers.cluster_cases import Place

NAME: Final = "web"
BY_HAND: Final = {"nodeSelector": {"no": "where"}}
"""Pods that fit no node, so that the test ends them."""
GATED: Final[JsonObject] = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
LABELS: Final = {"app": NAME}
_TIMES: Final = ("lastTransitionTime", "lastUpdateTime", "creationTimestamp")
_COMBINED: Final = "(combined from similar events): "  # added to the eleventh of many similar events
_REST: Final = 5  # equal reads
_REVISION: Final = "deployment.kubernetes.io/revision"
_RANDOM: Final = re.compile(rf"\b({NAME}(?:#\d+)?)-[bcdfghjklmnpqrstvwxz2456789]{{5}}\b")


def template(*, annotations: JsonObject | None = None, **pod: Any) -> JsonObject:
    """A pod template; pods run for ever on virtual nodes unless `pod` says otherwise."""
    containers = [{"name": "main", "image": "x"}]
    metadata = {"labels": dict(LABELS), "annotations": annotations or {"example.com/version": "1"}}
    return {"metadata": metadata, "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **pod}}


def version(number: int, **annotations: str) -> JsonObject:
    """A change of the template."""
    changed = {"example.com/version": str(number), **annotations}
    return {"template": {"metadata": {"annotations": changed}}}


class AppStage:
    """One object of a kind with replicas."""

    def __init__(self, place: Place, resource: Resource) -> None:
        self.place = place
        self.client = place.client
        self.resource = resource

    async def create(self, *, name: str = NAME, **spec: Any) -> None:
        """Create it; the template has one container and the label app."""
        more = {"serviceName": NAME} if self.resource is STATEFUL_SETS else {}
        body = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": LABELS}, "template": template(), **more, **spec},
        }
        await self.client.create(self.resource, body, namespace=self.place.namespace)

    async def change(self, **spec: Any) -> None:
        """Change its spec by a merge patch."""
        await self.client.patch(self.resource, NAME, {"spec": spec}, namespace=self.place.namespace)

    async def scale(self, replicas: int) -> None:
        """Scale through the subresource."""
        body = {"spec": {"replicas": replicas}}
        await self.client.patch(self.resource, NAME, body, namespace=self.place.namespace, subresource="scale")

    async def listed(self, resource: Resource) -> list[JsonObject]:
        """All objects of a kind in the namespace, by name."""
        found = (await self.client.request("GET", resource.path(self.place.namespace))).json()["items"]
        return sorted(found, key=lambda each: each["metadata"]["name"])

    async def pods(self) -> list[JsonObject]:
        """All pods by name."""
        return await self.listed(PODS)

    async def status(self) -> JsonObject:
        """The status of the object."""
        found = await self.place.look(self.resource, NAME)
        return (found or {}).get("status") or {}

    async def until(self, what: str, holds: Callable[[JsonObject, list[JsonObject]], bool]) -> None:
        """Wait until the status and the pods are so, and the status is that of the current spec."""
        seen: list[Any] = []

        async def check() -> bool:
            found = await self.place.look(self.resource, NAME) or {"metadata": {}}
            status, pods = found.get("status") or {}, await self.pods()
            seen[:] = [status, [[p["metadata"]["name"], p["status"].get("phase")] for p in pods]]
            current = status.get("observedGeneration", 0) == found["metadata"].get("generation")
            return current and holds(status, pods)

        try:
            await self.place.until(check, what)
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen}") from None

    async def counted(self, **counts: int) -> None:
        """Wait until the status has these counts, and as many pods exist as it counts."""
        await self.until(
            f"counted {counts}",
            lambda status, pods: (
                all(status.get(name, 0) == count for name, count in counts.items())
                and len(pods) == status.get("replicas", 0)
            ),
        )

    async def ready(self, count: int) -> None:
        """Wait until so many pods are ready, available and of the current template, and none else exists."""
        names = ["replicas", "readyReplicas", "availableReplicas"]
        if self.resource is not REPLICA_SETS:
            names.append("updatedReplicas")
        await self.counted(**dict.fromkeys(names, count))
        if self.resource is DEPLOYMENTS:
            await self.condition("Progressing", "NewReplicaSetAvailable")

    async def condition(self, type_: str, reason: str | None) -> None:
        """Wait until a condition has this reason; None for no condition of the type."""

        def holds(status: JsonObject, _: list[JsonObject]) -> bool:
            reasons = [each["reason"] for each in status.get("conditions") or () if each["type"] == type_]
            return reasons == ([] if reason is None else [reason])

        await self.until(f"{type_} {reason}", holds)

    async def sizes(self, *sizes: int) -> None:
        """Wait until the ReplicaSets have these sizes, by revision, and as many pods."""

        async def check() -> bool:
            sets = await self.sets()
            wanted = [each["spec"]["replicas"] for each in sets] == list(sizes)
            return wanted and all((each["status"].get("replicas", 0)) == each["spec"]["replicas"] for each in sets)

        await self.place.until(check, f"sized {sizes}")

    async def sets(self) -> list[JsonObject]:
        """The ReplicaSets by revision."""
        found = await self.listed(REPLICA_SETS)
        return sorted(found, key=lambda each: int((each["metadata"].get("annotations") or {}).get(_REVISION, 0)))

    async def fail(self, pod: JsonObject) -> None:
        """End a pod with a failure."""
        await self.client.patch(
            PODS,
            pod["metadata"]["name"],
            {"status": {"phase": "Failed"}},
            namespace=self.place.namespace,
            kind=PatchKind.STRATEGIC,
            subresource="status",
        )

    async def notes(self, kind: str, reason: str, *, count: int = 1) -> list[str]:
        """Wait for events with a reason about objects of a kind; their different messages."""
        found: list[str] = []

        async def check() -> bool:
            events = await self.listed(EVENTS)
            about = [each for each in events if each["regarding"]["kind"] == kind and each["reason"] == reason]
            notes = [each.get("note", "").removeprefix(_COMBINED) for each in about]
            plain = await self.plain([f"{each['type']}: {note}" for each, note in zip(about, notes, strict=True)])
            found[:] = sorted(set(plain))
            return len(found) >= count

        await self.place.until(check, f"event {reason} of {kind}")
        return found

    async def outcome(self) -> Any:
        """What is to be seen once nothing changes: objects are read one by one, and statuses follow their pods."""
        seen: list[Any] = []

        async def rests() -> bool:
            seen.append(await self._seen())
            return len(seen) > _REST and all(each == seen[-1] for each in seen[-_REST:])

        await self.place.until(rests, "at rest")
        return seen[-1]

    async def _seen(self) -> Any:
        """The status of the object, its ReplicaSets or revisions, and its pods."""
        seen: dict[str, Any] = {"status": await self.status()}
        if self.resource is DEPLOYMENTS:
            found = await self.place.look(DEPLOYMENTS, NAME) or {"metadata": {}}
            seen["annotations"] = found["metadata"].get("annotations") or {}
            seen["sets"] = [
                {
                    "name": each["metadata"]["name"],
                    "annotations": each["metadata"].get("annotations") or {},
                    "labels": sorted(each["metadata"].get("labels") or {}),
                    "selector": sorted(each["spec"]["selector"]["matchLabels"]),
                    "replicas": each["spec"]["replicas"],
                    "owner": (controller_of(each) or {}).get("kind"),
                    "status": {key: value for key, value in each["status"].items() if key != "observedGeneration"},
                }
                for each in await self.sets()
            ]
        if self.resource is STATEFUL_SETS:
            seen["revisions"] = sorted(each["revision"] for each in await self.listed(CONTROLLER_REVISIONS))
            seen["pods"] = [
                {
                    "name": pod["metadata"]["name"],
                    "labels": pod["metadata"].get("labels"),
                    "hostname": pod["spec"].get("hostname"),
                    "subdomain": pod["spec"].get("subdomain"),
                    "phase": pod["status"]["phase"],
                }
                for pod in await self.pods()
            ]
        else:
            seen["pods"] = dict(Counter(pod["status"]["phase"] for pod in await self.pods()))
        return await self.plain(seen)

    async def plain(self, value: Any) -> Any:
        """With names and times that are the same in each run."""
        names = {
            each["metadata"]["name"]: each["metadata"]["annotations"][_REVISION]
            for each in await self.sets()
            if _REVISION in (each["metadata"].get("annotations") or {})
        }
        names |= {each["metadata"]["name"]: str(each["revision"]) for each in await self.listed(CONTROLLER_REVISIONS)}
        return _plain(value, {name: f"{NAME}#{number}" for name, number in names.items()}, self.place.namespace)


def _plain(value: Any, names: dict[str, str], namespace: str) -> Any:
    if isinstance(value, dict):
        return {key: "time" if key in _TIMES else _plain(entry, names, namespace) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry, names, namespace) for entry in value]
    if isinstance(value, str):
        for name, shown in names.items():
            value = value.replace(name, shown)
        return _RANDOM.sub(r"\1-x", value.replace(namespace, "ns"))
    return value
