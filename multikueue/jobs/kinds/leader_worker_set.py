# SPDX-License-Identifier: Apache-2.0
"""LeaderWorkerSet (`docs/spec/kueue-api.md §4.1`): each replica is a leader and its workers, and has a Workload.

Owns the names of its pods, the pod sets of one replica, and what must not change. StatefulSets of the kind's controller
are in between, so pods are known by the annotation and the label that they have from the pod templates, and by
their names. The rest is `held_group`'s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from multikueue.api.constants import (
    DEFAULT_POD_SET,
    LEADER_WORKER_SET_FRAMEWORK,
    POD_FRAMEWORK,
    QUEUE_NAME_LABEL,
)
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject
from multikueue.api.resource import LEADER_WORKER_SETS, PODS, STATEFUL_SETS, Resource
from multikueue.core.errors import BadInput
from multikueue.core.parsing import count_of
from multikueue.jobs.declared.template_types import pod_template
from multikueue.jobs.framework import templated_queue
from multikueue.jobs.framework.protocol import JobIntegration, PriorityHint
from multikueue.jobs.framework.templated_queue import TemplatePath, template_of
from multikueue.jobs.framework.traits import Hold, JobTraits
from multikueue.jobs.kinds.held_group import HeldGroup, pod_set_of

MAX_REPLICAS: Final = 1000
"""Each replica has a Workload: one object must not make millions."""
NAME_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
LEADER: Final = "leader"
WORKER: Final = "worker"
_SET: Final[TemplatePath] = ("spec", "leaderWorkerTemplate")
_LEADER_TEMPLATE: Final[TemplatePath] = (*_SET, "leaderTemplate")
_WORKER_TEMPLATE: Final[TemplatePath] = (*_SET, "workerTemplate")
_SIZE_GATE: Final = "LWSImmutableGroupSize"
_REPLICA: Final = "replica"
"""The field of a job with the index of the replica that it is taken as."""
_PLACE: Final = re.compile(r"-(0|[1-9][0-9]{0,9})(?:-([1-9][0-9]{0,9}))?")
_WHY: Final = "can be changed only while spec.replicas is 0, since quota is reserved for its pods as they are"


class LeaderWorkerSetIntegration(HeldGroup):
    """The integration `leaderworkerset.x-k8s.io/leaderworkerset`; a job is one replica of a LeaderWorkerSet."""

    framework: str = LEADER_WORKER_SET_FRAMEWORK
    resource: Resource = LEADER_WORKER_SETS
    traits: JobTraits = JobTraits(
        hold=Hold.PODS,
        sent_as=PODS,
        holds_pods=True,
        owns_only_pods=True,
        makes=(STATEFUL_SETS,),
        pod_label=NAME_LABEL,
        reviewed_subresources=("scale",),
        needs=(POD_FRAMEWORK,),
    )
    not_grouped = "the pods of each replica of a LeaderWorkerSet have one Workload"
    not_remote = "the remote job of a replica of a LeaderWorkerSet is a pod group"

    def replicas(self, job: JsonObject) -> int:
        """`spec.replicas`. Raises `BadInput`, also for more than `MAX_REPLICAS`."""
        found = count_of(job.get("spec") or {}, "replicas", at="spec", default=1)
        if found > MAX_REPLICAS:
            raise BadInput(
                f"spec.replicas: expected at most {MAX_REPLICAS}, each of which has a Workload, found {found}"
            )
        return found

    def replica(self, job: JsonObject, index: int) -> JsonObject:
        """The LeaderWorkerSet as its replica of that index."""
        return {**job, _REPLICA: index}

    def replica_of(self, job: JsonObject) -> int:
        """The index that `replica` was given; 0 of a LeaderWorkerSet as a whole."""
        return int(job.get(_REPLICA) or 0)

    def replica_of_pod(self, pod: JsonObject, *, owner: str) -> int:
        """By its name; 0 if that is no name of a pod of `owner`."""
        found = _place(pod, owner)
        return 0 if found is None else found[0]

    def priority(self, job: JsonObject) -> PriorityHint:
        """As for every such kind. Raises `BadInput`."""
        for path in self.template_paths(job):
            pod_template(template_of(job, path), at=".".join(path))
        return super().priority(job)

    def template_paths(self, job: JsonObject) -> Sequence[TemplatePath]:
        """That of the workers, and before it that of the leader if there is one."""
        return (_LEADER_TEMPLATE, _WORKER_TEMPLATE) if template_of(job, _LEADER_TEMPLATE) else (_WORKER_TEMPLATE,)

    def pod_count(self, job: JsonObject, path: TemplatePath) -> int | None:
        """One leader, and the other pods of a replica."""
        try:
            size = self._group_size(job)
        except BadInput:
            return None
        return 1 if path == _LEADER_TEMPLATE else size - (len(self.template_paths(job)) - 1)

    def size(self, job: JsonObject) -> int:
        """The pods of the replica: none of one that is beyond `spec.replicas`. Raises `BadInput`."""
        return self._group_size(job) if self.replica_of(job) < self.replicas(job) else 0

    def pod_sets(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """`leader` and `worker`, or `main` without a template for the leader. Raises `BadInput`."""
        size = self._group_size(job)
        leader, worker = (
            pod_template(template_of(job, path), at=".".join(path)) for path in (_LEADER_TEMPLATE, _WORKER_TEMPLATE)
        )
        if not leader:
            return (pod_set_of(worker, name=DEFAULT_POD_SET, count=size),)
        found = [pod_set_of(leader, name=LEADER, count=1), pod_set_of(worker, name=WORKER, count=size - 1)]
        return tuple(each for each in found if each["count"])

    def pod_template(self, job: JsonObject, pod: JsonObject) -> JsonObject:
        """That of the leader or of the workers, by the name of the pod."""
        found = _place(pod, job["metadata"]["name"])
        leader = template_of(job, _LEADER_TEMPLATE)
        return leader if leader and found is not None and found[1] == 0 else template_of(job, _WORKER_TEMPLATE)

    def place_of(self, job: JsonObject, pod: JsonObject) -> str:
        """By the name of the pod, if it is one of this replica. Raises `BadInput`."""
        found = _place(pod, job["metadata"]["name"])
        if found is None or found[0] != self.replica_of(job) or found[1] >= self.size(job):
            return ""
        if not template_of(job, _LEADER_TEMPLATE):
            return DEFAULT_POD_SET
        return WORKER if found[1] else LEADER

    def misnamed(self, job: JsonObject, pod: JsonObject) -> str:
        """Unless it is the name of the LeaderWorkerSet with the index of a replica, and for a worker its own."""
        name = job["metadata"]["name"]
        known = _place(pod, name) is not None
        return "" if known else f"LeaderWorkerSet {name}, whose pods are {name}-0, {name}-0-1 and so on"

    def refusals(
        self, new: JsonObject, old: JsonObject | None, *, has_default_queue: bool, gate: Gate
    ) -> tuple[str, ...]:
        """As for every such kind; its number of replicas, also by its scale subresource, and the size of a group."""
        if new.get("kind") == "Scale":
            return self._count_refusals(new)
        found = [*super().refusals(new, old, has_default_queue=has_default_queue, gate=gate)]
        if self.queue_name(new):
            found += self._count_refusals(new)
        if old is not None and self._keeps_pods(old) and gate(_SIZE_GATE) and _size(new) != _size(old):
            found.append(f"spec.leaderWorkerTemplate.size: Invalid value: {_size(new)}: {_WHY}")
        return tuple(dict.fromkeys(found))

    def update_refusals(self, new: JsonObject, old: JsonObject) -> Sequence[str]:
        """That pod templates change, and the queue is left, at zero replicas only."""
        found: list[str] = []
        if templated_queue.is_left(new, old) and self._is_kept(old):
            label = f"metadata.labels[{QUEUE_NAME_LABEL}]"
            found.append(f"{label}: Required value: can be removed only while spec.replicas is 0")
        if self._keeps_pods(old):
            found += [
                f"{'.'.join(path)}: Invalid value: {_WHY}"
                for path in (_LEADER_TEMPLATE, _WORKER_TEMPLATE)
                if _pods_of(new, path) != _pods_of(old, path)
            ]
        return found

    def _keeps_pods(self, old: JsonObject) -> bool:
        """Whether it is queued, and has pods that are to stay as they are."""
        return bool(self.queue_name(old)) and self._is_kept(old)

    def _is_kept(self, old: JsonObject) -> bool:
        return bool((old.get("spec") or {}).get("replicas", 1)) and "deletionTimestamp" not in old["metadata"]

    def _count_refusals(self, job: JsonObject) -> tuple[str, ...]:
        try:
            self.replicas(job)
            if job.get("kind") != "Scale":
                self._group_size(job)
        except BadInput as error:
            return (str(error),)
        return ()

    def _group_size(self, job: JsonObject) -> int:
        found = count_of(_set(job), "size", at=".".join(_SET), default=1)
        if not found:
            raise BadInput("spec.leaderWorkerTemplate.size: expected a number of pods above 0, found 0")
        return found


LEADER_WORKER_SET: Final[JobIntegration] = LeaderWorkerSetIntegration()


def _set(job: JsonObject) -> JsonObject:
    return template_of(job, _SET)


def _size(job: JsonObject) -> object:
    return _set(job).get("size", 1)


def _pods_of(job: JsonObject, path: TemplatePath) -> object:
    """The spec of its pods; their labels are the webhook's as well, and change with the queue."""
    template = template_of(job, path)
    return bool(template), template.get("spec") or {}


def _place(pod: JsonObject, owner: str) -> tuple[int, int] | None:
    """The replica and the index in it, 0 for the leader, by the name of the pod; None if it is of no such name."""
    name = str(pod["metadata"]["name"])
    found = _PLACE.fullmatch(name, len(owner)) if name.startswith(owner) else None
    return None if found is None else (int(found[1]), int(found[2] or 0))
