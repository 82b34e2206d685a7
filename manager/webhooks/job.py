# SPDX-License-Identifier: Apache-2.0
"""Defaulting and validation of jobs that carry `spec.suspend` and `spec.managedBy`.

Owns `docs/spec/kueue-api.md §3.4` as pure functions of the request and of what the caches say about queues. Promises
to leave a job alone that nobody wants managed. Kinds of their own rules add them in their integration.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from manager.webhooks.review import AdmissionRequest, Answer
from multikueue.api.constants import (
    DEFAULT_LOCAL_QUEUE,
    DEFAULT_PRIORITY_CLASS,
    JOB_CONTROLLER_MANAGED_BY,
    JOB_MIN_PARALLELISM_ANNOTATION,
    MAX_EXEC_TIME_LABEL,
    MULTIKUEUE_CONTROLLER,
    MULTIKUEUE_MANAGED_BY,
    PREBUILT_WORKLOAD_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
)
from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_FIXED_WHILE_RUNNING: Final = (QUEUE_NAME_LABEL, PREBUILT_WORKLOAD_LABEL, MAX_EXEC_TIME_LABEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """What defaulting asks the caches; each answers None or False where there is nothing."""

    local_queue: Callable[[Key], JsonObject | None]
    cluster_queue: Callable[[str], JsonObject | None]
    check_controller: Callable[[str], str]
    has_priority_class: Callable[[str], bool]
    manages_namespace: Callable[[str], bool]
    manages_unqueued: bool = False


def default_job(request: AdmissionRequest, queues: Queues) -> Answer:
    """The job as Kueue wants it created; only creation defaults."""
    job = request.object
    if job is None or not request.creates or not queues.manages_namespace(request.namespace):
        return Answer()
    metadata: JsonObject = job.get("metadata") or {}
    labels: dict[str, str] = dict(metadata.get("labels") or {})
    unqueued = QUEUE_NAME_LABEL not in labels and not _owned(metadata)
    if unqueued and queues.local_queue(Key(request.namespace, DEFAULT_LOCAL_QUEUE)) is not None:
        labels[QUEUE_NAME_LABEL] = DEFAULT_LOCAL_QUEUE
    queue = labels.get(QUEUE_NAME_LABEL, "")
    if not queue and not queues.manages_unqueued:
        return Answer()
    if PRIORITY_CLASS_LABEL not in labels and queues.has_priority_class(DEFAULT_PRIORITY_CLASS):
        labels[PRIORITY_CLASS_LABEL] = DEFAULT_PRIORITY_CLASS
    spec: JsonObject = {**(job.get("spec") or {}), "suspend": True}
    if _dispatched(Key(request.namespace, queue), queues) and spec.get("managedBy") in (
        None,
        JOB_CONTROLLER_MANAGED_BY,
    ):
        spec["managedBy"] = MULTIKUEUE_MANAGED_BY
    return Answer(object={**job, "metadata": {**metadata, "labels": labels} if labels else metadata, "spec": spec})


def _owned(metadata: JsonObject) -> bool:
    return any(reference.get("controller") for reference in metadata.get("ownerReferences") or ())


def _dispatched(queue: Key, queues: Queues) -> bool:
    """Whether work of that LocalQueue goes to worker clusters."""
    local_queue = queues.local_queue(queue) if queue.name else None
    if local_queue is None:
        return False
    cluster_queue = queues.cluster_queue((local_queue.get("spec") or {}).get("clusterQueue") or "")
    strategy: JsonObject = ((cluster_queue or {}).get("spec") or {}).get("admissionChecksStrategy") or {}
    return any(
        queues.check_controller(entry["name"]) == MULTIKUEUE_CONTROLLER
        for entry in strategy.get("admissionChecks") or ()
    )


def validate_job(request: AdmissionRequest, queues: Queues) -> Answer:
    """Refuses labels that cannot mean anything, and changes that a running job cannot follow."""
    job, old = request.object, request.old_object
    if job is None or not queues.manages_namespace(request.namespace):
        return Answer()
    refusals = _label_refusals(_labels(job))
    if old is not None:
        refusals += _update_refusals(job, old)
    else:
        refusals += _parallelism_refusals(job)
    return Answer(refusals=refusals)


def _labels(job: JsonObject) -> dict[str, str]:
    labels: dict[str, str] = (job.get("metadata") or {}).get("labels") or {}
    return labels


def _label_refusals(labels: dict[str, str]) -> list[str]:
    refusals = [
        f'metadata.labels[{name}]: Invalid value: "{labels[name]}": a lowercase RFC 1123 subdomain is expected'
        for name in (QUEUE_NAME_LABEL, PREBUILT_WORKLOAD_LABEL)
        if labels.get(name) and not (len(labels[name]) <= 253 and _SUBDOMAIN.fullmatch(labels[name]))
    ]
    seconds = labels.get(MAX_EXEC_TIME_LABEL)
    if seconds is not None and not (seconds.isdigit() and 0 < int(seconds) < 2**31):
        refusals.append(
            f'metadata.labels[{MAX_EXEC_TIME_LABEL}]: Invalid value: "{seconds}": must be a positive number of seconds'
        )
    return refusals


def _update_refusals(job: JsonObject, old: JsonObject) -> list[str]:
    new_labels, old_labels = _labels(job), _labels(old)
    suspended = [bool((item.get("spec") or {}).get("suspend")) for item in (old, job)]
    refusals = []
    if not all(suspended):
        for name in _FIXED_WHILE_RUNNING:
            if new_labels.get(name) != old_labels.get(name):
                refusals.append(f"metadata.labels[{name}]: Forbidden: may not change while the job is not suspended")
        if PRIORITY_CLASS_LABEL in new_labels and PRIORITY_CLASS_LABEL not in old_labels:
            refusals.append(
                f"metadata.labels[{PRIORITY_CLASS_LABEL}]: Forbidden: may not be added to a job that is not suspended"
            )
    if PRIORITY_CLASS_LABEL in old_labels and PRIORITY_CLASS_LABEL not in new_labels:
        refusals.append(f"metadata.labels[{PRIORITY_CLASS_LABEL}]: Forbidden: may be changed but not removed")
    return refusals


def _parallelism_refusals(job: JsonObject) -> list[str]:
    annotations: JsonObject = (job.get("metadata") or {}).get("annotations") or {}
    text = annotations.get(JOB_MIN_PARALLELISM_ANNOTATION)
    if text is None:
        return []
    parallelism = (job.get("spec") or {}).get("parallelism", 1)
    if text.isdigit() and 1 <= int(text) < parallelism:
        return []
    return [
        f'metadata.annotations[{JOB_MIN_PARALLELISM_ANNOTATION}]: Invalid value: "{text}":'
        f" must be between 1 and {parallelism - 1}"
    ]
