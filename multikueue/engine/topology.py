# SPDX-License-Identifier: Apache-2.0
"""Where topology aware scheduling meets the engine (`docs/spec/engine.md §3.7` and §6.8).

Owns what a placer must answer. Leaves placement to the package that implements it; without one, pods that ask for a
topology get the error of §6.2, and everything else goes its way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from multikueue.core.keys import Key
from multikueue.engine.assignment import Assignment
from multikueue.engine.workloads import Workload

NO_INFORMATION = "workload requires Topology, but there is no TAS cache information"


@dataclass(frozen=True, slots=True)
class Topology:
    """A Topology: label keys of its levels, highest first."""

    name: str
    levels: tuple[str, ...]


class Placer(Protocol):
    """Finds places for pods of topology flavors."""

    def failures(
        self, workload: Workload, assignment: Assignment, *, gone: Collection[Key], empty: bool
    ) -> Mapping[str, str]:
        """Why pod sets cannot be placed, by pod set.

        `gone` are workloads whose pods do not count; `empty` leaves out those of all workloads.
        """

    def reserve(self, workload: Workload, assignment: Assignment) -> None:
        """Hold the places that the last call found, until `release`."""

    def release(self, workload: Key) -> None:
        """Give the places of a workload back."""
