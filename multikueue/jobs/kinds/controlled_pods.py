# SPDX-License-Identifier: Apache-2.0
"""What Deployment, StatefulSet and LeaderWorkerSet share: another controller makes their pods from templates.

They have neither `suspend` nor `managedBy`. The webhook repeats their queue in the templates, so that their pods are
gated, and whatever needs a Workload is left to the kinds that have one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import ClassVar

from multikueue.api.constants import PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL
from multikueue.api.defaulting import JobSurroundings
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.api.validation.topology import AnnotatedPodSet
from multikueue.core.errors import BadInput
from multikueue.jobs.declared.template_types import pod_template
from multikueue.jobs.framework import templated_queue
from multikueue.jobs.framework.admission import common_refusals
from multikueue.jobs.framework.protocol import (
    JobEnd,
    JobIntegration,
    JobWrite,
    PodSetInfo,
    PriorityHint,
    Reclaimable,
    RemoteIdentity,
)
from multikueue.jobs.framework.templated_queue import TEMPLATE, TemplatePath, annotations_of, labels_of, template_of
from multikueue.jobs.framework.topology_requests import topology_refusals
from multikueue.jobs.framework.traits import JobTraits


class ControlledPods(JobIntegration, ABC):
    """An integration of such a kind, without what concerns its Workload."""

    framework: str
    resource: Resource
    traits: JobTraits
    copies_labels: bool = False
    not_grouped: ClassVar[str]
    """Why its pods are in no pod group of their user."""
    not_remote: ClassVar[str]
    """Why the object itself is not on a worker."""
    takes_prebuilt: ClassVar[bool] = False
    """Whether it may name the Workload that it is to have."""

    def template_paths(self, job: JsonObject) -> Sequence[TemplatePath]:
        """Where its pod templates are."""
        return (TEMPLATE,)

    @abstractmethod
    def update_refusals(self, new: JsonObject, old: JsonObject) -> Sequence[str]:
        """Why it may not be changed so, by the rules of its kind; one of both is queued."""

    @abstractmethod
    def is_active(self, job: JsonObject) -> bool:
        """Whether it has pods that run, according to its status or to themselves."""

    def defaulted(self, job: JsonObject, surroundings: JobSurroundings) -> JsonObject:
        """With its queue in the pod templates."""
        return templated_queue.with_queue(job, self.framework, paths=self.template_paths(job))

    def updated(self, new: JsonObject, old: JsonObject) -> JsonObject:
        """With its queue, or without one, in the pod templates as in its labels."""
        paths = self.template_paths(new)
        if self.queue_name(new):
            return templated_queue.with_queue(new, self.framework, paths=paths)
        return templated_queue.without_queue(new, paths=paths) if templated_queue.is_left(new, old) else new

    def refusals(
        self, new: JsonObject, old: JsonObject | None, *, has_default_queue: bool, gate: Gate
    ) -> tuple[str, ...]:
        """What holds for every kind, for its pod templates, and for a change of it; nothing without a queue."""
        if not any(self.queue_name(each) for each in (new, old or {})):
            return ()
        # Only the API server writes the status, and an update of the rest may show any.
        seen = new if old is None else {**new, "status": old.get("status") or {}}
        found = [
            *common_refusals(seen, old, self, has_default_queue=has_default_queue, gate=gate),
            *(() if self.takes_prebuilt else templated_queue.prebuilt_refusals(new, self.resource.kind)),
            *templated_queue.template_refusals(new, old, self, why=self.not_grouped, paths=self.template_paths(new)),
            *self._unreadable(new),
            *topology_refusals(self._annotated(new), self._annotated(old or {})),
            *(() if old is None else self.update_refusals(new, old)),
        ]
        return tuple(dict.fromkeys(found))

    def pod_count(self, job: JsonObject, path: TemplatePath) -> int | None:
        """How many pods the template is for, of those that are queued together; None if that is not known."""
        return None

    def _unreadable(self, job: JsonObject) -> Iterator[str]:
        """What is wrong with the types in its templates, which the definition of a kind need not have checked."""
        for path in self.template_paths(job):
            try:
                pod_template(template_of(job, path), at=".".join(path))
            except BadInput as error:
                yield str(error)

    def _annotated(self, job: JsonObject) -> Iterator[AnnotatedPodSet]:
        """Its pod sets; `_unreadable` tells of the others."""
        for path in self.template_paths(job):
            at = ".".join(path)
            try:
                template = pod_template(template_of(job, path), at=at)
            except BadInput:
                continue
            yield AnnotatedPodSet(
                path=f"{at}.metadata.annotations",
                annotations=annotations_of(template),
                count=self.pod_count(job, path),
            )

    def managed_by(self, job: JsonObject) -> str:
        """It has no such field."""
        return ""

    def queue_name(self, job: JsonObject) -> str:
        """The label `kueue.x-k8s.io/queue-name`."""
        return labels_of(job).get(QUEUE_NAME_LABEL, "")

    def is_suspended(self, job: JsonObject) -> bool:
        """Whether it is not active."""
        return not self.is_active(job)

    def priority(self, job: JsonObject) -> PriorityHint:
        """The label, else the class of the pods of the first template that names one."""
        specs: list[JsonObject] = [template_of(job, path).get("spec") or {} for path in self.template_paths(job)]
        classes = (str(spec.get("priorityClassName") or "") for spec in specs)
        return PriorityHint(
            workload_class=labels_of(job).get(PRIORITY_CLASS_LABEL, ""), pod_class=next(filter(None, classes), "")
        )

    def finished(self, job: JsonObject) -> JobEnd | None:
        """It never ends."""
        return None

    def pod_selector(self, job: JsonObject) -> str:
        """None: its pods are jobs, or are known by their owner."""
        return ""

    def reclaimable(self, job: JsonObject) -> tuple[Reclaimable, ...]:
        """None: a pod that ends is made again."""
        return ()

    def remote_manifest(self, job: JsonObject, infos: Sequence[PodSetInfo], *, identity: RemoteIdentity) -> JsonObject:
        """Raises `BadInput`."""
        raise BadInput(self.not_remote)

    def queued_manifest(self, manifest: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """Raises `BadInput`."""
        raise BadInput(self.not_remote)

    def local_manifest(self, remote: JsonObject) -> JsonObject:
        """Raises `BadInput`."""
        raise BadInput(self.not_remote)

    def suspended_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """The pods show that they are gated."""
        return None
