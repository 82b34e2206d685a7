# SPDX-License-Identifier: Apache-2.0
"""Jobs of every kind as the Workloads that the manager would create for them.

Owns what the manager's webhook and job reconciler do on the way: default queue and class, priority, the name. A job
that has ended, that runs in the Workload of its owner, or whose Workload is among the manifests, creates none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from multikueue.api.constants import (
    DEFAULT_LOCAL_QUEUE,
    DEFAULT_PRIORITY_CLASS,
    DEFAULT_QUEUE_LABEL,
    POD_PRIORITY_CLASS_GROUP,
    PREBUILT_WORKLOAD_LABEL,
    QUEUE_NAME_LABEL,
    WORKLOAD_PRIORITY_CLASS_GROUP,
)
from multikueue.api.defaulting import JobSurroundings
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.reasons import QuotaReservedReason
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.jobs.framework import workloads
from multikueue.jobs.framework.admission import defaulted
from multikueue.jobs.framework.capabilities import GroupedKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.runtimes import GivenRuntimes
from multikueue.jobs.framework.workloads import PriorityClasses, UnknownPriorityClass
from multikueue.simulation.job_kinds import SimulatedKinds, unsupported_version

MAX_DEPTH = 10
"""How many owners are followed, as the manager does."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A workload that is not queued, and why."""

    workload: Key
    reason: str
    message: str


@dataclass(frozen=True)
class Classes:
    """All priority classes, by group and name, as objects."""

    by_name: Mapping[tuple[str, str], JsonObject]

    def value(self, group: str, name: str) -> int | None:
        """The value of a class; None if it does not exist."""
        found = self.by_name.get((group, name))
        return None if found is None else int(found.get("value") or 0)

    def known(self) -> PriorityClasses:
        """The classes as needed to resolve a job's priority."""
        return PriorityClasses(
            workload=lambda name: self.value(WORKLOAD_PRIORITY_CLASS_GROUP, name),
            pod=lambda name: self.value(POD_PRIORITY_CLASS_GROUP, name),
            default=lambda: self._default,
        )

    @cached_property
    def _default(self) -> tuple[str, int] | None:
        for (group, name), obj in self.by_name.items():
            if group == POD_PRIORITY_CLASS_GROUP and obj.get("globalDefault") is True:
                return name, int(obj.get("value") or 0)
        return None


class JobPlaces:
    """What defaulting a job depends on, from the manifests: queues, namespaces, classes and owners."""

    def __init__(
        self,
        kinds: SimulatedKinds,
        *,
        local_queues: Collection[Key],
        has_default_class: bool = False,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        jobs: Iterable[JsonObject] = (),
    ) -> None:
        """`namespaces` has the labels of each one; `jobs` are those that may own others."""
        self._kinds = kinds
        self._local_queues = local_queues
        self._has_default_class = has_default_class
        self._namespaces = namespaces or {}
        self._jobs = {_identity(job): job for job in jobs}

    def manages(self, namespace: str) -> bool:
        """Whether the jobs of a namespace are managed."""
        return self._kinds.manages(self._namespaces.get(namespace, {}))

    def of(self, job: JsonObject) -> JobSurroundings:
        """The surroundings of a job."""
        return self._of(job, owner_managed=self._owner_managed(job))

    def _of(self, job: JsonObject, *, owner_managed: bool) -> JobSurroundings:
        namespace = str(job["metadata"]["namespace"])
        return JobSurroundings(
            namespace_managed=self.manages(namespace),
            namespace_queue=str(self._namespaces.get(namespace, {}).get(DEFAULT_QUEUE_LABEL) or ""),
            default_queue=Key(namespace, DEFAULT_LOCAL_QUEUE) in self._local_queues,
            default_priority_class=self._has_default_class,
            owner_managed=owner_managed,
            manage_unqueued=self._kinds.manage_unqueued,
        )

    def _owner_managed(self, job: JsonObject) -> bool:
        """Whether an owner of an enabled kind is among the manifests and is queued."""
        for _ in range(MAX_DEPTH):
            owner = controller_of(job)
            parent = None if owner is None else self._jobs.get(_owner_identity(job, owner))
            if parent is None:
                return False
            integration = self._kinds.integration(*_group_kind(parent))
            if integration is not None:
                placed = defaulted(parent, integration, self._of(parent, owner_managed=False))
                if self._kinds.manage_unqueued or integration.queue_name(placed):
                    return True
            job = parent
        return False


class SimulatedJobs:
    """Creates Workloads for jobs; `local_queues`, `owners` and `runtimes` are among the manifests."""

    def __init__(
        self,
        *,
        classes: Classes,
        local_queues: Collection[Key],
        owners: Collection[JobIdentity],
        kinds: SimulatedKinds | None = None,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        jobs: Iterable[JsonObject] = (),
        runtimes: Iterable[JsonObject] = (),
    ) -> None:
        self._runtimes = GivenRuntimes(runtimes)
        self._classes = classes
        self._owners = owners
        self._kinds = kinds or SimulatedKinds()
        self._places = JobPlaces(
            self._kinds,
            local_queues=local_queues,
            has_default_class=classes.value(WORKLOAD_PRIORITY_CLASS_GROUP, DEFAULT_PRIORITY_CLASS) is not None,
            namespaces=namespaces,
            jobs=jobs,
        )

    def group_of(self, job: JsonObject) -> Key | None:
        """The group that an object belongs to, whose members share one Workload; None for a job of its own."""
        integration = self._kinds.integration(*_group_kind(job))
        name = integration.group_of(job) if isinstance(integration, GroupedKind) else ""
        return Key(str(job["metadata"]["namespace"]), name) if name else None

    def workload_of(self, job: JsonObject, *others: JsonObject) -> JsonObject | Refusal | None:
        """The Workload, or why the manager creates none; None for a job that needs none any more.

        `others` are the further members of its group. Raises `BadInput`.
        """
        integration = self._kinds.integration(*_group_kind(job))
        if integration is None:
            raise BadInput(f"{excerpt(job.get('kind'))}: {self._kinds.why_not(*_group_kind(job))}")
        if job["apiVersion"] != integration.resource.api_version:
            raise BadInput(unsupported_version(job.get("apiVersion"), integration))
        members = [self._placed(each, integration) for each in (job, *others)]
        if any(self._has_workload(each) for each in members):
            return None
        if isinstance(integration, GroupedKind) and integration.group_of(job):
            job = integration.composed(members)
            waits = integration.incomplete(job)
            if waits:
                return self._refusal(job, integration, waits)
        else:
            job = self._runtimes.added_to(members[0], integration)
        if integration.finished(job) is not None or not integration.queue_name(job):
            return None
        try:
            priority = workloads.resolved_priority(integration.priority(job), self._classes.known())
        except UnknownPriorityClass as error:
            return self._refusal(job, integration, str(error))
        made = workloads.workload_for(job, integration, priority=priority)
        made["metadata"]["creationTimestamp"] = job["metadata"].get("creationTimestamp") or None
        return made

    def _placed(self, job: JsonObject, integration: JobIntegration) -> JsonObject:
        """The job as its webhook leaves it; a member of a group has all that it is ordered and owned by."""
        surroundings = self._places.of(job)
        if surroundings.owner_managed:
            labels = job["metadata"].get("labels") or {}
            job = job | {"metadata": job["metadata"] | {"labels": _without_queue(labels)}}
        else:
            job = defaulted(job, integration, surroundings)
        if isinstance(integration, GroupedKind) and integration.group_of(job):
            job = job | {"metadata": {"uid": "", "creationTimestamp": "", **job["metadata"]}}
        return job

    def _refusal(self, job: JsonObject, integration: JobIntegration, why: str) -> Refusal:
        key = Key(str(job["metadata"]["namespace"]), workloads.name_for(job, integration))
        return Refusal(key, QuotaReservedReason.MISCONFIGURED, why)

    def _has_workload(self, job: JsonObject) -> bool:
        return names_workload(job) or _identity(job) in self._owners


def names_workload(job: JsonObject) -> bool:
    """Whether the job names the Workload that it is to have, which its user creates."""
    metadata: JsonObject = job["metadata"]
    marks = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    return bool(marks.get(PREBUILT_WORKLOAD_LABEL))


JobIdentity = tuple[str, str, str]
"""Namespace and kind, and the uid of a job that has one, else its name."""


def owners(workload_objects: Iterable[JsonObject]) -> set[JobIdentity]:
    """The jobs that own Workloads, each by its name and by its uid."""
    found = set()
    for obj in workload_objects:
        metadata: JsonObject = obj["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            for identity in (owner.get("name"), owner.get("uid")):
                if identity:
                    found.add((str(metadata.get("namespace")), str(owner.get("kind")), str(identity)))
    return found


def members_by_group(jobs: SimulatedJobs, objects: Sequence[JsonObject]) -> dict[Key, list[JsonObject]]:
    """The members of each group, in order."""
    found: dict[Key, list[JsonObject]] = {}
    for obj in objects:
        group = jobs.group_of(obj)
        if group is not None:
            found.setdefault(group, []).append(obj)
    return found


def _group_kind(job: JsonObject) -> tuple[str, str]:
    return str(job.get("apiVersion")).rpartition("/")[0], str(job.get("kind"))


def _identity(job: JsonObject) -> JobIdentity:
    metadata: JsonObject = job["metadata"]
    return str(metadata["namespace"]), str(job.get("kind")), str(metadata.get("uid") or metadata["name"])


def _owner_identity(job: JsonObject, owner: JsonObject) -> JobIdentity:
    return str(job["metadata"]["namespace"]), str(owner.get("kind")), str(owner.get("uid") or owner.get("name"))


def _without_queue(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key != QUEUE_NAME_LABEL}
