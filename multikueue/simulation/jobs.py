# SPDX-License-Identifier: Apache-2.0
"""Jobs as the Workloads that the manager would make of them.

Owns what the manager's webhook and Job reconciler do on the way: default queue and class, priority, the name. A Job
whose Workload is among the manifests, or that has ended, makes none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from multikueue.api.constants import (
    BATCH_JOB_FRAMEWORK,
    DEFAULT_LOCAL_QUEUE,
    DEFAULT_PRIORITY_CLASS,
    POD_PRIORITY_CLASS_GROUP,
    PREBUILT_WORKLOAD_LABEL,
    WORKLOAD_PRIORITY_CLASS_GROUP,
)
from multikueue.api.defaulting import JobSurroundings, default_job
from multikueue.api.objects import JsonObject
from multikueue.api.reasons import QuotaReservedReason
from multikueue.api.resource import JOBS
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.integrations import priorities, workloads
from multikueue.integrations.priorities import PriorityClasses, UnknownPriorityClass
from multikueue.integrations.registry import Registry
from multikueue.simulation.refusals import Refusal


@dataclass(frozen=True)
class Classes:
    """All priority classes, by group and name, as objects."""

    by_name: Mapping[tuple[str, str], JsonObject]

    def value(self, group: str, name: str) -> int | None:
        """The value of a class; None for one that is not there."""
        found = self.by_name.get((group, name))
        return None if found is None else int(found.get("value") or 0)

    def known(self) -> PriorityClasses:
        """The classes as the resolution of a job's priority asks for them."""
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


class Jobs:
    """Makes Workloads of Jobs; `local_queues` and `owners` are those among the manifests."""

    def __init__(self, *, classes: Classes, local_queues: Collection[Key], owners: Collection[tuple[str, str]]) -> None:
        self._classes = classes
        self._local_queues = local_queues
        self._owners = owners
        self._registry = Registry([BATCH_JOB_FRAMEWORK])

    def workload_of(self, job: JsonObject) -> JsonObject | Refusal | None:
        """The Workload, or why the manager makes none; None for a Job that is none of its business any more.

        Raises `BadInput`.
        """
        integration = self._registry.for_kind(str(job.get("apiVersion")), "Job")
        if integration is None or job["apiVersion"] != JOBS.api_version:
            raise BadInput(f"Jobs of {job.get('apiVersion')} are not known; use {JOBS.api_version}")
        metadata: JsonObject = job["metadata"]
        namespace = str(metadata["namespace"])
        if self._has_workload(metadata, namespace) or integration.finished(job) is not None:
            return None
        made_here = JobSurroundings(
            default_queue=Key(namespace, DEFAULT_LOCAL_QUEUE) in self._local_queues,
            default_priority_class=self._classes.value(WORKLOAD_PRIORITY_CLASS_GROUP, DEFAULT_PRIORITY_CLASS)
            is not None,
        )
        job = default_job(job, made_here)
        if not integration.queue_name(job):
            return None
        try:
            priority = priorities.resolve(integration.priority(job), self._classes.known())
        except UnknownPriorityClass as error:
            key = Key(namespace, workloads.name_for(job, integration))
            return Refusal(key, QuotaReservedReason.MISCONFIGURED, str(error))
        made = workloads.workload_for(job, integration, priority=priority)
        made["metadata"]["creationTimestamp"] = metadata.get("creationTimestamp")
        return made

    def _has_workload(self, metadata: JsonObject, namespace: str) -> bool:
        marks = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
        if marks.get(PREBUILT_WORKLOAD_LABEL):
            return True
        identity = metadata.get("uid") or metadata["name"]
        return (namespace, str(identity)) in self._owners


def owners(workload_objects: Iterable[JsonObject]) -> set[tuple[str, str]]:
    """The Jobs that own Workloads, as namespace and name, and as namespace and uid."""
    found = set()
    for obj in workload_objects:
        metadata: JsonObject = obj["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("kind") == _JOB:
                for identity in (owner.get("name"), owner.get("uid")):
                    if identity:
                        found.add((str(metadata.get("namespace")), str(identity)))
    return found


_JOB: Final = JOBS.kind
