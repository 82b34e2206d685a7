# SPDX-License-Identifier: Apache-2.0
"""The specification of a federation, and of a supervised one, which `mkctl up` writes to its folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import orjson

from devcluster.kubelet.node import NodeSpec, several
from devcluster.kubelet.node_groups import NodeGroups, VirtualNodeGroup
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput

HUB: Final = "hub"
DEFAULT_NAME: Final = "default"
"""The federation whose contexts have the plain cluster names."""
_SPEC: Final = "spec.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """A worker cluster."""

    name: str
    nodes: Sequence[NodeSpec] = field(default_factory=lambda: several(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationSpec:
    """The specification of a federation."""

    name: str = DEFAULT_NAME
    workers: Sequence[WorkerSpec] = (WorkerSpec(name="worker-1"), WorkerSpec(name="worker-2"))
    configuration: JsonObject = field(default_factory=dict)
    """Merged into the manager's Configuration, section by section."""
    definitions: Sequence[JsonObject] = ()
    """CustomResourceDefinitions on every cluster, as of job kinds."""
    manager_arguments: Sequence[str] = ()
    agent_arguments: Sequence[str] = ()
    manager: bool = True
    """Run the manager and the agents; otherwise only clusters, definitions and enrolments are created."""
    worker_queues: bool = False
    """Also run a manager on each worker as its Kueue; the agent then admits through the queues of the worker."""

    fairness: bool = False
    """Real API servers have API Priority and Fairness, as production clusters have."""

    worker_manifests: Sequence[JsonObject] = ()
    """Objects to create on each worker before its agent starts; without `as_kind`."""

    as_kind: str = ""
    """Replace the kind clusters of this name: the manager is installed on every cluster like Kueue, the hub has nodes
    too, and no worker is enrolled, since clients create the MultiKueueClusters."""
    hub_nodes: Sequence[NodeSpec] = ()
    """The virtual nodes of the hub, with `as_kind` only."""

    def __post_init__(self) -> None:
        names = [HUB, *(worker.name for worker in self.workers)]
        if len(set(names)) != len(names):
            raise BadInput(f"federation {self.name}: cluster names must differ and not be {HUB!r}, got {names[1:]}")


def several_workers(count: int, *, nodes: int = 2) -> list[WorkerSpec]:
    """`count` equal workers, named `worker-1` and so on."""
    return [WorkerSpec(name=f"worker-{number}", nodes=several(nodes)) for number in range(1, count + 1)]


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
