# SPDX-License-Identifier: Apache-2.0
"""The objects that the engine uses besides workloads: queues, cohorts, flavors, checks, namespaces.

Owns frozen values, one for each kind, with amounts counted as in `docs/spec/engine.md §0.2` and the defaults of §0.6.
`engine.decode` creates them from API objects. Workloads are in `engine.workloads`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from multikueue.api.constants import (
    AdmissionMode,
    FungibilityPolicy,
    FungibilityPreference,
    PreemptionPolicy,
    QueueingStrategy,
    StopPolicy,
)
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.core.selectors import LabelSelector
from multikueue.core.taints import Taint, Toleration


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """A ResourceFlavor."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


@dataclass(frozen=True, slots=True)
class TopologyLevels:
    """A Topology: label keys of its levels, highest first."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of a queue or cohort for one resource in one flavor; None means no limit."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    """The quotas of one flavor in a resource group, by resource."""

    name: str
    quotas: Mapping[str, Quota]


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that always get the same flavor, and the flavors in the order in which they are tried."""

    covered: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionRules:
    """A queue's preemption policies. They are text, since an empty one differs from Never (§0.6)."""

    within_cluster_queue: str = PreemptionPolicy.NEVER
    reclaim_within_cohort: str = PreemptionPolicy.NEVER
    borrow_within_cohort: str | None = None
    max_priority_threshold: int | None = None

    @property
    def may_borrow(self) -> bool:
        """Whether a preemptor may end above its nominal quota."""
        return self.borrow_within_cohort is not None and self.borrow_within_cohort != PreemptionPolicy.NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Fungibility:
    """When the search for a flavor continues although one was found."""

    when_can_borrow: FungibilityPolicy = FungibilityPolicy.MAY_STOP_SEARCH
    when_can_preempt: FungibilityPolicy = FungibilityPolicy.TRY_NEXT_FLAVOR
    preference: FungibilityPreference = FungibilityPreference.BORROWING_OVER_PREEMPTION


@dataclass(frozen=True, slots=True)
class CheckRule:
    """An admission check of a queue; without flavors it applies to all of them."""

    name: str
    on_flavors: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueue:
    """A ClusterQueue; a selector of None matches no namespace."""

    name: str
    cohort: str = ""
    resource_groups: tuple[ResourceGroup, ...] = ()
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    namespace_selector: LabelSelector | None = None
    preemption: PreemptionRules = PreemptionRules()
    fungibility: Fungibility = Fungibility()
    checks: tuple[CheckRule, ...] = ()
    stop_policy: StopPolicy = StopPolicy.NONE
    weight: float = 1.0
    admission_mode: AdmissionMode | None = None
    terminating: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """A Cohort object; a cohort that others name exists without one."""

    name: str
    parent: str = ""
    resource_groups: tuple[ResourceGroup, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueue:
    """A LocalQueue; weight and consumption are used by admission fair sharing only.

    `consumed`, in base units, is the last one in the status, from which a new leader continues.
    """

    key: Key
    cluster_queue: str
    stop_policy: StopPolicy = StopPolicy.NONE
    weight: float = 1.0
    terminating: bool = False
    consumed: Mapping[str, float] = field(default_factory=dict, compare=False)
    sampled_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionCheck:
    """An AdmissionCheck, and whether it is active.

    `can_provision`: the clusters of a MultiKueue check can provision capacity; if not, `cannot_provision` is why.
    """

    name: str
    controller: str
    active: bool
    can_provision: bool = False
    cannot_provision: str = ""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A Namespace's labels, which queues select by."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRangeItem:
    """The limits of one type, Container or Pod; amounts by resource."""

    type: str
    default: Mapping[str, Quantity] = field(default_factory=dict)
    default_request: Mapping[str, Quantity] = field(default_factory=dict)
    max: Mapping[str, Quantity] = field(default_factory=dict)
    min: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LimitRange:
    """A LimitRange."""

    key: Key
    items: tuple[LimitRangeItem, ...]


@dataclass(frozen=True, slots=True)
class RuntimeClass:
    """The overhead that a RuntimeClass adds to each pod."""

    name: str
    overhead: Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A WorkloadPriorityClass or PriorityClass, by `group`."""

    group: str
    name: str
    value: int
