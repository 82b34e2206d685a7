# SPDX-License-Identifier: Apache-2.0
"""A ClusterQueue with its state.

Owns what belongs to a queue by name: its value, its node in the tree, its pending and reserved workloads, and its
resource groups resolved to the tree's cells. Exists from the first reference to the name, with or without the object.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from multikueue.engine.cache.reserved_workloads import ReservedWorkloads
from multikueue.engine.cache.tree import Cell, QuotaNode
from multikueue.engine.queue.queue import Queue
from multikueue.engine.resources import PODS, FlavorResource
from multikueue.engine.values import ClusterQueue

_WEIGHT: Final = 0.1  # of one workload in the average


class Option(NamedTuple):
    """One flavor of a resource group, with the cell of each covered resource."""

    flavor: str
    cells: dict[str, Cell]


class Group(NamedTuple):
    """A resource group."""

    covered: frozenset[str]
    options: tuple[Option, ...]


class CachedClusterQueue:
    """A ClusterQueue with its state; `value` is None without an object."""

    __slots__ = (
        "active",
        "covers_pods",
        "flavors",
        "group_of",
        "groups",
        "mean_run",
        "name",
        "node",
        "queue",
        "reserved",
        "value",
    )

    def __init__(self, name: str, node: QuotaNode) -> None:
        self.name = name
        self.node = node
        self.queue = Queue(name)
        self.reserved = ReservedWorkloads()
        self.value: ClusterQueue | None = None
        self.active = False
        """Whether it is evaluated, and its workloads may be preempted (`docs/spec/engine.md §2.9`)."""
        self.groups: tuple[Group, ...] = ()
        self.group_of: dict[str, Group] = {}
        self.covers_pods = False
        self.flavors: tuple[str, ...] = ()
        self.mean_run: float | None = None
        """How long workloads that ended held quota, in seconds: an average in which later ones count for more."""

    def note_end(self, seconds: float) -> None:
        """A workload ended that held quota for so long."""
        self.mean_run = seconds if self.mean_run is None else self.mean_run + _WEIGHT * (seconds - self.mean_run)

    def resolve(self, value: ClusterQueue | None) -> None:
        """Adopt a new value, whose quotas the tree already has."""
        self.value = value
        groups = []
        group_of: dict[str, Group] = {}
        for group in value.resource_groups if value is not None else ():
            # A resource belongs to the first group that covers it; the webhook refuses a second one.
            covered = [name for name in group.covered if name not in group_of]
            options = tuple(
                Option(
                    flavor.name,
                    {name: self.node.cell(FlavorResource(flavor.name, name)) for name in covered},
                )
                for flavor in group.flavors
            )
            groups.append(Group(frozenset(covered), options))
            group_of.update(dict.fromkeys(covered, groups[-1]))
        self.groups = tuple(groups)
        self.group_of = group_of
        self.covers_pods = PODS in self.group_of
        self.flavors = tuple(option.flavor for group in groups for option in group.options)

    @property
    def in_use(self) -> bool:
        """Whether the queue has an object or workloads."""
        return self.value is not None or bool(self.reserved.records) or bool(self.queue.entries)
