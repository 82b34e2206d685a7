# SPDX-License-Identifier: Apache-2.0
"""Workload: one unit of admission, usually made from one job (`docs/spec/kueue-api.md §1.1`)."""

from typing import Annotated

from pydantic import Field

from multikueue.api import workload_rules
from multikueue.api.constants import (
    DEFAULT_POD_SET,
    POD_PRIORITY_CLASS_GROUP,
    POD_PRIORITY_CLASS_KIND,
    WORKLOAD_PRIORITY_CLASS_KIND,
    CheckState,
    DelayedTopology,
    GatePosition,
)
from multikueue.api.meta import (
    TOLERATION_RULES,
    CheckName,
    ClusterName,
    Conditions,
    Int32,
    KubeObject,
    Labels,
    ObjectName,
    PodSetName,
    Resources,
    Time,
    WireModel,
    WireToleration,
)
from multikueue.api.podtemplate import PodTemplateSpec
from multikueue.api.resource import KUEUE_GROUP, WORKLOADS
from multikueue.api.schema import AGE, CelRule, Column, Schema
from multikueue.api.topologyassignment import TopologyAssignment

_MAX_POD_SETS = 18
_TopologyLabel = Annotated[str | None, Schema(max_length=63)]
_IndexLabel = Annotated[str | None, Schema(max_length=317)]
_Count = Annotated[Int32, Schema(minimum=0)]
_Positive = Annotated[Int32, Schema(minimum=1)]
_Cause = Annotated[str, Schema(max_length=316)]
_GateName = Annotated[str, Schema(min_length=1, max_length=63)]
_DefaultedPodSetName = Annotated[PodSetName, Schema(defaulted=True)]


class TopologyConstraint(WireModel):
    """One layer of nested slices."""

    topology: Annotated[str, Schema(min_length=1, max_length=63)]
    size: _Positive


class TopologyRequest(WireModel):
    """The request of a pod set to topology aware scheduling."""

    required: _TopologyLabel = None
    preferred: _TopologyLabel = None
    unconstrained: bool | None = None
    pod_index_label: _IndexLabel = None
    sub_group_index_label: _IndexLabel = None
    sub_group_count: _Count | None = None
    pod_set_group_name: Annotated[str | None, Schema(max_length=256)] = None
    pod_set_slice_required_topology: _TopologyLabel = None
    pod_set_slice_size: _Positive | None = None
    podset_slice_required_topology_constraints: Annotated[
        tuple[TopologyConstraint, ...], Schema(max_items=3, list_type="atomic")
    ] = ()


class PodSet(WireModel):
    """A group of identical pods."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "has(self.minCount) ? self.minCount <= self.count : true",
                "minCount should be positive and less or equal to count",
            ),
        )
    )

    name: _DefaultedPodSetName = DEFAULT_POD_SET
    # Atomic, other than upstream's: no client applies parts of it, and tracking each of its fields by owner was half of
    # what every write of a Workload costs the API server.
    template: Annotated[PodTemplateSpec, Schema(required=True, map_type="atomic")] = Field(
        default_factory=PodTemplateSpec
    )
    count: Annotated[_Count, Schema(defaulted=True)] = 1
    min_count: _Positive | None = None
    topology_request: TopologyRequest | None = None


class PriorityClassRef(WireModel):
    """The class that the priority was taken from."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "(self.group == 'scheduling.k8s.io') ? self.kind == 'PriorityClass' : true",
                "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
            ),
            CelRule(
                "(self.group == 'kueue.x-k8s.io') ? self.kind == 'WorkloadPriorityClass' : true",
                "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
            ),
        )
    )

    group: Annotated[str, Schema(enum=(KUEUE_GROUP, POD_PRIORITY_CLASS_GROUP))]
    kind: Annotated[str, Schema(enum=(WORKLOAD_PRIORITY_CLASS_KIND, POD_PRIORITY_CLASS_KIND))]
    name: Annotated[ObjectName, Schema(min_length=1)]


class PreemptionGate(WireModel):
    """A gate that keeps the workload from preempting others; it starts closed."""

    name: _GateName


class WorkloadSpec(WireModel):
    """What is to be admitted."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "!has(self.priorityClassRef) || has(self.priority)",
                "priority should not be nil when priorityClassRef is set",
            ),
        )
    )

    pod_sets: Annotated[tuple[PodSet, ...], Schema(min_items=1, max_items=_MAX_POD_SETS, map_keys=("name",))] = ()
    queue_name: ObjectName = ""
    priority_class_ref: PriorityClassRef | None = None
    priority: Int32 | None = None
    active: Annotated[bool, Schema(defaulted=True)] = True
    maximum_execution_time_seconds: _Positive | None = None
    preemption_gates: Annotated[tuple[PreemptionGate, ...], Schema(max_items=8, map_keys=("name",))] = ()


class PodSetAssignment(WireModel):
    """The assignment of one pod set; the usage is the total of its pods."""

    name: _DefaultedPodSetName = DEFAULT_POD_SET
    flavors: dict[str, ObjectName] = Field(default_factory=dict)
    resource_usage: Resources = Field(default_factory=dict)
    count: _Count | None = None
    topology_assignment: TopologyAssignment | None = None
    delayed_topology_request: Annotated[str | None, Schema(enum=DelayedTopology, max_length=7)] = None


class Admission(WireModel):
    """The reservation; it is set or unset, never edited."""

    cluster_queue: ObjectName = ""
    pod_set_assignments: Annotated[
        tuple[PodSetAssignment, ...], Schema(max_items=_MAX_POD_SETS, map_keys=("name",))
    ] = ()


class RequeueState(WireModel):
    """How often, and until when, a workload is held back after evictions."""

    count: _Count | None = None
    requeue_at: Time | None = None


class ReclaimablePod(WireModel):
    """How many pods of a set no longer need their quota."""

    name: PodSetName
    count: _Count


class PodSetUpdate(WireModel):
    """Changes of a pod set by an admission check, before it starts."""

    name: PodSetName
    labels: Labels = Field(default_factory=dict)
    annotations: Labels = Field(default_factory=dict)
    node_selector: Labels = Field(default_factory=dict)
    tolerations: Annotated[
        tuple[WireToleration, ...], Schema(max_items=8, list_type="atomic", rules=TOLERATION_RULES)
    ] = ()


class AdmissionCheckState(WireModel):
    """The state of one admission check of the workload."""

    name: CheckName
    state: Annotated[str, Schema(enum=CheckState)]
    last_transition_time: Time
    message: Annotated[str, Schema(max_length=32768, required=True)] = ""
    requeue_after_seconds: _Count | None = None
    retry_count: _Count | None = None
    pod_set_updates: Annotated[tuple[PodSetUpdate, ...], Schema(max_items=_MAX_POD_SETS, list_type="atomic")] = ()


class PodSetRequest(WireModel):
    """The requests of a pod set, as the scheduler counts them."""

    name: PodSetName
    resources: Resources = Field(default_factory=dict)


class EvictionStats(WireModel):
    """How often the workload was evicted for one reason."""

    reason: _Cause
    underlying_cause: Annotated[_Cause, Schema(required=True)] = ""
    count: _Count


class SchedulingStats(WireModel):
    """Counters that outlive a reservation."""

    evictions: Annotated[tuple[EvictionStats, ...], Schema(max_items=256, map_keys=("reason", "underlyingCause"))] = ()


class UnhealthyNode(WireModel):
    """A node whose part of a topology assignment has to be replaced."""

    name: Annotated[str, Schema(max_length=63)]


class PreemptionGateState(WireModel):
    """Whether a preemption gate is open."""

    name: _GateName
    position: Annotated[str, Schema(enum=GatePosition)]
    last_transition_time: Time


class WorkloadStatus(WireModel):
    """The status of the workload."""

    SCHEMA = Schema(rules=workload_rules.STATUS_RULES)

    conditions: Conditions = ()
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: Annotated[tuple[ReclaimablePod, ...], Schema(max_items=_MAX_POD_SETS, map_keys=("name",))] = ()
    admission_checks: Annotated[tuple[AdmissionCheckState, ...], Schema(max_items=8, map_keys=("name",))] = ()
    resource_requests: Annotated[tuple[PodSetRequest, ...], Schema(max_items=_MAX_POD_SETS, map_keys=("name",))] = ()
    accumulated_past_execution_time_seconds: Int32 | None = None
    scheduling_stats: SchedulingStats | None = None
    nominated_cluster_names: Annotated[tuple[ClusterName, ...], Schema(max_items=20, list_type="atomic")] = ()
    cluster_name: ClusterName | None = None
    unhealthy_nodes: Annotated[tuple[UnhealthyNode, ...], Schema(max_items=8, map_keys=("name",))] = ()
    preemption_gates: Annotated[tuple[PreemptionGateState, ...], Schema(max_items=8, map_keys=("name",))] = ()


class Workload(KubeObject):
    """One unit of admission: pod sets that start together or not at all."""

    RESOURCE = WORKLOADS
    SCHEMA = Schema(rules=workload_rules.WORKLOAD_RULES)
    SELECTABLE_FIELDS = (".status.admission.clusterQueue",)
    COLUMNS = (
        Column(name="Queue", path=".spec.queueName"),
        Column(name="Reserved in", path=".status.admission.clusterQueue"),
        Column(name="Admitted", path=".status.conditions[?(@.type=='Admitted')].status"),
        Column(name="Finished", path=".status.conditions[?(@.type=='Finished')].status"),
        AGE,
    )

    spec: WorkloadSpec = Field(default_factory=WorkloadSpec)
    status: WorkloadStatus = Field(default_factory=WorkloadStatus)
