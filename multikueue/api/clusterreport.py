# SPDX-License-Identifier: Apache-2.0
"""ClusterReport: what a worker cluster can do and has room for, as its agent tells it.

One object named `agent` in the mailbox of the cluster; the agent writes its status on a change and each few
seconds. It says nothing of single workloads: those are in the RemoteAssignments. What runs without an assignment of
this management cluster is told page by page to who asks for it in `spec.recovery` (ADR 0010); the agent reads the spec
in the answer to its own report, and needs no right beside that. The quotas of the worker's own queues are told to a hub
that asks in `spec.quotas`, and to no other.
"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from multikueue.api.meta import Amount, Int32, Int64, JsonObject, KubeObject, Labels, Taint, Time, WireModel
from multikueue.api.resource import CLUSTER_REPORTS
from multikueue.api.schema import AGE, Column, Schema
from multikueue.core.quantity import Quantity

MAX_QUEUES: Final = 4096
"""LocalQueues that a report has room for."""


class ServedKind(WireModel):
    """A job kind that the cluster serves and the agent may create."""

    api_version: Annotated[str, Schema(min_length=1, max_length=317)]
    kind: Annotated[str, Schema(min_length=1, max_length=63)]


class ReportedQueue(WireModel):
    """A LocalQueue of an engine on the worker."""

    namespace: Annotated[str, Schema(min_length=1, max_length=63)]
    name: Annotated[str, Schema(min_length=1, max_length=253)]
    active: bool = True


class ResourceCapacity(WireModel):
    """Room for one resource: in all, not yet promised, and on the emptiest node.

    `reserved` is what assignments hold of what is not free; `largest` is what the largest node has when it is empty.
    """

    name: str
    allocatable: Amount = Quantity.of(0)
    free: Amount = Quantity.of(0)
    largest_free: Amount = Quantity.of(0)
    reserved: Amount = Quantity.of(0)
    largest: Amount = Quantity.of(0)


class NodeGroup(WireModel):
    """Ready nodes with the same labels and taints, and the room on them together."""

    labels: Labels = Field(default_factory=dict)
    taints: Annotated[tuple[Taint, ...], Schema(list_type="atomic")] = ()
    nodes: Annotated[Int32, Schema(minimum=0)] = 0
    capacity: Annotated[tuple[ResourceCapacity, ...], Schema(max_items=64, map_keys=("name",))] = ()


class NodeCount(WireModel):
    """How many nodes there are."""

    ready: Annotated[Int32, Schema(minimum=0)] = 0
    total: Annotated[Int32, Schema(minimum=0)] = 0


MAX_ORPHANS: Final = 100
"""In one page; with their manifests they have to fit into an object."""
BUCKETS: Final = 16


class OrphanPhase(StrEnum):
    """How far a copy is that has no assignment here."""

    RUNNING = "Running"
    SUSPENDED = "Suspended"
    FINISHED = "Finished"


class Orphan(WireModel):
    """A copy that another management cluster had made, such as the one that this one replaces."""

    api_version: Annotated[str, Schema(min_length=1, max_length=317)]
    kind: Annotated[str, Schema(min_length=1, max_length=63)]
    namespace: Annotated[str, Schema(min_length=1, max_length=63)]
    name: Annotated[str, Schema(min_length=1, max_length=253)]
    uid: Annotated[str, Schema(min_length=1, max_length=64)]
    manager_uid: Annotated[str, Schema(max_length=64)] = Field("", alias="managerUID")
    epoch: Annotated[Int64, Schema(minimum=0)] = 0
    phase: Annotated[str, Schema(enum=OrphanPhase)]
    manifest: Annotated[JsonObject, Schema(preserve_unknown=True, map_type="atomic")] = Field(default_factory=dict)
    """Labels, annotations and spec, as they are there."""


class Orphans(WireModel):
    """How many such copies there are, and the page that was asked for last."""

    total: Annotated[Int32, Schema(minimum=0)] = 0
    request: Annotated[str, Schema(max_length=64)] = ""
    next: Annotated[str, Schema(max_length=512)] = ""
    """Where the next page begins; empty after the last one."""
    items: Annotated[tuple[Orphan, ...], Schema(max_items=MAX_ORPHANS, list_type="atomic")] = ()


class Recovery(WireModel):
    """Asks for the page of orphans behind `after`, and has those with the uids of `discard` removed before."""

    request: Annotated[str, Schema(min_length=1, max_length=64)]
    after: Annotated[str, Schema(max_length=512)] = ""
    discard: Annotated[tuple[str, ...], Schema(max_items=MAX_ORPHANS, list_type="atomic")] = ()


class Resync(WireModel):
    """Asks the agent to read its mailbox anew, and to say again what differs in these buckets."""

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
    """A ClusterQueue of an engine on the worker, and the LocalQueues that stand before it."""

    name: Annotated[str, Schema(min_length=1, max_length=253)]
    active: bool = False
    local_queues: Annotated[tuple[QueueName, ...], Schema(max_items=MAX_QUEUES, list_type="atomic")] = ()
    resources: Annotated[tuple[NominalQuota, ...], Schema(max_items=1024, map_keys=("name",))] = ()


class ReportedQuotas(WireModel):
    """All ClusterQueues that LocalQueues stand before, or why they cannot be told."""

    problem: Annotated[str, Schema(max_length=1024)] = ""
    cluster_queues: Annotated[tuple[ReportedClusterQueue, ...], Schema(max_items=MAX_QUEUES, list_type="atomic")] = ()


class ClusterReportSpec(WireModel):
    """What is asked of the agent: `recovery` by an administrator, `resync` and `quotas` by the manager."""

    recovery: Recovery | None = None
    resync: Resync | None = None
    quotas: bool = False
    """Whether to follow the ClusterQueues of the worker, and to tell of their quotas."""


class ClusterReportStatus(WireModel):
    """The report."""

    cluster_uid: Annotated[str, Schema(max_length=64)] = Field("", alias="clusterUID")
    boot_id: Annotated[str, Schema(max_length=64)] = Field("", alias="bootID")
    sequence: Annotated[Int64, Schema(minimum=0)] = 0
    agent_version: Annotated[str, Schema(max_length=256)] = ""
    kubernetes_version: Annotated[str, Schema(max_length=256)] = ""
    kinds: Annotated[tuple[ServedKind, ...], Schema(max_items=64, map_keys=("apiVersion", "kind"))] = ()
    local_queues: Annotated[tuple[ReportedQueue, ...], Schema(max_items=MAX_QUEUES, list_type="atomic")] = ()
    capacity: Annotated[tuple[ResourceCapacity, ...], Schema(max_items=64, map_keys=("name",))] = ()
    namespaces: Annotated[tuple[str, ...], Schema(max_items=512, list_type="atomic")] = ()
    """All namespaces of the cluster; none are told of a cluster that has more than this can hold."""
    groups: Annotated[tuple[NodeGroup, ...], Schema(max_items=64, list_type="atomic")] = ()
    varying: Annotated[tuple[str, ...], Schema(max_items=1024, list_type="atomic")] = ()
    """Labels that the groups do not tell, since they differ too much between nodes."""
    nodes: NodeCount = Field(default_factory=NodeCount)
    pending: Annotated[Int32, Schema(minimum=0)] = 0
    """How many assignments wait for room."""
    engine: Annotated[str, Schema(max_length=256)] = ""
    """Which queueing engine admits on the worker; empty when the agent's own ledger does."""
    quotas: ReportedQuotas | None = None
    """None while nobody has asked, and until the ClusterQueues were read."""
    orphans: Orphans | None = None
    """Copies of our origin that another management cluster had made; none are told of while there are none."""
    digests: Annotated[tuple[str, ...], Schema(max_items=BUCKETS, list_type="atomic")] = ()
    """Of the assignments as the agent sees them, by bucket of their names."""
    time: Time | None = None


class ClusterReport(KubeObject):
    """What a worker cluster has to offer."""

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
