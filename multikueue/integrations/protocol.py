# SPDX-License-Identifier: Apache-2.0
"""What a job kind must answer to be queued, dispatched and mirrored.

Owns the interface and the values that pass through it. Jobs go in and out as decoded JSON: a kind belongs to somebody
else, and what we do not know of it must survive. Every function is pure; who sends the writes is a reconciler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.errors import MultikueueError


class InjectionConflict(MultikueueError):
    """What admission wants to add to a pod template contradicts what stands there; the workload cannot start."""


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
    """Where a job's priority may come from, the first that is named; all empty means the cluster's default."""

    workload_class: str = ""
    job_class: str = ""
    pod_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """That a job has ended, with the reason and message of the Workload's Finished condition."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWrite:
    """One merge patch to a job; an empty subresource is the object itself."""

    body: JsonObject
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimable:
    """How many pods of a pod set need their quota no more."""

    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """What is to be written so that the local job shows the remote one's status.

    No write: it shows it already. `deferred`: it may not be shown yet; ask again when the local job changes, and
    after `retry_after` seconds at the latest.
    """

    write: JobWrite | None = None
    deferred: bool = False
    retry_after: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteIdentity:
    """The marks by which a job on a worker is known to be ours, and which dispatch it belongs to."""

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
    copies_labels: bool
    """Whether all labels of the job go to its Workload, and not only those that the Configuration names."""

    def managed_by(self, job: JsonObject) -> str:
        """The controller that the job says runs it; empty when it says nothing."""

    def queue_name(self, job: JsonObject) -> str:
        """The LocalQueue it was submitted to; empty when it was not."""

    def is_suspended(self, job: JsonObject) -> bool:
        """Whether the job is told not to run."""

    def is_active(self, job: JsonObject) -> bool:
        """Whether it still has pods, by its status."""

    def pod_sets(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """`spec.podSets` of its Workload. Raises `BadInput`."""

    def priority(self, job: JsonObject) -> PriorityHint:
        """Which priority class counts."""

    def matches(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> bool:
        """Whether `workload` still stands for `job`; for a started job, with what admission had added."""

    def start(self, job: JsonObject, infos: Sequence[PodSetInfo]) -> JobWrite:
        """The patch that injects and unsuspends in one. Raises `InjectionConflict`."""

    def stop(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JobWrite | None:
        """The next patch on the way to a suspended job with its original template; None when it is there."""

    def finished(self, job: JsonObject) -> JobEnd | None:
        """Whether and how it ended."""

    def pods_ready(self, job: JsonObject) -> bool:
        """Whether all its pods are ready or have succeeded."""

    def reclaimable(self, job: JsonObject) -> tuple[Reclaimable, ...]:
        """Pods that have ended and will not be replaced."""

    def remote_manifest(self, job: JsonObject, infos: Sequence[PodSetInfo], *, identity: RemoteIdentity) -> JsonObject:
        """The job as it is created on a worker, started. Raises `InjectionConflict`."""

    def local_manifest(self, remote: JsonObject) -> JsonObject:
        """The job as its user would submit it, from its copy on a worker: suspended, and ours to dispatch."""

    def mirror_status(self, local: JsonObject, remote_status: JsonObject) -> Mirror:
        """What brings the local job's status to the remote's."""

    def stopped_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """The write that says that no pod runs any more; None when the status says so already."""
