# SPDX-License-Identifier: Apache-2.0
"""What an admission adds to each pod set: labels and tolerations of its flavors, updates of checks, our labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multikueue.api.constants import (
    CLUSTER_QUEUE_LABEL,
    LOCAL_QUEUE_LABEL,
    POD_SET_LABEL,
    WORKLOAD_ANNOTATION,
)
from multikueue.api.objects import JsonObject
from multikueue.core.parsing import count_of
from multikueue.jobs.framework.protocol import InjectionConflict, PodSetInfo
from multikueue.jobs.framework.slices import chain_of, is_elastic

_MAX_LABEL_VALUE = 63


def pod_set_infos(workload: JsonObject, flavors: Mapping[str, JsonObject]) -> tuple[PodSetInfo, ...]:
    """One info per pod set of the Workload's admission, in its order. Raises `InjectionConflict` and `BadInput`.

    `flavors` are ResourceFlavors by name; a deleted one adds nothing, since its labels are unknown.
    """
    status: JsonObject = workload.get("status") or {}
    admission: JsonObject = status.get("admission") or {}
    counts = {info.name: info.count for info in original_infos(workload)}
    return tuple(
        _info(workload, admission, assignment, counts, flavors)
        for assignment in admission.get("podSetAssignments") or ()
    )


def original_infos(workload: JsonObject) -> tuple[PodSetInfo, ...]:
    """The counts of a Workload without an admission, with nothing added."""
    return tuple(
        PodSetInfo(name=str(pod_set.get("name")), count=count_of(pod_set, "count", at=f"podSets[{index}]", default=1))
        for index, pod_set in enumerate(_pod_sets(workload))
    )


def _info(
    workload: JsonObject,
    admission: JsonObject,
    assignment: JsonObject,
    counts: Mapping[str, int],
    flavors: Mapping[str, JsonObject],
) -> PodSetInfo:
    name = str(assignment.get("name", ""))
    metadata: JsonObject = workload.get("metadata") or {}
    labels = {POD_SET_LABEL: name}
    queues = (
        (CLUSTER_QUEUE_LABEL, admission.get("clusterQueue")),
        (LOCAL_QUEUE_LABEL, (workload.get("spec") or {}).get("queueName")),
    )
    # The name of a queue may be longer than a label value.
    labels.update({key: str(value) for key, value in queues if value and len(str(value)) <= _MAX_LABEL_VALUE})
    # The pods of an elastic job outlive the slice that it was started by.
    annotations = {WORKLOAD_ANNOTATION: chain_of(workload) if is_elastic(workload) else str(metadata.get("name", ""))}
    selector: dict[str, str] = {}
    tolerations: list[JsonObject] = []
    for flavor_name in sorted(set((assignment.get("flavors") or {}).values())):
        spec: JsonObject = flavors.get(flavor_name, {}).get("spec") or {}
        _merge(selector, spec.get("nodeLabels") or {}, where=f"nodeSelector of pod set {name}")
        tolerations += [item for item in spec.get("tolerations") or () if item not in tolerations]
    for update in _updates(workload, name):
        _merge(labels, update.get("labels") or {}, where=f"labels of pod set {name}")
        _merge(annotations, update.get("annotations") or {}, where=f"annotations of pod set {name}")
        _merge(selector, update.get("nodeSelector") or {}, where=f"nodeSelector of pod set {name}")
        tolerations += [item for item in update.get("tolerations") or () if item not in tolerations]
    return PodSetInfo(
        name=name,
        count=_count(workload, assignment, counts.get(name, 1)),
        labels=labels,
        annotations=annotations,
        node_selector=selector,
        tolerations=tuple(tolerations),
    )


def _count(workload: JsonObject, assignment: JsonObject, requested: int) -> int:
    # An elastic job may have been scaled down since its admission, which stays as it was.
    admitted = 0 if is_elastic(workload) else count_of(assignment, "count", at="podSetAssignments")
    return admitted or requested


def _updates(workload: JsonObject, pod_set: str) -> Iterable[JsonObject]:
    for check in (workload.get("status") or {}).get("admissionChecks") or ():
        yield from (update for update in check.get("podSetUpdates") or () if update.get("name") == pod_set)


def _merge(target: dict[str, str], extra: Mapping[str, str], *, where: str) -> None:
    for key, value in extra.items():
        if target.setdefault(key, value) != value:
            raise InjectionConflict(f'{where}: conflicting values "{target[key]}" and "{value}" for "{key}"')


def _pod_sets(workload: JsonObject) -> Iterable[JsonObject]:
    return (workload.get("spec") or {}).get("podSets") or ()
