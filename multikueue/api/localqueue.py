# SPDX-License-Identifier: Apache-2.0
"""LocalQueue: the queue to which users of a namespace submit work (`docs/spec/kueue-api.md §1.4`)."""

from typing import Annotated

from pydantic import Field

from multikueue.api.constants import StopPolicy
from multikueue.api.meta import (
    Conditions,
    FairSharing,
    Int32,
    Int64,
    KubeObject,
    ObjectName,
    Resources,
    Time,
    WireModel,
)
from multikueue.api.quota import LocalQueueFlavorUsages
from multikueue.api.resource import LOCAL_QUEUES
from multikueue.api.schema import IMMUTABLE, Column, Schema


class LocalQueueSpec(WireModel):
    """Which ClusterQueue serves it."""

    cluster_queue: Annotated[ObjectName, Schema(rules=(IMMUTABLE,))] = ""
    stop_policy: Annotated[str, Schema(enum=StopPolicy, defaulted=True)] = StopPolicy.NONE
    fair_sharing: FairSharing | None = None


class AdmissionFairSharingStatus(WireModel):
    """The decayed usage that orders the LocalQueues of a ClusterQueue."""

    consumed_resources: Annotated[Resources, Schema(required=True)] = Field(default_factory=dict)
    last_update: Time


class LocalQueueFairSharingStatus(WireModel):
    """Shares of a LocalQueue."""

    weighted_share: Annotated[Int64, Schema(required=True)] = 0
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None


class LocalQueueStatus(WireModel):
    """What the queue holds."""

    conditions: Conditions = ()
    pending_workloads: Int32 = 0
    reserving_workloads: Int32 = 0
    admitted_workloads: Int32 = 0
    flavors_reservation: LocalQueueFlavorUsages = ()
    flavors_usage: LocalQueueFlavorUsages = ()
    fair_sharing: LocalQueueFairSharingStatus | None = None


class LocalQueue(KubeObject):
    """The queue of a namespace."""

    RESOURCE = LOCAL_QUEUES
    COLUMNS = (
        Column(name="ClusterQueue", path=".spec.clusterQueue"),
        Column(name="Pending Workloads", path=".status.pendingWorkloads", type="integer"),
        Column(name="Admitted Workloads", path=".status.admittedWorkloads", type="integer"),
    )

    spec: LocalQueueSpec = Field(default_factory=LocalQueueSpec)
    status: LocalQueueStatus = Field(default_factory=LocalQueueStatus)
