# SPDX-License-Identifier: Apache-2.0
"""What an admission adds to the pod templates of a job, and comparing templates.

Labels and tolerations of the flavors, updates of checks, and our labels are added. Owns the merge rules of
`docs/spec/kueue-api.md §4.2` step 13: an existing key with another value is a conflict; an existing toleration or gate
is not added twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from multikueue.api.constants import (
    CLUSTER_QUEUE_LABEL,
    CONSUME_PROVISIONING_REQUEST_ANNOTATION,
    ELASTIC_JOB_POD_LABEL,
    LOCAL_QUEUE_LABEL,
    POD_SET_LABEL,
    PROVISIONING_CLASS_NAME_ANNOTATION,
    SCHEDULING_GATES,
    TOPOLOGY_SCHEDULING_GATE,
    WORKER_WORKLOAD_POD_LABEL,
    WORKLOAD_ANNOTATION,
)
from multikueue.api.objects import JsonObject
from multikueue.core.parsing import count_of
from multikueue.jobs.framework.protocol import InjectionConflict, PodSetInfo
from multikueue.jobs.framework.slices import chain_of, is_elastic

INJECTED_KEYS: Final = frozenset(
    {
        WORKER_WORKLOAD_POD_LABEL,
        CLUSTER_QUEUE_LABEL,
        LOCAL_QUEUE_LABEL,
        POD_SET_LABEL,
        WORKLOAD_ANNOTATION,
        ELASTIC_JOB_POD_LABEL,
    }
)
"""Labels and annotations that admission sets on pods, with values of that one Workload."""
PROVISIONED_KEYS: Final = frozenset({CONSUME_PROVISIONING_REQUEST_ANNOTATION, PROVISIONING_CLASS_NAME_ANNOTATION})
"""Annotations of provisioned capacity: the next admission may have another request, and must be able to set them."""
_INJECTED_FIELDS: Final = ("nodeSelector", "tolerations", "schedulingGates")
_MAX_LABEL_VALUE = 63
# `dict` first: to ask whether it is a `Mapping` is slow.
_OBJECT: Final = (dict, Mapping)
_LIST: Final = (list, tuple)


def injected(template: JsonObject, info: PodSetInfo) -> JsonObject:
    """The template with labels, annotations, node selector, tolerations and gates added. Raises `InjectionConflict`."""
    metadata: JsonObject = dict(template.get("metadata") or {})
    spec: JsonObject = dict(template.get("spec") or {})
    _add(metadata, "labels", info.labels, info.name)
    _add(metadata, "annotations", info.annotations, info.name)
    _add(spec, "nodeSelector", info.node_selector, info.name)
    _append(spec, "tolerations", info.tolerations)
    _append(spec, "schedulingGates", info.scheduling_gates)
    return {**template, **({"metadata": metadata} if metadata else {}), "spec": spec}


def restored_spec(spec: JsonObject, original: JsonObject) -> JsonObject:
    """A pod spec with the fields that admission changes as in `original`, and all others unchanged."""
    kept = {name: value for name, value in spec.items() if name not in _INJECTED_FIELDS}
    return {**kept, **{name: original[name] for name in _INJECTED_FIELDS if original.get(name)}}


def restored_metadata(metadata: JsonObject, original: JsonObject) -> JsonObject:
    """The metadata of a template with labels and annotations as in `original`.

    If `original` has neither, as in a Workload that a user created, only those of the admission are removed. The
    template of a Job always has labels.
    """
    kept = {name: value for name, value in metadata.items() if name not in ("labels", "annotations")}
    if original:
        return {**kept, **original}
    own = {name: _without_injected(metadata.get(name) or {}) for name in ("labels", "annotations")}
    return {**kept, **{name: value for name, value in own.items() if value}}


def _without_injected(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key not in INJECTED_KEYS | PROVISIONED_KEYS}


def same(one: object, other: object) -> bool:
    """Whether two pieces of JSON mean the same: absent, null and empty are alike."""
    return one == other or _alike(one, other)


def same_as_stored(template: JsonObject, stored: JsonObject) -> bool:
    """Whether the template of a gated pod is that in its Workload, which Kueue may have made.

    Kueue's has the gates of the pod, and no labels and annotations.
    """
    spec: JsonObject = stored.get("spec") or {}
    gates = [gate for gate in spec.get("schedulingGates") or () if gate.get("name") not in SCHEDULING_GATES]
    own = template if stored.get("metadata") else {"spec": template.get("spec")}
    return same(own, {**stored, "spec": {**spec, "schedulingGates": gates}})


def _add(target: JsonObject, field: str, extra: Mapping[str, str], pod_set: str) -> None:
    if not extra:
        return
    merged: dict[str, str] = dict(target.get(field) or {})
    for key, value in extra.items():
        if merged.setdefault(key, value) != value:
            raise InjectionConflict(
                f'pod set "{pod_set}": {field} "{key}" is already "{merged[key]}", cannot set "{value}"'
            )
    target[field] = merged


def _append(target: JsonObject, field: str, extra: Iterable[JsonObject]) -> None:
    present: list[JsonObject] = list(target.get(field) or ())
    added = [item for item in extra if item not in present]
    if added:
        target[field] = present + added


def _alike(one: object, other: object) -> bool:
    if isinstance(one, _OBJECT) and isinstance(other, _OBJECT):
        for key, item in one.items():
            if key in other:
                compared = other[key]
                if not (_alike(item, compared) or (_is_empty(item) and _is_empty(compared))):
                    return False
            elif not _is_empty(item):
                return False
        return all(key in one or _is_empty(item) for key, item in other.items())
    if isinstance(one, _LIST) and isinstance(other, _LIST):
        return len(one) == len(other) and all(map(_alike, one, other))
    return one == other


def _is_empty(item: object) -> bool:
    """Whether a field with this value means the same as none."""
    if isinstance(item, _OBJECT):
        return all(map(_is_empty, item.values()))
    return item is None or (isinstance(item, _LIST) and not item)


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
        # Flavors of two resource groups may have other values of one label; as with Kueue, one of them holds. Capacity
        # is provisioned for the same one.
        selector = {**(spec.get("nodeLabels") or {}), **selector}
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
        # Each pod waits for the node selector of its domain.
        scheduling_gates=({"name": TOPOLOGY_SCHEDULING_GATE},) if assignment.get("topologyAssignment") else (),
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
