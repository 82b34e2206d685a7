# SPDX-License-Identifier: Apache-2.0
"""ClusterRegistration: whether an agent that asked to join is let in, and whether its cluster takes work.

Cluster-scoped and named as the worker cluster. An admin owns the spec, the manager the status; the agent has no
right to either.
"""

from typing import Annotated

from pydantic import Field

from multikueue.api.meta import Conditions, KubeObject, Time, WireModel
from multikueue.api.resource import CLUSTER_REGISTRATIONS
from multikueue.api.schema import AGE, Column, Schema


class Bootstrap(WireModel):
    """The one token by which an agent may ask for its first certificate, and until when."""

    id: Annotated[str, Schema(min_length=1, max_length=64)]
    expiration_time: Time


class ClusterRegistrationSpec(WireModel):
    """What the admin decided: let in, no new work, move the running work away, by when.

    `clusterUID` is the one cluster that may come; empty, whichever comes first.
    """

    accepted: Annotated[bool, Schema(defaulted=True)] = False
    cordoned: Annotated[bool, Schema(defaulted=True)] = False
    drain: Annotated[bool, Schema(defaulted=True)] = False
    drain_deadline: Time | None = None
    cluster_uid: Annotated[str, Schema(max_length=64)] = Field("", alias="clusterUID")
    bootstrap: Bootstrap | None = None


class ClusterRegistrationStatus(WireModel):
    """What the manager made of it; another uid under the same name is another cluster.

    `usedBootstrap` is the token that was redeemed last and `usedBy` the request that redeemed it.
    """

    cluster_uid: Annotated[str, Schema(max_length=64)] = Field("", alias="clusterUID")
    used_bootstrap: Annotated[str, Schema(max_length=64)] = ""
    used_by: Annotated[str, Schema(max_length=64)] = ""
    certificate_expiration_time: Time | None = None
    conditions: Conditions = ()


class ClusterRegistration(KubeObject):
    """A worker cluster's place in the federation."""

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
