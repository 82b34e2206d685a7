# SPDX-License-Identifier: Apache-2.0
"""apps/v1 Deployment (`docs/spec/kueue-api.md §4.1`): it has no Workload, each of its pods has one.

The webhook copies the queue into the pod template; the framework `pod` does everything else. The methods that a
Workload needs are never called.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from multikueue.api.constants import DEPLOYMENT_FRAMEWORK, POD_FRAMEWORK, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL
from multikueue.api.defaulting import JobSurroundings
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject
from multikueue.api.resource import DEPLOYMENTS, Resource
from multikueue.core.errors import BadInput
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
    StatusSync,
)
from multikueue.jobs.framework.templated_queue import labels_of
from multikueue.jobs.framework.traits import Hold, JobTraits

_BY_POD: Final = "the pods of a Deployment are queued one by one, not as a group"
_NO_WORKLOAD: Final = "a Deployment has no Workload, its pods have"


class DeploymentIntegration:
    """The integration `deployment`."""

    framework: str = DEPLOYMENT_FRAMEWORK
    resource: Resource = DEPLOYMENTS
    traits: JobTraits = JobTraits(
        hold=Hold.PODS,
        dispatched=False,
        pods_are_jobs=True,
        owns_only_pods=True,
        needs=(POD_FRAMEWORK,),
    )
    copies_labels: bool = False

    def defaulted(self, job: JsonObject, surroundings: JobSurroundings) -> JsonObject:
        """With its queue in the pod template."""
        return templated_queue.with_queue(job, self.framework)

    def updated(self, new: JsonObject, old: JsonObject) -> JsonObject:
        """With its queue in the pod template; a Deployment that was not queued may be queued later."""
        return templated_queue.with_queue(new, self.framework) if self.queue_name(new) else new

    def refusals(
        self, new: JsonObject, old: JsonObject | None, *, has_default_queue: bool, gate: Gate
    ) -> tuple[str, ...]:
        """What holds for every kind, and that the queue stays while pods are ready."""
        if not any(self.queue_name(each) for each in (new, old or {})):
            return ()
        # Only the API server writes the status, and an update of the rest may show any.
        seen = new if old is None else {**new, "status": old.get("status") or {}}
        found = [*common_refusals(seen, old, self, has_default_queue=has_default_queue, gate=gate)]
        if old is not None and templated_queue.is_left(new, old):
            found.append(f"metadata.labels[{QUEUE_NAME_LABEL}]: Required value: a Deployment cannot leave its queue")
        found += templated_queue.template_refusals(new, self, why=_BY_POD)
        return tuple(dict.fromkeys(found))

    def managed_by(self, job: JsonObject) -> str:
        """Deployments have no such field."""
        return ""

    def queue_name(self, job: JsonObject) -> str:
        """The label `kueue.x-k8s.io/queue-name`."""
        return labels_of(job).get(QUEUE_NAME_LABEL, "")

    def is_suspended(self, job: JsonObject) -> bool:
        """Whether none of its pods is ready."""
        return not self.is_active(job)

    def is_active(self, job: JsonObject) -> bool:
        """Whether a pod is ready."""
        return bool((job.get("status") or {}).get("readyReplicas"))

    def may_have_pods(self, job: JsonObject) -> bool:
        """Whether it has pods, of whatever state."""
        return bool((job.get("status") or {}).get("replicas"))

    def pod_sets(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """Raises `BadInput`."""
        raise BadInput(_NO_WORKLOAD)

    def priority(self, job: JsonObject) -> PriorityHint:
        """The label, else the class of its pods."""
        spec: JsonObject = templated_queue.template_of(job).get("spec") or {}
        return PriorityHint(
            workload_class=labels_of(job).get(PRIORITY_CLASS_LABEL, ""),
            pod_class=str(spec.get("priorityClassName") or ""),
        )

    def matches(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> bool:
        """Never: no Workload is of a Deployment."""
        return False

    def differences(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> tuple[str, ...]:
        """That no Workload is of a Deployment."""
        return (_NO_WORKLOAD,)

    def start(self, job: JsonObject, infos: Sequence[PodSetInfo]) -> JobWrite:
        """Nothing is written."""
        return JobWrite()

    def stop(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JobWrite | None:
        """Its pods are stopped one by one."""
        return None

    def finished(self, job: JsonObject) -> JobEnd | None:
        """A Deployment never ends."""
        return None

    def pods_ready(self, job: JsonObject) -> bool:
        """Whether as many pods are ready as it is to have."""
        wanted = (job.get("spec") or {}).get("replicas", 1)
        return bool((job.get("status") or {}).get("readyReplicas", 0) >= wanted)

    def pods_started(self, job: JsonObject) -> bool:
        """Whether a pod is ready."""
        return self.is_active(job)

    def pod_selector(self, job: JsonObject) -> str:
        """None: its pods are jobs."""
        return ""

    def reclaimable(self, job: JsonObject) -> tuple[Reclaimable, ...]:
        """None."""
        return ()

    def remote_manifest(self, job: JsonObject, infos: Sequence[PodSetInfo], *, identity: RemoteIdentity) -> JsonObject:
        """Raises `BadInput`."""
        raise BadInput(_NO_WORKLOAD)

    def queued_manifest(self, manifest: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """Raises `BadInput`."""
        raise BadInput(_NO_WORKLOAD)

    def local_manifest(self, remote: JsonObject) -> JsonObject:
        """Raises `BadInput`."""
        raise BadInput(_NO_WORKLOAD)

    def sync_status(self, local: JsonObject, remote_status: JsonObject) -> StatusSync:
        """None is due."""
        return StatusSync()

    def suspended_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """The pods show that they are gated."""
        return None

    def stopped_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """Its controller counts the pods."""
        return None


DEPLOYMENT: Final[JobIntegration] = DeploymentIntegration()
