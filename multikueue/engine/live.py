# SPDX-License-Identifier: Apache-2.0
"""One ClusterQueue in operation.

Owns what belongs to a queue by name: its value, its node in the tree, what waits, what holds quota, and its resource
groups resolved to the tree's cells. Lives from the first mention of the name, before and after its object does.
"""

from __future__ import annotations

from typing import NamedTuple

from multikueue.engine.queue import Queue
from multikueue.engine.resources import PODS, FlavorResource
from multikueue.engine.standing import Standing
from multikueue.engine.tree import Cell, Node
from multikueue.engine.values import ClusterQueue


class Option(NamedTuple):
    """One flavor of a resource group, with the cell of each covered resource."""

    flavor: str
    cells: dict[str, Cell]


class Group(NamedTuple):
    """A resource group."""

    covered: frozenset[str]
    options: tuple[Option, ...]


class LiveQueue:
    """A ClusterQueue with its state; `value` is None without an object."""

    __slots__ = ("covers_pods", "flavors", "group_of", "groups", "name", "node", "queue", "standing", "value")

    def __init__(self, name: str, node: Node) -> None:
        self.name = name
        self.node = node
        self.queue = Queue(name)
        self.standing = Standing()
        self.value: ClusterQueue | None = None
        self.groups: tuple[Group, ...] = ()
        self.group_of: dict[str, Group] = {}
        self.covers_pods = False
        self.flavors: tuple[str, ...] = ()

    def resolve(self, value: ClusterQueue | None) -> None:
        """Take on a new value, whose quotas the tree has already."""
        self.value = value
        groups = []
        for group in value.resource_groups if value is not None else ():
            options = tuple(
                Option(
                    flavor.name,
                    {name: self.node.cell(FlavorResource(flavor.name, name)) for name in group.covered},
                )
                for flavor in group.flavors
            )
            groups.append(Group(frozenset(group.covered), options))
        self.groups = tuple(groups)
        self.group_of = {name: group for group in groups for name in sorted(group.covered)}
        self.covers_pods = PODS in self.group_of
        self.flavors = tuple(option.flavor for group in groups for option in group.options)

    @property
    def in_use(self) -> bool:
        """Whether anything still refers to the queue."""
        return self.value is not None or bool(self.standing.records) or bool(self.queue.entries)
