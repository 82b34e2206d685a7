# SPDX-License-Identifier: Apache-2.0
"""RemoteAssignment: the assignment of one workload to one worker cluster, and its status there.

The manager owns the object and its spec; the agent writes the status only. The manager ends an assignment by deleting
it, so that an agent needs no right to change the spec. Assignments are in the mailbox namespace of their cluster; both
sides find one by `assignment_name`.

Everything but scalars is atomic: the spec and the status have one writer each, and an API server that tracks the owner
of each field of a manifest needs twice the time for every write.
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
    WireModel,
    WireToleration,
)
from multikueue.api.resource import REMOTE_ASSIGNMENTS
from multikueue.api.schema import AGE, CelRule, Column, Schema
from multikueue.core.keys import Key

_NAME_LENGTH: Final = 200
_HASH_LENGTH: Final = 8
_CLUSTER_LENGTH: Final = 63 - len(MAILBOX_NAMESPACE_PREFIX)  # a namespace is a DNS label


class Intent(StrEnum):
    """What the cluster is to do; a deleted assignment means remove."""

    RESERVE = "Reserve"
    PROVISION = "Provision"
    RUN = "Run"
    EVICT = "Evict"

    @property
    def precedes_grant(self) -> bool:
        """Whether nothing may run there yet, so that the assignment can be removed without stopping anything."""
        return self in (Intent.RESERVE, Intent.PROVISION)


class AssignmentPhase(StrEnum):
    """The state of the reported epoch on the cluster."""

    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    PROVISIONED = "Provisioned"
    RESERVED = "Reserved"
    RUNNING = "Running"
    FINISHED = "Finished"
    EVICTED = "Evicted"
    REFUSED = "Refused"


def assignment_name(workload: Key) -> str:
    """The name of the assignment of `workload`; the hash distinguishes equal names of two namespaces."""
    digest = hashlib.sha256(str(workload).encode()).hexdigest()[:_HASH_LENGTH]
    # A truncated name may end in a dot or a dash, which only a letter or digit may follow.
    return f"{workload.name[:_NAME_LENGTH].rstrip('.-')}-{digest}"


def mailbox_namespace(cluster: str) -> str:
    """The mailbox namespace of `cluster` on the management cluster.

    A cluster name with dots, or longer than that of a namespace, gets a hash.
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
    """The job to create on the worker."""

    api_version: Annotated[str, Schema(min_length=1, max_length=317)]
    kind: Annotated[str, Schema(min_length=1, max_length=63)]
    name: Annotated[str, Schema(min_length=1, max_length=253)]
    manifest: Annotated[JsonObject, Schema(preserve_unknown=True, map_type="atomic")] = Field(default_factory=dict)


class AssignedPodSet(WireModel):
    """The admission of one pod set by the manager."""

    name: PodSetName
    count: Annotated[Int32, Schema(minimum=0)] = 0
    flavors: Labels = Field(default_factory=dict)
    resource_usage: Resources = Field(default_factory=dict)
    node_labels: Labels = Field(default_factory=dict)
    tolerations: Annotated[tuple[WireToleration, ...], Schema(list_type="atomic")] = ()


class DelegatedCheck(WireModel):
    """A provisioning check whose capacity the worker is to provision (ADR 0018).

    `config` is the spec of its ProvisioningRequestConfig, with the parameters of this workload.
    """

    name: Annotated[str, Schema(min_length=1, max_length=316)]
    config: Annotated[JsonObject, Schema(preserve_unknown=True, map_type="atomic")] = Field(default_factory=dict)


class AdoptionSpec(WireModel):
    """A running remote job of another management cluster that this workload adopts (ADR 0010)."""

    manager_uid: Annotated[str, Schema(min_length=1, max_length=64)] = Field(alias="managerUID")
    job_uid: Annotated[str, Schema(min_length=1, max_length=64)] = Field(alias="jobUID")


class SentObject(WireModel):
    """A ConfigMap or Secret that the pods of the job name, and that is sent with it (ADR 0021).

    The contents are in the mailbox, under a name that both sides derive. `problem` is why it is not sent.
    """

    kind: Annotated[str, Schema(min_length=1, max_length=63)]
    name: Annotated[str, Schema(min_length=1, max_length=253)]
    version: Annotated[str, Schema(max_length=64)] = ""
    problem: Annotated[str, Schema(max_length=1024)] = ""


class RequestedLog(WireModel):
    """A request for the logs of the remote job, and the number of the last chunk that was read."""

    request: Annotated[str, Schema(min_length=1, max_length=64)]
    cursor: Annotated[Int64, Schema(minimum=0)] = 0
    pod: Annotated[str, Schema(max_length=253)] = ""
    container: Annotated[str, Schema(max_length=63)] = ""
    tail_lines: Annotated[Int32 | None, Schema(minimum=0)] = None
    since_time: Time | None = None
    follow: bool = False
    all_pods: bool = False


class RemoteAssignmentSpec(WireModel):
    """What the worker cluster is to run."""

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
    provisioning: Annotated[tuple[DelegatedCheck, ...], Schema(max_items=8, list_type="atomic")] = ()
    partition_policy: Annotated[str, Schema(enum=PartitionPolicy, defaulted=True)] = PartitionPolicy.FAILOVER
    lease_seconds: Annotated[Int32, Schema(minimum=1)] | None = None
    awaits_start: bool = False
    adopts: AdoptionSpec | None = None
    logs: Annotated[tuple[RequestedLog, ...], Schema(max_items=5, list_type="atomic")] = ()
    sent_objects: Annotated[tuple[SentObject, ...], Schema(max_items=100, list_type="atomic")] = ()


class RemoteFinished(WireModel):
    """How the remote job finished."""

    reason: Annotated[str, Schema(max_length=1024)]
    message: Annotated[str, Schema(max_length=32768)] = ""
    time: Time


class RemoteFailedContainer(WireModel):
    """A container of the remote job that ended with an error."""

    pod: Annotated[str, Schema(min_length=1, max_length=253)]
    container: Annotated[str, Schema(min_length=1, max_length=63)]
    exit_code: Annotated[Int32, Schema(minimum=0)]
    signal: Annotated[Int32, Schema(minimum=0)] = 0
    reason: Annotated[str, Schema(max_length=1024)] = ""
    log: Annotated[str, Schema(max_length=16384)] = ""
    problem: Annotated[str, Schema(max_length=1024)] = ""


class RemoteFailure(WireModel):
    """The failed containers of the remote job."""

    containers: Annotated[tuple[RemoteFailedContainer, ...], Schema(max_items=6, list_type="atomic")] = ()
    omitted: Annotated[tuple[str, ...], Schema(max_items=20, list_type="atomic")] = ()
    omitted_count: Annotated[Int32, Schema(minimum=0)] = 0
    problem: Annotated[str, Schema(max_length=1024)] = ""


class RemoteLog(WireModel):
    """A chunk of the logs of the remote job, for one request."""

    request: Annotated[str, Schema(min_length=1, max_length=64)]
    cursor: Annotated[Int64, Schema(minimum=0)] = 0
    pod: Annotated[str, Schema(max_length=253)] = ""
    container: Annotated[str, Schema(max_length=63)] = ""
    chunk: Annotated[str, Schema(max_length=65536)] = ""
    ended: bool = False
    message: Annotated[str, Schema(max_length=1024)] = ""


class RemoteAssignmentStatus(WireModel):
    """What the agent reports; `sequence` grows with every write of one `bootID`.

    The conditions are BlockedOnPreemptionGates, of the Workload in the queue of the worker, and PodsStarted=False while
    no pod of the job has started there.
    """

    epoch: Annotated[Int64, Schema(minimum=0)] = 0
    phase: Annotated[str | None, Schema(enum=AssignmentPhase)] = None
    reason: Annotated[str, Schema(max_length=1024)] = ""
    message: Annotated[str, Schema(max_length=32768)] = ""
    conditions: Conditions = ()
    job_status: Annotated[JsonObject | None, Schema(preserve_unknown=True, map_type="atomic")] = None
    job_uid: Annotated[str, Schema(max_length=64)] = Field("", alias="jobUID")
    finished: RemoteFinished | None = None
    failure: RemoteFailure | None = None
    logs: Annotated[tuple[RemoteLog, ...], Schema(max_items=5, list_type="atomic")] = ()
    sequence: Annotated[Int64, Schema(minimum=0)] = 0
    boot_id: Annotated[str, Schema(max_length=64)] = Field("", alias="bootID")


class RemoteAssignment(KubeObject):
    """The assignment of a workload to one worker cluster."""

    RESOURCE = REMOTE_ASSIGNMENTS
    SCHEMA = Schema(
        rules=(
            CelRule(
                "self.spec.workload == oldSelf.spec.workload && self.spec.origin == oldSelf.spec.origin"
                " && self.spec.managerUID == oldSelf.spec.managerUID",
                "workload, origin and managerUID are immutable",
            ),
            CelRule("self.spec.epoch >= oldSelf.spec.epoch", "epoch must not go back"),
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
