# SPDX-License-Identifier: Apache-2.0
"""batch/v1 Job, as far as queueing, status synchronization and capacity read it.

The kind belongs to Kubernetes: there is no schema of it here, and other fields are kept.
"""

from pydantic import Field

from multikueue.api.meta import JsonObject, KubeObject, Time, WireModel
from multikueue.api.podtemplate import PodTemplateSpec
from multikueue.api.resource import JOBS


class JobSpec(WireModel):
    """The spec of the Job; defaults are those of the API server."""

    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    managed_by: str | None = None
    selector: JsonObject | None = None
    manual_selector: bool | None = None
    template: PodTemplateSpec = Field(default_factory=PodTemplateSpec)


class JobCondition(WireModel):
    """One condition of a Job; Kubernetes gives it a probe time as well."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None


class UncountedTerminatedPods(WireModel):
    """Pods that have ended and are not counted yet, by uid."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(WireModel):
    """The status of the Job."""

    conditions: tuple[JobCondition, ...] = ()
    start_time: Time | None = None
    completion_time: Time | None = None
    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    uncounted_terminated_pods: UncountedTerminatedPods | None = None


class Job(KubeObject):
    """A Job of Kubernetes."""

    RESOURCE = JOBS

    spec: JobSpec = Field(default_factory=JobSpec)
    status: JobStatus = Field(default_factory=JobStatus)
