# SPDX-License-Identifier: Apache-2.0
"""The specification of a federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from devcluster.kubelet.node import NodeSpec, several
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput

HUB: Final = "hub"


DEFAULT_NAME: Final = "default"
"""The federation whose contexts have the plain cluster names."""


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
