# SPDX-License-Identifier: Apache-2.0
"""Where the Jobs of a LocalQueue run, and a warning for a Job that was created for the other place.

`spec.managedBy` decides who runs a Job, and the API server makes it immutable. A Job whose queue label was changed
from a queue of this cluster to one with a MultiKueue check, or back, can therefore only be created again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, Protocol

from manager.cache.views import View
from multikueue.api.constants import MULTIKUEUE_CONTROLLER, MULTIKUEUE_MANAGED_BY, QUEUE_NAME_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import JobEvent
from multikueue.api.resource import ADMISSION_CHECKS, CLUSTER_QUEUES, LOCAL_QUEUES, Resource
from multikueue.core.keys import Key
from multikueue.kube.runtime.events import WARNING, EventRecorder, Reference

_WARNED_KEPT: Final = 16384


class QueueTarget(Enum):
    """Where the Jobs of a queue run."""

    UNKNOWN = auto()
    HERE = auto()
    WORKERS = auto()


class Views(Protocol):
    """The caches, as far as queues go."""

    def view(self, resource: Resource) -> View:
        """The view of a kind."""


class QueueTargetWarnings:
    """An event on each job whose queue cannot run it, once for each queue that it names."""

    def __init__(self, views: Views, recorder: EventRecorder) -> None:
        self._views = views
        self._recorder = recorder
        self._warned: OrderedDict[str, str] = OrderedDict()  # the queue, by the uid of the job

    def check(self, job: JsonObject, *, queue: str, managed_by: str) -> None:
        """Warn when the job was created for the other kind of queue. It has not ended."""
        metadata = job["metadata"]
        if not queue or "deletionTimestamp" in metadata or self._warned.get(metadata["uid"]) == queue:
            return
        target = queue_target(self._views, namespace=metadata["namespace"], queue=queue)
        problem = misplaced(job, kind=job["kind"], queue=queue, managed_by=managed_by, target=target)
        if not problem:
            return
        self._warned[metadata["uid"]] = queue
        if len(self._warned) > _WARNED_KEPT:
            self._warned.popitem(last=False)
        self._recorder.event(Reference.of(job), WARNING, JobEvent.QUEUE_TARGET_MISMATCH, problem)


def queue_target(views: Views, *, namespace: str, queue: str) -> QueueTarget:
    """Where the Jobs of a LocalQueue run; unknown while it, its ClusterQueue or one of its checks has not been seen."""
    cluster_queue = cluster_queue_of(views, namespace=namespace, queue=queue)
    if cluster_queue is None:
        return QueueTarget.UNKNOWN
    checks = [views.view(ADMISSION_CHECKS).object(Key("", entry["name"])) for entry in checks_of(cluster_queue)]
    if any(((check or {}).get("spec") or {}).get("controllerName") == MULTIKUEUE_CONTROLLER for check in checks):
        return QueueTarget.WORKERS
    return QueueTarget.UNKNOWN if None in checks else QueueTarget.HERE


def cluster_queue_of(views: Views, *, namespace: str, queue: str) -> JsonObject | None:
    """The ClusterQueue that a LocalQueue points to."""
    local_queue = views.view(LOCAL_QUEUES).object(Key(namespace, queue)) or {}
    name = (local_queue.get("spec") or {}).get("clusterQueue") or ""
    return views.view(CLUSTER_QUEUES).object(Key("", name))


def checks_of(cluster_queue: JsonObject) -> Sequence[JsonObject]:
    """The entries of its `admissionChecksStrategy`."""
    strategy: JsonObject = (cluster_queue.get("spec") or {}).get("admissionChecksStrategy") or {}
    return strategy.get("admissionChecks") or ()


def misplaced(job: JsonObject, *, kind: str, queue: str, managed_by: str, target: QueueTarget) -> str:
    """Why the queue cannot run a job with that `managedBy`, and the command that fixes it; empty when it can."""
    metadata = job["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    here = managed_by != MULTIKUEUE_MANAGED_BY
    if target is QueueTarget.UNKNOWN or here == (target is QueueTarget.HERE):
        return ""
    where, made = ("on worker clusters", "this cluster") if here else ("on this cluster", "worker clusters")
    return (
        f"LocalQueue {queue} runs Jobs {where}, and this {kind} was created for {made}: its spec.managedBy is"
        f' "{managed_by}" and cannot be changed. Delete the {kind} and create it again with the label'
        f" {QUEUE_NAME_LABEL}: {queue}, without spec.managedBy:"
        f" kubectl delete {kind.lower()} {name} -n {namespace} && kubectl create -n {namespace} -f FILE"
    )
