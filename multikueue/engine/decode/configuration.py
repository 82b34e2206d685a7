# SPDX-License-Identifier: Apache-2.0
"""Engine settings from a Configuration of config.kueue.x-k8s.io/v1beta2.

Owns which of its fields the engine uses, and the defaults of `docs/spec/engine.md §0.5`. Raises `BadInput` naming the
field; `api.configuration` validates the whole.
"""

from __future__ import annotations

from typing import Final

from multikueue.core.duration import parse_unsigned_duration
from multikueue.engine.decode import fields
from multikueue.engine.decode.fields import Json, Source
from multikueue.engine.devices.claims import DeviceMapping
from multikueue.engine.settings import (
    AdmissionFairSharing,
    FairStrategy,
    Gates,
    PodsReady,
    QuotaCheck,
    RequeueTimestamp,
    Settings,
    Transformation,
)

_GATES: Final = {
    "FlavorFungibility": "flavor_fungibility",
    "FlavorFungibilityPreserveScanProgress": "preserve_scan_progress",
    "PartialAdmission": "partial_admission",
    "PrioritySortingWithinCohort": "priority_sorting_within_cohort",
    "FairSharingPreemptWithinNominal": "fair_preempt_within_nominal",
    "FairSharingPrioritizeNonBorrowing": "fair_prioritize_non_borrowing",
    "SchedulingEquivalenceHashing": "equivalence_hashing",
    "RecomputeAssignmentUponPreemptionTargetsOverlap": "recompute_on_overlap",
    "TopologyAwareScheduling": "topology",
    "TASProfileMixed": "mixed_topology_profile",
    "ReclaimablePods": "reclaimable_pods",
    "QuotaCheckStrategy": "quota_check_strategy",
    "AdmissionFairSharing": "admission_fair_sharing",
    "AdmissionGatedBy": "admission_gated_by",
    "ElasticJobsViaWorkloadSlices": "elastic_jobs",
    "UnadmittedWorkloadsObservability": "observability",
    "PrioritizePreemptorWorkloads": "prioritize_preemptors",
    "PriorityBoost": "priority_boost",
    "KueueDRAIntegration": "devices",
    "KueueDRAIntegrationExtendedResource": "extended_devices",
    "KueueDRARejectWorkloadsWhenDRADisabled": "rejects_devices",
}
_USERS_OF_PREEMPTION_GATES: Final = ("ConcurrentAdmission", "MultiKueueOrchestratedPreemption")
_SAMPLING_SECONDS: Final = 300.0
_PODS_READY_SECONDS: Final = 1800.0


def settings(source: Source) -> Settings:
    """The settings that a Configuration contains for the engine; a `fairSharing` field turns fair sharing on."""
    data = fields.read(source)
    wanted = fields.mapping(data, "resources")
    fair = data.get("fairSharing") is not None
    strategies = fields.strings(fields.mapping(data, "fairSharing"), "preemptionStrategies")
    switches = fields.mapping(data, "featureGates")
    return Settings(
        fair_sharing=fair,
        fair_strategies=tuple(FairStrategy(item) for item in strategies) or Settings().fair_strategies,
        admission_fair_sharing=_admission_fair_sharing(data),
        pods_ready=None if switches.get("DisableWaitForPodsReady") is True else _pods_ready(data),
        quota_check=QuotaCheck(fields.text(wanted, "quotaCheckStrategy") or QuotaCheck.BLOCK_UNDECLARED),
        exclude_resource_prefixes=fields.strings(wanted, "excludeResourcePrefixes"),
        transformations=tuple(_transformation(item) for item in fields.items(wanted, "transformations")),
        device_mappings=tuple(_device_mapping(item) for item in fields.items(wanted, "deviceClassMappings")),
        gates=Gates(
            **{_GATES[name]: value is True for name, value in switches.items() if name in _GATES},
            preemption_gates=any(switches.get(name) is True for name in _USERS_OF_PREEMPTION_GATES),
        ),
    )


def seconds(text: str) -> float:
    """The seconds of a Go duration such as 1h30m. Raises `BadInput`."""
    return parse_unsigned_duration(text).total_seconds()


def _duration(source: Json, name: str, default: float) -> float:
    value = source.get(name)
    if value is None:
        return default
    return float(value) if isinstance(value, int | float) else seconds(str(value))


def _admission_fair_sharing(data: Json) -> AdmissionFairSharing | None:
    if data.get("admissionFairSharing") is None:
        return None
    source = fields.mapping(data, "admissionFairSharing")
    weights = fields.quantities(source, "resourceWeights")
    return AdmissionFairSharing(
        half_life_seconds=_duration(source, "usageHalfLifeTime", 0.0),
        sampling_seconds=_duration(source, "usageSamplingInterval", _SAMPLING_SECONDS),
        resource_weights={name: float(value.exact()) for name, value in weights.items()},
    )


def _pods_ready(data: Json) -> PodsReady:
    source = fields.mapping(data, "waitForPodsReady")
    requeuing = fields.mapping(source, "requeuingStrategy")
    timeout = _duration(source, "timeout", _PODS_READY_SECONDS)
    recovery = _duration(source, "recoveryTimeout", timeout)
    return PodsReady(
        timeout_seconds=timeout,
        recovery_timeout_seconds=recovery or None,
        block_admission=source.get("blockAdmission") is True,
        timestamp=RequeueTimestamp(fields.text(requeuing, "timestamp") or RequeueTimestamp.EVICTION),
        backoff_base_seconds=fields.whole(requeuing, "backoffBaseSeconds", 60),
        backoff_max_seconds=fields.whole(requeuing, "backoffMaxSeconds", 3600),
        backoff_limit=fields.integer(requeuing, "backoffLimitCount"),
    )


def _transformation(source: Json) -> Transformation:
    return Transformation(
        input=fields.text(source, "input"),
        outputs=fields.quantities(source, "outputs"),
        retain=fields.text(source, "strategy") != "Replace",
        multiply_by=fields.text(source, "multiplyBy"),
    )


def _device_mapping(source: Json) -> DeviceMapping:
    return DeviceMapping(
        resource=fields.text(source, "name"),
        classes=fields.strings(source, "deviceClassNames"),
        sources=bool(fields.items(source, "sources")),
    )
