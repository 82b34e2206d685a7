# SPDX-License-Identifier: Apache-2.0
"""What is known of one job that is ours to manage, and of its Workloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from multikueue.api.constants import MULTIKUEUE_MANAGED_BY
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.jobs.framework.capabilities import GroupedKind
from multikueue.jobs.framework.protocol import JobIntegration, PodSetInfo
from multikueue.jobs.framework.slices import Sizes, resized, sizes_of
from multikueue.jobs.framework.workloads import Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedJobFacts:
    """A job that is ours to manage, and the Workloads that may belong to it.

    `workloads` are those it owns, oldest first, and before them the prebuilt one that it has, if that exists. `infos`
    computes what the admission of a Workload adds to the job. `tracks_pods` is on with waitForPodsReady. `priority` is
    what the job requests now; None when that is unknown.
    """

    job: JsonObject
    integration: JobIntegration
    workloads: Sequence[JsonObject]
    prebuilt: str = ""
    tracks_pods: bool = False
    infos: Callable[[JsonObject], tuple[PodSetInfo, ...]]
    priority: Priority | None = None
    reclaims: bool = True
    """Whether completed pods release their quota; the gate ReclaimablePods."""
    runs_on_workers: Callable[[JsonObject], bool] = lambda workload: False
    """Whether a Workload is sent to a worker cluster; a job that nothing else keeps from running is held here then."""
    elastic: bool = False
    """Whether its Workloads are the slices of an elastic job; never with a prebuilt one."""
    may_run_elsewhere: Callable[[JsonObject], bool] = lambda workload: False
    """Whether a Workload may still run on another cluster, whatever the status of the job here shows."""
    remote_status: Callable[[JsonObject], JsonObject | None] = lambda workload: None
    """The status of its remote job that the cluster of a Workload has reported since it was sent there last."""

    @property
    def uids(self) -> frozenset[str]:
        """The job's, or those of all members of a group."""
        kind = self.integration
        objects = kind.members(self.job) if isinstance(kind, GroupedKind) else (self.job,)
        return frozenset(each["metadata"]["uid"] for each in objects)

    @property
    def is_group(self) -> bool:
        """Whether the job is made of several objects."""
        return isinstance(self.integration, GroupedKind) and bool(self.integration.group_of(self.job))

    def shows_remote_jobs(self, workload: JsonObject) -> bool:
        """Whether its status is that of its remote jobs, former ones too. What ended in a group is not run again."""
        if self.is_group:
            return False
        return self.integration.managed_by(self.job) == MULTIKUEUE_MANAGED_BY or self.runs_on_workers(workload)

    def remote_job(self, workload: JsonObject) -> JsonObject | None:
        """The job with the status of its present remote job alone; None if that is not known."""
        status = self.remote_status(workload)
        return None if status is None else {**self.job, "status": status}

    @property
    def sizes(self) -> Sizes | None:
        """The counts of the pod sets of an elastic job that may still change; None for any other job."""
        if not self.elastic or self.integration.finished(self.job) is not None:
            return None
        try:
            return sizes_of(self.integration.pod_sets(self.job))
        except BadInput:  # reported where its pod sets are compared
            return None

    def sized(self, workload: JsonObject) -> JsonObject:
        """The Workload with the counts of an elastic job, in which these may differ; any other one as it is."""
        sizes = self.sizes
        return workload if sizes is None else resized(workload, sizes)

    def held_here(self, workload: JsonObject) -> bool:
        """Whether the job stays suspended or gated here for as long as its remote job runs."""
        return not self.integration.traits.has_managed_by and self.runs_on_workers(workload)
