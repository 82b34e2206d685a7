# SPDX-License-Identifier: Apache-2.0
"""apps/v1 StatefulSet (`docs/spec/kueue-api.md §4.1`): one Workload for all its pods, which are gated until admission.

Owns the names of its pods, and that its size changes between zero and a number only. The rest is `held_group`'s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from multikueue.api.constants import (
    DEFAULT_POD_SET,
    POD_FRAMEWORK,
    PREBUILT_WORKLOAD_LABEL,
    QUEUE_NAME_LABEL,
    STATEFUL_SET_FRAMEWORK,
)
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject
from multikueue.api.resource import PODS, STATEFUL_SETS, Resource
from multikueue.core.parsing import MAX_INT32, count_of, parse_unsigned
from multikueue.jobs.framework import templated_queue
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.templated_queue import template_of
from multikueue.jobs.framework.traits import Hold, JobTraits
from multikueue.jobs.framework.workloads import prebuilt_name
from multikueue.jobs.kinds.held_group import HeldGroup, demands, pod_set_of

_ORDINAL: Final = re.compile(r"0|[1-9][0-9]{0,9}")


class StatefulSetIntegration(HeldGroup):
    """The integration `statefulset`."""

    framework: str = STATEFUL_SET_FRAMEWORK
    resource: Resource = STATEFUL_SETS
    traits: JobTraits = JobTraits(
        hold=Hold.PODS,
        sent_as=PODS,
        holds_pods=True,
        owns_only_pods=True,
        reviewed_subresources=("scale",),
        needs=(POD_FRAMEWORK,),
    )
    not_grouped = "the pods of a StatefulSet have the Workload of the StatefulSet"
    not_remote = "the remote job of a StatefulSet is a pod group"
    takes_prebuilt = True

    def size(self, job: JsonObject) -> int:
        """`spec.replicas`. Raises `BadInput`."""
        return count_of(job.get("spec") or {}, "replicas", at="spec", default=1)

    def pod_sets(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """One pod set `main` of all its pods. Raises `BadInput`."""
        return (pod_set_of(template_of(job), name=DEFAULT_POD_SET, count=self.size(job)),)

    def pod_template(self, job: JsonObject, pod: JsonObject) -> JsonObject:
        """`spec.template`."""
        return template_of(job)

    def place_of(self, job: JsonObject, pod: JsonObject) -> str:
        """`main` for a number from its first ordinal on. Raises `BadInput`."""
        first = parse_unsigned(
            ((job.get("spec") or {}).get("ordinals") or {}).get("start") or 0,
            field="spec.ordinals.start",
            maximum=MAX_INT32,
        )
        return DEFAULT_POD_SET if _ordinal(job, pod) in range(first, first + self.size(job)) else ""

    def misnamed(self, job: JsonObject, pod: JsonObject) -> str:
        """Unless it is the name of the StatefulSet with a number."""
        name = job["metadata"]["name"]
        known = _ordinal(job, pod) is not None
        return "" if known else f"StatefulSet {name}, whose pods are {name}-0, {name}-1 and so on"

    def refusals(
        self, new: JsonObject, old: JsonObject | None, *, has_default_queue: bool, gate: Gate
    ) -> tuple[str, ...]:
        """As for every such kind, and the size that is asked for by its scale subresource."""
        if new.get("kind") == "Scale":
            return () if old is None else _size_refusals(new, old)
        return super().refusals(new, old, has_default_queue=has_default_queue, gate=gate)

    def update_refusals(self, new: JsonObject, old: JsonObject) -> Sequence[str]:
        """That its size, Workload and the demands of its pods change, and its queue is left, at zero replicas only."""
        found = list(_size_refusals(new, old))
        if not old["spec"].get("replicas", 1) or "deletionTimestamp" in old["metadata"]:
            return found
        if templated_queue.is_left(new, old):
            path = f"metadata.labels[{QUEUE_NAME_LABEL}]"
            found.append(f"{path}: Required value: can be removed only while spec.replicas is 0")
        if prebuilt_name(new, self) != prebuilt_name(old, self):
            path = f"metadata.labels[{PREBUILT_WORKLOAD_LABEL}]"
            found.append(f"{path}: Forbidden: can be changed only while spec.replicas is 0")
        if self.queue_name(old) and demands(template_of(new)) != demands(template_of(old)):
            found.append(
                "spec.template.spec: Invalid value: what its pods request and where they may run can be changed only"
                " while spec.replicas is 0, since quota is reserved for them as they are"
            )
        return found


STATEFUL_SET: Final[JobIntegration] = StatefulSetIntegration()


def _ordinal(job: JsonObject, pod: JsonObject) -> int | None:
    """The number in the name of a pod; None if its name is no name of this StatefulSet."""
    name, _, number = str(pod["metadata"]["name"]).rpartition("-")
    if name != job["metadata"]["name"] or not _ORDINAL.fullmatch(number):
        return None
    return int(number)


def _size_refusals(new: JsonObject, old: JsonObject) -> tuple[str, ...]:
    """Why the size may not change so, from two StatefulSets or two Scales."""
    before, after = (
        (each.get("spec") or {}).get("replicas", 0 if each.get("kind") == "Scale" else 1) for each in (old, new)
    )
    if before == after or not after:
        return ()
    if before:
        return (
            f"spec.replicas: Invalid value: {after}: quota is reserved for all {before} pods at once: scale it to 0"
            f" first, and then to {after}",
        )
    left = (old.get("status") or {}).get("replicas") or 0
    if left:
        return (f"spec.replicas: Forbidden: {left} of its pods are still being removed: scale it up when none is left",)
    return ()
