# SPDX-License-Identifier: Apache-2.0
"""Random nodes in blocks and racks, and what Jobs ask of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from multikueue.api.constants import (
    POD_SET_PREFERRED_TOPOLOGY_ANNOTATION,
    POD_SET_REQUIRED_TOPOLOGY_ANNOTATION,
    POD_SET_SLICE_REQUIRED_TOPOLOGY_ANNOTATION,
    POD_SET_SLICE_SIZE_ANNOTATION,
    POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION,
)

Object = dict[str, Any]

BLOCK: Final = "example.com/block"
RACK: Final = "example.com/rack"
HOST: Final = "kubernetes.io/hostname"
_LEVELS: Final = ((BLOCK, RACK, HOST), (BLOCK, RACK, HOST), (RACK, HOST), (HOST,), (BLOCK, RACK))
GPU: Final = "example.com/gpu"
_GIGA: Final = "64Gi"


@dataclass(frozen=True, slots=True)
class NodeOfHistory:
    """A node; `labels` are those of its block and rack."""

    name: str
    cpu: int
    labels: tuple[tuple[str, str], ...]
    pods: int = 110
    tainted: bool = False
    ready: bool = True

    def manifest(self, *, name: str, flavor: Mapping[str, str]) -> Object:
        """The Node, with the labels of its flavor."""
        taints = [{"key": "maintenance", "value": "true", "effect": "NoSchedule"}] if self.tainted else []
        quantities = {"cpu": str(self.cpu), "memory": _GIGA, "pods": str(self.pods), GPU: str(self.cpu)}
        condition = {"type": "Ready", "status": str(self.ready), "reason": "ByHand", "message": ""}
        times = dict.fromkeys(("lastTransitionTime", "lastHeartbeatTime"), "2026-01-01T00:00:00Z")
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**flavor, HOST: name, **dict(self.labels)}},
            "spec": {"taints": taints},
            "status": {"capacity": quantities, "allocatable": quantities, "conditions": [condition | times]},
        }


def random_levels(random: Random) -> tuple[str, ...]:
    """The levels of a topology, the highest first."""
    return random.choice(_LEVELS)


def random_nodes(random: Random, prefix: str) -> list[NodeOfHistory]:
    """Nodes of one to three blocks."""
    found: list[NodeOfHistory] = []
    most = random.choice((2, 4, 8))
    for block in range(random.choice((1, 2, 2, 3))):
        for rack in range(random.choice((1, 2, 2, 3))):
            labels = ((BLOCK, f"b{block}"), (RACK, f"b{block}-r{rack}"))
            for _ in range(random.choice((1, 1, 2, 2, 3))):
                pods = random.choice((1, 2, 3)) if random.random() < 0.05 else 110
                tainted = random.random() < 0.05
                cpu = random.randint(1, most)
                found.append(NodeOfHistory(f"{prefix}{len(found)}", cpu, labels, pods=pods, tainted=tainted))
    return found


def random_request(random: Random, levels: tuple[str, ...], *, parallelism: int) -> dict[str, str]:
    """The annotations of a pod template; none for a Job that asks for nothing."""
    level = random.choice(levels)
    found: dict[str, str] = {}
    match random.choices(("required", "preferred", "unconstrained", "none"), (4, 4, 2, 1))[0]:
        case "required":
            found[POD_SET_REQUIRED_TOPOLOGY_ANNOTATION] = level
        case "preferred":
            found[POD_SET_PREFERRED_TOPOLOGY_ANNOTATION] = level
        case "unconstrained":
            return {POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION: "true"}
        case _:
            return {}
    sizes = [size for size in range(1, parallelism + 1) if parallelism % size == 0]
    if random.random() < 0.35:
        below = levels[levels.index(level) :]
        found[POD_SET_SLICE_REQUIRED_TOPOLOGY_ANNOTATION] = random.choice(below)
        found[POD_SET_SLICE_SIZE_ANNOTATION] = str(random.choice(sizes))
    return found
