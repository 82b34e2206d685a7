# SPDX-License-Identifier: Apache-2.0
"""MultiKueueCluster: one worker cluster (`docs/spec/kueue-api.md §1.7`)."""

from typing import Annotated

from pydantic import Field

from multikueue.api.constants import KubeConfigLocation
from multikueue.api.meta import Conditions, KubeObject, WireModel
from multikueue.api.resource import MULTIKUEUE_CLUSTERS
from multikueue.api.schema import AGE, CelRule, Column, Schema


class KubeConfig(WireModel):
    """The location of a kubeconfig."""

    location: Annotated[str, Schema(min_length=1, max_length=256)]
    location_type: Annotated[str, Schema(enum=KubeConfigLocation, defaulted=True)] = KubeConfigLocation.SECRET


class ClusterProfileRef(WireModel):
    """A ClusterProfile in Kueue's namespace."""

    name: Annotated[str, Schema(min_length=1, max_length=256)]


class ClusterSource(WireModel):
    """How the cluster is reached: one of the two."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "[has(self.kubeConfig),has(self.clusterProfileRef)].filter(x,x==true).size() == 1",
                "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
            ),
        )
    )

    kube_config: KubeConfig | None = None
    cluster_profile_ref: ClusterProfileRef | None = None


class MultiKueueClusterSpec(WireModel):
    """How the cluster is reached."""

    cluster_source: Annotated[ClusterSource, Schema(required=True)] = Field(default_factory=ClusterSource)


class MultiKueueClusterStatus(WireModel):
    """Whether the cluster is connected."""

    conditions: Conditions = ()


class MultiKueueCluster(KubeObject):
    """A worker cluster."""

    RESOURCE = MULTIKUEUE_CLUSTERS
    COLUMNS = (
        Column(name="Connected", path=".status.conditions[?(@.type=='Active')].status"),
        AGE,
    )

    spec: MultiKueueClusterSpec = Field(default_factory=MultiKueueClusterSpec)
    status: MultiKueueClusterStatus = Field(default_factory=MultiKueueClusterStatus)
