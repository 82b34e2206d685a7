# SPDX-License-Identifier: Apache-2.0
"""The members of a pod group: which count, which are in excess, and which role each one has.

A group keeps its place while pods fail and are replaced, so an ended pod stays, by its finalizer, until another one has
taken its place or the group has ended (`docs/spec/kueue-api.md §4.1`, pod).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from multikueue.api.constants import (
    ADMISSION_SCHEDULING_GATE,
    POD_FINALIZER,
    POD_GROUP_FAST_ADMISSION_ANNOTATION,
    POD_GROUP_NAME_LABEL,
    POD_GROUP_SERVING_ANNOTATION,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    POD_SET_LABEL,
    RETRIABLE_IN_GROUP_ANNOTATION,
)
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned

_SHAPE: Final = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
)
ROLE: Final = "role"
"""The field of a pod that has the pod set which it is counted in, whatever its own role is (`pod_roles`)."""
_ROLE_LENGTH: Final = 8
_DEFAULT_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def group_of(pod: JsonObject) -> str:
    """The group that a pod names in its label or annotation; empty for a pod of its own."""
    return values_of(pod, "labels").get(POD_GROUP_NAME_LABEL) or values_of(pod, "annotations").get(
        POD_GROUP_NAME_LABEL, ""
    )


def values_of(pod: JsonObject, field: str) -> dict[str, str]:
    """The labels or annotations of a pod."""
    return (pod.get("metadata") or {}).get(field) or {}


def is_gated(pod: JsonObject) -> bool:
    """Whether the gate of admission holds it."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == ADMISSION_SCHEDULING_GATE for gate in gates)


def is_deleting(pod: JsonObject) -> bool:
    """Whether it was deleted, and may still terminate."""
    return "deletionTimestamp" in pod["metadata"]


def has_succeeded(pod: JsonObject) -> bool:
    """Whether its containers ended well."""
    return bool((pod.get("status") or {}).get("phase") == "Succeeded")


def has_ended(pod: JsonObject) -> bool:
    """Whether nothing of it runs or will run."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed") or (is_deleting(pod) and not (pod.get("spec") or {}).get("nodeName"))


def is_active(pod: JsonObject) -> bool:
    """Whether it runs, terminates or may be scheduled."""
    return not is_gated(pod) and not has_ended(pod)


def is_held_back(pod: JsonObject) -> bool:
    """Whether our finalizer keeps it."""
    return POD_FINALIZER in (pod["metadata"].get("finalizers") or ())


def role_of(pod: JsonObject) -> str:
    """The pod set of a pod: pods with equal demands share one. Admission changes the demands, and labels the pod."""
    if ROLE in pod:
        return str(pod[ROLE])
    given = values_of(pod, "labels").get(POD_SET_LABEL)
    if given and not is_gated(pod):
        return given
    spec: JsonObject = pod.get("spec") or {}
    shape: JsonObject = {name: spec[name] for name in _SHAPE if spec.get(name)}
    for name in ("initContainers", "containers"):
        shape[name] = [
            {part: container.get(part) for part in ("resources", "restartPolicy", "ports")}
            for container in spec.get(name) or ()
        ]
    text = orjson.dumps(shape, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()[:_ROLE_LENGTH]


@dataclass(frozen=True, slots=True)
class PodGroup:
    """The pods of one group, the oldest first; a single pod is a group of one."""

    pods: Sequence[JsonObject]

    @property
    def total(self) -> int:
        """How many pods it is made of. Raises `BadInput` when its pods contradict each other."""
        texts = {values_of(pod, "annotations").get(POD_GROUP_TOTAL_COUNT_ANNOTATION, "") for pod in self.pods}
        field = f"annotation {POD_GROUP_TOTAL_COUNT_ANNOTATION}"
        if len(texts) > 1:
            shown = ", ".join(sorted(text or "none" for text in texts))
            raise BadInput(f"{field}: expected one number on all pods of the group, found {shown}")
        count = parse_unsigned(texts.pop(), field=field, maximum=MAX_INT32)
        if not count:
            raise BadInput(f"{field}: expected a number of pods above 0, found 0")
        return count

    @property
    def is_fast(self) -> bool:
        """Whether it is queued with its first pod."""
        return self._any(POD_GROUP_FAST_ADMISSION_ANNOTATION, "true")

    @property
    def is_serving(self) -> bool:
        """Whether its pods serve for as long as they exist, and never end well."""
        return self._any(POD_GROUP_SERVING_ANNOTATION, "true")

    @property
    def is_retriable(self) -> bool:
        """Whether pods that fail may be replaced."""
        return not self._any(RETRIABLE_IN_GROUP_ANNOTATION, "false")

    @property
    def living(self) -> tuple[JsonObject, ...]:
        """The pods that wait or run, those that run first."""
        found = [pod for pod in self.pods if not has_ended(pod) and not is_deleting(pod)]
        return tuple(sorted(found, key=is_gated))

    @property
    def succeeded(self) -> tuple[JsonObject, ...]:
        """The pods that ended well."""
        return tuple(pod for pod in self.pods if has_succeeded(pod))

    @property
    def failed(self) -> tuple[JsonObject, ...]:
        """The pods that ended otherwise: failed, or deleted."""
        return tuple(pod for pod in self.pods if has_ended(pod) and not has_succeeded(pod))

    def excess(self, roles: dict[str, int] | None, *, templates: Iterable[JsonObject] = ()) -> tuple[JsonObject, ...]:
        """The youngest pods beyond the total, and, when quota is held for `roles`, beyond the count of their role.

        `templates` are the pod templates of the Workload: its pod sets may have names that are no roles.
        """
        places = self.total - (0 if self.is_serving else len(self.succeeded))
        kept, beyond = list(self.living[: max(0, places)]), list(self.living[max(0, places) :])
        if roles is None:
            return tuple(beyond)
        if self.is_fast:
            # The Workload was made from one pod: others have to request the same.
            known = {*roles, *(role_of({"spec": each.get("spec") or {}}) for each in templates)}
            others = [pod for pod in kept if known.isdisjoint((role_of(pod), role_of(_as_submitted(pod))))]
            return (*beyond, *(others if len(others) < len(kept) else ()))
        left = dict(roles)
        for pod in self.succeeded:
            left[role_of(pod)] = left.get(role_of(pod), 0) - 1
        for pod in kept:
            role = role_of(pod)
            left[role] = left.get(role, 0) - 1
            if left[role] < 0:
                beyond.append(pod)
        return tuple(beyond)

    def replaced(self) -> tuple[JsonObject, ...]:
        """The failed pods that are needed no longer, since others took their places."""
        surplus = len(self.living) + len(self.succeeded) + len(self.failed) - self.total
        return self.failed[: max(0, surplus)]

    def missing(self) -> int:
        """How many pods its user has to create."""
        return max(0, self.total - len(self.living) - len(self.succeeded))

    def _any(self, annotation: str, value: str) -> bool:
        return any(values_of(pod, "annotations").get(annotation) == value for pod in self.pods)


def without_default_tolerations(spec: JsonObject) -> JsonObject:
    """A pod spec without the tolerations that an API server adds to pods, and not to pod templates."""
    left = [each for each in spec.get("tolerations") or () if not _is_default_toleration(each)]
    kept = {name: value for name, value in spec.items() if name != "tolerations"}
    return {**kept, **({"tolerations": left} if left else {})}


def _is_default_toleration(toleration: JsonObject) -> bool:
    return (
        toleration.get("key") in _DEFAULT_TAINTS
        and toleration.get("operator") == "Exists"
        and toleration.get("effect") == "NoExecute"
        and "tolerationSeconds" in toleration
    )


def _as_submitted(pod: JsonObject) -> JsonObject:
    return {**pod, "spec": without_default_tolerations(pod.get("spec") or {})}


def counts_of(pods: Iterable[JsonObject]) -> dict[str, int]:
    """The number of pods of each role."""
    found: dict[str, int] = {}
    for pod in pods:
        found[role_of(pod)] = found.get(role_of(pod), 0) + 1
    return found
