# SPDX-License-Identifier: Apache-2.0
"""Workloads as values of the engine.

Owns the frozen values of a Workload: its pod sets and their pods' shape, its reservation, and the parts of its status
that decide its state. Equal pod shapes made by `engine.decode` are one object, so that a hundred thousand pending
workloads stay small. `engine.requests` computes requests.
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
from multikueue.engine.devices.claims import PodClaim

Quantities = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequests:
    """The requests of one container; `sidecar` is an init container that keeps running."""

    name: str = "c"
    requests: Quantities = field(default_factory=dict)
    limits: Quantities = field(default_factory=dict)
    init: bool = False
    sidecar: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """The parts of a pod template that admission uses.

    `affinity` holds the terms of the required node affinity, or None without one. `fingerprint` is equal for equal
    shapes and represents the shape in the equivalence hash.
    """

    containers: tuple[ContainerRequests, ...] = ()
    overhead: Quantities = field(default_factory=dict)
    has_overhead: bool = False
    pod_requests: Quantities | None = None
    pod_limits: Quantities | None = None
    runtime_class: str = ""
    claims: tuple[PodClaim, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRequest:
    """A pod set's topology request; `fingerprint` identifies it, placement reads the rest.

    `slices` are constraints of several layers: the label of each level and its size.
    """

    group: str = ""
    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slice_required: str = ""
    slice_size: int = 0
    slices: tuple[tuple[str, int], ...] = ()
    fingerprint: str = ""

    @property
    def explicit(self) -> bool:
        """Whether the pod set requests a placement, and not only a group."""
        return bool(self.required or self.preferred or self.unconstrained or self.slice_required or self.slices)

    @property
    def layers(self) -> tuple[tuple[str, int], ...]:
        """The label of each level with slices, and their size; the number of pods is a multiple of the first size."""
        return self.slices or (((self.slice_required, self.slice_size),) if self.slice_required else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """A set of identical pods."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    shape: PodShape = PodShape()
    topology: TopologyRequest | None = None


@dataclass(frozen=True, slots=True)
class AssignedDomains:
    """The domains of a topology that a pod set was given: the values of each, and how many pods."""

    levels: tuple[str, ...]
    domains: tuple[tuple[tuple[str, ...], int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetAdmission:
    """What a reservation assigns to one pod set; amounts are totals over its pods."""

    name: str
    flavors: Mapping[str, str]
    usage: Mapping[str, int]
    count: int | None = None
    delayed_topology: DelayedTopology | None = None
    topology: AssignedDomains | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """A reservation."""

    cluster_queue: str
    pod_sets: tuple[PodSetAdmission, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUpdate:
    """What a check adds to the pods of a pod set that decides which nodes they may run on."""

    name: str
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStatus:
    """The state of one admission check of a workload; `updates` are those that concern nodes."""

    name: str
    state: CheckState
    message: str = ""
    last_transition_time: datetime | None = None
    requeue_after_seconds: int | None = None
    retry_count: int | None = None
    updates: tuple[NodeUpdate, ...] = ()


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
    deleting: bool = False
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
    def replaced_key(self) -> Key:
        """The slice that this one replaces, in the same namespace."""
        return Key(self.key.namespace, self.replaces.removeprefix(f"{self.key.namespace}/"))

    @property
    def finished(self) -> bool:
        """Whether it is finished."""
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
        """Whether it is being evicted; it may still hold its quota."""
        return self.is_true(WorkloadCondition.EVICTED)
