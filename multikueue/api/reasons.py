# SPDX-License-Identifier: Apache-2.0
"""Condition types, their reasons, and the reasons of events, exactly as Kueue's clients match them.

The strings are those of `docs/spec/kueue-api.md §2.4` to `§2.6`; messages are with the code that writes them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class WorkloadCondition(StrEnum):
    """The condition types of a Workload."""

    QUOTA_RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    FINISHED = "Finished"
    PODS_READY = "PodsReady"
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    REQUEUED = "Requeued"
    DEACTIVATION_TARGET = "DeactivationTarget"
    BLOCKED_ON_PREEMPTION_GATES = "BlockedOnPreemptionGates"
    WAITING_FOR_REPLACEMENT_PODS = "WaitingForReplacementPods"
    # Not upstream's.
    PODS_STARTED = "PodsStarted"
    CHANGE_FORWARDED = "ChangeForwarded"


CAN_PROVISION_CONDITION: Final = "CanProvision"
"""Of a MultiKueue check: whether the clusters of its config can provision capacity for provisioning checks."""
ACTIVE_CONDITION: Final = "Active"
"""On ClusterQueue, LocalQueue, AdmissionCheck and MultiKueueCluster; on a Cohort where something is wrong."""
QUOTA_AUTOMATION_CONDITION: Final = "MultiKueueManagerQuotaAutomation"


class QuotaReservedReason(StrEnum):
    """Why a workload has, or has not, a reservation."""

    QUOTA_RESERVED = "QuotaReserved"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    PENDING_EVALUATION = "PendingEvaluation"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    ADMISSION_GATED = "AdmissionGated"
    ON_HOLD = "OnHold"
    DEACTIVATED = "Deactivated"
    # With the gate UnadmittedWorkloadsObservability off.
    PENDING = "Pending"
    INADMISSIBLE = "Inadmissible"
    WAITING = "Waiting"


class AdmittedReason(StrEnum):
    """Why a workload is, or is not, admitted."""

    ADMITTED = "Admitted"
    NO_RESERVATION = "NoReservation"
    UNSATISFIED_ADMISSION_CHECKS = "UnsatisfiedAdmissionChecks"
    PENDING_DELAYED_TOPOLOGY_REQUESTS = "PendingDelayedTopologyRequests"
    # With the gate UnadmittedWorkloadsObservability off.
    NO_RESERVATION_UNSATISFIED_CHECKS = "NoReservationUnsatisfiedChecks"
    UNSATISFIED_CHECKS = "UnsatisfiedChecks"


class FinishedReason(StrEnum):
    """How a workload finished."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    OUT_OF_SYNC = "OutOfSync"
    OWNER_NOT_FOUND = "OwnerNotFound"
    WORKLOAD_SLICE_REPLACED = "WorkloadSliceReplaced"
    FAILED_TO_START = "FailedToStart"


class PodsReadyReason(StrEnum):
    """Why the pods of a workload are, or are not, ready."""

    STARTED = "Started"
    RECOVERED = "Recovered"
    WAIT_FOR_START = "WaitForStart"
    WAIT_FOR_RECOVERY = "WaitForRecovery"


class EvictedReason(StrEnum):
    """Why a workload lost its reservation; `deactivated_due_to` makes the compound ones."""

    PREEMPTED = "Preempted"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    ADMISSION_CHECK = "AdmissionCheck"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    NODE_FAILURES = "NodeFailures"
    FLAVOR_MIGRATION = "FlavorMigration"
    DEVICE_CLAIMS_CHANGED = "DeviceClaimsChanged"  # ours
    DEACTIVATED = "Deactivated"
    QUOTA_RESERVED = "QuotaReserved"  # of Evicted=False, on the next reservation


class DeactivationCause(StrEnum):
    """Who or what deactivated a workload; the reason of DeactivationTarget."""

    ADMISSION_CHECK = "AdmissionCheck"
    REQUEUING_LIMIT_EXCEEDED = "RequeuingLimitExceeded"
    MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
    EVICTED_ON_MANAGER_CLUSTER = "EvictedOnManagerCluster"


def deactivated_due_to(cause: str) -> str:
    """The reason of Evicted for a workload that was deactivated for `cause`; plain Deactivated without one."""
    return f"{EvictedReason.DEACTIVATED}DueTo{cause}" if cause else str(EvictedReason.DEACTIVATED)


class PreemptedReason(StrEnum):
    """Where in the cohort tree the preemptor is."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


class RequeuedReason(StrEnum):
    """Why a workload went back into its queue; while it may not, the reason is that of the eviction."""

    REACTIVATED = "Reactivated"
    BACKOFF_FINISHED = "BackoffFinished"
    CLUSTER_QUEUE_RESTARTED = "ClusterQueueRestarted"
    LOCAL_QUEUE_RESTARTED = "LocalQueueRestarted"
    PREEMPTED = "Preempted"
    NODE_FAILURES = "NodeFailures"
    INADMISSIBLE = "Inadmissible"


PREEMPTION_GATED_REASON: Final = "PreemptionGated"
PODS_FAILED_REASON: Final = "PodsFailed"
PODS_NOT_STARTED_REASON: Final = "PodsNotStarted"
"""Of PodsStarted, where the worker reports no valid one."""


class ClusterQueueReason(StrEnum):
    """Why a ClusterQueue is, or is not, Active."""

    READY = "Ready"
    TERMINATING = "Terminating"
    STOPPED = "Stopped"
    FLAVOR_NOT_FOUND = "FlavorNotFound"
    ADMISSION_CHECK_NOT_FOUND = "AdmissionCheckNotFound"
    ADMISSION_CHECK_INACTIVE = "AdmissionCheckInactive"
    MULTIPLE_MULTIKUEUE_ADMISSION_CHECKS = "MultipleMultiKueueAdmissionChecks"
    MULTIKUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR = "MultiKueueAdmissionCheckAppliedPerFlavor"
    MULTIKUEUE_WITH_PROVISIONING_REQUEST = "MultiKueueWithProvisioningRequest"
    TOPOLOGY_NOT_FOUND = "TopologyNotFound"
    COHORT_INVALID = "CohortInvalid"  # not upstream's
    UNKNOWN = "Unknown"


class CohortReason(StrEnum):
    """Why a Cohort is, or is not, Active; upstream has no such condition."""

    READY = "Ready"
    CYCLE = "CohortCycle"
    TOO_DEEP = "CohortTooDeep"


class QuotaAutomationReason(StrEnum):
    """Why the quota of a ClusterQueue is, or is not, set from the worker clusters."""

    QUOTA_AUTOMATED = "QuotaAutomated"
    NOT_REQUESTED = "NotRequested"
    UNSUPPORTED_CONFIGURATION = "UnsupportedConfiguration"


class LocalQueueReason(StrEnum):
    """Why a LocalQueue is, or is not, Active."""

    READY = "Ready"
    STOPPED = "Stopped"
    CLUSTER_QUEUE_DOES_NOT_EXIST = "ClusterQueueDoesNotExist"
    CLUSTER_QUEUE_IS_INACTIVE = "ClusterQueueIsInactive"


class AdmissionCheckReason(StrEnum):
    """Why an AdmissionCheck is, or is not, Active."""

    ACTIVE = "Active"
    BAD_PARAMETERS_REF = "BadParametersRef"
    BAD_CONFIG = "BadConfig"
    NO_USABLE_CLUSTERS = "NoUsableClusters"
    SOME_ACTIVE_CLUSTERS = "SomeActiveClusters"
    PROVISIONING_NOT_INSTALLED = "ProvisioningRequestNotInstalled"  # not upstream's
    CLUSTERS_CANNOT_PROVISION = "ClustersCannotProvision"  # of CanProvision, not upstream's


class ClusterReason(StrEnum):
    """Why a MultiKueueCluster is, or is not, Active."""

    ACTIVE = "Active"
    BAD_KUBE_CONFIG = "BadKubeConfig"
    INSECURE_KUBE_CONFIG = "InsecureKubeConfig"
    BAD_CLUSTER_PROFILE = "BadClusterProfile"
    BAD_REST_CONFIG = "BadRestConfig"
    CLUSTER_PROFILE_FEATURE_DISABLED = "MultiKueueClusterProfileFeatureDisabled"
    CLIENT_CONNECTION_FAILED = "ClientConnectionFailed"
    MAILBOX_NAMESPACE_TAKEN = "MailboxNamespaceTaken"
    MISSING_RIGHTS = "MissingRights"


class PodCondition(StrEnum):
    """Conditions that are written to plain pods."""

    TERMINATION_TARGET = "TerminationTarget"
    FAILURE_RECOVERY = "KueueFailureRecovery"


class WorkloadEvent(StrEnum):
    """Reasons of events about Workloads; `evicted_event` makes those of evictions."""

    QUOTA_RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    PREEMPTED = "Preempted"
    PREEMPTED_WORKLOAD = "PreemptedWorkload"
    SECOND_PASS_FAILED = "SecondPassFailed"
    ADMISSION_CHECK_REJECTED = "AdmissionCheckRejected"
    MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
    ADMISSION_GATED = "AdmissionGated"
    ADMISSION_GATE_CLEARED = "AdmissionGateCleared"
    DELETED = "Deleted"
    WORKLOAD_SLICE_REPLACED = "WorkloadSliceReplaced"
    MULTIKUEUE = "MultiKueue"
    PROVISIONING_REQUEST_CREATED = "ProvisioningRequestCreated"
    FAILED_CREATE = "FailedCreate"
    ADMISSION_CHECK_UPDATED = "AdmissionCheckUpdated"
    CREATED_VARIANT = "CreatedVariant"
    DELETED_VARIANT = "DeletedVariant"
    ACTIVATED_VARIANT = "ActivatedVariant"
    DEACTIVATED_VARIANT = "DeactivatedVariant"
    PREEMPTION_UNGATED_VARIANT = "PreemptionUngatedVariant"
    OWNER_REFERENCES_ADDED = "OwnerReferencesAdded"
    PENDING = "Pending"
    # Not upstream's.
    QUEUE_HELD = "QueueHeld"
    WAITING_FOR_CLUSTER = "WaitingForCluster"
    PODS_NOT_STARTED = "PodsNotStarted"
    REMOTE_JOB_FAILED = "RemoteJobFailed"


def evicted_event(reason: str, cause: str = "") -> str:
    """The reason of the event of an eviction."""
    event = f"EvictedDueTo{reason}"
    return f"{event}DueTo{cause}" if cause else event


class JobEvent(StrEnum):
    """Reasons of events about jobs."""

    STARTED = "Started"
    SUSPENDED = "Suspended"
    STOPPED = "Stopped"
    DELETED = "Deleted"
    CREATED_WORKLOAD = "CreatedWorkload"
    DELETED_WORKLOAD = "DeletedWorkload"
    UPDATED_WORKLOAD = "UpdatedWorkload"
    FINISHED_WORKLOAD = "FinishedWorkload"
    ERR_WORKLOAD_COMPOSE = "ErrWorkloadCompose"
    UPDATED_ADMISSION_CHECK = "UpdatedAdmissionCheck"
    JOB_NESTING_TOO_DEEP = "JobNestingTooDeep"
    WORKLOAD_PRIORITY_CLASS_NOT_FOUND = "WorkloadPriorityClassNotFound"
    QUEUE_NAME_MISSING = "QueueNameMissing"
    QUEUE_TARGET_MISMATCH = "QueueTargetMismatch"
    POD_NOT_STARTED = "PodNotStarted"


class FrameworkEvent(StrEnum):
    """Reasons of events about frameworks, on the manager's namespace."""

    WAITING = "FrameworkWaiting"
    STARTED = "FrameworkStarted"


class PodEvent(StrEnum):
    """Reasons of events about plain pods."""

    EXCESS_POD_DELETED = "ExcessPodDeleted"
    WORKLOAD_NAME_CONFLICT = "WorkloadNameConflict"
    FORCEFULLY_DELETED = "KueueForcefullyDeleted"
    QUEUE_NAME_IGNORED = "QueueNameIgnored"
    OUTSIDE_QUOTA = "OutsideQuota"


ORDINARY_STEPS: Final = frozenset(
    {
        JobEvent.CREATED_WORKLOAD,
        WorkloadEvent.QUOTA_RESERVED,
        JobEvent.UPDATED_ADMISSION_CHECK,
        WorkloadEvent.ADMITTED,
        JobEvent.STARTED,
    }
)
"""Events of every job that the status of its Workload shows too: a busy hub does not write most of them.

`MultiKueue` is none of them, since it names the cluster: conditions do not show where a job ran before.
"""
DEPRECATED_PATH_USAGE_EVENT: Final = "DeprecatedPathUsage"
"""About a MultiKueueCluster whose kubeconfig is a path."""
STOP_REASON_NOT_ADMITTED: Final = "NotAdmitted"
STOP_REASON_NO_MATCHING_WORKLOAD: Final = "NoMatchingWorkload"
STOP_REASON_WORKLOAD_DELETED: Final = "WorkloadDeleted"
STOP_REASON_WORKLOAD_EVICTED: Final = "WorkloadEvicted"
