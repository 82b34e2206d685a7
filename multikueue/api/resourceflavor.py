# SPDX-License-Identifier: Apache-2.0
"""ResourceFlavor: a kind of nodes with separate quota (`docs/spec/kueue-api.md §1.5`)."""

from typing import Annotated

from pydantic import Field

from multikueue.api.meta import (
    TAINT_RULES,
    TOLERATION_RULES,
    KubeObject,
    Labels,
    ObjectName,
    WireModel,
    WireTaint,
    WireToleration,
)
from multikueue.api.resource import RESOURCE_FLAVORS
from multikueue.api.schema import CelRule, Schema


class ResourceFlavorSpec(WireModel):
    """The labels and taints of the nodes, and what a workload gets with the flavor."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "!has(self.topologyName) || self.nodeLabels.size() >= 1",
                "at least one nodeLabel is required when topology is set",
            ),
            CelRule(
                "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
                "topologyName is immutable when topologyName is set",
            ),
        )
    )

    node_labels: Annotated[Labels, Schema(max_properties=8, map_type="atomic")] = Field(default_factory=dict)
    node_taints: Annotated[tuple[WireTaint, ...], Schema(max_items=8, list_type="atomic", rules=TAINT_RULES)] = ()
    tolerations: Annotated[
        tuple[WireToleration, ...], Schema(max_items=8, list_type="atomic", rules=TOLERATION_RULES)
    ] = ()
    topology_name: ObjectName | None = None


class ResourceFlavor(KubeObject):
    """A kind of nodes."""

    RESOURCE = RESOURCE_FLAVORS

    spec: ResourceFlavorSpec = Field(default_factory=ResourceFlavorSpec)
