# SPDX-License-Identifier: Apache-2.0
"""What the mutating webhooks fill in (`docs/spec/kueue-api.md §3`), beyond the defaults of the schema.

Pure: an object goes in, a changed copy comes out, or the same object when there is nothing to change. What has to
be looked up (is there a default queue?) the caller says.
"""

from __future__ import annotations

from dataclasses import dataclass

from multikueue.api import constants, featuregates
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSurroundings:
    """What defaulting a job depends on, apart from the job."""

    namespace_managed: bool = True
    """The namespace matches `managedJobsNamespaceSelector`."""
    default_queue: bool = False
    """The namespace has a LocalQueue named `default`."""
    default_priority_class: bool = False
    """There is a WorkloadPriorityClass named `default`."""
    owner_managed: bool = False
    """The job's controller is itself managed by Kueue."""
    manage_unqueued: bool = False
    """`manageJobsWithoutQueueName` is set."""
    multikueue: bool = False
    """The ClusterQueue behind the job's queue, after defaulting, has the MultiKueue check."""


def default_cluster_queue(obj: JsonObject) -> JsonObject:
    """With the finalizer that keeps it while it is in use."""
    return _with_finalizer(obj)


def default_resource_flavor(obj: JsonObject) -> JsonObject:
    """With the finalizer that keeps it while it is in use."""
    return _with_finalizer(obj)


def default_workload(obj: JsonObject, *, gate: Gate = featuregates.default) -> JsonObject:
    """Without `minCount` where partial admission is off."""
    spec = obj.get("spec") or {}
    pod_sets = spec.get("podSets") or []
    if gate("PartialAdmission") or not any("minCount" in pod_set for pod_set in pod_sets):
        return obj
    full = [{key: value for key, value in pod_set.items() if key != "minCount"} for pod_set in pod_sets]
    return obj | {"spec": spec | {"podSets": full}}


def queue_of_job(obj: JsonObject, surroundings: JobSurroundings) -> str:
    """The LocalQueue that the job ends up in after defaulting; empty for none."""
    labels = (obj.get("metadata") or {}).get("labels") or {}
    queue = labels.get(constants.QUEUE_NAME_LABEL, "")
    defaults = surroundings.default_queue and surroundings.namespace_managed and not surroundings.owner_managed
    return queue or (constants.DEFAULT_LOCAL_QUEUE if defaults else "")


def default_job(obj: JsonObject, surroundings: JobSurroundings, *, gate: Gate = featuregates.default) -> JsonObject:
    """A batch/v1 Job as it is to be created: queue, priority class, suspended, managed by MultiKueue."""
    metadata = dict(obj.get("metadata") or {})
    spec = dict(obj.get("spec") or {})
    labels = dict(metadata.get("labels") or {})
    queue = queue_of_job(obj, surroundings)
    if queue:
        labels[constants.QUEUE_NAME_LABEL] = queue
    # What a managed owner makes is suspended with its owner, unless it asks for a queue itself.
    unqueued = surroundings.manage_unqueued and not surroundings.owner_managed
    if not surroundings.namespace_managed or not (queue or unqueued):
        return obj
    if surroundings.default_priority_class and gate("WorkloadPriorityClassDefaulting"):
        labels.setdefault(constants.PRIORITY_CLASS_LABEL, constants.DEFAULT_PRIORITY_CLASS)
    if labels:
        metadata["labels"] = labels
    spec["suspend"] = True
    if surroundings.multikueue and spec.get("managedBy") in (None, "", constants.JOB_CONTROLLER_MANAGED_BY):
        spec["managedBy"] = constants.MULTIKUEUE_MANAGED_BY
    changed = obj | {"metadata": metadata, "spec": spec}
    return obj if changed == obj else changed


def _with_finalizer(obj: JsonObject) -> JsonObject:
    metadata = obj.get("metadata") or {}
    finalizers = metadata.get("finalizers") or []
    if constants.RESOURCE_IN_USE_FINALIZER in finalizers:
        return obj
    return obj | {"metadata": metadata | {"finalizers": [*finalizers, constants.RESOURCE_IN_USE_FINALIZER]}}
