# SPDX-License-Identifier: Apache-2.0
"""The input of `plan`: the workload on the hub, the worker clusters, and what each of them reported.

Frozen values, gathered by `manager/dispatch` from its caches. The availability of a cluster is one value for every
cause, so a missing Secret, a deleted cluster, a cluster removed from the config and a lost link are treated alike
(`docs/spec/multikueue.md §1.7`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE, CheckState, GatePosition, PartitionPolicy
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.core.conditions import Condition
from multikueue.core.keys import Key
from multikueue.core.selectors import LabelSelector
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity
from multikueue.dispatch.hub.replicas import ReplicaFacts
from multikueue.dispatch.policy.dispatch_policy import PolicyRules, PolicyVerdict, cluster_rules
from multikueue.dispatch.protocol.job_problems import JobFailure, StartProblem
from multikueue.dispatch.protocol.phases import ENDED
from multikueue.dispatch.worker.ledger import Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings:
    """The settings of dispatch, partly from `Configuration.multiKueue`."""

    worker_lost_timeout: timedelta = timedelta(minutes=15)
    dispatcher: str = DISPATCHER_ALL_AT_ONCE
    step_size: int = 3
    round_length: timedelta = timedelta(minutes=5)
    """How long the incremental dispatcher gives the clusters of one round before it adds more."""
    report_max_age: timedelta = timedelta(seconds=45)
    """The age at which a report becomes stale; agents send one every ten seconds."""
    patience: timedelta = timedelta(seconds=15)
    """How long a workload that fits nowhere is held back before the next cluster is nominated.

    The time starts again whenever work ends, which shows that reports are right, up to `longest_wait`.
    """
    longest_wait: timedelta = timedelta(minutes=5)
    """After this a cluster is nominated in any case, so that smaller workloads cannot overtake it for ever."""
    lease: timedelta = timedelta(seconds=40)
    fencing_grace: timedelta = timedelta(seconds=60)
    """Added to the lease before fenced work is started elsewhere, for clock drift and the termination of pods."""
    avoid_for: timedelta = timedelta(minutes=10)
    """How long a cluster that refused a granted workload is not nominated for it."""
    mass_loss_share: float = 0.5
    """If more than this share of three or more clusters is lost at once, the hub itself is considered cut off."""
    mass_loss_window: timedelta = timedelta(minutes=2)
    """Losses within this window count as simultaneous."""
    evictions_per_second: float = 5.0
    """How fast workloads leave one lost cluster, after the first `eviction_burst`."""
    eviction_burst: int = 20
    avoid_lost_for: timedelta = timedelta(minutes=1)
    """How long a cluster that was lost is not nominated for the workload it had."""
    asks_for: timedelta = timedelta(hours=1)
    """How long a cluster that refused a granted workload is asked for it and not granted, once it is not avoided."""
    avoid_without_queue_for: timedelta = timedelta(seconds=3)
    """How long a cluster that refused because its LocalQueue is missing is not nominated for that workload.

    Longer than the report without that LocalQueue takes; from then on the report decides.
    """
    orchestrated_preemption: bool = False
    """Whether assignments have a closed preemption gate, opened one cluster at a time."""
    pods_start_timeout: timedelta = timedelta(minutes=5)
    """How long the pods of a granted workload may fail to start until it is dispatched elsewhere; 0 for ever."""
    keep_failed_jobs: timedelta = timedelta(minutes=10)
    """For how long after its end the assignment of a failed workload is kept, and with it the Job on the worker."""
    provisioning_clusters: int = 1
    """How many clusters the capacity dispatcher asks at a time to provision capacity for one workload."""
    preemption_window: timedelta = timedelta(minutes=5)
    """How long only one cluster may preempt for a workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFacts:
    """The MultiKueue check of the workload."""

    name: str
    state: CheckState
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """The Pending provisioning checks of a workload, which a worker cluster decides (ADR 0018)."""

    checks: tuple[str, ...]
    message: str = ""
    """That of the first check; the others have the same."""
    attempt: int = 1
    retry_seconds: int | None = None
    """The seconds to the next attempt if each cluster fails; None: no attempt is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerFacts:
    """The owner job of the workload; `problem` is why it cannot run remotely, empty if it can."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    problem: str = ""


class Placement(StrEnum):
    """Whether the cluster with the most or the least capacity left is preferred."""

    SPREAD = "spread"
    PACK = "pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """The clusters a user wants; empty `pinned` allows any, `problem` is why an annotation is invalid."""

    pinned: frozenset[str] = frozenset()
    selector: LabelSelector = field(default_factory=LabelSelector)
    preferred: LabelSelector | None = None
    placement: Placement = Placement.SPREAD
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """A round of the incremental dispatcher: the number of clusters nominated when it began."""

    epoch: int
    clusters: int
    began: datetime


@dataclass(frozen=True, slots=True)
class GateOpening:
    """The last opening of a preemption gate in an epoch: on which cluster, and when."""

    epoch: int
    cluster: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Adoption:
    """A remote job, created for a former management cluster, that a workload takes over (ADR 0010)."""

    cluster: str
    manager_uid: str
    job_uid: str
    epoch: int
    """The only epoch it is for: after an eviction the workload may go to any cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchedWorkload:
    """The Workload on the management cluster.

    `stopping`: it holds quota and has to stop, because it was evicted, deactivated, rejected by a check, or deleted
    while its job stays. `fingerprint` changes when its assignments have to be updated.
    """

    key: Key
    uid: str
    epoch: int
    check: CheckFacts | None
    owner: OwnerFacts = OwnerFacts()
    quota_reserved: bool = False
    others_ready: bool = True
    """Whether all checks but that of dispatch, and those that are delegated, are Ready."""
    delegation: Delegation | None = None
    stopping: bool = False
    finished: bool = False
    failed_at: datetime | None = None
    """When it finished as failed, by the hub's clock."""
    finished_at: datetime | None = None
    """When it finished in any way, by the hub's clock."""
    superseded: bool = False
    """Whether newer failed Jobs of its namespace are kept instead of its own."""
    logs_read_for: float = 0.0
    """Of one that has finished: for how many seconds from now users may still read its logs through the agent."""
    deleting: bool = False
    cluster_name: str = ""
    elastic: bool = False
    """Whether it is a slice of an elastic job."""
    runs_on: str = ""
    """Of a slice of an elastic job, the cluster on which the job runs by the slice that this one has replaced."""
    nominated: tuple[str, ...] = ()
    fingerprint: str = ""
    partition_policy: PartitionPolicy = PartitionPolicy.FAILOVER
    """What its user asked for; `availability.policy_on` is what applies on a cluster."""
    queue: Key | None = None
    demands: tuple[Demand, ...] = ()
    dependency_kinds: frozenset[str] = frozenset()
    """The kinds of the objects without which its pods do not start."""
    lacking: frozenset[str] = frozenset()
    """The clusters that have answered in this epoch that one of those objects is missing there."""
    failed_on: frozenset[str] = frozenset()
    """The clusters that failed it within the last hour, and are not avoided any more."""
    flavors: Mapping[str, str] = field(default_factory=dict)
    """The flavors whose quota is reserved on the hub, by resource."""
    preferences: Preferences = Preferences()
    replica: ReplicaFacts | None = None
    """If its owner has a Workload for each replica, while it has quota and no cluster."""
    ends_of_former_pods: frozenset[str] = frozenset()
    """The clusters on which a group ended with pods that others have replaced here: those have not run."""
    members_follow: bool = False
    """Whether its pods are created one after another while some of them run, as those of a StatefulSet."""
    waits_since: datetime | None = None
    """Since when it waits only for a cluster."""
    round: Round | None = None
    gate_opening: GateOpening | None = None
    """The last one; ignored if it is of an older epoch."""
    adopts: Adoption | None = None
    not_started: Condition | None = None
    """Its condition PodsStarted, while that is False."""
    withheld: str = ""
    """Why the hub does not forward a change of its job; empty if there is none."""
    not_forwarded: Condition | None = None
    """Its condition ChangeForwarded, while that is False."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A worker cluster as the hub sees it.

    `lost_since` is None while it is available; `reason` and `message` are the cause. `agent_lost_since` is only about
    the connection of its agent: a cluster that was removed from the config can still stop its work. `capacity` is its
    last report, received at `reported_at` by the hub's clock, and what was assigned to it since.
    """

    name: str
    exists: bool = True
    """Whether there is a MultiKueueCluster of that name."""
    lost_since: datetime | None = None
    agent_lost_since: datetime | None = None
    cannot_stop: bool = False
    """Whether its agent reported that it cannot reach its API server, so that it cannot stop what runs there."""
    fences: bool = True
    """Whether an agent beside it stops fenced work while the link is cut: not if it is reached by kubeconfig."""
    reason: str = ""
    message: str = ""
    takes_new_work: bool = True
    draining: bool = False
    drain_deadline: datetime | None = None
    """When work that still runs on a draining cluster is stopped; None for never."""
    labels: Mapping[str, str] = field(default_factory=dict)
    weight: float = 1.0
    rules: PolicyRules = field(default_factory=lambda: cluster_rules({}))
    """Its own dispatch policy, in addition to that of the hub."""
    capacity: ClusterCapacity | None = None
    reported_at: datetime | None = None

    @property
    def provisioning_problem(self) -> str:
        """Why it cannot be asked to provision capacity; empty if it can."""
        report = None if self.capacity is None else self.capacity.report
        if report is None or report.provisioning is None:
            return "its agent has not reported that it can provision capacity"
        return report.provisioning

    @property
    def available(self) -> bool:
        """Whether it is connected and its reported status is current."""
        return self.lost_since is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteEnd:
    """How the job ended on the worker."""

    reason: str
    message: str = ""
    time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """An assignment in a mailbox: what the hub desires, and the status that the agent reported last."""

    cluster: str
    workload_uid: str
    epoch: int
    intent: Intent
    fingerprint: str = ""
    status_epoch: int = 0
    phase: AssignmentPhase = AssignmentPhase.PENDING
    reason: str = ""
    message: str = ""
    job_status: JsonObject | None = None
    job_uid: str = ""
    end: RemoteEnd | None = None
    failure: JobFailure | None = None
    """The failed containers of a job that failed, once the agent has read them."""
    gate: GatePosition | None = None
    """The desired position of the preemption gate; None for an assignment without one."""
    blocked_since: datetime | None = None
    """Since when only that gate keeps it from preempting on the worker, by the worker's clock."""
    start_problem: StartProblem | None = None
    """Why no pod of the job has started there."""
    refused_change: StartProblem | None = None
    """Why a change of the job was not made there."""
    provisions: bool = False
    """Whether its capacity is provisioned before the job runs."""
    policy: PartitionPolicy | None = None
    """The partition policy that was sent to the agent; None if not known."""

    @property
    def answered(self) -> bool:
        """Whether the reported status is for the assigned epoch; status for an older epoch is ignored."""
        return self.status_epoch == self.epoch

    @property
    def may_run(self) -> bool:
        """Whether its job may run there: it is, or was, to run, and no end of this epoch was reported."""
        return not self.intent.precedes_grant and not (self.answered and self.phase in ENDED)

    def job_status_in(self, epoch: int) -> JsonObject | None:
        """The status of the job that was reported in that epoch; None if none was."""
        return self.job_status if self.answered and self.epoch == epoch else None

    def has_phase(self, phase: AssignmentPhase) -> bool:
        """Whether the cluster reported `phase` for this epoch."""
        return self.answered and self.phase is phase


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchFacts:
    """The input of one plan for one workload.

    `workload` is None if it was deleted. `clusters` are those of the config, in its order; a cluster that is named
    elsewhere (as clusterName, for example) is in `others`. `avoided` clusters are not nominated until the given time;
    one whose time is over is asked and not granted, since it failed the workload before.
    """

    workload: DispatchedWorkload | None
    clusters: tuple[ClusterFacts, ...] = ()
    others: Mapping[str, ClusterFacts] = field(default_factory=dict)
    observations: Mapping[str, Observation] = field(default_factory=dict)
    avoided: Mapping[str, datetime] = field(default_factory=dict)
    policy: PolicyVerdict = field(default_factory=PolicyVerdict)
    """The clusters that dispatch policies forbid; not evaluated for work that is on a cluster."""
    settings: DispatchSettings = DispatchSettings()
    delivered: bool = True
    """Whether the assignment of the chosen cluster may have existed; false if it was never seen since the grant."""

    def cluster(self, name: str) -> ClusterFacts | None:
        """The facts of the cluster, in the config or not."""
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        return self.others.get(name)

    def occupied_clusters(self, *, granting: str | None = None) -> frozenset[str]:
        """The clusters on which the workload takes capacity, with the one that it is about to be granted to.

        It counts from the decision to send it there until the cluster reports that it ended.
        """
        workload = self.workload
        found = {
            name
            for name, seen in self.observations.items()
            # What is not provisioned yet takes nothing of what is there.
            if seen.phase not in ENDED
            and (seen.intent is not Intent.PROVISION or seen.has_phase(AssignmentPhase.PROVISIONED))
        }
        if workload is not None and workload.quota_reserved and not workload.finished:
            chosen = granting or workload.cluster_name
            seen = self.observations.get(chosen)
            if chosen and (seen is None or seen.phase not in ENDED or seen.epoch < workload.epoch):
                found.add(chosen)
        return frozenset(found)
