# SPDX-License-Identifier: Apache-2.0
"""ClusterRegistration: whether the agent of a worker cluster may join, and whether the cluster takes work.

Cluster-scoped and named like the worker cluster. An administrator owns the spec, the manager the status; the agent has
no right to either.
"""

from typing import Annotated

from pydantic import Field

from multikueue.api.meta import Conditions, KubeObject, Time, WireModel
from multikueue.api.resource import CLUSTER_REGISTRATIONS
from multikueue.api.schema import AGE, Column, Schema


class Bootstrap(WireModel):
    """The token by which the agent may request its first certificate, and its expiry."""

    id: Annotated[str, Schema(min_length=1, max_length=64)]
    expiration_time: Time


class ClusterRegistrationSpec(WireModel):
    """The decision of the administrator: accept, cordon, drain, and the deadline of the drain.

    `clusterUID` is the only cluster that may join; empty for the first that does.
    """

    accepted: Annotated[bool, Schema(defaulted=True)] = False
    cordoned: Annotated[bool, Schema(defaulted=True)] = False
    drain: Annotated[bool, Schema(defaulted=True)] = False
    drain_deadline: Time | None = None
    cluster_uid: Annotated[str, Schema(max_length=64)] = Field("", alias="clusterUID")
    bootstrap: Bootstrap | None = None


class ClusterRegistrationStatus(WireModel):
    """The state of the registration; another uid under the same name is another cluster.

    `usedBootstrap` is the last redeemed token and `usedBy` the certificate request that redeemed it.
    """

    cluster_uid: Annotated[str, Schema(max_length=64)] = Field("", alias="clusterUID")
    used_bootstrap: Annotated[str, Schema(max_length=64)] = ""
    used_by: Annotated[str, Schema(max_length=64)] = ""
    certificate_expiration_time: Time | None = None
    conditions: Conditions = ()


class ClusterRegistration(KubeObject):
    """The registration of a worker cluster in the federation."""

    RESOURCE = CLUSTER_REGISTRATIONS
    COLUMNS = (
        Column(name="Accepted", path=".spec.accepted", type="boolean"),
        Column(name="Cordoned", path=".spec.cordoned", type="boolean"),
        Column(name="Drain", path=".spec.drain", type="boolean", priority=1),
        Column(name="Expires", path=".status.certificateExpirationTime", type="string", priority=1),
        AGE,
    )

    spec: ClusterRegistrationSpec = Field(default_factory=ClusterRegistrationSpec)
    status: ClusterRegistrationStatus = Field(default_factory=ClusterRegistrationStatus)
