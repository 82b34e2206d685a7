# SPDX-License-Identifier: Apache-2.0
"""The Workload of a job (`docs/spec/kueue-api.md §4.2` step 9).

Owns its name, labels, owner, finalizer and spec, and in which order priority classes count. The caller looks these up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from multikueue.api.constants import (
    ADMISSION_GATED_BY_ANNOTATION,
    COMPONENT_WORKLOAD_INDEX_ANNOTATION,
    IS_GROUP_WORKLOAD_ANNOTATION,
    JOB_OWNER_GVK_ANNOTATION,
    JOB_OWNER_NAME_ANNOTATION,
    JOB_UID_LABEL,
    MAX_EXEC_TIME_LABEL,
    ORIGIN_LABEL,
    ORIGIN_UID_ANNOTATION,
    PARTITION_POLICY_ANNOTATION,
    POD_PRIORITY_CLASS_GROUP,
    POD_PRIORITY_CLASS_KIND,
    PREBUILT_WORKLOAD_LABEL,
    PROVISIONING_PARAMETER_PREFIX,
    RESOURCE_IN_USE_FINALIZER,
    WORKLOAD_PRIORITY_CLASS_GROUP,
    WORKLOAD_PRIORITY_CLASS_KIND,
)
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import WORKLOADS, Resource
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.jobs.framework.capabilities import GroupedKind, ReplicatedKind
from multikueue.jobs.framework.protocol import JobIntegration, PriorityHint
from multikueue.jobs.framework.slices import slice_annotations

_MAX_NAME: Final = 253
_HASH: Final = 5
_COPIED_ANNOTATIONS: Final = (ADMISSION_GATED_BY_ANNOTATION, PARTITION_POLICY_ANNOTATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A resolved priority and its source; without a class only the value is set."""

    value: int = 0
    group: str = ""
    kind: str = ""
    name: str = ""


def workload_name(*, kind: str, group: str, name: str, uid: str, generation: str = "", limit: int = _MAX_NAME) -> str:
    """`kind-name`, cut, a dash and five hex digits of a hash, which other Kueue clients repeat to find the Workload."""
    parts = (kind, group, name, uid, *((generation,) if generation else ()))
    digest = hashlib.sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()[:_HASH]
    return f"{f'{kind.lower()}-{name}'[: limit - _HASH - 1]}-{digest}"


def name_for(job: JsonObject, integration: JobIntegration, *, limit: int = _MAX_NAME) -> str:
    """The name of the job's Workload; that of a group of objects is the name of the group."""
    metadata: JsonObject = job["metadata"]
    group = integration.group_of(job) if isinstance(integration, GroupedKind) else ""
    if group:
        return group
    index, uid = None, str(metadata.get("uid", ""))
    if isinstance(integration, ReplicatedKind):
        index, uid = integration.replica_of(job), origin_uid(job) or uid
    return _name_of(integration.resource, name=metadata["name"], uid=uid, index=index, limit=limit)


def prebuilt_name(job: JsonObject, integration: JobIntegration) -> str:
    """The Workload that a job has instead of one that is made for it; empty without one.

    It is named by label or annotation. A hub that sends an object with several Workloads to a worker makes these first,
    under the names that they have on the hub (`docs/spec/kueue-api.md §4.1`).
    """
    if isinstance(integration, ReplicatedKind):
        return name_for(job, integration) if origin_uid(job) else ""
    metadata = job["metadata"]
    for texts in (metadata.get("labels"), metadata.get("annotations")):
        if texts and texts.get(PREBUILT_WORKLOAD_LABEL):
            return str(texts[PREBUILT_WORKLOAD_LABEL])
    return ""


def origin_uid(job: JsonObject) -> str:
    """The uid on the hub of an object that one has sent whole to this cluster; empty for any other object."""
    metadata = job["metadata"]
    if not (metadata.get("labels") or {}).get(ORIGIN_LABEL):
        return ""
    return str((metadata.get("annotations") or {}).get(ORIGIN_UID_ANNOTATION) or "")


def is_of_group(workload: JsonObject) -> bool:
    """Whether a Workload is of a group of objects: all of them own it, and none controls it.

    Kueue marks those of StatefulSets too, which control theirs on a worker that it has sent them to.
    """
    metadata = workload["metadata"]
    marked = (metadata.get("annotations") or {}).get(IS_GROUP_WORKLOAD_ANNOTATION) == "true"
    return marked and controller_of(workload) is None


def slice_name(job: JsonObject, integration: JobIntegration, *, limit: int = _MAX_NAME) -> str:
    """The name of the slice for the size that an elastic job has now: each generation of the job has one of its own."""
    metadata: JsonObject = job["metadata"]
    return workload_name(
        kind=integration.resource.kind,
        group=integration.resource.group,
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        generation=str(metadata.get("generation", 0)),
        limit=limit,
    )


def replica_of_workload(workload: JsonObject, resource: Resource, job: JsonObject | None) -> int:
    """The replica of its job of that kind that a Workload is for; 0 unless it has the name of the one that it names."""
    return stated_replica(workload, resource, job) or 0


def stated_replica(workload: JsonObject, resource: Resource, job: JsonObject | None) -> int | None:
    """As `replica_of_workload`; None if the Workload does not have the name of the Workload of that replica.

    The name depends on the uid of the job, so that an annotation alone makes no Workload one of a job. `job` is the one
    that is there under the name of the owner; if a hub has sent it, the name depends on its uid there.
    """
    metadata: JsonObject = workload["metadata"]
    text = str((metadata.get("annotations") or {}).get(COMPONENT_WORKLOAD_INDEX_ANNOTATION) or "0")
    try:
        index = parse_unsigned(text, field=COMPONENT_WORKLOAD_INDEX_ANNOTATION, maximum=MAX_INT32)
    except BadInput:
        return None
    owners = (each for each in metadata.get("ownerReferences") or () if each.get("kind") == resource.kind)
    named = {str(each["uid"]): str(each["name"]) for each in owners}
    origin = "" if job is None else origin_uid(job)
    if job is not None and origin and job["metadata"]["uid"] in named:
        named[origin] = named.pop(job["metadata"]["uid"])
    names = (_name_of(resource, name=name, uid=uid, index=index) for uid, name in named.items())
    return index if metadata["name"] in names else None


def _name_of(resource: Resource, *, name: str, uid: str, index: int | None, limit: int = _MAX_NAME) -> str:
    named = name if index is None else f"{name}-{index}"
    return workload_name(kind=resource.kind, group=resource.group, name=named, uid=uid, limit=limit)


def workload_for(
    job: JsonObject,
    integration: JobIntegration,
    *,
    priority: Priority,
    labels_to_copy: Iterable[str] = (),
    name_limit: int = _MAX_NAME,
    elastic: bool = False,
    replaces: JsonObject | None = None,
) -> JsonObject:
    """The Workload to create; for an elastic job a slice, which may replace another. Raises `BadInput`."""
    metadata: JsonObject = job["metadata"]
    group = integration.group_of(job) if isinstance(integration, GroupedKind) else ""
    labels: dict[str, str] = metadata.get("labels") or {}
    wanted = labels if integration.copies_labels else labels_to_copy
    # The label of another cluster's Workloads, whose owner is not here, is not for a user to set.
    copied = {key: labels[key] for key in wanted if key in labels and key != ORIGIN_LABEL}
    spec: JsonObject = {
        "active": True,
        "podSets": list(integration.pod_sets(job)),
        "priority": priority.value,
    }
    if queue := integration.queue_name(job):
        spec["queueName"] = queue  # without one, where jobs without a queue are managed, it waits until it has one
    if priority.name:
        spec["priorityClassRef"] = {"group": priority.group, "kind": priority.kind, "name": priority.name}
    limit = _execution_limit(labels)
    if limit is not None:
        spec["maximumExecutionTimeSeconds"] = limit
    name = (slice_name if elastic else name_for)(job, integration, limit=name_limit)
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {
            "name": name,
            "namespace": metadata.get("namespace", ""),
            "labels": copied | ({JOB_UID_LABEL: metadata["uid"]} if metadata.get("uid") else {}),
            "annotations": {
                **_annotations(metadata),
                **({IS_GROUP_WORKLOAD_ANNOTATION: "true"} if group else {}),
                **_replica_annotations(job, integration),
                **(slice_annotations(name, replaces) if elastic else {}),
            },
            "finalizers": [RESOURCE_IN_USE_FINALIZER],
            "ownerReferences": owner_references(job, integration),
        },
        "spec": spec,
    }


def _replica_annotations(job: JsonObject, integration: JobIntegration) -> dict[str, str]:
    """Which job the Workload of a replica is of, for clients that list the Workloads of a job."""
    if not isinstance(integration, ReplicatedKind):
        return {}
    resource = integration.resource
    return {
        COMPONENT_WORKLOAD_INDEX_ANNOTATION: str(integration.replica_of(job)),
        JOB_OWNER_GVK_ANNOTATION: f"{resource.api_version}, Kind={resource.kind}",
        JOB_OWNER_NAME_ANNOTATION: str(job["metadata"]["name"]),
    }


def owner_references(job: JsonObject, integration: JobIntegration) -> list[JsonObject]:
    """The owners of the Workload: the job, which controls it, or all members of a group, of which none does."""
    resource = integration.resource
    if isinstance(integration, GroupedKind) and integration.group_of(job):
        return [
            {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "name": member["metadata"]["name"],
                "uid": member["metadata"]["uid"],
            }
            for member in integration.members(job)
        ]
    return [
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": job["metadata"]["name"],
            "uid": job["metadata"].get("uid", ""),
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def changes_to_follow(job: JsonObject, workload: JsonObject, *, admitted: bool) -> JsonObject | None:
    """The merge patch that updates a Workload after a change of its job; None if nothing changes.

    The maximum execution time follows the job's label until admission; admission gates that the job no longer has are
    removed. Raises `BadInput` for a label that is not a number.
    """
    patch: JsonObject = {}
    if not admitted:
        limit = _execution_limit(job["metadata"].get("labels") or {})
        if limit != workload["spec"].get("maximumExecutionTimeSeconds"):
            patch["spec"] = {"maximumExecutionTimeSeconds": limit}
    held_by = _gates(workload["metadata"])
    left = [gate for gate in held_by if gate in _gates(job["metadata"])]
    if left != held_by:
        patch["metadata"] = {"annotations": {ADMISSION_GATED_BY_ANNOTATION: ",".join(left) or None}}
    return patch or None


def _gates(metadata: JsonObject) -> list[str]:
    text = str((metadata.get("annotations") or {}).get(ADMISSION_GATED_BY_ANNOTATION) or "")
    return [gate.strip() for gate in text.split(",") if gate.strip()]


def _execution_limit(labels: dict[str, str]) -> int | None:
    text = labels.get(MAX_EXEC_TIME_LABEL)
    if text is None:
        return None
    seconds = parse_unsigned(text, field=f"label {MAX_EXEC_TIME_LABEL}", maximum=MAX_INT32)
    if not seconds:
        raise BadInput(f"label {MAX_EXEC_TIME_LABEL}: expected a number of seconds above 0, found 0")
    return seconds


def _annotations(metadata: JsonObject) -> dict[str, str]:
    annotations: dict[str, str] = metadata.get("annotations") or {}
    return {
        key: value
        for key, value in annotations.items()
        if key in _COPIED_ANNOTATIONS or key.startswith(PROVISIONING_PARAMETER_PREFIX)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClasses:
    """Values of priority classes by name; `default` is the PriorityClass marked globalDefault, with its value."""

    workload: Callable[[str], int | None]
    pod: Callable[[str], int | None]
    default: Callable[[], tuple[str, int] | None]


class UnknownPriorityClass(BadInput):
    """The job names a priority class that does not exist."""


class UnknownWorkloadPriorityClass(UnknownPriorityClass):
    """The job names a WorkloadPriorityClass that does not exist."""


def resolved_priority(hint: PriorityHint, classes: PriorityClasses) -> Priority:
    """The first class that is named, else the cluster's default, else 0. Raises `UnknownPriorityClass`."""
    if hint.workload_class:
        value = classes.workload(hint.workload_class)
        if value is None:
            raise UnknownWorkloadPriorityClass(
                f"WorkloadPriorityClass {hint.workload_class} doesn't exist; create it or correct the job's label"
            )
        return Priority(
            value=value,
            group=WORKLOAD_PRIORITY_CLASS_GROUP,
            kind=WORKLOAD_PRIORITY_CLASS_KIND,
            name=hint.workload_class,
        )
    named = hint.job_class or hint.pod_class
    if named:
        value = classes.pod(named)
        if value is None:
            # The API server would refuse the pods, so that an admitted job would hold quota for nothing.
            raise UnknownPriorityClass(f"PriorityClass {named} doesn't exist; create it or correct the job's pods")
        return _of_pods(named, value)
    default = classes.default()
    return Priority() if default is None else _of_pods(*default)


def _of_pods(name: str, value: int) -> Priority:
    return Priority(value=value, group=POD_PRIORITY_CLASS_GROUP, kind=POD_PRIORITY_CLASS_KIND, name=name)
