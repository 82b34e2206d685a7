# SPDX-License-Identifier: Apache-2.0
"""The steps that a decision about a job consists of; the job reconciler carries them out."""

from __future__ import annotations

from dataclasses import dataclass

from manager.workload.status_writer import Change
from multikueue.api.meta import JsonObject
from multikueue.jobs.framework.protocol import JobWrite, Reclaimable
from multikueue.jobs.framework.workloads import Priority


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Make the Workload of the job; of an elastic one a slice, which replaces another if that is set."""

    replaces: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class UpdateWorkload:
    """Update the spec of a Workload without a reservation to what the job specifies now."""

    workload: JsonObject


@dataclass(frozen=True, slots=True)
class ResizeWorkload:
    """Give a slice of an elastic job another size; of one with quota, which shrinks, the rest is free at once."""

    workload: JsonObject
    pod_sets: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True)
class SetPriority:
    """The job names another priority class now."""

    workload: JsonObject
    priority: Priority


@dataclass(frozen=True, slots=True)
class FollowJob:
    """A field of the job changed that its Workload follows at any time; `patch` is the change of the Workload."""

    workload: JsonObject
    patch: JsonObject


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """Delete a Workload that belongs to no job."""

    workload: JsonObject


@dataclass(frozen=True, slots=True)
class OwnWorkload:
    """Make the job the owner of its prebuilt Workload."""

    workload: JsonObject


@dataclass(frozen=True, slots=True)
class ReleaseWorkload:
    """Remove our finalizer."""

    workload: JsonObject


@dataclass(frozen=True, slots=True)
class WriteJob:
    """Start or stop the job; the event records which, and why."""

    write: JobWrite
    event: str
    message: str


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Change the Workload's status; with an event about the job when it has a name."""

    workload: JsonObject
    change: Change
    event: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class WriteReclaimable:
    """Report how many pods need their quota no longer."""

    workload: JsonObject
    pods: tuple[Reclaimable, ...]


@dataclass(frozen=True, slots=True)
class WarnOwner:
    """Record a warning event about the job: what is wrong, and where; the other steps are still taken."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Nothing can be done yet, and no change of these objects will announce when it can."""


Step = (
    CreateWorkload
    | UpdateWorkload
    | ResizeWorkload
    | SetPriority
    | FollowJob
    | DeleteWorkload
    | OwnWorkload
    | ReleaseWorkload
    | WriteJob
    | WriteStatus
    | WriteReclaimable
    | WarnOwner
    | LookAgain
)
