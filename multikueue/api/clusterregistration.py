# SPDX-License-Identifier: Apache-2.0
"""ClusterRegistration: whether an agent that asked to join is let in, and whether its cluster takes work.

Cluster-scoped and named as the worker cluster. An admin owns the spec, the manager the status; the agent has no
right to either.
"""

from typing import Annotated

from pydantic import Field

from multikueue.api.meta import Conditions, KubeObject, WireModel
from multikueue.api.resource import CLUSTER_REGISTRATIONS
from multikueue.api.schema import AGE, Column, Schema


class ClusterRegistrationSpec(WireModel):
    """What the admin decided: let in, no new work, move the running work away."""

    accepted: Annotated[bool, Schema(defaulted=True)] = False
    cordoned: Annotated[bool, Schema(defaulted=True)] = False
    drain: Annotated[bool, Schema(defaulted=True)] = False


class ClusterRegistrationStatus(WireModel):
    """What the manager made of it; another uid under the same name is another cluster."""

    cluster_uid: Annotated[str, Schema(max_length=64)] = Field("", alias="clusterUID")
    conditions: Conditions = ()


class ClusterRegistration(KubeObject):
    """A worker cluster's place in the federation."""

    RESOURCE = CLUSTER_REGISTRATIONS
    COLUMNS = (
        Column(name="Accepted", path=".spec.accepted", type="boolean"),
        Column(name="Cordoned", path=".spec.cordoned", type="boolean"),
        Column(name="Drain", path=".spec.drain", type="boolean", priority=1),
        AGE,
    )

    spec: ClusterRegistrationSpec = Field(default_factory=ClusterRegistrationSpec)
    status: ClusterRegistrationStatus = Field(default_factory=ClusterRegistrationStatus)
