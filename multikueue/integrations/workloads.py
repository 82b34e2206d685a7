# SPDX-License-Identifier: Apache-2.0
"""The Workload of a job (`docs/spec/kueue-api.md §4.2` step 9).

Owns its name, labels, owner, finalizer and spec. Which priority a class stands for is looked up by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from multikueue.api.constants import (
    ADMISSION_GATED_BY_ANNOTATION,
    JOB_UID_LABEL,
    MAX_EXEC_TIME_LABEL,
    PARTITION_POLICY_ANNOTATION,
    PROVISIONING_PARAMETER_PREFIX,
    RESOURCE_IN_USE_FINALIZER,
)
from multikueue.api.objects import JsonObject
from multikueue.api.resource import WORKLOADS
from multikueue.core.errors import BadInput
from multikueue.integrations.protocol import JobIntegration
from multikueue.integrations.workload_names import MAX_NAME, workload_name

_COPIED_ANNOTATIONS = (ADMISSION_GATED_BY_ANNOTATION, PARTITION_POLICY_ANNOTATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A resolved priority and where it came from; without a class only the number counts."""

    value: int = 0
    group: str = ""
    kind: str = ""
    name: str = ""


def name_for(job: JsonObject, integration: JobIntegration, *, limit: int = MAX_NAME) -> str:
    """The name of the job's Workload."""
    metadata: JsonObject = job["metadata"]
    resource = integration.resource
    return workload_name(
        kind=resource.kind, group=resource.group, name=metadata["name"], uid=metadata.get("uid", ""), limit=limit
    )


def workload_for(
    job: JsonObject,
    integration: JobIntegration,
    *,
    priority: Priority,
    labels_to_copy: Iterable[str] = (),
    name_limit: int = MAX_NAME,
) -> JsonObject:
    """The Workload to be created. Raises `BadInput` when the job cannot be queued as it is written."""
    metadata: JsonObject = job["metadata"]
    resource = integration.resource
    labels: dict[str, str] = metadata.get("labels") or {}
    copied = labels if integration.copies_labels else {key: labels[key] for key in labels_to_copy if key in labels}
    spec: JsonObject = {
        "active": True,
        "queueName": integration.queue_name(job),
        "podSets": list(integration.pod_sets(job)),
        "priority": priority.value,
    }
    if priority.name:
        spec["priorityClassRef"] = {"group": priority.group, "kind": priority.kind, "name": priority.name}
    limit = labels.get(MAX_EXEC_TIME_LABEL)
    if limit is not None:
        if not limit.isdigit() or int(limit) < 1:
            raise BadInput(f"label {MAX_EXEC_TIME_LABEL}: {limit!r} is not a number of seconds above 0")
        spec["maximumExecutionTimeSeconds"] = int(limit)
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {
            "name": name_for(job, integration, limit=name_limit),
            "namespace": metadata.get("namespace", ""),
            "labels": copied | ({JOB_UID_LABEL: metadata["uid"]} if metadata.get("uid") else {}),
            "annotations": _annotations(metadata),
            "finalizers": [RESOURCE_IN_USE_FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": resource.api_version,
                    "kind": resource.kind,
                    "name": metadata["name"],
                    "uid": metadata.get("uid", ""),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def _annotations(metadata: JsonObject) -> dict[str, str]:
    annotations: dict[str, str] = metadata.get("annotations") or {}
    return {
        key: value
        for key, value in annotations.items()
        if key in _COPIED_ANNOTATIONS or key.startswith(PROVISIONING_PARAMETER_PREFIX)
    }
