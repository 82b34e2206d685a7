# SPDX-License-Identifier: Apache-2.0
"""The interface of topology aware scheduling to the engine (`docs/spec/engine.md §3.7` and §6.8).

A placer places pods. Without one, pods that request a topology get the error of §6.2; others are not affected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from multikueue.core.keys import Key
from multikueue.engine.flavorassigner.assignment import Assignment
from multikueue.engine.workloads import Workload

NO_INFORMATION = "workload requires Topology, but there is no TAS cache information"


@dataclass(frozen=True, slots=True)
class TopologyLevels:
    """A Topology: label keys of its levels, highest first."""

    name: str
    levels: tuple[str, ...]


class Placer(Protocol):
    """Places pods on flavors with a topology."""

    def failures(
        self, workload: Workload, assignment: Assignment, *, gone: Collection[Key], empty: bool
    ) -> Mapping[str, str]:
        """Why pod sets cannot be placed, by pod set.

        Pods of workloads in `gone` are not counted; `empty` ignores those of all workloads.
        """

    def reserve(self, workload: Workload, assignment: Assignment) -> None:
        """Reserve the places that the last call found, until `release`."""

    def release(self, workload: Key) -> None:
        """Release the places of a workload."""
