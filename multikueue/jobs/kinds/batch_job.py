# SPDX-License-Identifier: Apache-2.0
"""batch/v1 Job (`docs/spec/kueue-api.md §4.1`): its pod sets, and how it starts, stops, ends and is sent to a worker.

Jobs are read as the API server returns them, with its defaults. What may be written to their status is in `job_status`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from multikueue.api.admission import refusals_as
from multikueue.api.constants import (
    ADOPTS_ANNOTATION,
    ADOPTS_SEAL_ANNOTATION,
    ASSIGNMENT_ANNOTATION,
    BATCH_CONTROLLER_UID_LABEL,
    BATCH_JOB_FRAMEWORK,
    BATCH_JOB_NAME_LABEL,
    CLUSTER_LABEL,
    DEFAULT_POD_SET,
    EPOCH_ANNOTATION,
    JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION,
    JOB_CONTROLLER_MANAGED_BY,
    JOB_MIN_PARALLELISM_ANNOTATION,
    LEGACY_CONTROLLER_UID_LABEL,
    LEGACY_JOB_NAME_LABEL,
    MANAGER_UID_ANNOTATION,
    MULTIKUEUE_MANAGED_BY,
    ORIGIN_LABEL,
    PREBUILT_WORKLOAD_ANNOTATION,
    PREBUILT_WORKLOAD_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
    STOPPING_ANNOTATION,
    WORKER_WORKLOAD_POD_LABEL,
    WORKLOAD_NAME_ANNOTATION,
)
from multikueue.api.featuregates import Gate
from multikueue.api.intervals import Intervals
from multikueue.api.job import Job
from multikueue.api.objects import JsonObject
from multikueue.api.reasons import FinishedReason
from multikueue.api.resource import JOBS, Resource
from multikueue.api.stored_template import stored_template
from multikueue.api.validation import validate_job
from multikueue.core.conditions import is_true_in
from multikueue.core.merge_patch import merge_patch
from multikueue.core.parsing import MAX_INT32, count_of, parse_unsigned
from multikueue.core.timestamps import format_time
from multikueue.dispatch.protocol.propagated_metadata import propagated_annotations, propagated_labels
from multikueue.jobs.framework.pod_set_differences import differences
from multikueue.jobs.framework.pod_templates import (
    INJECTED_KEYS,
    PROVISIONED_KEYS,
    injected,
    restored_metadata,
    restored_spec,
    same,
)
from multikueue.jobs.framework.protocol import (
    JobEnd,
    JobIntegration,
    JobWrite,
    PodSetInfo,
    PriorityHint,
    Reclaimable,
    RemoteIdentity,
    StatusSync,
)
from multikueue.jobs.framework.slices import is_elastic
from multikueue.jobs.framework.topology_requests import topology_request
from multikueue.jobs.framework.traits import JobTraits
from multikueue.jobs.kinds import job_status

_INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
_CONTROLLER_LABELS: Final = frozenset(
    {BATCH_CONTROLLER_UID_LABEL, BATCH_JOB_NAME_LABEL, LEGACY_CONTROLLER_UID_LABEL, LEGACY_JOB_NAME_LABEL}
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# Fields that only the hub acts upon.
_NOT_FOR_WORKERS: Final = frozenset({"managedBy", "ttlSecondsAfterFinished", "selector", "manualSelector", "suspend"})
_ENDS: Final = {"Complete": FinishedReason.SUCCEEDED, "Failed": FinishedReason.FAILED}
_PODS_STARTED: Final = ("ready", "succeeded", "failed", "terminating")
# By these a job is known to be a remote job.
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
    }
)


class BatchJob:
    """The integration `batch/job`."""

    framework: str = BATCH_JOB_FRAMEWORK
    resource: Resource = JOBS
    traits: JobTraits = JobTraits(
        has_managed_by=True,
        resizable=True,
        own_controller=JOB_CONTROLLER_MANAGED_BY,
        reviewed_fields=("spec.parallelism", "spec.completions", "spec.template"),
        pod_label=BATCH_JOB_NAME_LABEL,
        owns_only_pods=True,
        owns_pods_itself=True,
    )
    copies_labels: bool = True

    def managed_by(self, job: JsonObject) -> str:
        """`spec.managedBy`."""
        return str(_spec(job).get("managedBy") or "")

    def queue_name(self, job: JsonObject) -> str:
        """The label; the former annotation is ignored."""
        return str(_map(job, "labels").get(QUEUE_NAME_LABEL, ""))

    def is_suspended(self, job: JsonObject) -> bool:
        """`spec.suspend`."""
        return bool(_spec(job).get("suspend"))

    def is_active(self, job: JsonObject) -> bool:
        """Whether pods are running, pending or terminating."""
        status = _status(job)
        return bool(status.get("active") or status.get("terminating"))

    def may_have_pods(self, job: JsonObject) -> bool:
        """Until the Job controller has set Suspended it may be creating pods."""
        return self.is_active(job) or not (self.is_suspended(job) and is_true_in(_status(job), "Suspended"))

    def pod_sets(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """One pod set `main` of min(parallelism, completions) pods. Raises `BadInput`."""
        spec = _spec(job)
        template: JsonObject = spec.get("template") or {}
        metadata: JsonObject = template.get("metadata") or {}
        kept = {field: metadata[field] for field in ("labels", "annotations") if metadata.get(field)}
        pod_set: JsonObject = {
            "name": DEFAULT_POD_SET,
            "count": _count(spec),
            "template": stored_template({**({"metadata": kept} if kept else {}), "spec": template.get("spec") or {}}),
        }
        minimum = _map(job, "annotations").get(JOB_MIN_PARALLELISM_ANNOTATION)
        if minimum is not None:
            pod_set["minCount"] = parse_unsigned(
                minimum, field=f"annotation {JOB_MIN_PARALLELISM_ANNOTATION}", maximum=MAX_INT32
            )
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
        """Whether the pod set still matches the Job; for a started Job, with what was injected and the partial count.

        Raises `BadInput`.
        """
        pod_sets: Sequence[JsonObject] = (workload.get("spec") or {}).get("podSets") or ()
        if len(pod_sets) != 1:
            return False
        wanted: JsonObject = dict(pod_sets[0])
        (found,) = self.pod_sets(job)
        for info in infos:
            wanted["template"] = injected(wanted.get("template") or {}, info)
            wanted["count"] = info.count
        if not all(same(found.get(field), wanted.get(field)) for field in ("count", "minCount")):
            return False
        template, stored = _comparable(found.get("template") or {}), wanted.get("template") or {}
        # Usually as we wrote it; another schema may have kept more fields than ours.
        return same(template, _comparable(stored)) or same(template, _comparable(stored_template(stored)))

    def differences(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> tuple[str, ...]:
        """The differences between the Job's pods and a Workload that a user created for it. Raises `BadInput`."""
        pod_sets: Sequence[JsonObject] = (workload.get("spec") or {}).get("podSets") or ()
        if len(pod_sets) != 1:
            return (f"podSets: Job has 1, Workload has {len(pod_sets)}",)
        wanted: JsonObject = dict(pod_sets[0])
        (found,) = self.pod_sets(job)
        for info in infos:
            wanted["template"] = injected(wanted.get("template") or {}, info)
            wanted["count"] = info.count
        return differences(found, wanted, at="podSets[0]")

    def start(self, job: JsonObject, infos: Sequence[PodSetInfo]) -> JobWrite:
        """Inject and unsuspend. Raises `InjectionConflict`."""
        spec = _spec(job)
        body: JsonObject = {"spec": merge_patch(spec, _started(job, infos))}
        if STOPPING_ANNOTATION in _map(job, "annotations"):
            body["metadata"] = {"annotations": {STOPPING_ANNOTATION: None}}
        return JobWrite(body=body)

    def stop(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JobWrite | None:
        """Suspend; then clear `startTime`; then, when no pod is left, restore the template.

        The annotation marks a stop in progress, so that it is finished after a restart. None if nothing can be written
        now: it is done, or pods are still terminating.
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
        # Only admission in part lowers it; a size that a user has given the job stays.
        partial = bool(pod_sets) and pod_sets[0].get("minCount") is not None
        count = count_of(pod_sets[0], "count", at="podSets[0]", default=1) if partial else 0
        if _count(restored) < count:
            restored |= _sized(job, count)
        patch = merge_patch(spec, restored)
        metadata = {"annotations": {STOPPING_ANNOTATION: None}}
        return JobWrite(body={"metadata": metadata, **({"spec": patch} if patch else {})})

    def finished(self, job: JsonObject) -> JobEnd | None:
        """Complete or Failed, with the condition's message."""
        for condition in _status(job).get("conditions") or ():
            if condition.get("status") != "True":
                continue
            reason = _ENDS.get(str(condition.get("type")))
            if reason is not None:
                time = str(condition.get("lastTransitionTime") or "")
                return JobEnd(reason=reason, message=str(condition.get("message") or ""), time=time)
        return None

    def pods_ready(self, job: JsonObject) -> bool:
        """Whether enough pods are ready or have succeeded."""
        status = _status(job)
        uncounted = (status.get("uncountedTerminatedPods") or {}).get("succeeded") or ()
        done = count_of(status, "succeeded", at="status") + count_of(status, "ready", at="status") + len(uncounted)
        return done >= _count(_spec(job))

    def pods_started(self, job: JsonObject) -> bool:
        """Whether `status` counts a ready, succeeded, failed or terminating pod."""
        status = _status(job)
        uncounted: JsonObject = status.get("uncountedTerminatedPods") or {}
        return any(status.get(name) for name in _PODS_STARTED) or any(uncounted.values())

    def pod_selector(self, job: JsonObject) -> str:
        """`spec.selector.matchLabels`, which the API server adds."""
        labels: Mapping[str, str] = (_spec(job).get("selector") or {}).get("matchLabels") or {}
        return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    def reclaimable(self, job: JsonObject) -> tuple[Reclaimable, ...]:
        """The pods of a parallel Job for which no work is left. Raises `BadInput`."""
        spec, status = _spec(job), _status(job)
        parallelism = count_of(spec, "parallelism", at="spec", default=1)
        if parallelism <= 1 or spec.get("completions") is None:
            return ()
        if spec.get("completionMode") == "Indexed":
            ended = len(_indexes(status, "completedIndexes") | _indexes(status, "failedIndexes"))
        else:
            ended = count_of(status, "succeeded", at="status")
        remaining = count_of(spec, "completions", at="spec") - ended
        if ended == 0 or remaining >= parallelism:
            return ()
        return (Reclaimable(name=DEFAULT_POD_SET, count=parallelism - max(0, remaining)),)

    def refusals(
        self, new: JsonObject, old: JsonObject | None, *, has_default_queue: bool, gate: Gate
    ) -> tuple[str, ...]:
        """See `validate_job`."""
        return refusals_as(
            Job,
            lambda job, before: validate_job(job, before, has_default_queue=has_default_queue, gate=gate),
            new,
            old,
        )

    def remote_manifest(self, job: JsonObject, infos: Sequence[PodSetInfo], *, identity: RemoteIdentity) -> JsonObject:
        """The started Job without owner, time to live, and a controller that would not run it."""
        metadata: JsonObject = job.get("metadata") or {}
        annotations = propagated_annotations(_map(job, "annotations"))
        annotations.pop(_LAST_APPLIED, None)
        annotations.pop(STOPPING_ANNOTATION, None)
        if any(info.count < _count(_spec(job)) for info in infos):
            # The hub has chosen the number. Webhooks of the worker would compare the minimum with it.
            annotations.pop(JOB_MIN_PARALLELISM_ANNOTATION, None)
        annotations |= {
            PREBUILT_WORKLOAD_ANNOTATION: identity.workload_name,
            EPOCH_ANNOTATION: str(identity.epoch),
            MANAGER_UID_ANNOTATION: identity.manager_uid,
            CLUSTER_LABEL: identity.cluster,
            ASSIGNMENT_ANNOTATION: identity.assignment,
        }
        labels = propagated_labels(_map(job, "labels"))
        if labels.get(PREBUILT_WORKLOAD_LABEL) != identity.workload_name:
            # A queueing engine of the worker would charge the job to another Workload.
            labels.pop(PREBUILT_WORKLOAD_LABEL, None)
        spec = {key: value for key, value in _started(job, infos).items() if key not in _NOT_FOR_WORKERS}
        template: JsonObject = dict(spec.get("template") or {})
        pod_metadata: JsonObject = dict(template.get("metadata") or {})
        pod_metadata.pop("creationTimestamp", None)
        pod_metadata["labels"] = {WORKER_WORKLOAD_POD_LABEL: "true"} | {
            key: value for key, value in (pod_metadata.get("labels") or {}).items() if key not in _CONTROLLER_LABELS
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
                "labels": labels | {ORIGIN_LABEL: identity.origin},
                "annotations": annotations,
            },
            "spec": spec,
        }

    def queued_manifest(self, manifest: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """Suspended, with the template of the Workload; fields that it lacks are taken from the Job."""
        spec = {**manifest["spec"], "suspend": True}
        if len(pod_sets) == 1:
            template, original = spec["template"], pod_sets[0]["template"]
            metadata = restored_metadata(template.get("metadata") or {}, original.get("metadata") or {})
            # Set by Kubernetes: the values of the hub's Job are wrong on the worker.
            labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k not in _CONTROLLER_LABELS}
            spec["template"] = {
                "metadata": {**metadata, "labels": {**labels, WORKER_WORKLOAD_POD_LABEL: "true"}},
                "spec": {**restored_spec(template.get("spec") or {}, {}), **original["spec"]},
            }
        return {**manifest, "spec": spec}

    def forwards(self) -> bool:
        """No: only the size of an elastic Job."""
        return False

    def without_forwarding(self) -> BatchJob:
        """Itself: what else is forwarded is none of its fields."""
        return self

    def forwarded_digest(self, job: JsonObject) -> str:
        """Empty: the size is that of the Workload."""
        return ""

    def forwarded_patch(self, remote: JsonObject, manifest: JsonObject) -> JsonObject | None:
        """The merge patch of the size of an elastic Job; None if it has it. Of an indexed one the API wants both."""
        if not is_elastic(manifest):
            return None
        sizes = ("parallelism", "completions") if _spec(remote).get("completionMode") == "Indexed" else ("parallelism",)
        wanted = {name: _spec(manifest)[name] for name in sizes if name in _spec(manifest)}
        patch = {name: value for name, value in wanted.items() if _spec(remote).get(name) != value}
        return {"spec": patch} if patch else None

    def limited(self, job: JsonObject, sizes: Mapping[str, int]) -> JsonObject | None:
        """The Job itself: `remote_manifest` limits it."""
        return job

    def as_sent(self, manifest: JsonObject, sent: JsonObject) -> JsonObject:
        """The manifest."""
        return manifest

    def local_manifest(self, remote: JsonObject) -> JsonObject:
        """The Job that a user would have submitted; its time to live is lost, since remote jobs have none."""
        metadata: JsonObject = remote.get("metadata") or {}
        spec = {key: value for key, value in _spec(remote).items() if key not in _NOT_FOR_WORKERS}
        template: JsonObject = spec.get("template") or {}
        pod_metadata: JsonObject = dict(template.get("metadata") or {})
        pod_metadata.pop("creationTimestamp", None)
        foreign = _CONTROLLER_LABELS | INJECTED_KEYS | PROVISIONED_KEYS
        for field in ("labels", "annotations"):
            pod_metadata[field] = {k: v for k, v in (pod_metadata.get(field) or {}).items() if k not in foreign}
        ours = {*_REMOTE_JOB_KEYS, ORIGIN_LABEL, *_CONTROLLER_LABELS}
        return {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {
                "name": metadata.get("name"),
                "namespace": metadata.get("namespace"),
                "labels": {key: value for key, value in _map(remote, "labels").items() if key not in ours},
                "annotations": {key: value for key, value in _map(remote, "annotations").items() if key not in ours},
            },
            "spec": {
                **spec,
                "template": {**template, "metadata": pod_metadata},
                "suspend": True,
                "managedBy": MULTIKUEUE_MANAGED_BY,
            },
        }

    def sync_status(self, local: JsonObject, remote_status: JsonObject) -> StatusSync:
        """See `job_status`."""
        return job_status.synced(local, remote_status)

    def suspended_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """See `job_status`; None for a Job that the built-in controller runs."""
        if self.managed_by(local) != MULTIKUEUE_MANAGED_BY:
            return None
        return job_status.suspended(local, now=format_time(now))

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
        spec |= _sized(job, info.count)
    return spec


def _sized(job: JsonObject, pods: int) -> JsonObject:
    """The fields of its spec with which so many pods of a Job run at once."""
    equal = _map(job, "annotations").get(JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION) == "true"
    return {"parallelism": pods, **({"completions": pods} if equal else {})}


def _restored(spec: JsonObject, pod_set: JsonObject) -> JsonObject:
    original: JsonObject = pod_set.get("template") or {}
    template: JsonObject = spec.get("template") or {}
    metadata: JsonObject = template.get("metadata") or {}
    restored = restored_metadata(metadata, original.get("metadata") or {})
    foreign = _CONTROLLER_LABELS | {WORKER_WORKLOAD_POD_LABEL}
    # They are immutable, and in the pod set of a prebuilt Workload they are of another Job.
    labels = {
        **{key: value for key, value in (restored.pop("labels", None) or {}).items() if key not in foreign},
        **{key: value for key, value in (metadata.get("labels") or {}).items() if key in foreign},
    }
    return {
        **template,
        "metadata": {**restored, **({"labels": labels} if labels else {})},
        # Other fields of a Job are immutable, and the Workload need not have all of them.
        "spec": restored_spec(template.get("spec") or {}, original.get("spec") or {}),
    }


def _count(spec: JsonObject) -> int:
    parallelism = count_of(spec, "parallelism", at="spec", default=1)
    return min(parallelism, count_of(spec, "completions", at="spec", default=parallelism))


def _indexes(status: JsonObject, name: str) -> Intervals:
    return Intervals.parse(str(status.get(name) or ""), field=f"status.{name}")


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
    """Without the labels of the Job controller, which differ between the local and the remote job."""
    metadata: JsonObject = template.get("metadata") or {}
    foreign = _CONTROLLER_LABELS | {WORKER_WORKLOAD_POD_LABEL}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in foreign}
    return {**template, "metadata": {**metadata, "labels": labels}}
