# SPDX-License-Identifier: Apache-2.0
"""The pods of jobs that have one Workload for all of them, and why one of those may not be started.

A pod names its owner itself, so whoever may create pods can make one in the name of a job. Its requests are compared
with the pod template that quota is reserved for, both with the LimitRanges of the namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from manager.cache.caches import CONTROLLER_INDEX, Caches
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import LIMIT_RANGES, PODS, RUNTIME_CLASSES, Resource
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.engine.decode import objects
from multikueue.engine.decode.pods import Shapes
from multikueue.engine.pod_requests import adjust, pod_request
from multikueue.engine.values import LimitRange, RuntimeClass
from multikueue.jobs.framework.capabilities import HeldPod, PodHoldingKind
from multikueue.jobs.kinds import pod_group

_ZERO: Final = Quantity.parse("0")


class HeldPods:
    """Finds them in the caches."""

    def __init__(self, caches: Caches) -> None:
        self._pods = caches.view(PODS)
        self._ranges = caches.view(LIMIT_RANGES)
        self._classes = caches.view(RUNTIME_CLASSES)
        self._shapes = Shapes()

    def added_to(self, job: JsonObject, kind: PodHoldingKind) -> JsonObject:
        """The job with its pods."""
        metadata = job["metadata"]
        found = self._of(metadata["uid"], metadata["namespace"])
        if not found:
            return kind.with_pods(job, ())
        ranges, classes = self._limits(metadata["namespace"])
        held = []
        for pod in found:
            try:
                wanted = self._requests(kind.pod_template(job, pod).get("spec") or {}, ranges, classes)
                problem = self._problem(pod, wanted, ranges, classes)
            except BadInput as error:
                problem = str(error)
            held.append(HeldPod(pod=pod, problem=problem))
        return kind.with_pods(job, held)

    def still_run(self, uid: str, namespace: str) -> bool:
        """Whether a pod of the job with that uid, which may be gone, runs or terminates."""
        return any(pod_group.is_active(pod) for pod in self._of(uid, namespace))

    def _of(self, uid: str, namespace: str) -> list[JsonObject]:
        found = [
            pod
            for pod in self._pods.objects(CONTROLLER_INDEX, uid)
            if pod["metadata"]["namespace"] == namespace and (controller_of(pod) or {}).get("uid") == uid
        ]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def _limits(self, namespace: str) -> tuple[tuple[LimitRange, ...], Mapping[str, RuntimeClass]]:
        ranges = [each for each in self._ranges.objects() if each["metadata"]["namespace"] == namespace]
        ranges.sort(key=lambda each: str(each["metadata"]["name"]))
        classes = (objects.runtime_class(each) for each in self._classes.objects())
        return tuple(map(objects.limit_range, ranges)), {each.name: each for each in classes}

    def _requests(
        self, spec: JsonObject, ranges: tuple[LimitRange, ...], classes: Mapping[str, RuntimeClass]
    ) -> Mapping[str, Quantity]:
        return pod_request(adjust(self._shapes.of(spec), classes, ranges))

    def _problem(
        self,
        pod: JsonObject,
        wanted: Mapping[str, Quantity],
        ranges: tuple[LimitRange, ...],
        classes: Mapping[str, RuntimeClass],
    ) -> str:
        """Why the pod may not be started; empty if it may. Raises `BadInput`."""
        found = self._requests(pod.get("spec") or {}, ranges, classes)
        above = [name for name in sorted(found) if found[name] > wanted.get(name, _ZERO)]
        if not above:
            return ""
        shown = ", ".join(f"{name} {found[name]} instead of {wanted.get(name, _ZERO)}" for name in above)
        return f"it requests more than the pod template, which quota is reserved for: {shown}"


def owner_key(pod: JsonObject, resource: Resource) -> Key | None:
    """The owner of that kind which controls a pod; None without one."""
    owner = controller_of(pod)
    if owner is None or owner.get("kind") != resource.kind:
        return None
    if str(owner.get("apiVersion", "")).rpartition("/")[0] != resource.group:
        return None
    return Key(pod["metadata"]["namespace"], str(owner.get("name")))
