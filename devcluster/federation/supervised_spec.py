# SPDX-License-Identifier: Apache-2.0
"""The specification of a supervised federation, which `mkctl up` writes to the federation's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import orjson

from devcluster.kubelet.node_groups import NodeGroups, VirtualNodeGroup
from multikueue.core.errors import BadInput

_SPEC: Final = "spec.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedSpec:
    """The options of `mkctl up`. The file is kept for the next `mkctl up` with the same data."""

    name: str
    provider: str
    workers: int
    nodes: NodeGroups
    """The virtual nodes of each cluster that has any."""
    worker_queues: bool = False
    as_kind: str = ""
    """The name of the kind clusters that this federation replaces."""
    kubeconfig: str = ""
    """A second path of the merged kubeconfig."""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the manager that differ from the defaults of a local federation."""
    configuration_file: str = ""
    """The file that contained these settings."""

    @property
    def worker_names(self) -> list[str]:
        """The names of the worker clusters."""
        separator = "" if self.as_kind else "-"
        return [f"worker{separator}{number}" for number in range(1, self.workers + 1)]

    @property
    def clusters_with_nodes(self) -> list[str]:
        """The names of the clusters with virtual nodes."""
        return [*(["hub"] if self.as_kind else []), *self.worker_names]

    def write(self, folder: Path) -> None:
        """Write the file for the supervisor."""
        nodes = {cluster: [group.to_json() for group in groups] for cluster, groups in self.nodes.items()}
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        unfinished = folder / f".{_SPEC}.{os.getpid()}"
        unfinished.write_bytes(orjson.dumps({**values, "nodes": nodes}))
        unfinished.replace(folder / _SPEC)

    @classmethod
    def read(cls, folder: Path) -> SupervisedSpec:
        """Read the file. Raises `FileNotFoundError`, and `BadInput` for a file of another version."""
        values = orjson.loads((folder / _SPEC).read_bytes())
        try:
            groups = values["nodes"].items()
            nodes = {cluster: tuple(VirtualNodeGroup.from_json(each) for each in found) for cluster, found in groups}
            return cls(**{**values, "nodes": nodes})
        except (KeyError, TypeError, AttributeError) as error:
            raise BadInput(
                f"{folder / _SPEC} was written by another version of multikueue; run `mkctl down`"
            ) from error
