# SPDX-License-Identifier: Apache-2.0
"""apps/v1 Deployment (`docs/spec/kueue-api.md §4.1`): it has no Workload, each of its pods has one.

The webhook copies the queue into the pod template, and the annotations that say where and how pods are sent; the
framework `pod` does everything else. The methods that a Workload needs are never called.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from multikueue.api.constants import (
    CLUSTER_SELECTOR_ANNOTATION,
    CLUSTERS_ANNOTATION,
    DEPLOYMENT_FRAMEWORK,
    PARTITION_POLICY_ANNOTATION,
    PLACEMENT_ANNOTATION,
    POD_FRAMEWORK,
    PREFERRED_CLUSTERS_ANNOTATION,
    QUEUE_NAME_LABEL,
)
from multikueue.api.defaulting import JobSurroundings
from multikueue.api.objects import JsonObject
from multikueue.api.resource import DEPLOYMENTS, Resource
from multikueue.core.errors import BadInput
from multikueue.jobs.framework import templated_queue
from multikueue.jobs.framework.protocol import JobIntegration, JobWrite, PodSetInfo, StatusSync
from multikueue.jobs.framework.traits import Hold, JobTraits
from multikueue.jobs.kinds.controlled_pods import ControlledPods

_NO_WORKLOAD: Final = "a Deployment has no Workload, its pods have"
_OF_DISPATCH: Final = (
    PARTITION_POLICY_ANNOTATION,
    CLUSTERS_ANNOTATION,
    CLUSTER_SELECTOR_ANNOTATION,
    PREFERRED_CLUSTERS_ANNOTATION,
    PLACEMENT_ANNOTATION,
)
"""What a user says of a job that is sent to a worker; of a Deployment that is each of its pods."""


class DeploymentIntegration(ControlledPods):
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
    not_grouped = "the pods of a Deployment are queued one by one, not as a group"
    not_remote = _NO_WORKLOAD

    def defaulted(self, job: JsonObject, surroundings: JobSurroundings) -> JsonObject:
        """With its queue and its annotations of dispatch in the pod template."""
        return templated_queue.with_annotations(super().defaulted(job, surroundings), _OF_DISPATCH)

    def updated(self, new: JsonObject, old: JsonObject) -> JsonObject:
        """The same after an update."""
        made = super().updated(new, old)
        return templated_queue.with_annotations(made, _OF_DISPATCH, old=old) if self.queue_name(new) else made

    def update_refusals(self, new: JsonObject, old: JsonObject) -> Sequence[str]:
        """That it cannot leave its queue."""
        if not templated_queue.is_left(new, old):
            return ()
        return (f"metadata.labels[{QUEUE_NAME_LABEL}]: Required value: a Deployment cannot leave its queue",)

    def is_active(self, job: JsonObject) -> bool:
        """Whether a pod is ready."""
        return bool((job.get("status") or {}).get("readyReplicas"))

    def may_have_pods(self, job: JsonObject) -> bool:
        """Whether it has pods, of whatever state."""
        return bool((job.get("status") or {}).get("replicas"))

    def pod_sets(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """Raises `BadInput`."""
        raise BadInput(_NO_WORKLOAD)

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

    def pods_ready(self, job: JsonObject) -> bool:
        """Whether as many pods are ready as it is to have."""
        wanted = (job.get("spec") or {}).get("replicas", 1)
        return bool((job.get("status") or {}).get("readyReplicas", 0) >= wanted)

    def pods_started(self, job: JsonObject) -> bool:
        """Whether a pod is ready."""
        return self.is_active(job)

    def sync_status(self, local: JsonObject, remote_status: JsonObject) -> StatusSync:
        """None is due."""
        return StatusSync()

    def stopped_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """Its controller counts the pods."""
        return None


DEPLOYMENT: Final[JobIntegration] = DeploymentIntegration()
