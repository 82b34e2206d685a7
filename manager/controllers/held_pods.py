# SPDX-License-Identifier: Apache-2.0
"""The pods of jobs that have one Workload for all of them, and why one of those may not be started.

A pod names its owner itself, so whoever may create pods can make one in the name of a job. Its requests are compared
with the pod template that quota is reserved for, both with the LimitRanges of the namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from manager.cache.caches import Caches
from manager.cache.indexes import CONTROLLER_INDEX, NAMED_OWNER_INDEX, named_term
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import LIMIT_RANGES, PODS, RUNTIME_CLASSES
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.engine.decode import objects
from multikueue.engine.decode.pods import Shapes
from multikueue.engine.pod_requests import adjust, pod_request
from multikueue.engine.values import LimitRange, RuntimeClass
from multikueue.jobs.framework.capabilities import HeldPod, PodHoldingKind, ReplicatedKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.templated_queue import named_by
from multikueue.jobs.kinds import pod_group
from multikueue.jobs.kinds.oversized_pods import with_claims

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
        key = Key(metadata["namespace"], str(metadata["name"]))
        index = kind.replica_of(job) if isinstance(kind, ReplicatedKind) else 0
        found = self._of(key, kind, uids=(metadata["uid"],), index=index)
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

    def running(self, key: Key, kind: PodHoldingKind, *, uids: Iterable[str], index: int = 0) -> list[JsonObject]:
        """The pods of a job with one of these uids, which may be gone, that run or terminate; of a replicated one
        those of that replica."""
        return [pod for pod in self._of(key, kind, uids=uids, index=index) if pod_group.is_active(pod)]

    def _of(self, key: Key, kind: PodHoldingKind, *, uids: Iterable[str], index: int) -> list[JsonObject]:
        uids = frozenset(uids)
        found: dict[str, JsonObject] = {}
        for uid in uids:
            for pod in self._pods.objects(CONTROLLER_INDEX, uid):
                found[pod["metadata"]["uid"]] = pod
        if kind.traits.pod_label:
            for pod in self._pods.objects(NAMED_OWNER_INDEX, named_term(kind, key)):
                found[pod["metadata"]["uid"]] = pod
        own = (pod for pod in found.values() if self._is_of(pod, kind, key, uids))
        if isinstance(kind, ReplicatedKind):
            own = (pod for pod in own if kind.replica_of_pod(pod, owner=key.name) == index)
        return sorted(own, key=lambda pod: str(pod["metadata"]["name"]))

    def _is_of(self, pod: JsonObject, kind: PodHoldingKind, key: Key, uids: frozenset[str]) -> bool:
        """As it is now: an index still has what one of our writes has changed."""
        owner = controller_of(pod) or {}
        if pod["metadata"]["namespace"] != key.namespace:
            return False
        if owner.get("uid") in uids:
            return True
        # A former job of the same name may have pods left, which name it as their owner.
        return named_by(pod, kind) == key.name and owner.get("kind") != kind.resource.kind

    def _limits(self, namespace: str) -> tuple[tuple[LimitRange, ...], Mapping[str, RuntimeClass]]:
        ranges = [each for each in self._ranges.objects() if each["metadata"]["namespace"] == namespace]
        ranges.sort(key=lambda each: str(each["metadata"]["name"]))
        classes = (objects.runtime_class(each) for each in self._classes.objects())
        return tuple(map(objects.limit_range, ranges)), {each.name: each for each in classes}

    def _requests(
        self, spec: JsonObject, ranges: tuple[LimitRange, ...], classes: Mapping[str, RuntimeClass]
    ) -> Mapping[str, Quantity]:
        shape = self._shapes.of(spec)
        return with_claims(pod_request(adjust(shape, classes, ranges)), shape)

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


def owner_key(pod: JsonObject, kind: JobIntegration) -> Key | None:
    """The job of that kind which controls a pod, or which the pod names; None without one."""
    namespace: str = pod["metadata"]["namespace"]
    owner = controller_of(pod)
    group = "" if owner is None else str(owner.get("apiVersion", "")).rpartition("/")[0]
    if owner is not None and (group, owner.get("kind")) == (kind.resource.group, kind.resource.kind):
        return Key(namespace, str(owner.get("name")))
    name = named_by(pod, kind)
    return Key(namespace, name) if name else None
