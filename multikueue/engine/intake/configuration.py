# SPDX-License-Identifier: Apache-2.0
"""Engine settings from a Configuration of config.kueue.x-k8s.io/v1beta2.

Owns which of its fields the engine heeds and the defaults of `docs/spec/engine.md §0.5`. Raises `BadInput` naming the
field; validation of the whole is `api.configuration`'s.
"""

from __future__ import annotations

import re
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.engine.intake import fields
from multikueue.engine.intake.fields import Json, Source
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
    "ReclaimablePods": "reclaimable_pods",
    "QuotaCheckStrategy": "quota_check_strategy",
    "AdmissionFairSharing": "admission_fair_sharing",
    "AdmissionGatedBy": "admission_gated_by",
    "ElasticJobsViaWorkloadSlices": "elastic_jobs",
    "UnadmittedWorkloadsObservability": "observability",
    "PrioritizePreemptorWorkloads": "prioritize_preemptors",
    "PriorityBoost": "priority_boost",
}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SAMPLING_SECONDS: Final = 300.0
_PODS_READY_SECONDS: Final = 1800.0


def settings(source: Source) -> Settings:
    """What the engine heeds of a Configuration. Presence of `fairSharing` turns fair sharing on."""
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
        gates=Gates(**{_GATES[name]: value is True for name, value in switches.items() if name in _GATES}),
    )


def seconds(text: str) -> float:
    """The length of a Go duration such as 1h30m. Raises `BadInput`."""
    if text == "0":
        return 0.0
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise BadInput(f"{text!r} is not a duration such as 30s, 5m or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


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
