# SPDX-License-Identifier: Apache-2.0
"""ClusterQueue: quota and the policies of its use (`docs/spec/kueue-api.md §1.2`)."""

from typing import Annotated

from pydantic import Field

from multikueue.api.constants import (
    AdmissionMode,
    FungibilityPolicy,
    FungibilityPreference,
    PreemptionPolicy,
    QueueingStrategy,
    StopPolicy,
)
from multikueue.api.meta import (
    CheckName,
    Conditions,
    FairSharing,
    FairSharingStatus,
    Int32,
    KubeObject,
    ObjectName,
    WireLabelSelector,
    WireModel,
)
from multikueue.api.quota import FlavorUsages, ResourceGroups
from multikueue.api.resource import CLUSTER_QUEUES
from multikueue.api.schema import CelRule, Column, Schema


class FlavorFungibility(WireModel):
    """When the search for a flavor stops."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor'"
                " && self.whenCanPreempt == 'TryNextFlavor')",
                "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
            ),
        )
    )

    when_can_borrow: Annotated[str, Schema(enum=FungibilityPolicy, defaulted=True)] = FungibilityPolicy.MAY_STOP_SEARCH
    when_can_preempt: Annotated[str, Schema(enum=FungibilityPolicy, defaulted=True)] = FungibilityPolicy.TRY_NEXT_FLAVOR
    preference: Annotated[str | None, Schema(enum=FungibilityPreference)] = None


class BorrowWithinCohort(WireModel):
    """Whether a workload may preempt while its queue borrows."""

    policy: Annotated[str, Schema(enum=(PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY), defaulted=True)] = (
        PreemptionPolicy.NEVER
    )
    max_priority_threshold: Int32 | None = None


class Preemption(WireModel):
    """Which workloads those of this queue may preempt."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) && "
                " self.borrowWithinCohort.policy != 'Never')",
                "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
            ),
        )
    )

    reclaim_within_cohort: Annotated[
        str,
        Schema(enum=(PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY), defaulted=True),
    ] = PreemptionPolicy.NEVER
    borrow_within_cohort: Annotated[BorrowWithinCohort, Schema(defaulted=True)] = Field(
        default_factory=BorrowWithinCohort
    )
    within_cluster_queue: Annotated[
        str,
        Schema(
            enum=(
                PreemptionPolicy.NEVER,
                PreemptionPolicy.LOWER_PRIORITY,
                PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
            ),
            defaulted=True,
        ),
    ] = PreemptionPolicy.NEVER


class AdmissionCheckRule(WireModel):
    """A check; without flavors it is needed for every flavor."""

    name: CheckName
    on_flavors: Annotated[tuple[ObjectName, ...], Schema(max_items=64, list_type="set")] = ()


class AdmissionChecksStrategy(WireModel):
    """The checks that must be ready before a workload is admitted."""

    admission_checks: Annotated[
        tuple[AdmissionCheckRule, ...], Schema(min_items=1, max_items=64, map_keys=("name",), required=True)
    ] = ()


class AdmissionScope(WireModel):
    """Whether the order in the queue follows the usage of its LocalQueues."""

    admission_mode: Annotated[str, Schema(enum=AdmissionMode)]


class MigrationConstraints(WireModel):
    """How far a workload migrates."""

    last_acceptable_flavor_name: ObjectName | None = None


class Migration(WireModel):
    """Whether a workload moves to a better flavor after its admission."""

    mode: Annotated[str, Schema(enum=("TryPreferredFlavors", "RetainFirstAdmission"), max_length=253)]
    constraints: MigrationConstraints | None = None


class ConcurrentAdmissionPolicy(WireModel):
    """Trying several flavors at once."""

    migration: Migration


class ClusterQueueSpec(WireModel):
    """Quota and policies."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "!has(self.cohortName) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f,"
                " f.resources.all(r, !has(r.borrowingLimit)))) : true",
                "borrowingLimit must be nil when cohort is empty",
            ),
        )
    )

    resource_groups: ResourceGroups = ()
    cohort_name: ObjectName | None = None
    queueing_strategy: Annotated[str, Schema(enum=QueueingStrategy, defaulted=True)] = QueueingStrategy.BEST_EFFORT_FIFO
    namespace_selector: WireLabelSelector | None = None
    flavor_fungibility: Annotated[FlavorFungibility, Schema(defaulted=True)] = Field(default_factory=FlavorFungibility)
    preemption: Annotated[Preemption, Schema(defaulted=True)] = Field(default_factory=Preemption)
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: Annotated[str, Schema(enum=StopPolicy, defaulted=True)] = StopPolicy.NONE
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None


class ClusterQueueStatus(WireModel):
    """What the queue holds."""

    conditions: Conditions = ()
    flavors_reservation: FlavorUsages = ()
    flavors_usage: FlavorUsages = ()
    pending_workloads: Int32 = 0
    reserving_workloads: Int32 = 0
    admitted_workloads: Int32 = 0
    fair_sharing: FairSharingStatus | None = None


class ClusterQueue(KubeObject):
    """Quota for a group of users, and the rules by which workloads get it."""

    RESOURCE = CLUSTER_QUEUES
    COLUMNS = (
        Column(name="Cohort", path=".spec.cohortName"),
        Column(name="Strategy", path=".spec.queueingStrategy", priority=1),
        Column(name="Pending Workloads", path=".status.pendingWorkloads", type="integer"),
        Column(name="Admitted Workloads", path=".status.admittedWorkloads", type="integer", priority=1),
    )

    spec: ClusterQueueSpec = Field(default_factory=ClusterQueueSpec)
    status: ClusterQueueStatus = Field(default_factory=ClusterQueueStatus)
