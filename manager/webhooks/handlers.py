# SPDX-License-Identifier: Apache-2.0
"""What each webhook answers: requests in, answers out, with the caches to look things up in.

Owns which function of `api.defaulting` and `api.validation` stands behind which path. Promises never to touch the
network; a follower answers as well as the leader, since its caches are warm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from manager.caches import Caches
from manager.namespaces import ManagedNamespaces
from manager.webhooks.configurations import JOB_HOOKS, KUEUE_HOOKS, Hook
from manager.webhooks.review import AdmissionRequest, Answer
from multikueue.api import codec, defaulting, validation
from multikueue.api.clusterqueue import ClusterQueue
from multikueue.api.cohort import Cohort
from multikueue.api.configuration import Configuration
from multikueue.api.constants import (
    DEFAULT_LOCAL_QUEUE,
    DEFAULT_PRIORITY_CLASS,
    MULTIKUEUE_CONTROLLER,
)
from multikueue.api.defaulting import JobSurroundings
from multikueue.api.job import Job
from multikueue.api.meta import JsonObject, KubeObject
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    JOBS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.api.resourceflavor import ResourceFlavor
from multikueue.api.validation import FieldError
from multikueue.api.workload import Workload
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.integrations.registry import Registry

Handler = Callable[[AdmissionRequest], Answer]
Model = TypeVar("Model", bound=KubeObject)


class Handlers:
    """One handler for each hook, by the path it is served at."""

    def __init__(
        self,
        *,
        configuration: Configuration,
        caches: Caches,
        registry: Registry,
        namespaces: ManagedNamespaces,
        jobs: bool,
    ) -> None:
        """`jobs` is off when somebody else takes care of jobs."""
        self._configuration = configuration
        self._caches = caches
        self._registry = registry
        self._namespaces = namespaces
        self.hooks: tuple[Hook, ...] = (*KUEUE_HOOKS, *(JOB_HOOKS if jobs else ()))

    def by_path(self) -> Mapping[str, tuple[Hook, Handler]]:
        """The handler of each path."""
        return {hook.path: (hook, self._handler(hook)) for hook in self.hooks}

    def _handler(self, hook: Hook) -> Handler:
        gate = self._configuration.gate
        kueue: Mapping[tuple[Resource, bool], Handler] = {
            (WORKLOADS, True): _defaulted(lambda obj: defaulting.default_workload(obj, gate=gate)),
            (CLUSTER_QUEUES, True): _defaulted(defaulting.default_cluster_queue),
            (RESOURCE_FLAVORS, True): _defaulted(defaulting.default_resource_flavor),
            (WORKLOADS, False): _validated(Workload, partial(validation.validate_workload, gate=gate)),
            (CLUSTER_QUEUES, False): _validated(ClusterQueue, partial(validation.validate_cluster_queue, gate=gate)),
            (COHORTS, False): _validated(Cohort, validation.validate_cohort),
            (RESOURCE_FLAVORS, False): _validated(ResourceFlavor, validation.validate_resource_flavor),
        }
        found = kueue.get((hook.resource, hook.mutates))
        if found is not None:
            return found
        return self._default_job if hook.mutates else self._validate_job

    def knows(self, hook: Hook, request: AdmissionRequest) -> bool:
        """Whether the caches hold the queue, and all behind it, that a job which is being created names.

        A user may create both in one breath, and what `managedBy` says cannot be changed later.
        """
        job = request.object
        if job is None or not request.creates or hook.resource is not JOBS or not hook.mutates:
            return True
        queue = defaulting.queue_of_job(job, self._surroundings(request, job))
        if not queue or not self._namespaces.manages(request.namespace):
            return True
        cluster_queue = self._cluster_queue(request.namespace, queue)
        checks = self._caches.view(ADMISSION_CHECKS)
        return cluster_queue is not None and all(
            checks.get(Key("", entry["name"])) is not None for entry in _checks_of(cluster_queue)
        )

    def _default_job(self, request: AdmissionRequest) -> Answer:
        job = request.object
        if job is None or not request.creates:
            return Answer()
        surroundings = self._surroundings(request, job)
        queue = defaulting.queue_of_job(job, surroundings)
        dispatched = bool(queue) and self._dispatches(request.namespace, queue)
        surroundings = replace(surroundings, multikueue=dispatched)
        return Answer(object=defaulting.default_job(job, surroundings, gate=self._configuration.gate))

    def _surroundings(self, request: AdmissionRequest, job: JsonObject) -> JobSurroundings:
        return JobSurroundings(
            namespace_managed=self._namespaces.manages(request.namespace),
            default_queue=self._local_queue(request.namespace, DEFAULT_LOCAL_QUEUE) is not None,
            default_priority_class=self._caches.view(WORKLOAD_PRIORITY_CLASSES).get(Key("", DEFAULT_PRIORITY_CLASS))
            is not None,
            owner_managed=self._owner_managed(job),
            manage_unqueued=self._configuration.manage_jobs_without_queue_name,
        )

    def _validate_job(self, request: AdmissionRequest) -> Answer:
        if not self._namespaces.manages(request.namespace):
            return Answer()
        has_default = self._local_queue(request.namespace, DEFAULT_LOCAL_QUEUE) is not None
        return _validate(
            Job, request, lambda new, old: validation.validate_job(new, old, has_default_queue=has_default)
        )

    def _local_queue(self, namespace: str, name: str) -> JsonObject | None:
        return self._caches.view(LOCAL_QUEUES).object(Key(namespace, name))

    def _owner_managed(self, job: JsonObject) -> bool:
        owners = (job.get("metadata") or {}).get("ownerReferences") or ()
        return any(
            owner.get("controller")
            and self._registry.for_kind(owner.get("apiVersion", ""), owner.get("kind", "")) is not None
            for owner in owners
        )

    def _dispatches(self, namespace: str, queue: str) -> bool:
        """Whether work of that LocalQueue goes to worker clusters."""
        cluster_queue = self._cluster_queue(namespace, queue)
        checks = self._caches.view(ADMISSION_CHECKS)
        return cluster_queue is not None and any(
            ((checks.object(Key("", entry["name"])) or {}).get("spec") or {}).get("controllerName")
            == MULTIKUEUE_CONTROLLER
            for entry in _checks_of(cluster_queue)
        )

    def _cluster_queue(self, namespace: str, queue: str) -> JsonObject | None:
        """The ClusterQueue that a LocalQueue points to."""
        local_queue = self._local_queue(namespace, queue) or {}
        name = (local_queue.get("spec") or {}).get("clusterQueue") or ""
        return self._caches.view(CLUSTER_QUEUES).object(Key("", name))


def _checks_of(cluster_queue: JsonObject) -> Sequence[JsonObject]:
    strategy: JsonObject = (cluster_queue.get("spec") or {}).get("admissionChecksStrategy") or {}
    return strategy.get("admissionChecks") or ()


def _defaulted(default: Callable[[JsonObject], JsonObject]) -> Handler:
    def handle(request: AdmissionRequest) -> Answer:
        return Answer() if request.object is None else Answer(object=default(request.object))

    return handle


def _validated(model: type[Model], validate: Callable[[Model, Model | None], list[FieldError]]) -> Handler:
    return lambda request: _validate(model, request, validate)


def _validate(
    model: type[Model], request: AdmissionRequest, validate: Callable[[Model, Model | None], list[FieldError]]
) -> Answer:
    if request.object is None:
        return Answer()
    try:
        new = codec.load_as(model, request.object)
        old = None if request.old_object is None else codec.load_as(model, request.old_object)
    except BadInput as error:
        return Answer(refusals=(str(error),))
    return Answer(refusals=tuple(dict.fromkeys(map(str, validate(new, old)))))
