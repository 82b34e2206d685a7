# SPDX-License-Identifier: Apache-2.0
"""The file that the process of virtual nodes is started with.

Owns its shape and nothing else. One process serves the nodes of all clusters of a federation: a process each would
cost 60 MiB and half a second of start-up per cluster.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from multikueue.devcluster.nodes.node import NodeSpec
from multikueue.devcluster.nodes.virtual_nodes import LogServing


class NodesOfCluster(BaseModel):
    """The virtual nodes of one cluster."""

    model_config = ConfigDict(extra="forbid")

    cluster: str
    kubeconfig: Path
    nodes: list[NodeSpec]
    logs: LogServing | None = None


class NodesConfiguration(BaseModel):
    """Everything one process serves."""

    model_config = ConfigDict(extra="forbid")

    journal: Path
    clusters: list[NodesOfCluster]
