# SPDX-License-Identifier: Apache-2.0
"""batch/v1 Job (`docs/spec/kueue-api.md §4.1`).

Owns how a Job becomes pod sets, starts, stops, ends and is copied to a worker. Jobs are read as the API server returns
them, with its defaults. What may be written to their status is in `job_status`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from multikueue.api.constants import (
    ADOPTS_ANNOTATION,
    ASSIGNMENT_ANNOTATION,
    BATCH_CONTROLLER_UID_LABEL,
    BATCH_JOB_FRAMEWORK,
    BATCH_JOB_NAME_LABEL,
    CLUSTER_LABEL,
    CLUSTER_QUEUE_LABEL,
    DEFAULT_POD_SET,
    EPOCH_ANNOTATION,
    JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION,
    JOB_MIN_PARALLELISM_ANNOTATION,
    LEGACY_CONTROLLER_UID_LABEL,
    LEGACY_JOB_NAME_LABEL,
    LOCAL_QUEUE_LABEL,
    MANAGER_UID_ANNOTATION,
    MULTIKUEUE_MANAGED_BY,
    ORIGIN_LABEL,
    POD_SET_LABEL,
    PREBUILT_WORKLOAD_ANNOTATION,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
    STOPPING_ANNOTATION,
    WORKER_WORKLOAD_POD_LABEL,
    WORKLOAD_ANNOTATION,
)
from multikueue.api.objects import JsonObject
from multikueue.api.reasons import FinishedReason
from multikueue.api.resource import JOBS, Resource
from multikueue.core.errors import BadInput
from multikueue.core.timestamps import format_time
from multikueue.integrations import job_status
from multikueue.integrations.merge_patch import merge_patch
from multikueue.integrations.pod_templates import injected, same
from multikueue.integrations.protocol import (
    JobEnd,
    JobIntegration,
    JobWrite,
    Mirror,
    PodSetInfo,
    PriorityHint,
    Reclaimable,
    RemoteIdentity,
)
from multikueue.integrations.topology_requests import topology_request

_INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
_OWN_LABELS: Final = frozenset(
    {BATCH_CONTROLLER_UID_LABEL, BATCH_JOB_NAME_LABEL, LEGACY_CONTROLLER_UID_LABEL, LEGACY_JOB_NAME_LABEL}
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# What only the Job controller of the management cluster, or nobody, may act upon on a worker.
_NOT_FOR_WORKERS: Final = frozenset({"managedBy", "ttlSecondsAfterFinished", "selector", "manualSelector", "suspend"})
# By which pods are known to be of an admitted workload; those of the next one are others.
_INJECTED: Final = frozenset(
    {WORKER_WORKLOAD_POD_LABEL, CLUSTER_QUEUE_LABEL, LOCAL_QUEUE_LABEL, POD_SET_LABEL, WORKLOAD_ANNOTATION}
)
# By which a job of a worker is known to be a copy.
_MARKS: Final = frozenset(
    {
        PREBUILT_WORKLOAD_ANNOTATION,
        EPOCH_ANNOTATION,
        MANAGER_UID_ANNOTATION,
        CLUSTER_LABEL,
        ASSIGNMENT_ANNOTATION,
        ADOPTS_ANNOTATION,
    }
)


class BatchJob:
    """The integration `batch/job`."""

    framework: str = BATCH_JOB_FRAMEWORK
    resource: Resource = JOBS
    copies_labels: bool = True

    def managed_by(self, job: JsonObject) -> str:
        """`spec.managedBy`."""
        return str(_spec(job).get("managedBy") or "")

    def queue_name(self, job: JsonObject) -> str:
        """The label; the annotation form is not honoured any more."""
        return str(_map(job, "labels").get(QUEUE_NAME_LABEL, ""))

    def is_suspended(self, job: JsonObject) -> bool:
        """`spec.suspend`."""
        return bool(_spec(job).get("suspend"))

    def is_active(self, job: JsonObject) -> bool:
        """Whether pods are running or pending; pods that are being ended are waited for as well."""
        status = _status(job)
        return bool(status.get("active") or status.get("terminating"))

    def pod_sets(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """One pod set `main` of min(parallelism, completions) pods. Raises `BadInput`."""
        spec = _spec(job)
        template: JsonObject = spec.get("template") or {}
        metadata: JsonObject = template.get("metadata") or {}
        kept = {field: metadata[field] for field in ("labels", "annotations") if metadata.get(field)}
        pod_set: JsonObject = {
            "name": DEFAULT_POD_SET,
            "count": _count(spec),
            "template": {**({"metadata": kept} if kept else {}), "spec": template.get("spec") or {}},
        }
        minimum = _map(job, "annotations").get(JOB_MIN_PARALLELISM_ANNOTATION)
        if minimum is not None:
            if not minimum.isdigit():
                raise BadInput(f"{JOB_MIN_PARALLELISM_ANNOTATION}: {minimum!r} is not a whole number")
            pod_set["minCount"] = int(minimum)
        indexed = spec.get("completionMode") == "Indexed"
        request = topology_request(kept.get("annotations", {}), pod_index_label=_INDEX_LABEL if indexed else "")
        if request is not None:
            pod_set["topologyRequest"] = request
        return (pod_set,)

    def priority(self, job: JsonObject) -> PriorityHint:
        """The label, else the class of the pods."""
        pod: JsonObject = (_spec(job).get("template") or {}).get("spec") or {}
        return PriorityHint(
            workload_class=str(_map(job, "labels").get(PRIORITY_CLASS_LABEL, "")),
            pod_class=str(pod.get("priorityClassName") or ""),
        )

    def matches(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> bool:
        """Whether the pod set is still the Job's; of a started Job, with what was injected and the partial count."""
        pod_sets: Sequence[JsonObject] = (workload.get("spec") or {}).get("podSets") or ()
        if len(pod_sets) != 1:
            return False
        wanted: JsonObject = dict(pod_sets[0])
        (found,) = self.pod_sets(job)
        for info in infos:
            wanted["template"] = injected(wanted.get("template") or {}, info)
            wanted["count"] = info.count
        return all(same(found.get(field), wanted.get(field)) for field in ("count", "minCount")) and same(
            _comparable(found.get("template") or {}), _comparable(wanted.get("template") or {})
        )

    def start(self, job: JsonObject, infos: Sequence[PodSetInfo]) -> JobWrite:
        """Inject and unsuspend. Raises `InjectionConflict`."""
        spec = _spec(job)
        body: JsonObject = {"spec": merge_patch(spec, _started(job, infos))}
        if STOPPING_ANNOTATION in _map(job, "annotations"):
            body["metadata"] = {"annotations": {STOPPING_ANNOTATION: None}}
        return JobWrite(body=body)

    def stop(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JobWrite | None:
        """Suspend; then forget `startTime`; then, when no pod is left, restore the template.

        The annotation says that a stop is under way, so that a restart in between finishes it. None: nothing to be
        written now, either because it is done or because pods are still ending.
        """
        stopping = STOPPING_ANNOTATION in _map(job, "annotations")
        if not self.is_suspended(job):
            return JobWrite(
                body={"metadata": {"annotations": {STOPPING_ANNOTATION: "true"}}, "spec": {"suspend": True}}
            )
        if not stopping:
            return None
        if _status(job).get("startTime"):
            return JobWrite(body={"status": {"startTime": None}}, subresource="status")
        if self.is_active(job):
            return None
        spec = _spec(job)
        restored = {**spec, **({"template": _restored(spec, pod_sets[0])} if pod_sets else {})}
        if pod_sets and _count(restored) < int(pod_sets[0].get("count", 1)):
            restored["parallelism"] = int(pod_sets[0]["count"])
        patch = merge_patch(spec, restored)
        metadata = {"annotations": {STOPPING_ANNOTATION: None}}
        return JobWrite(body={"metadata": metadata, **({"spec": patch} if patch else {})})

    def finished(self, job: JsonObject) -> JobEnd | None:
        """Complete or Failed, with the condition's message."""
        for condition in _status(job).get("conditions") or ():
            if condition.get("status") != "True":
                continue
            message = str(condition.get("message") or "")
            if condition.get("type") == "Complete":
                return JobEnd(reason=FinishedReason.SUCCEEDED, message=message)
            if condition.get("type") == "Failed":
                return JobEnd(reason=FinishedReason.FAILED, message=message)
        return None

    def pods_ready(self, job: JsonObject) -> bool:
        """Whether ready and succeeded pods are as many as there should be."""
        status = _status(job)
        uncounted = (status.get("uncountedTerminatedPods") or {}).get("succeeded") or ()
        done = int(status.get("succeeded") or 0) + int(status.get("ready") or 0) + len(uncounted)
        return done >= _count(_spec(job))

    def reclaimable(self, job: JsonObject) -> tuple[Reclaimable, ...]:
        """Of a parallel Job, the pods for which there is no work left."""
        spec, status = _spec(job), _status(job)
        parallelism = int(spec.get("parallelism", 1))
        completions = spec.get("completions")
        if parallelism <= 1 or completions is None:
            return ()
        if spec.get("completionMode") == "Indexed":
            ended = len(_indexes(status.get("completedIndexes")) | _indexes(status.get("failedIndexes")))
        else:
            ended = int(status.get("succeeded") or 0)
        remaining = int(completions) - ended
        if ended == 0 or remaining >= parallelism:
            return ()
        return (Reclaimable(name=DEFAULT_POD_SET, count=parallelism - max(0, remaining)),)

    def remote_manifest(self, job: JsonObject, infos: Sequence[PodSetInfo], *, identity: RemoteIdentity) -> JsonObject:
        """A started copy without owner, and without what would make it vanish or be run by somebody else."""
        metadata: JsonObject = job.get("metadata") or {}
        annotations = {key: value for key, value in _map(job, "annotations").items() if key != _LAST_APPLIED}
        annotations.pop(STOPPING_ANNOTATION, None)
        annotations |= {
            PREBUILT_WORKLOAD_ANNOTATION: identity.workload_name,
            EPOCH_ANNOTATION: str(identity.epoch),
            MANAGER_UID_ANNOTATION: identity.manager_uid,
            CLUSTER_LABEL: identity.cluster,
            ASSIGNMENT_ANNOTATION: identity.assignment,
        }
        spec = {key: value for key, value in _started(job, infos).items() if key not in _NOT_FOR_WORKERS}
        template: JsonObject = dict(spec.get("template") or {})
        pod_metadata: JsonObject = dict(template.get("metadata") or {})
        pod_metadata.pop("creationTimestamp", None)
        pod_metadata["labels"] = {WORKER_WORKLOAD_POD_LABEL: "true"} | {
            key: value for key, value in (pod_metadata.get("labels") or {}).items() if key not in _OWN_LABELS
        }
        template["metadata"] = pod_metadata
        spec["template"] = template
        spec["suspend"] = False
        return {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {
                "name": metadata.get("name"),
                "namespace": metadata.get("namespace"),
                "labels": _map(job, "labels") | {ORIGIN_LABEL: identity.origin},
                "annotations": annotations,
            },
            "spec": spec,
        }

    def local_manifest(self, remote: JsonObject) -> JsonObject:
        """What a user would have submitted for the copy; a time to live is lost, for copies have none."""
        metadata: JsonObject = remote.get("metadata") or {}
        spec = {key: value for key, value in _spec(remote).items() if key not in _NOT_FOR_WORKERS}
        template: JsonObject = spec.get("template") or {}
        pod_metadata: JsonObject = dict(template.get("metadata") or {})
        pod_metadata.pop("creationTimestamp", None)
        foreign = _OWN_LABELS | _INJECTED
        for field in ("labels", "annotations"):
            pod_metadata[field] = {k: v for k, v in (pod_metadata.get(field) or {}).items() if k not in foreign}
        marks = {*_MARKS, ORIGIN_LABEL, *_OWN_LABELS}
        return {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {
                "name": metadata.get("name"),
                "namespace": metadata.get("namespace"),
                "labels": {key: value for key, value in _map(remote, "labels").items() if key not in marks},
                "annotations": {key: value for key, value in _map(remote, "annotations").items() if key not in marks},
            },
            "spec": {
                **spec,
                "template": {**template, "metadata": pod_metadata},
                "suspend": True,
                "managedBy": MULTIKUEUE_MANAGED_BY,
            },
        }

    def mirror_status(self, local: JsonObject, remote_status: JsonObject) -> Mirror:
        """See `job_status`."""
        return job_status.mirror(local, remote_status)

    def stopped_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """See `job_status`."""
        return job_status.stopped(local, now=format_time(now))


BATCH_JOB: Final[JobIntegration] = BatchJob()


def _started(job: JsonObject, infos: Sequence[PodSetInfo]) -> JsonObject:
    spec = dict(_spec(job))
    spec["suspend"] = False
    if not infos:
        return spec
    (info,) = infos
    spec["template"] = injected(spec.get("template") or {}, info)
    if info.count < _count(spec):
        spec["parallelism"] = info.count
        if _map(job, "annotations").get(JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION) == "true":
            spec["completions"] = info.count
    return spec


def _restored(spec: JsonObject, pod_set: JsonObject) -> JsonObject:
    original: JsonObject = pod_set.get("template") or {}
    template: JsonObject = spec.get("template") or {}
    metadata = dict(template.get("metadata") or {})
    labels: JsonObject = metadata.pop("labels", None) or {}
    metadata.pop("annotations", None)
    wanted: JsonObject = original.get("metadata") or {}
    foreign = _OWN_LABELS | {WORKER_WORKLOAD_POD_LABEL}
    # Immutable, and in the pod set of a prebuilt Workload those of another Job.
    restored = {
        **{key: value for key, value in (wanted.get("labels") or {}).items() if key not in foreign},
        **{key: value for key, value in labels.items() if key in foreign},
    }
    return {
        **template,
        "metadata": {**metadata, **wanted, **({"labels": restored} if restored else {})},
        "spec": original.get("spec") or {},
    }


def _count(spec: JsonObject) -> int:
    parallelism = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    return parallelism if completions is None else min(parallelism, int(completions))


def _indexes(text: object) -> set[int]:
    """The indexes of `1,3-5`."""
    found: set[int] = set()
    for part in str(text or "").split(","):
        first, _, last = part.partition("-")
        if first:
            found.update(range(int(first), int(last or first) + 1))
    return found


def _spec(job: JsonObject) -> JsonObject:
    spec: JsonObject = job.get("spec") or {}
    return spec


def _status(job: JsonObject) -> JsonObject:
    status: JsonObject = job.get("status") or {}
    return status


def _map(job: JsonObject, field: str) -> dict[str, str]:
    metadata: Mapping[str, dict[str, str]] = job.get("metadata") or {}
    return metadata.get(field) or {}


def _comparable(template: JsonObject) -> JsonObject:
    """Without the labels that tell one Job's pods from another's: a copy of a Job on a worker has its own."""
    metadata: JsonObject = template.get("metadata") or {}
    foreign = _OWN_LABELS | {WORKER_WORKLOAD_POD_LABEL}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in foreign}
    return {**template, "metadata": {**metadata, "labels": labels}}
