# SPDX-License-Identifier: Apache-2.0
"""The metadata of a remote job, and of a job on the hub that is made from one, for every declared kind."""

from __future__ import annotations

from typing import Any, Final

from multikueue.api.constants import (
    ADOPTS_ANNOTATION,
    ADOPTS_SEAL_ANNOTATION,
    ASSIGNMENT_ANNOTATION,
    CLUSTER_LABEL,
    EPOCH_ANNOTATION,
    MANAGER_UID_ANNOTATION,
    ORIGIN_LABEL,
    PREBUILT_WORKLOAD_ANNOTATION,
    PREBUILT_WORKLOAD_LABEL,
    STOPPING_ANNOTATION,
    WORKER_WORKLOAD_POD_LABEL,
    WORKLOAD_NAME_ANNOTATION,
)
from multikueue.api.objects import JsonObject
from multikueue.dispatch.protocol.propagated_metadata import propagated_annotations, propagated_labels
from multikueue.jobs.framework.pod_templates import INJECTED_KEYS, PROVISIONED_KEYS
from multikueue.jobs.framework.protocol import RemoteIdentity

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_REMOTE_JOB_KEYS: Final = frozenset(
    {
        PREBUILT_WORKLOAD_ANNOTATION,
        EPOCH_ANNOTATION,
        MANAGER_UID_ANNOTATION,
        CLUSTER_LABEL,
        ASSIGNMENT_ANNOTATION,
        WORKLOAD_NAME_ANNOTATION,
        ADOPTS_ANNOTATION,
        ADOPTS_SEAL_ANNOTATION,
        ORIGIN_LABEL,
    }
)
"""By these a job is known to be a remote job."""


def remote_metadata(job: JsonObject, identity: RemoteIdentity) -> JsonObject:
    """Name, namespace, and the labels and annotations of the remote job; no owner, finalizer or UID."""
    metadata: JsonObject = job.get("metadata") or {}
    annotations = propagated_annotations(_texts(metadata, "annotations"))
    for key in (_LAST_APPLIED, STOPPING_ANNOTATION):
        annotations.pop(key, None)
    labels = propagated_labels(_texts(metadata, "labels"))
    if labels.get(PREBUILT_WORKLOAD_LABEL) != identity.workload_name:
        # A queueing engine of the worker would charge the job to another Workload.
        labels.pop(PREBUILT_WORKLOAD_LABEL, None)
    return {
        "name": metadata.get("name"),
        "namespace": metadata.get("namespace"),
        "labels": labels | {ORIGIN_LABEL: identity.origin},
        "annotations": annotations
        | {
            PREBUILT_WORKLOAD_ANNOTATION: identity.workload_name,
            EPOCH_ANNOTATION: str(identity.epoch),
            MANAGER_UID_ANNOTATION: identity.manager_uid,
            CLUSTER_LABEL: identity.cluster,
            ASSIGNMENT_ANNOTATION: identity.assignment,
        },
    }


def local_metadata(remote: JsonObject) -> JsonObject:
    """The metadata that the user's job had."""
    metadata: JsonObject = remote.get("metadata") or {}
    kept = {
        field: {key: value for key, value in _texts(metadata, field).items() if key not in _REMOTE_JOB_KEYS}
        for field in ("labels", "annotations")
    }
    return {"name": metadata.get("name"), "namespace": metadata.get("namespace"), **kept}


def marked_template(template: JsonObject) -> JsonObject:
    """The template of a remote job, with the label of pods that belong to one."""
    metadata = _without_time(template)
    metadata["labels"] = {**_texts(metadata, "labels"), WORKER_WORKLOAD_POD_LABEL: "true"}
    return {**template, "metadata": metadata}


def unmarked_template(template: JsonObject) -> JsonObject:
    """The template without the labels and annotations that admission sets, and those of provisioned capacity."""
    metadata, foreign = _without_time(template), INJECTED_KEYS | PROVISIONED_KEYS
    for field in ("labels", "annotations"):
        kept = {key: value for key, value in _texts(metadata, field).items() if key not in foreign}
        metadata.pop(field, None)
        if kept:
            metadata[field] = kept
    rest = {name: value for name, value in template.items() if name != "metadata"}
    return {**({"metadata": metadata} if metadata else {}), **rest}


def _without_time(template: JsonObject) -> JsonObject:
    metadata: dict[str, Any] = dict(template.get("metadata") or {})
    metadata.pop("creationTimestamp", None)
    return metadata


def _texts(metadata: JsonObject, field: str) -> dict[str, str]:
    return dict(metadata.get(field) or {})
