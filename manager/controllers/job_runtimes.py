# SPDX-License-Identifier: Apache-2.0
"""The runtimes that jobs name, and the pods that they describe.

A runtime may change at any time. While a job is suspended its pods are those that its runtime describes now, since they
are made when it starts. Those of one that runs, here or on a worker cluster, are as they were when quota was reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from manager.cache.caches import Caches
from manager.cache.indexes import RUNTIME_INDEX, runtime_term
from multikueue.api.constants import MULTIKUEUE_MANAGED_BY
from multikueue.api.meta import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.keys import Key
from multikueue.jobs.framework.capabilities import RuntimeKind, RuntimeReference
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.kube.cache.informer import Change


class JobRuntimes:
    """The runtimes of the jobs of one kind; of most kinds there are none."""

    def __init__(self, caches: Caches, integration: JobIntegration) -> None:
        self._caches = caches
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

    def described(self, job: JsonObject, workloads: Sequence[JsonObject]) -> JsonObject:
        """The job with the pods that its runtime describes; `workloads` are its own, oldest first."""
        kind = self._integration
        if not isinstance(kind, RuntimeKind):
            return job
        named = self._named(job)
        runtime = None if named is None else self._caches.view(named.resource).object(named.key)
        suspended, dispatched = self._integration.is_suspended(job), self._is_dispatched(job)
        living = (each for each in workloads if "deletionTimestamp" not in each["metadata"])
        kept = (each for each in living if not suspended or (dispatched and _holds_quota(each)))
        workload = next(kept, None)
        return kind.with_runtime(job, runtime, admitted=None if workload is None else workload["spec"].get("podSets"))

    def _named(self, job: JsonObject) -> RuntimeReference | None:
        kind = self._integration
        return kind.runtime_of(job) if isinstance(kind, RuntimeKind) else None

    def _is_dispatched(self, job: JsonObject) -> bool:
        return self._integration.managed_by(job) == MULTIKUEUE_MANAGED_BY


def _holds_quota(workload: JsonObject) -> bool:
    return bool((workload.get("status") or {}).get("admission"))
