# SPDX-License-Identifier: Apache-2.0
"""The runtimes that jobs name, and the pods that they describe.

A runtime may change at any time, and pods are made of it as it was when the job was made: Trainer keeps a snapshot of
it since v2.3. So a Workload keeps its pod sets, if a seal proves that the manager has made them of an earlier state of
the runtime, and of what the job says now. Any other Workload has to be what the runtime describes now: users may write
Workloads too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from manager.cache.caches import Caches
from manager.cache.indexes import RUNTIME_INDEX, runtime_term
from manager.context import ManagerContext
from multikueue.api.constants import RUNTIME_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.keys import Key
from multikueue.dispatch.protocol import seals
from multikueue.jobs.framework.capabilities import RecordedPods, RuntimeKind, RuntimeReference
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.kube.cache.informer import Change


class JobRuntimes:
    """The runtimes of the jobs of one kind; of most kinds there are none."""

    def __init__(self, context: ManagerContext, integration: JobIntegration) -> None:
        self._caches: Caches = context.caches
        self._key = context.seals.key
        self._integration = integration

    def follow(self, enqueue: Callable[[Key], None]) -> None:
        """Have the jobs that name a runtime reconciled when it appears, changes, or is deleted."""
        if not isinstance(self._integration, RuntimeKind):
            return
        for resource in self._integration.runtimes:
            self._caches.subscribe(resource, partial(self._changed, resource, enqueue))

    def _changed(self, resource: Resource, enqueue: Callable[[Key], None], change: Change) -> None:
        jobs = self._caches.view(self._integration.resource)
        for key in jobs.indexed(RUNTIME_INDEX, runtime_term(resource, change.key)):
            enqueue(key)

    def are_known(self, job: JsonObject) -> bool:
        """Whether the runtime of a job can be looked up; its kind is followed from the first job that names one."""
        named = self._named(job)
        return named is None or self._caches.is_known(named.resource)

    def described(self, job: JsonObject, workloads: Iterable[JsonObject]) -> JsonObject:
        """The job with the pods that its runtime describes, or described when its Workload was made."""
        kind = self._integration
        if not isinstance(kind, RuntimeKind):
            return job
        named = self._named(job)
        runtime = None if named is None else self._caches.view(named.resource).object(named.key)
        now = kind.with_runtime(job, runtime)
        recorded = next(filter(None, (self._recorded(kind, job, each) for each in workloads)), None)
        if recorded is None or (runtime is not None and recorded.version == kind.runtime_version(now)):
            return now
        return kind.with_runtime(job, runtime, recorded=recorded)

    def marks(self, job: JsonObject, pod_sets: list[JsonObject]) -> dict[str, str]:
        """The annotation of the Workload that is made of the job, to which its runtime was added."""
        kind = self._integration
        if not isinstance(kind, RuntimeKind):
            return {}
        version = kind.runtime_version(job)
        if not version:
            return {}
        seal = seals.pod_sets_seal(self._key, of=_sealed(kind, job), version=version, pod_sets=pod_sets)
        return {RUNTIME_ANNOTATION: f"{version} {seal}"}

    def _recorded(self, kind: RuntimeKind, job: JsonObject, workload: JsonObject) -> RecordedPods | None:
        """What the manager has recorded in a Workload; None if that was changed, or is of another job."""
        text = (workload["metadata"].get("annotations") or {}).get(RUNTIME_ANNOTATION, "")
        version, _, seal = text.partition(" ")
        pod_sets: list[JsonObject] = (workload.get("spec") or {}).get("podSets") or []
        if "deletionTimestamp" in workload["metadata"]:
            return None
        of = _sealed(kind, job)
        is_ours = seals.is_pod_sets_seal(self._key, seal, of=of, version=version, pod_sets=pod_sets)
        return RecordedPods(pod_sets, version) if is_ours else None

    def _named(self, job: JsonObject) -> RuntimeReference | None:
        kind = self._integration
        return kind.runtime_of(job) if isinstance(kind, RuntimeKind) else None


def _sealed(kind: RuntimeKind, job: JsonObject) -> seals.SealedJob:
    metadata: JsonObject = job["metadata"]
    return seals.SealedJob(str(metadata["namespace"]), str(metadata["uid"]), kind.own_description(job))
