# SPDX-License-Identifier: Apache-2.0
"""Workloads as the engine sees them.

Owns the frozen values of a Workload: its pod sets and their pods' shape, its reservation, and the parts of its status
that decide where it stands. Equal pod shapes made by `engine.intake` are one object, so that a hundred thousand pending
workloads stay small. Leaves requests to `engine.requests` and every decision to the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from multikueue.api.constants import CheckState, DelayedTopology
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import Condition, find, is_true
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.core.selectors import NodeSelectorTerm
from multikueue.core.taints import Toleration

Quantities = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What one container asks for; `sidecar` is an init container that keeps running."""

    name: str = "c"
    requests: Quantities = field(default_factory=dict)
    limits: Quantities = field(default_factory=dict)
    init: bool = False
    sidecar: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """The parts of a pod template that admission looks at.

    `affinity` holds the terms of the required node affinity, or None without one. `fingerprint` is equal for equal
    shapes and stands for the whole in the equivalence hash.
    """

    containers: tuple[Container, ...] = ()
    overhead: Quantities = field(default_factory=dict)
    has_overhead: bool = False
    pod_requests: Quantities | None = None
    pod_limits: Quantities | None = None
    runtime_class: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRequest:
    """What a pod set asks of the topology; `fingerprint` stands for all of it, the rest is read by placement."""

    group: str = ""
    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slice_required: str = ""
    slice_size: int = 0
    fingerprint: str = ""

    @property
    def explicit(self) -> bool:
        """Whether the pod set asks to be placed, and not only to be grouped."""
        return bool(self.required or self.preferred or self.unconstrained or self.slice_required)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """A set of identical pods."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    shape: PodShape = PodShape()
    topology: TopologyRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetAdmission:
    """What a reservation gives one pod set; amounts are totals over its pods."""

    name: str
    flavors: Mapping[str, str]
    usage: Mapping[str, int]
    count: int | None = None
    delayed_topology: DelayedTopology | None = None
    has_topology: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """A reservation."""

    cluster_queue: str
    pod_sets: tuple[PodSetAdmission, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStatus:
    """The state of one admission check of a workload."""

    name: str
    state: CheckState
    message: str = ""
    last_transition_time: datetime | None = None
    requeue_after_seconds: int | None = None
    retry_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A Workload; `gated_by` are the entries of its admission-gated-by annotation."""

    key: Key
    uid: str
    created: datetime
    queue_name: str
    pod_sets: tuple[PodSet, ...]
    priority: int = 0
    priority_boost: int = 0
    active: bool = True
    generation: int = 0
    job_uid: str = ""
    gated_by: tuple[str, ...] = ()
    preemption_gate_closed: bool = False
    replaces: str = ""
    reclaimable: Mapping[str, int] = field(default_factory=dict)
    admission: Admission | None = None
    conditions: tuple[Condition, ...] = ()
    checks: tuple[CheckStatus, ...] = ()
    requeue_at: datetime | None = None
    requeue_count: int | None = None
    unhealthy_nodes: tuple[str, ...] = ()
    maximum_execution_seconds: int | None = None
    past_execution_seconds: int = 0

    def condition(self, kind: WorkloadCondition) -> Condition | None:
        """The condition of that type, if there is one."""
        return find(self.conditions, kind) if self.conditions else None

    def is_true(self, kind: WorkloadCondition) -> bool:
        """Whether the condition of that type is True."""
        return bool(self.conditions) and is_true(self.conditions, kind)

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return self.is_true(WorkloadCondition.FINISHED)

    @property
    def reserved(self) -> bool:
        """Whether it holds quota: reserved, active, and not finished (`docs/spec/engine.md §2.1`)."""
        return (
            self.admission is not None
            and self.active
            and self.is_true(WorkloadCondition.QUOTA_RESERVED)
            and not self.finished
        )

    @property
    def admitted(self) -> bool:
        """Whether it may run."""
        return self.is_true(WorkloadCondition.ADMITTED)

    @property
    def evicted(self) -> bool:
        """Whether it was told to stop, and still may hold its quota."""
        return self.is_true(WorkloadCondition.EVICTED)
