# SPDX-License-Identifier: Apache-2.0
"""The configuration file of the virtual nodes' process.

One process serves the nodes of all clusters of a federation: a process per cluster would cost 60 MiB and half a second
at start.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from devcluster.kubelet.node import NodeSpec
from devcluster.kubelet.virtual_nodes import LogServing


class NodesOfCluster(BaseModel):
    """The virtual nodes of one cluster."""

    model_config = ConfigDict(extra="forbid")

    cluster: str
    kubeconfig: Path
    nodes: list[NodeSpec]
    logs: LogServing | None = None


class NodesConfiguration(BaseModel):
    """The configuration of one process."""

    model_config = ConfigDict(extra="forbid")

    journal: Path
    clusters: list[NodesOfCluster]
