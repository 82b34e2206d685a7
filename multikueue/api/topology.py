# SPDX-License-Identifier: Apache-2.0
"""Topology: the levels, from wide to narrow, in which nodes are grouped (`docs/spec/kueue-api.md §1.10`)."""

from typing import Annotated

from pydantic import Field

from multikueue.api.meta import KubeObject, WireModel
from multikueue.api.resource import TOPOLOGIES
from multikueue.api.schema import LABEL_KEY, UNIQUE, CelRule, Schema

HOSTNAME_LOWEST = CelRule(
    "size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0"
    " || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
    "the kubernetes.io/hostname label can only be used at the lowest level of topology",
)


class TopologyLevel(WireModel):
    """One level, by the label that names its domains."""

    node_label: Annotated[str, Schema(min_length=1, max_length=316, pattern=LABEL_KEY)]


class TopologySpec(WireModel):
    """The levels."""

    levels: Annotated[
        tuple[TopologyLevel, ...],
        Schema(
            min_items=1,
            max_items=16,
            list_type="atomic",
            required=True,
            rules=(
                CelRule(
                    "self == oldSelf || (self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'"
                    " && oldSelf[size(oldSelf) - 1].nodeLabel == 'kubernetes.io/hostname')",
                    "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after"
                    " the change",
                ),
                UNIQUE,
                HOSTNAME_LOWEST,
            ),
        ),
    ] = ()


class Topology(KubeObject):
    """How nodes are grouped."""

    RESOURCE = TOPOLOGIES

    spec: TopologySpec = Field(default_factory=TopologySpec)
