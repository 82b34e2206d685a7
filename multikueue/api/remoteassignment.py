# SPDX-License-Identifier: Apache-2.0
"""RemoteAssignment: what the manager wants of one worker cluster for one workload, and what the agent saw of it.

The manager owns the object and its spec; the agent writes the status only. Removing the object is how the manager
takes its wish back, so that an agent never needs the right to change a wish. Assignments live in the mailbox
namespace of their cluster; `assignment_name` is how both sides find one.

Everything but scalars is atomic: each object has one writer of its spec and one of its status, and an API server that
tracks the owner of each field of a manifest spends twice the time on every write.
"""

import hashlib
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from multikueue.api.constants import MAILBOX_NAMESPACE_PREFIX, GatePosition, PartitionPolicy
from multikueue.api.meta import (
    Conditions,
    Int32,
    Int64,
    JsonObject,
    KubeObject,
    Labels,
    PodSetName,
    Resources,
    Time,
    Toleration,
    WireModel,
)
from multikueue.api.resource import REMOTE_ASSIGNMENTS
from multikueue.api.schema import AGE, Column, Rule, Schema
from multikueue.core.keys import Key

_NAME_LENGTH: Final = 200
_HASH_LENGTH: Final = 8
_CLUSTER_LENGTH: Final = 63 - len(MAILBOX_NAMESPACE_PREFIX)  # a namespace is a DNS label


class Intent(StrEnum):
    """What the cluster is to do; that the object is gone means remove."""

    RESERVE = "Reserve"
    RUN = "Run"
    EVICT = "Evict"


class Phase(StrEnum):
    """How far the cluster is with the epoch it reports."""

    PENDING = "Pending"
    RESERVED = "Reserved"
    RUNNING = "Running"
    FINISHED = "Finished"
    EVICTED = "Evicted"
    REFUSED = "Refused"


def assignment_name(workload: Key) -> str:
    """The name of the assignment of `workload`; the hash keeps equal names of two namespaces apart."""
    digest = hashlib.sha256(str(workload).encode()).hexdigest()[:_HASH_LENGTH]
    # A cut may end in a dot or a dash, which nothing but a letter or digit may follow directly in a name.
    return f"{workload.name[:_NAME_LENGTH].rstrip('.-')}-{digest}"


def mailbox_namespace(cluster: str) -> str:
    """The namespace on the management cluster that is the mailbox of `cluster`.

    A cluster may have dots in its name and be longer than a namespace can be; then a hash keeps such names apart.
    """
    if len(cluster) <= _CLUSTER_LENGTH and "." not in cluster:
        return f"{MAILBOX_NAMESPACE_PREFIX}{cluster}"
    digest = hashlib.sha256(cluster.encode()).hexdigest()[:_HASH_LENGTH]
    readable = cluster.replace(".", "-")[: _CLUSTER_LENGTH - _HASH_LENGTH - 1].rstrip("-")
    return f"{MAILBOX_NAMESPACE_PREFIX}{readable}-{digest}"


class WorkloadReference(WireModel):
    """The Workload on the management cluster."""

    namespace: Annotated[str, Schema(min_length=1, max_length=63)]
    name: Annotated[str, Schema(min_length=1, max_length=253)]
    uid: Annotated[str, Schema(max_length=64)] = ""


class JobReference(WireModel):
    """The job to be run there, ready to be created."""

    api_version: Annotated[str, Schema(min_length=1, max_length=317)]
    kind: Annotated[str, Schema(min_length=1, max_length=63)]
    name: Annotated[str, Schema(min_length=1, max_length=253)]
    manifest: Annotated[JsonObject, Schema(preserve_unknown=True, map_type="atomic")] = Field(default_factory=dict)


class AssignedPodSet(WireModel):
    """What the manager admitted one pod set with."""

    name: PodSetName
    count: Annotated[Int32, Schema(minimum=0)] = 0
    flavors: Labels = Field(default_factory=dict)
    resource_usage: Resources = Field(default_factory=dict)
    node_labels: Labels = Field(default_factory=dict)
    tolerations: Annotated[tuple[Toleration, ...], Schema(list_type="atomic")] = ()


class Adoption(WireModel):
    """The copy that runs there already and is to be this workload's: a job of another management cluster (ADR 0010)."""

    manager_uid: Annotated[str, Schema(min_length=1, max_length=64)] = Field(alias="managerUID")
    job_uid: Annotated[str, Schema(min_length=1, max_length=64)] = Field(alias="jobUID")


class RemoteAssignmentSpec(WireModel):
    """The wish."""

    workload: WorkloadReference
    origin: Annotated[str, Schema(min_length=1, max_length=63)]
    manager_uid: Annotated[str, Schema(min_length=1, max_length=64)] = Field(alias="managerUID")
    epoch: Annotated[Int64, Schema(minimum=1)]
    intent: Annotated[str, Schema(enum=Intent)]
    queue_name: Annotated[str, Schema(max_length=253)] = ""
    priority: Int32 | None = None
    workload_spec: Annotated[JsonObject, Schema(preserve_unknown=True, map_type="atomic")] = Field(default_factory=dict)
    workload_labels: Annotated[Labels, Schema(map_type="atomic")] = Field(default_factory=dict)
    workload_annotations: Annotated[Labels, Schema(map_type="atomic")] = Field(default_factory=dict)
    preemption_gate: Annotated[str | None, Schema(enum=GatePosition)] = None
    job: JobReference | None = None
    pod_set_assignments: Annotated[tuple[AssignedPodSet, ...], Schema(max_items=18, list_type="atomic")] = ()
    partition_policy: Annotated[str, Schema(enum=PartitionPolicy, defaulted=True)] = PartitionPolicy.FAILOVER
    lease_seconds: Annotated[Int32, Schema(minimum=1)] | None = None
    adopts: Adoption | None = None


class RemoteFinished(WireModel):
    """How the work ended there."""

    reason: Annotated[str, Schema(max_length=1024)]
    message: Annotated[str, Schema(max_length=32768)] = ""
    time: Time


class RemoteAssignmentStatus(WireModel):
    """What the agent saw; `sequence` grows with every write of one `bootID`.

    Of conditions there is BlockedOnPreemptionGates, of the clone in the cluster's own queue.
    """

    epoch: Annotated[Int64, Schema(minimum=0)] = 0
    phase: Annotated[str | None, Schema(enum=Phase)] = None
    reason: Annotated[str, Schema(max_length=1024)] = ""
    message: Annotated[str, Schema(max_length=32768)] = ""
    conditions: Conditions = ()
    job_status: Annotated[JsonObject | None, Schema(preserve_unknown=True, map_type="atomic")] = None
    job_uid: Annotated[str, Schema(max_length=64)] = Field("", alias="jobUID")
    finished: RemoteFinished | None = None
    sequence: Annotated[Int64, Schema(minimum=0)] = 0
    boot_id: Annotated[str, Schema(max_length=64)] = Field("", alias="bootID")


class RemoteAssignment(KubeObject):
    """A wish to one worker cluster, and the answer."""

    RESOURCE = REMOTE_ASSIGNMENTS
    SCHEMA = Schema(
        rules=(
            Rule(
                "self.spec.workload == oldSelf.spec.workload && self.spec.origin == oldSelf.spec.origin"
                " && self.spec.managerUID == oldSelf.spec.managerUID",
                "workload, origin and managerUID are immutable",
            ),
            Rule("self.spec.epoch >= oldSelf.spec.epoch", "epoch must not go back"),
        )
    )
    COLUMNS = (
        Column(name="Workload", path=".spec.workload.name"),
        Column(name="Intent", path=".spec.intent"),
        Column(name="Epoch", path=".spec.epoch", type="integer"),
        Column(name="Phase", path=".status.phase"),
        Column(name="Seen", path=".status.epoch", type="integer", priority=1),
        Column(name="Reason", path=".status.reason", priority=1),
        AGE,
    )

    spec: RemoteAssignmentSpec
    status: RemoteAssignmentStatus = Field(default_factory=RemoteAssignmentStatus)
