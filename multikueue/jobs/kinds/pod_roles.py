# SPDX-License-Identifier: Apache-2.0
"""Which pod set of its Workload each pod of a group is counted in.

This manager names the pod sets of a group by `role_of`. A Workload that Kueue has made, or a user before the pods, has
other names: there a pod is counted in the pod set that Kueue has noted on it, if it requests no more than that, else in
one of pods like it. One that fits none keeps its own role, and is in excess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from multikueue.api.constants import ROLE_HASH_ANNOTATION
from multikueue.api.objects import JsonObject
from multikueue.jobs.kinds.oversized_pods import surplus
from multikueue.jobs.kinds.pod_group import (
    ROLE,
    has_ended,
    has_succeeded,
    role_of,
    values_of,
    without_default_tolerations,
)


def counted_in(pods: Iterable[JsonObject], pod_sets: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """The pods with their pod sets, which `role_of` returns of them from then on."""
    by_name = {str(each.get("name")): each for each in pod_sets}
    if not by_name:
        return tuple(pods)
    left = {name: int(each.get("count", 1)) for name, each in by_name.items()}
    found = [(pod, role_of(pod)) for pod in pods]
    for pod, role in found:
        if role in left and _takes_place(pod):
            left[role] -= 1
    counted = []
    for pod, own in found:
        role = own if own in by_name else _other(pod, by_name, left)
        if role and role != own and _takes_place(pod):
            left[role] -= 1
        counted.append({**pod, ROLE: role or own})
    return tuple(counted)


def _other(pod: JsonObject, pod_sets: Mapping[str, JsonObject], left: Mapping[str, int]) -> str:
    """The pod set with a name that is not the role of the pod; empty if there is none."""
    noted = values_of(pod, "annotations").get(ROLE_HASH_ANNOTATION, "")
    if noted in pod_sets and not surplus(pod, pod_sets[noted], {}):
        return noted
    shape = _shape(pod)
    alike = [name for name, each in pod_sets.items() if _shape(each.get("template") or {}) == shape]
    return next((name for name in alike if left[name] > 0), next(iter(alike), ""))


def _shape(pod: JsonObject) -> str:
    """The role of a pod or a template, as its user has submitted it."""
    return role_of({"spec": without_default_tolerations(pod.get("spec") or {})})


def _takes_place(pod: JsonObject) -> bool:
    return has_succeeded(pod) or not has_ended(pod)
