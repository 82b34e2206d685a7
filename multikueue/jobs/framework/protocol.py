# SPDX-License-Identifier: Apache-2.0
"""The interface of a job kind: what it must provide to be queued, dispatched and synced.

Jobs are decoded JSON: the kind belongs to others, and unknown fields must survive. Every method is pure; reconcilers
send the writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.errors import MultikueueError
from multikueue.jobs.framework.traits import JobTraits


class InjectionConflict(MultikueueError):
    """Admission would add a value to a pod template that has another one; the workload cannot start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetInfo:
    """What admission adds to one pod set when its job starts."""

    name: str
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[JsonObject] = ()
    scheduling_gates: Sequence[JsonObject] = ()


@dataclass(frozen=True, slots=True)
class PriorityHint:
    """The priority classes of a job, of which the first counts; all empty for the cluster's default."""

    workload_class: str = ""
    job_class: str = ""
    pod_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """That a job has ended, with the reason and message of the Workload's Finished condition.

    `time` is the moment as the job's status has it, unchecked; empty if it has none.
    """

    reason: str
    message: str
    time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWrite:
    """One merge patch to a job; an empty subresource is the object itself.

    `delete`: the object is deleted instead. `target` is the object of a group that is written, without one the job
    itself, and `resource` its kind if that is another one; `also` are writes to further objects, in this order.
    """

    body: JsonObject = field(default_factory=dict)
    subresource: str = ""
    delete: bool = False
    target: JsonObject | None = None
    resource: Resource | None = None
    also: tuple[JobWrite, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimable:
    """How many pods of a pod set no longer need their quota."""

    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSync:
    """The write that syncs the remote job's status to the local job; None if it is up to date.

    `deferred`: it cannot be written yet; try again when the local job changes, after `retry_after` seconds at the
    latest.
    """

    write: JobWrite | None = None
    deferred: bool = False
    retry_after: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteIdentity:
    """The labels and annotations that identify a remote job and its dispatch."""

    workload_name: str
    origin: str
    epoch: int
    manager_uid: str
    cluster: str
    assignment: str


class JobIntegration(Protocol):
    """One job kind."""

    framework: str
    resource: Resource
    traits: JobTraits
    copies_labels: bool
    """Whether all labels of the job are copied to its Workload, not only those named in the Configuration."""

    def managed_by(self, job: JsonObject) -> str:
        """The controller in the job's managedBy; empty if unset."""

    def queue_name(self, job: JsonObject) -> str:
        """The LocalQueue it was submitted to; empty if none."""

    def is_suspended(self, job: JsonObject) -> bool:
        """Whether the job is suspended in its spec."""

    def is_active(self, job: JsonObject) -> bool:
        """Whether it still has pods, according to its status."""

    def may_have_pods(self, job: JsonObject) -> bool:
        """Whether pods of it may run or be created: until its controller reports that a suspended job has stopped."""

    def pod_sets(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """`spec.podSets` of its Workload. Raises `BadInput`."""

    def priority(self, job: JsonObject) -> PriorityHint:
        """The priority classes that may count."""

    def matches(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> bool:
        """Whether `workload` still matches `job`; for a started job, with what admission added.

        Raises `BadInput`.
        """

    def differences(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> tuple[str, ...]:
        """The differences between the pods of `job` and of a `workload` that a user created for it.

        One text per field, with its path. Raises `BadInput`.
        """

    def start(self, job: JsonObject, infos: Sequence[PodSetInfo]) -> JobWrite:
        """The patch that injects and unsuspends at once. Raises `InjectionConflict`."""

    def stop(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JobWrite | None:
        """The next patch towards a suspended job with its original template; None if none is needed."""

    def finished(self, job: JsonObject) -> JobEnd | None:
        """How it ended; None while it has not."""

    def pods_ready(self, job: JsonObject) -> bool:
        """Whether all its pods are ready or have succeeded. Raises `BadInput`."""

    def pods_started(self, job: JsonObject) -> bool:
        """Whether a pod of it is ready or has ended, according to its status; invalid counts count as one."""

    def pod_selector(self, job: JsonObject) -> str:
        """The label selector of its pods; empty if they cannot be selected."""

    def reclaimable(self, job: JsonObject) -> tuple[Reclaimable, ...]:
        """Pods that have ended and will not be replaced. Raises `BadInput`."""

    def remote_manifest(self, job: JsonObject, infos: Sequence[PodSetInfo], *, identity: RemoteIdentity) -> JsonObject:
        """The job as it is created on a worker, started. Raises `InjectionConflict`."""

    def queued_manifest(self, manifest: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """The remote job for the queues of a worker: suspended, and without what the hub's flavors added to it.

        `pod_sets` are those of the Workload.
        """

    def local_manifest(self, remote: JsonObject) -> JsonObject:
        """The job as its user would submit it, from the remote job: suspended, and managed by MultiKueue."""

    def sync_status(self, local: JsonObject, remote_status: JsonObject) -> StatusSync:
        """The sync of the remote status to the local job. Raises `BadInput` for an invalid status."""

    def suspended_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """The write that marks a waiting job as suspended; None if it is, or if another controller runs the job."""

    def stopped_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """The write that sets the pod counts to zero; None if they are."""
