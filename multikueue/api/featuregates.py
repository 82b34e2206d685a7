# SPDX-License-Identifier: Apache-2.0
"""Kueue's feature gates: which there are, what they start as, and which need another (`docs/spec/kueue-api.md §6.2`).

Has the table and its checks; whether a gate has an effect is up to the code that reads it. Defaults are upstream's
except ElasticJobsViaWorkloadSlices, which is off: workers with queues of their own do not take elastic jobs yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

_ON: Final = """
AdmissionFairSharing AdmissionGatedBy AssignQueueLabelsForPods CleanupProvisioningRequestsOnEviction
DeferRayServiceFinalizationForRedisCleanup FairSharingPreemptWithinNominal FairSharingPrioritizeNonBorrowing
FinishOrphanedWorkloads FlavorFungibility FlavorFungibilityPreserveScanProgress
KueueDRAIntegration KueueDRAIntegrationExtendedResource KueueDRAIntegrationPartitionableDevices
KueueDRARejectWorkloadsWhenDRADisabled LocalQueueMetrics LWSImmutableGroupSize MetricForWorkloadCreationLatency
MetricsForCohorts MultiKueue MultiKueueAdaptersForCustomJobs MultiKueueIncrementalDispatcherConfig
MultiKueueIncrementalDispatcherRespectConfigOrder MultiKueueKubeConfigPathValidation MultiKueueRemoteSpecSync
PartialAdmission PodIntegrationValidateGroupOwner PrioritySortingWithinCohort QuotaCheckStrategy ReclaimablePods
RecomputeAssignmentUponPreemptionTargetsOverlap RemoveFinalizersWithStrictPatch SchedulingEquivalenceHashing
SkipAncestorCheckForDeletedWorkloads SkipReassignmentForPodOwnedWorkloads TASAssignmentsEncodingByHostnamePrefix
TASCacheNodeMatchResults TASCacheTopologyTree TASCachingRemainingResources TASFailedNodeReplacement
TASFailedNodeReplacementFailFast TASHandleOverlappingFlavors TASMultiLayerTopology TASProfileMixed
TASRecomputeAssignmentWithinSchedulingCycle TASReplaceNodeOnNodeTaints TASReplaceNodeOnPodTermination
TASValidateWorkloadSliceSize TopologyAwareScheduling UnadmittedWorkloadsObservability ValidateRayAndSparkJobUpdates
VectorizedResourceRequests VisibilityOnDemand WorkloadIdentifierAnnotations WorkloadPriorityClassDefaulting
WorkloadValidateResourcesAreNonNegative WorkloadValidationForPodSetMetadata
"""
_OFF: Final = """
UnadmittedWorkloadsExplicitStatus TASReplaceNodeDueToNotReadyOverFixedTime ConcurrentAdmission CustomMetricLabels
DisableWaitForPodsReady ElasticJobsViaWorkloadSlices ElasticJobsViaWorkloadSlicesWithTAS FailureRecoveryPolicy
FastQuotaReleaseInPodIntegration KueueDRAIntegrationConsumableCapacity MultiKueueClusterProfile
MultiKueueManagerQuotaAutomation MultiKueueOrchestratedPreemption PrioritizePreemptorWorkloads PriorityBoost
RejectUpdatesToCQWithInvalidOnFlavors SchedulerLibraryIntegration ShortWorkloadNames SparkApplicationIntegration
TASBalancedPlacement TASRespectNodeAffinityPreferred WorkloadRequestUseMergePatch
"""
LOCKED_ON: Final = frozenset({"ManagedJobsNamespaceSelectorAlwaysRespected", "TLSOptions"})
CUSTOM_LABELS: Final = "CustomMetricLabels"
DEVICES: Final = "KueueDRAIntegration"
ELASTIC_JOBS: Final = "ElasticJobsViaWorkloadSlices"
DEFAULTS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(_ON.split(), True),
    **dict.fromkeys(_OFF.split(), False),
    **dict.fromkeys(LOCKED_ON, True),
}
_GRADUATED: Final = """
LendingLimit HierarchicalCohorts LocalQueueDefaulting ObjectRetentionPolicies ProvisioningACC
ManagedJobsNamespaceSelector ConfigurableResourceTransformations MultiplePreemptions
WorkloadResourceRequestsSummary SanitizePodSets MultiKueueBatchJobWithManagedBy MultiKueueWaitForWorkloadAdmitted
MultiKueueRedoAdmissionOnEvictionInWorker PropagateBatchJobLabelsToWorkload
SkipFinalizersForPodsSuspendedByParent
"""
_RENAMED: Final = {"DynamicResourceAllocation": DEVICES, "DRAExtendedResources": f"{DEVICES}ExtendedResource"}

Gate: TypeAlias = Callable[[str], bool]
"""Whether a gate is on; `Configuration.gate` is one, `default` another."""


def default(name: str) -> bool:
    """Whether a gate is on where nothing is configured. Raises `KeyError` for no such gate."""
    return DEFAULTS[name]


def enabled(gates: Mapping[str, bool], name: str) -> bool:
    """Whether gate `name` is on where `gates` is what the configuration sets. Raises `KeyError` for no such gate."""
    return gates.get(name, DEFAULTS[name])


def problems(gates: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Gate and what is wrong with its setting."""
    for name, value in gates.items():
        if name in _GRADUATED.split():
            yield name, "this gate has graduated: the feature is always on; remove the line"
        elif name in _RENAMED:
            yield name, f"this gate is now {_RENAMED[name]}, and on by default; remove or rename it"
        elif name not in DEFAULTS:
            yield name, "there is no such feature gate"
        elif name in LOCKED_ON and not value:
            yield name, "this gate is locked to true"
        elif value:
            for parent in _parents(name):
                if not enabled(gates, parent):
                    yield name, f"needs {parent}, which is off"


def _parents(name: str) -> Iterator[str]:
    if name.startswith("TAS"):
        yield "TopologyAwareScheduling"
    if name == "ElasticJobsViaWorkloadSlicesWithTAS":
        yield ELASTIC_JOBS
        yield "TopologyAwareScheduling"
    if name.startswith("MultiKueue") and name != "MultiKueue":
        yield "MultiKueue"
    if name.startswith(DEVICES) and name != DEVICES:
        yield DEVICES
