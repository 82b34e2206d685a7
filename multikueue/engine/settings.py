# SPDX-License-Identifier: Apache-2.0
"""Settings of the engine: the parts of the Configuration that change decisions, and the feature gates.

Owns defaults (`docs/spec/engine.md §0.4` and §0.5). `engine.decode.settings` reads them from a Configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from multikueue.core.quantity import Quantity
from multikueue.engine.devices.claims import DeviceMapping


class FairStrategy(StrEnum):
    """When a fair-sharing preemptor may take from another queue (`docs/spec/engine.md §4.6`)."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


class QuotaCheck(StrEnum):
    """How to treat a workload that requests a resource that its queue does not cover."""

    BLOCK_UNDECLARED = "BlockUndeclared"
    IGNORE_UNDECLARED = "IgnoreUndeclared"


class RequeueTimestamp(StrEnum):
    """The time that orders a workload after its pods were not ready in time."""

    EVICTION = "Eviction"
    CREATION = "Creation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The feature gates that change decisions."""

    flavor_fungibility: bool = True
    preserve_scan_progress: bool = True
    partial_admission: bool = True
    priority_sorting_within_cohort: bool = True
    fair_preempt_within_nominal: bool = True
    fair_prioritize_non_borrowing: bool = True
    equivalence_hashing: bool = True
    recompute_on_overlap: bool = True
    topology: bool = True
    mixed_topology_profile: bool = True
    reclaimable_pods: bool = True
    quota_check_strategy: bool = True
    admission_fair_sharing: bool = True
    admission_gated_by: bool = True
    elastic_jobs: bool = False
    preemption_gates: bool = False
    observability: bool = True
    prioritize_preemptors: bool = False
    priority_boost: bool = False
    devices: bool = True
    extended_devices: bool = True
    rejects_devices: bool = True
    """Whether workloads that claim devices are not admitted while `devices` is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFairSharing:
    """Order inside a queue by the usage of its local queues (`docs/spec/engine.md §1.10`)."""

    half_life_seconds: float
    sampling_seconds: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsReady:
    """waitForPodsReady (`docs/spec/engine.md §7.7`)."""

    timeout_seconds: float = 1800.0
    recovery_timeout_seconds: float | None = 1800.0
    block_admission: bool = False
    timestamp: RequeueTimestamp = RequeueTimestamp.EVICTION
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600
    backoff_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """What one requested resource is converted to (`docs/spec/engine.md §2.2`)."""

    input: str
    outputs: Mapping[str, Quantity]
    retain: bool = True
    multiply_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an engine; without strategies, preemption is classical."""

    fair_sharing: bool = False
    fair_strategies: tuple[FairStrategy, ...] = (
        FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
        FairStrategy.LESS_THAN_INITIAL_SHARE,
    )
    admission_fair_sharing: AdmissionFairSharing | None = None
    pods_ready: PodsReady | None = field(default_factory=PodsReady)
    quota_check: QuotaCheck = QuotaCheck.BLOCK_UNDECLARED
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    device_mappings: tuple[DeviceMapping, ...] = ()
    flush_window_seconds: float = 1.0
    flush_gather_seconds: float = 0.02
    flush_early_seconds: float = 0.1
    gates: Gates = Gates()
