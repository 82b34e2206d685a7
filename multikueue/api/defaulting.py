# SPDX-License-Identifier: Apache-2.0
"""What the mutating webhooks fill in (`docs/spec/kueue-api.md §3`), beyond the defaults of the schema.

Pure: returns a changed copy of an object, or the same object if nothing changes. What has to be looked up, such as
whether there is a default queue, the caller passes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from multikueue.api import constants, featuregates
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject

_GATES: Final = (constants.ADMISSION_SCHEDULING_GATE, constants.TOPOLOGY_SCHEDULING_GATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSurroundings:
    """What defaulting a job depends on, apart from the job."""

    namespace_managed: bool = True
    """The namespace matches `managedJobsNamespaceSelector`."""
    namespace_queue: str = ""
    """The LocalQueue in the label `kueue.x-k8s.io/default-queue` of the namespace."""
    default_queue: bool = False
    """The namespace has a LocalQueue named `default`."""
    default_priority_class: bool = False
    """There is a WorkloadPriorityClass named `default`."""
    owner_managed: bool = False
    """An owner of the job is queued, and the job with it."""
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
    """The LocalQueue of the job after defaulting; empty for none.

    Its own label comes first, then the label of the namespace, then the LocalQueue named `default`.
    """
    labels = (obj.get("metadata") or {}).get("labels") or {}
    queue = str(labels.get(constants.QUEUE_NAME_LABEL) or "")
    if queue or not surroundings.namespace_managed or surroundings.owner_managed:
        return queue
    return surroundings.namespace_queue or (constants.DEFAULT_LOCAL_QUEUE if surroundings.default_queue else "")


def is_queued(obj: JsonObject, surroundings: JobSurroundings) -> bool:
    """Whether the job is queued by itself; one of a managed owner runs with its owner."""
    if not surroundings.namespace_managed or surroundings.owner_managed:
        return False
    return bool(queue_of_job(obj, surroundings)) or surroundings.manage_unqueued


def default_labels(obj: JsonObject, surroundings: JobSurroundings, *, gate: Gate = featuregates.default) -> JsonObject:
    """A job that is queued, of any kind, with its queue and its priority class."""
    metadata = dict(obj.get("metadata") or {})
    labels = dict(metadata.get("labels") or {})
    queue = queue_of_job(obj, surroundings)
    if queue:
        labels[constants.QUEUE_NAME_LABEL] = queue
    if surroundings.default_priority_class and gate("WorkloadPriorityClassDefaulting"):
        labels.setdefault(constants.PRIORITY_CLASS_LABEL, constants.DEFAULT_PRIORITY_CLASS)
    if labels:
        metadata["labels"] = labels
    return obj | {"metadata": metadata}


def default_job(
    obj: JsonObject,
    surroundings: JobSurroundings,
    *,
    suspend: Sequence[str] = ("spec", "suspend"),
    suspended: bool = True,
    managed_by: Sequence[str] = ("spec", "managedBy"),
    own_controller: str = constants.JOB_CONTROLLER_MANAGED_BY,
    gate: Gate = featuregates.default,
) -> JsonObject:
    """A job as it is to be created: queue, priority class, suspended, managed by MultiKueue.

    `suspend` and `managed_by` are the paths of these fields in its kind, the defaults those of a batch/v1 Job; a kind
    without one has an empty path. `suspended` is the value of the first one that holds a job, `own_controller` the one
    of the second that may be replaced.
    """
    if not is_queued(obj, surroundings):
        return obj
    changed = default_labels(obj, surroundings, gate=gate)
    if suspend:
        changed = _with(changed, suspend, suspended)
    if managed_by and surroundings.multikueue and _at(obj, managed_by) in (None, "", own_controller):
        changed = _with(changed, managed_by, constants.MULTIKUEUE_MANAGED_BY)
    return obj if changed == obj else changed


def default_gated(obj: JsonObject, surroundings: JobSurroundings, *, gate: Gate = featuregates.default) -> JsonObject:
    """A pod as it is to be created: queue, priority class, and the gate, label and finalizer that hold it."""
    if not is_queued(obj, surroundings):
        return obj
    labelled = default_labels(obj, surroundings, gate=gate)
    metadata, spec = dict(labelled["metadata"]), dict(obj.get("spec") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), constants.MANAGED_LABEL: constants.MANAGED_LABEL_VALUE}
    finalizers = metadata.get("finalizers") or []
    if constants.POD_FINALIZER not in finalizers:
        metadata["finalizers"] = [*finalizers, constants.POD_FINALIZER]
    changed = labelled | {"metadata": metadata, "spec": _gated(spec)}
    return obj if changed == obj else changed


def default_held(obj: JsonObject) -> JsonObject:
    """A pod whose owner is queued and starts it: with the gate and the label, and no queue of its own."""
    metadata, spec = dict(obj.get("metadata") or {}), dict(obj.get("spec") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), constants.MANAGED_LABEL: constants.MANAGED_LABEL_VALUE}
    return obj | {"metadata": metadata, "spec": _gated(spec)}


def _gated(spec: JsonObject) -> JsonObject:
    """The spec of a pod with the gates of admission and of topologies.

    A gate cannot be added later, and whether its queue places pods in a topology is known with its admission.
    """
    gates = spec.get("schedulingGates") or []
    missing = [name for name in _GATES if all(each.get("name") != name for each in gates)]
    return spec | {"schedulingGates": [*gates, *({"name": name} for name in missing)]} if missing else spec


def _at(obj: JsonObject, path: Sequence[str]) -> object:
    value: object = obj
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _with(obj: JsonObject, path: Sequence[str], value: object) -> JsonObject:
    """A copy with the field at that path set."""
    name, *rest = path
    inner = _with(obj.get(name) or {}, rest, value) if rest else value
    return obj | {name: inner}


def _with_finalizer(obj: JsonObject) -> JsonObject:
    metadata = obj.get("metadata") or {}
    finalizers = metadata.get("finalizers") or []
    if constants.RESOURCE_IN_USE_FINALIZER in finalizers:
        return obj
    return obj | {"metadata": metadata | {"finalizers": [*finalizers, constants.RESOURCE_IN_USE_FINALIZER]}}
