# SPDX-License-Identifier: Apache-2.0
"""Why an assignment cannot run on this cluster.

Owns the checks before a job is created, in their order, and the refusals of the API server, which count for a while
before the creation is tried again. A running job is not checked again: a stricter policy does not stop it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.merge_patch import apply_merge_patch
from multikueue.dispatch.worker.assignment_state import Obstacle
from multikueue.jobs.framework.slices import is_elastic
from multikueue.jobs.kinds.pod_group import PodGroup
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.boundary import Boundary
from worker_agent.local.dependencies.job_objects import JobObjects
from worker_agent.local.jobs import RemoteJobKey
from worker_agent.local.queueing.queues import Queues

_log = logging.getLogger(__name__)

REFUSAL_SECONDS: Final = 60.0  # how long a refusal of the API server counts before the request is tried again
NAMESPACE_MISSING: Final = "NamespaceNotFound"
KIND_MISSING: Final = "KindNotSupported"
NOT_QUEUEABLE: Final = "NotQueueable"
CREATE_REJECTED: Final = "CreateRejected"
BAD_ASSIGNMENT: Final = "BadAssignment"


@dataclass(frozen=True, slots=True)
class _Refusal:
    obstacle: Obstacle
    until: float


class Obstacles:
    """The obstacles of all assignments of one cluster."""

    def __init__(
        self,
        *,
        boundary: Boundary,
        queues: Queues,
        dependencies: JobObjects,
        namespace_exists: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        self._boundary = boundary
        self._dependencies = dependencies
        self._queues = queues
        self._namespace_exists = namespace_exists
        self._clock = clock
        self._refusals: dict[RemoteJobKey, _Refusal] = {}

    async def look_for_dependencies(self, desired: AssignmentSpec) -> None:
        """Look for the objects that the pods of the job need, if nothing else keeps it from this cluster.

        The policy comes first: what it forbids must not tell which objects exist. Raises `KubeError`.
        """
        if self._besides_dependencies(desired, has_job=False) is None:
            await self._dependencies.look(desired.named, desired.dependencies, sent=desired.sent)

    def of(self, desired: AssignmentSpec, *, has_job: bool) -> Obstacle | None:
        """The first obstacle; None if there is none. With `has_job` only those that apply to a running job."""
        found = self._besides_dependencies(desired, has_job=has_job)
        if found is not None or has_job:
            return found
        return self._dependencies.obstacle(desired.named)

    def _besides_dependencies(self, desired: AssignmentSpec, *, has_job: bool) -> Obstacle | None:
        if desired.jobs is None:
            return Obstacle(KIND_MISSING, "this cluster's agent does not know the kind of the job")
        if desired.jobs.obstacle and not has_job:
            return Obstacle(KIND_MISSING, desired.jobs.obstacle)
        if (desired.manifest.get("metadata") or {}).get("namespace") != desired.job.namespace:
            # The manifest decides where the job is created, the reference which workload is charged for it.
            return Obstacle(BAD_ASSIGNMENT, "the job is not of the namespace of its workload")
        if not self._namespace_exists(desired.job.namespace):
            return missing_namespace(desired.job)
        if not has_job:
            found = (
                self._queues.missing_queue(desired.clone)
                or self._of_growing_group(desired)
                or self._of_elastic_job(desired)
                or self.of_manifest(desired, desired.manifest, job=desired.job)
            )
            if found is not None:
                return found
        return self.refusal(desired.named)

    def _of_growing_group(self, desired: AssignmentSpec) -> Obstacle | None:
        """The obstacle of pods that are created one after another, where an engine admits them by their Workload.

        It would find fewer pods than the Workload has, and finish that as out of sync.
        """
        group = PodGroup(desired.members)
        if not desired.members or not (group.is_fast and group.is_serving) or not self._queues.serves(desired.clone):
            return None
        queue = Key(desired.clone.workload.namespace, desired.clone.queue)
        message = f"LocalQueue {queue} cannot admit pods that are created one after another, as those of a StatefulSet"
        return Obstacle(NOT_QUEUEABLE, message)

    def _of_elastic_job(self, desired: AssignmentSpec) -> Obstacle | None:
        """The obstacle of a job that changes its size, where an engine admits it by a Workload of one size."""
        if not is_elastic(desired.manifest) or not self._queues.serves(desired.clone):
            return None
        queue = Key(desired.clone.workload.namespace, desired.clone.queue)
        message = f"LocalQueue {queue} cannot admit an elastic job of another cluster, which may change its size"
        return Obstacle(NOT_QUEUEABLE, message)

    def refusal(self, job: RemoteJobKey) -> Obstacle | None:
        """Why the job was refused a short time ago; None if it was not, or may be created now."""
        refusal = self._refusals.get(job)
        if refusal is None:
            return None
        if self._clock.monotonic() >= refusal.until:
            del self._refusals[job]
            return None
        return refusal.obstacle

    def of_manifest(self, desired: AssignmentSpec, manifest: JsonObject, *, job: Key) -> Obstacle | None:
        """What the dispatch policy of the agent forbids of the manifest of that job, or member of a group."""
        assert desired.jobs is not None, "the kind was checked before"
        return self._boundary.obstacle(
            job, manifest, kind=desired.jobs.integration.resource.kind, workload_spec=desired.clone.spec
        )

    def of_change(self, desired: AssignmentSpec, job: JsonObject, patch: JsonObject) -> Obstacle | None:
        """What the dispatch policy of the agent forbids of a job with that merge patch."""
        assert desired.jobs is not None, "the job was found"
        kind = desired.jobs.integration.resource
        changed = {**apply_merge_patch(job, patch), "apiVersion": kind.api_version, "kind": kind.kind}
        return self.of_manifest(desired, changed, job=desired.job)

    def add_refusal(self, job: RemoteJobKey, obstacle: Obstacle) -> None:
        """Record that the API server, or the policy, refused the job."""
        _log.warning("job refused job=%s reason=%s error=%s", job, obstacle.reason, obstacle.message)
        self._refusals[job] = _Refusal(obstacle, self._clock.monotonic() + REFUSAL_SECONDS)

    def retry_after(self, job: RemoteJobKey) -> float | None:
        """The seconds until a refusal no longer counts, or what is missing is looked for; None if there is neither."""
        refusal = self._refusals.get(job)
        if refusal is None:
            return self._dependencies.retry_after(job)
        return max(0.1, refusal.until - self._clock.monotonic())

    def forget(self, job: RemoteJobKey) -> None:
        """Drop the refusal of the job, whose assignment is gone."""
        self._refusals.pop(job, None)
        self._dependencies.forget(job)

    def forget_namespace(self, namespace: str) -> None:
        """Drop the refusals in the namespace: its jobs may be accepted now."""
        for job in [job for job in self._refusals if job.job.namespace == namespace]:
            del self._refusals[job]


def missing_kind(resource: Resource) -> Obstacle:
    """The obstacle of a job whose kind the cluster does not have any more."""
    return Obstacle(KIND_MISSING, f"{resource.qualified} is not installed on the cluster")


def missing_namespace(job: Key) -> Obstacle:
    """The obstacle of a job whose namespace does not exist."""
    return Obstacle(NAMESPACE_MISSING, f'namespace "{job.namespace}" does not exist')
