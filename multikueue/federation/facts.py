# SPDX-License-Identifier: Apache-2.0
"""What `plan` is told: the workload on the management cluster, the worker clusters, and what each saw of it.

Owns frozen values only. They are gathered by `manager/dispatch` from caches; nothing in here knows where from. A
cluster's availability is one value for every cause, so that a missing Secret, a deleted cluster, a cluster taken out
of the config and a lost link are judged alike (`docs/spec/multikueue.md §1.7`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE, CheckState, GatePosition, PartitionPolicy
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent, Phase
from multikueue.core.keys import Key
from multikueue.core.selectors import LabelSelector
from multikueue.federation.ledger import Demand
from multikueue.federation.standing_room import StandingRoom


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The parts of `Configuration.multiKueue` that decide something here."""

    worker_lost_timeout: timedelta = timedelta(minutes=15)
    dispatcher: str = DISPATCHER_ALL_AT_ONCE
    step_size: int = 3
    round_length: timedelta = timedelta(minutes=5)
    """How long the incremental dispatcher gives the clusters of one round before it adds more."""
    report_max_age: timedelta = timedelta(seconds=45)
    """How old a report may be before it is not believed any more; agents send one each ten seconds."""
    patience: timedelta = timedelta(seconds=15)
    """How long a workload that no cluster has room for is kept back, and then the next cluster's turn comes.

    As long as work ends there, reports are right, and it is kept back further, up to `longest_wait`.
    """
    longest_wait: timedelta = timedelta(minutes=5)
    """After which it claims room on a cluster, so that smaller workloads do not overtake it for ever."""
    lease: timedelta = timedelta(seconds=40)
    fencing_grace: timedelta = timedelta(seconds=60)
    """Added to the lease before fenced work goes elsewhere: drift of two clocks' rates, and pods' time to end."""
    avoid_for: timedelta = timedelta(minutes=10)
    """How long a cluster that refused what it had been granted is passed over for that workload."""
    mass_loss_share: float = 0.5
    """When more than this share of three or more clusters is lost at once, it is rather the hub that is cut off."""
    mass_loss_window: timedelta = timedelta(minutes=2)
    """What counts as at once."""
    evictions_per_second: float = 5.0
    """How fast the work of one lost cluster is sent elsewhere, after the first `eviction_burst`."""
    eviction_burst: int = 20
    avoid_lost_for: timedelta = timedelta(minutes=1)
    """How long one that was lost is; when it is back, it may be going again."""
    orchestrated_preemption: bool = False
    """Whether copies are sent with a closed preemption gate, and the gates opened one at a time."""
    preemption_window: timedelta = timedelta(minutes=5)
    """How long one cluster alone may preempt for a workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFacts:
    """The MultiKueue check of the workload."""

    name: str
    state: CheckState
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerFacts:
    """The job that the workload stands for; `problem` says why it cannot be run remotely, and is empty if it can."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    problem: str = ""


class Placement(StrEnum):
    """Whether work goes where most is left free, or where least is."""

    SPREAD = "spread"
    PACK = "pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """Where its user wants a workload; `pinned` empty is anywhere, `problem` says what of it cannot be read."""

    pinned: frozenset[str] = frozenset()
    selector: LabelSelector = field(default_factory=LabelSelector)
    preferred: LabelSelector | None = None
    placement: Placement = Placement.SPREAD
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """A round of the incremental dispatcher: how many clusters were nominated by its beginning, and when that was."""

    epoch: int
    clusters: int
    began: datetime


@dataclass(frozen=True, slots=True)
class GateOpening:
    """That the copy on one cluster may preempt, as none of that epoch was allowed to later."""

    epoch: int
    cluster: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Adoption:
    """A copy that runs on a cluster since before this management cluster was made, to be gone on with (ADR 0010)."""

    cluster: str
    manager_uid: str
    job_uid: str
    epoch: int
    """The dispatch that it is for: what is evicted later goes wherever it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """The Workload on the management cluster.

    `stopping` is true while quota is held by something that is to stop: evicted, deactivated, rejected by a check, or
    deleted while its job stays.
    `fingerprint` is equal as long as a copy that was sent need not be sent again.
    """

    key: Key
    uid: str
    epoch: int
    check: CheckFacts | None
    owner: OwnerFacts = OwnerFacts()
    quota_reserved: bool = False
    others_ready: bool = True
    stopping: bool = False
    finished: bool = False
    deleting: bool = False
    cluster_name: str = ""
    nominated: tuple[str, ...] = ()
    fingerprint: str = ""
    partition_policy: PartitionPolicy = PartitionPolicy.FAILOVER
    queue: Key | None = None
    demands: tuple[Demand, ...] = ()
    flavors: Mapping[str, str] = field(default_factory=dict)
    """By resource, the flavors that the management cluster reserved of it."""
    preferences: Preferences = Preferences()
    waits_since: datetime | None = None
    """Since when nothing but a cluster is missing."""
    round: Round | None = None
    gate_opening: GateOpening | None = None
    """The last one; of an epoch before, it counts for nothing."""
    adopts: Adoption | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A worker cluster as the management cluster judges it.

    `lost_since` is None while it is available, and otherwise the moment from which it was not, whatever the cause;
    `reason` and `message` say which. `silent_since` is only about whether its agent is heard: one that was taken out
    of the config can still be told to stop. `room` is what it reported and what stands there, as of `reported_at` by
    our clock.
    """

    name: str
    exists: bool = True
    """Whether there is a MultiKueueCluster of that name."""
    lost_since: datetime | None = None
    silent_since: datetime | None = None
    cannot_stop: bool = False
    """Whether its agent has said that it cannot reach its own API server: what runs there runs on."""
    reason: str = ""
    message: str = ""
    takes_new_work: bool = True
    draining: bool = False
    drain_deadline: datetime | None = None
    """When what still runs on a draining cluster is stopped; None is never."""
    labels: Mapping[str, str] = field(default_factory=dict)
    weight: float = 1.0
    room: StandingRoom | None = None
    reported_at: datetime | None = None

    @property
    def available(self) -> bool:
        """Whether it can be nominated and its word is fresh."""
        return self.lost_since is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteEnd:
    """How the job ended on the worker."""

    reason: str
    message: str = ""
    time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """An assignment as it stands in a mailbox: our wish, and the cluster's last word about it."""

    cluster: str
    workload_uid: str
    epoch: int
    intent: Intent
    fingerprint: str = ""
    status_epoch: int = 0
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    job_status: JsonObject | None = None
    job_uid: str = ""
    end: RemoteEnd | None = None
    gate: GatePosition | None = None
    """Where the preemption gate of the copy was told to be; None for a copy that was sent without one."""
    blocked_since: datetime | None = None
    """Since when nothing but that gate keeps the copy from preempting others there, by the worker's clock."""
    policy: PartitionPolicy | None = None
    """What its agent was told to do behind a cut link; None where that is not known."""

    @property
    def answered(self) -> bool:
        """Whether the cluster's word is about the epoch that it was last told; an older one is no answer."""
        return self.status_epoch == self.epoch

    def says(self, phase: Phase) -> bool:
        """Whether the cluster's answer to this epoch is `phase`."""
        return self.answered and self.phase is phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that one decision about one workload is made from.

    `workload` is None when it is gone. `clusters` are those of the config, in its order; one that is named elsewhere
    (as clusterName, say) and is not in the config is in `others`. `avoided` clusters are passed over until then.
    """

    workload: WorkloadFacts | None
    clusters: tuple[ClusterFacts, ...] = ()
    others: Mapping[str, ClusterFacts] = field(default_factory=dict)
    observations: Mapping[str, Observation] = field(default_factory=dict)
    avoided: Mapping[str, datetime] = field(default_factory=dict)
    settings: Settings = Settings()
    delivered: bool = True
    """Whether the chosen cluster's assignment may have been there; false when nobody has seen it since the grant."""

    def cluster(self, name: str) -> ClusterFacts | None:
        """What is known of the cluster, in the config or not."""
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        return self.others.get(name)
