# SPDX-License-Identifier: Apache-2.0
"""ClusterReport: capabilities and capacity of a worker cluster, as reported by its agent.

One object named `agent` in the mailbox of the cluster; the agent writes its status on a change and every few seconds.
Single workloads are in the RemoteAssignments. Remote jobs without an assignment of this management cluster are reported
page by page on request in `spec.recovery` (ADR 0010); the agent reads the spec in the answer to its report, and needs
no other right. `status.clusterQueues` has what dispatch needs of the worker's queues (ADR 0014); their nominal quotas
are reported on request in `spec.quotas`, for the quota automation.
"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from multikueue.api.meta import (
    Amount,
    Int32,
    Int64,
    JsonObject,
    KubeObject,
    Labels,
    Time,
    WireModel,
    WireTaint,
    WireToleration,
)
from multikueue.api.resource import CLUSTER_REPORTS
from multikueue.api.schema import AGE, Column, Schema
from multikueue.core.quantity import Quantity

MAX_QUEUES: Final = 4096
"""The most LocalQueues in a report."""
MAX_CLUSTER_QUEUES: Final = 1024
"""The most ClusterQueues whose quota is in a report."""
MAX_FLAVORS: Final = 256
"""The most flavors in a report."""
MAX_QUOTA_ENTRIES: Final = 2048
"""The most quotas of a resource of a flavor in a report: with more the object would be too large."""


class ServedKind(WireModel):
    """A job kind that the cluster serves and the agent may create."""

    api_version: Annotated[str, Schema(min_length=1, max_length=317)]
    kind: Annotated[str, Schema(min_length=1, max_length=63)]


class ReportedQueue(WireModel):
    """A LocalQueue of the worker; `reason` is why it is not active."""

    namespace: Annotated[str, Schema(min_length=1, max_length=63)]
    name: Annotated[str, Schema(min_length=1, max_length=253)]
    active: bool = True
    reason: Annotated[str, Schema(max_length=256)] = ""
    cluster_queue: Annotated[str, Schema(max_length=253)] = ""


class ReportedResourceQuota(WireModel):
    """One resource of a flavor of a ClusterQueue on the worker.

    `free` is the quota that can be used now without preemption, `borrowable` the part of it that is borrowed. Of
    `used`, `reserved` is used by assignments. `capacity` is the most that it could have.
    """

    name: str
    nominal: Amount = Quantity.of(0)
    used: Amount = Quantity.of(0)
    free: Amount = Quantity.of(0)
    borrowable: Amount = Quantity.of(0)
    reserved: Amount = Quantity.of(0)
    capacity: Amount = Quantity.of(0)


class ReportedFlavor(WireModel):
    """A ResourceFlavor of the worker: which pods it is for. `topology`: they are placed by a topology."""

    name: Annotated[str, Schema(min_length=1, max_length=253)]
    node_labels: Labels = Field(default_factory=dict)
    node_taints: Annotated[tuple[WireTaint, ...], Schema(max_items=8, list_type="atomic")] = ()
    tolerations: Annotated[tuple[WireToleration, ...], Schema(max_items=8, list_type="atomic")] = ()
    """What it tolerates for the pods that use it."""
    topology: bool = False


class ReportedFlavorQuota(WireModel):
    """The quota of one flavor."""

    name: Annotated[str, Schema(min_length=1, max_length=253)]
    resources: Annotated[tuple[ReportedResourceQuota, ...], Schema(max_items=64, map_keys=("name",))] = ()


class ReportedQueueQuota(WireModel):
    """The quota of a ClusterQueue of the worker that has LocalQueues.

    `cohort` is the root cohort: queues with the same one borrow from each other. `preempts`: it may preempt.
    `admissionChecks`: it has admission checks, so that free quota alone does not admit.
    """

    name: Annotated[str, Schema(min_length=1, max_length=253)]
    cohort: Annotated[str, Schema(max_length=253)] = ""
    preempts: bool = False
    admission_checks: bool = False
    flavors: Annotated[tuple[ReportedFlavorQuota, ...], Schema(max_items=1024, list_type="atomic")] = ()


class ResourceCapacity(WireModel):
    """The capacity of one resource: in total, free, and free on the node with the most.

    `reserved` is the part of what is not free that assignments use; `largest` is the capacity of the largest node.
    """

    name: str
    allocatable: Amount = Quantity.of(0)
    free: Amount = Quantity.of(0)
    largest_free: Amount = Quantity.of(0)
    reserved: Amount = Quantity.of(0)
    largest: Amount = Quantity.of(0)


class NodeGroup(WireModel):
    """Ready nodes with the same labels and taints, and their capacity together."""

    labels: Labels = Field(default_factory=dict)
    taints: Annotated[tuple[WireTaint, ...], Schema(list_type="atomic")] = ()
    nodes: Annotated[Int32, Schema(minimum=0)] = 0
    capacity: Annotated[tuple[ResourceCapacity, ...], Schema(max_items=64, map_keys=("name",))] = ()


class NodeCount(WireModel):
    """How many nodes there are."""

    ready: Annotated[Int32, Schema(minimum=0)] = 0
    total: Annotated[Int32, Schema(minimum=0)] = 0


MAX_ORPHANS: Final = 100
"""The most orphans in one page; with their manifests they must fit into an object."""
BUCKETS: Final = 16


class OrphanPhase(StrEnum):
    """The state of an orphan."""

    RUNNING = "Running"
    SUSPENDED = "Suspended"
    FINISHED = "Finished"


class Orphan(WireModel):
    """A remote job that another management cluster created, such as the one that this one replaces."""

    api_version: Annotated[str, Schema(min_length=1, max_length=317)]
    kind: Annotated[str, Schema(min_length=1, max_length=63)]
    namespace: Annotated[str, Schema(min_length=1, max_length=63)]
    name: Annotated[str, Schema(min_length=1, max_length=253)]
    uid: Annotated[str, Schema(min_length=1, max_length=64)]
    manager_uid: Annotated[str, Schema(max_length=64)] = Field("", alias="managerUID")
    epoch: Annotated[Int64, Schema(minimum=0)] = 0
    phase: Annotated[str, Schema(enum=OrphanPhase)]
    manifest: Annotated[JsonObject, Schema(preserve_unknown=True, map_type="atomic")] = Field(default_factory=dict)
    """Its labels, annotations and spec."""


class RefusedRemoval(WireModel):
    """An orphan whose requested removal failed, with the answer of the worker's API server."""

    uid: Annotated[str, Schema(min_length=1, max_length=64)]
    message: Annotated[str, Schema(max_length=1024)] = ""


class OrphanCount(WireModel):
    """The number of orphans, and the page that was requested last."""

    total: Annotated[Int32, Schema(minimum=0)] = 0
    request: Annotated[str, Schema(max_length=64)] = ""
    next: Annotated[str, Schema(max_length=512)] = ""
    """The start of the next page; empty after the last one."""
    items: Annotated[tuple[Orphan, ...], Schema(max_items=MAX_ORPHANS, list_type="atomic")] = ()
    refused: Annotated[tuple[RefusedRemoval, ...], Schema(max_items=MAX_ORPHANS, list_type="atomic")] = ()


class Recovery(WireModel):
    """Requests the page of orphans behind `after`, and first removes those with the uids in `discard`."""

    request: Annotated[str, Schema(min_length=1, max_length=64)]
    after: Annotated[str, Schema(max_length=512)] = ""
    discard: Annotated[tuple[str, ...], Schema(max_items=MAX_ORPHANS, list_type="atomic")] = ()


class ResyncRequest(WireModel):
    """Requests that the agent lists its mailbox again and resends what differs in these buckets."""

    request: Annotated[str, Schema(min_length=1, max_length=64)]
    buckets: Annotated[tuple[Int32, ...], Schema(max_items=BUCKETS, list_type="atomic")] = ()


class QueueName(WireModel):
    """A LocalQueue, by name."""

    namespace: Annotated[str, Schema(min_length=1, max_length=63)]
    name: Annotated[str, Schema(min_length=1, max_length=253)]


class NominalQuota(WireModel):
    """The nominal quota of one resource, over all flavors."""

    name: str
    nominal: Amount


class ReportedClusterQueue(WireModel):
    """A ClusterQueue of the worker, and its LocalQueues."""

    name: Annotated[str, Schema(min_length=1, max_length=253)]
    active: bool = False
    local_queues: Annotated[tuple[QueueName, ...], Schema(max_items=MAX_QUEUES, list_type="atomic")] = ()
    resources: Annotated[tuple[NominalQuota, ...], Schema(max_items=1024, map_keys=("name",))] = ()


class ReportedQuotas(WireModel):
    """All ClusterQueues that have LocalQueues, or why they are not reported."""

    problem: Annotated[str, Schema(max_length=1024)] = ""
    cluster_queues: Annotated[tuple[ReportedClusterQueue, ...], Schema(max_items=MAX_QUEUES, list_type="atomic")] = ()


class ClusterReportSpec(WireModel):
    """Requests to the agent: `recovery` by an administrator, `resync` and `quotas` by the manager."""

    recovery: Recovery | None = None
    resync: ResyncRequest | None = None
    quotas: bool = False
    """Whether the agent reports the nominal quotas of the ClusterQueues."""


class MissingRight(WireModel):
    """A right on the worker cluster that its agent uses and does not have."""

    verb: Annotated[str, Schema(min_length=1, max_length=32)]
    resource: Annotated[str, Schema(min_length=1, max_length=253)]
    """`plural.group`, `plural.group/subresource`, or a path of the API server."""
    required: bool = False
    """Whether no Job can be dispatched to the cluster without it."""


class ReportedProvisioning(WireModel):
    """Whether the agent can provision capacity for an assignment (ADR 0018); `problem` is why not."""

    problem: Annotated[str, Schema(max_length=1024)] = ""


class ClusterReportStatus(WireModel):
    """The report."""

    cluster_uid: Annotated[str, Schema(max_length=64)] = Field("", alias="clusterUID")
    boot_id: Annotated[str, Schema(max_length=64)] = Field("", alias="bootID")
    sequence: Annotated[Int64, Schema(minimum=0)] = 0
    agent_version: Annotated[str, Schema(max_length=256)] = ""
    kubernetes_version: Annotated[str, Schema(max_length=256)] = ""
    kinds: Annotated[tuple[ServedKind, ...], Schema(max_items=64, map_keys=("apiVersion", "kind"))] = ()
    local_queues: Annotated[tuple[ReportedQueue, ...], Schema(max_items=MAX_QUEUES, list_type="atomic")] = ()
    cluster_queues: Annotated[
        tuple[ReportedQueueQuota, ...], Schema(max_items=MAX_CLUSTER_QUEUES, list_type="atomic")
    ] = ()
    """The ClusterQueues of the LocalQueues, as far as they could be read, within the limit of a report."""
    flavors: Annotated[tuple[ReportedFlavor, ...], Schema(max_items=MAX_FLAVORS, list_type="atomic")] = ()
    """The flavors of these ClusterQueues, as far as they could be read."""
    capacity: Annotated[tuple[ResourceCapacity, ...], Schema(max_items=64, map_keys=("name",))] = ()
    namespaces: Annotated[tuple[str, ...], Schema(max_items=512, list_type="atomic")] = ()
    """All namespaces of the cluster; empty for a cluster with more than the limit."""
    groups: Annotated[tuple[NodeGroup, ...], Schema(max_items=64, list_type="atomic")] = ()
    varying: Annotated[tuple[str, ...], Schema(max_items=1024, list_type="atomic")] = ()
    """Labels that the groups leave out, since they differ too much between nodes."""
    nodes: NodeCount = Field(default_factory=NodeCount)
    pending: Annotated[Int32, Schema(minimum=0)] = 0
    """How many assignments wait for capacity."""
    engine: Annotated[str, Schema(max_length=256)] = ""
    """The engine that admits on the worker; empty if the ledger of the agent does."""
    quotas: ReportedQuotas | None = None
    """None unless requested, and until the ClusterQueues were read."""
    provisioning: ReportedProvisioning | None = None
    """None from an agent that does not know of it."""
    dependency_kinds: Annotated[tuple[str, ...], Schema(max_items=8, list_type="atomic")] = ()
    """The kinds of the objects that the agent looks for before it creates a job whose pods need them."""
    sent_kinds: Annotated[tuple[str, ...], Schema(max_items=8, list_type="atomic")] = ()
    """The kinds of the objects that the hub may send with jobs: the agent has the rights to write them."""
    orphans: OrphanCount | None = None
    """Remote jobs with our origin that another management cluster created; None if there are none."""
    digests: Annotated[tuple[str, ...], Schema(max_items=BUCKETS, list_type="atomic")] = ()
    """Checksums of the assignments as the agent sees them, by bucket of their names."""
    missing_rights: Annotated[tuple[MissingRight, ...], Schema(max_items=64, map_keys=("verb", "resource"))] = ()
    time: Time | None = None


class ClusterReport(KubeObject):
    """The capabilities and capacity of a worker cluster."""

    RESOURCE = CLUSTER_REPORTS
    COLUMNS = (
        Column(name="Version", path=".status.kubernetesVersion"),
        Column(name="Ready", path=".status.nodes.ready", type="integer"),
        Column(name="Nodes", path=".status.nodes.total", type="integer"),
        Column(name="Reported", path=".status.time", type="date"),
        AGE,
    )

    spec: ClusterReportSpec = Field(default_factory=ClusterReportSpec)
    status: ClusterReportStatus = Field(default_factory=ClusterReportStatus)
