# SPDX-License-Identifier: Apache-2.0
"""The tree of cohorts and queues, and the quota in it (`docs/spec/engine.md §2.5`).

Owns the nodes, their edges, cohorts that exist only by being named, cycles, heights, and for each node and flavor
resource one `Cell` with what is static between edits. Promises that an edit costs what its tree costs, and that cells
keep their identity as long as their node lives, so that reservations may hold them. Usage moves in `engine.quota`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from multikueue.engine.resources import UNLIMITED, FlavorResource, add, clamp, subtract
from multikueue.engine.values import Quota, ResourceGroup

_NOTHING: Final = Quota()


class Cell:
    """One flavor resource at one node.

    `quota` is the SubtreeQuota, `local` the part of it that the parent never sees, `ceiling` what may be used beyond
    `local` at most (None without a borrowing limit), `potential` what could be had if nothing were used.
    """

    __slots__ = (
        "borrowing_limit",
        "ceiling",
        "declared",
        "key",
        "local",
        "node",
        "nominal",
        "parent",
        "potential",
        "quota",
        "usage",
    )

    def __init__(self, node: Node, key: FlavorResource) -> None:
        self.node = node
        self.key = key
        self.parent: Cell | None = None
        self.nominal = 0
        self.borrowing_limit: int | None = None
        self.quota = 0
        self.local = 0
        self.ceiling: int | None = None
        self.potential = 0
        self.usage = 0
        self.declared = False

    def __repr__(self) -> str:
        return f"Cell({self.node.name} {self.key}: {self.usage} of {self.quota})"


class Node:
    """A queue or a cohort."""

    __slots__ = (
        "cells",
        "cohorts",
        "exists",
        "generation",
        "height",
        "in_cycle",
        "is_cohort",
        "lendable",
        "name",
        "parent",
        "parent_name",
        "queues",
        "quotas",
        "weight",
    )

    def __init__(self, name: str, *, is_cohort: bool) -> None:
        self.name = name
        self.is_cohort = is_cohort
        self.exists = False
        self.parent_name = ""
        self.parent: Node | None = None
        self.cohorts: dict[str, Node] = {}
        self.queues: dict[str, Node] = {}
        self.quotas: dict[FlavorResource, Quota] = {}
        self.weight = 1.0
        self.height = 0
        self.generation = 0
        self.in_cycle = False
        self.cells: dict[FlavorResource, Cell] = {}
        self.lendable: dict[str, int] | None = None

    def __repr__(self) -> str:
        return f"Node({self.name})"

    def cell(self, key: FlavorResource) -> Cell:
        """The cell of a flavor resource; one that has no quota here comes into being with its ancestors'."""
        cell = self.cells.get(key)
        if cell is None:
            cell = self.cells[key] = Cell(self, key)
            if self.parent is not None and not self.in_cycle:
                cell.parent = self.parent.cell(key)
                cell.potential = cell.parent.potential
        return cell

    def root(self) -> Node:
        """The top of the tree; the node itself without a cohort or under a cycle."""
        node = self
        while node.parent is not None and not node.in_cycle:
            node = node.parent
        return node

    def ancestors(self) -> Iterator[Node]:
        """The cohorts above, lowest first; none under a cycle."""
        node = None if self.in_cycle else self.parent
        while node is not None:
            yield node
            node = node.parent

    def all_queues(self) -> Iterator[Node]:
        """The queues below, or the queue itself."""
        if not self.is_cohort:
            yield self
            return
        stack = [self]
        while stack:
            node = stack.pop()
            yield from node.queues.values()
            stack.extend(node.cohorts.values())

    def path(self) -> str:
        """The names from the root down, as messages print them."""
        names = [self.name, *(node.name for node in self.ancestors())]
        return "/" + "/".join(reversed(names))


class Forest:
    """All trees."""

    def __init__(self) -> None:
        self.queues: dict[str, Node] = {}
        self.cohorts: dict[str, Node] = {}

    def queue(self, name: str) -> Node:
        """The node of a queue, which may not exist yet: reservations can be read before their queue."""
        node = self.queues.get(name)
        if node is None:
            node = self.queues[name] = Node(name, is_cohort=False)
        return node

    def set_queue(self, name: str, *, cohort: str, groups: Iterable[ResourceGroup], weight: float) -> None:
        """Create or change a queue."""
        self._set(self.queue(name), parent=cohort, groups=groups, weight=weight)

    def remove_queue(self, name: str) -> None:
        """Take a queue out of its tree; its node stays while reservations name it."""
        node = self.queues.get(name)
        if node is None:
            return
        self._unset(node)
        if not any(cell.usage for cell in node.cells.values()):
            del self.queues[name]

    def set_cohort(self, name: str, *, parent: str, groups: Iterable[ResourceGroup], weight: float) -> None:
        """Create or change a cohort."""
        self._set(self._cohort(name), parent=parent, groups=groups, weight=weight)

    def remove_cohort(self, name: str) -> None:
        """Forget a Cohort object; the cohort itself stays while something names it."""
        node = self.cohorts.get(name)
        if node is not None:
            self._unset(node)

    def _cohort(self, name: str) -> Node:
        node = self.cohorts.get(name)
        if node is None:
            node = self.cohorts[name] = Node(name, is_cohort=True)
        return node

    def _set(self, node: Node, *, parent: str, groups: Iterable[ResourceGroup], weight: float) -> None:
        old = node.parent
        node.exists = True
        node.weight = weight
        node.quotas = {
            FlavorResource(flavor.name, resource): quota
            for group in groups
            for flavor in group.flavors
            for resource, quota in flavor.quotas.items()
        }
        if not node.is_cohort:
            for key in [key for key, cell in node.cells.items() if key not in node.quotas and not cell.usage]:
                del node.cells[key]
        self._move(node, parent)
        self._rebuild(node, old)

    def _unset(self, node: Node) -> None:
        old = node.parent
        node.exists = False
        node.weight = 1.0
        node.quotas = {}
        self._move(node, "")
        self._rebuild(node, old)

    def _move(self, node: Node, parent: str) -> None:
        if node.parent is not None:
            (node.parent.cohorts if node.is_cohort else node.parent.queues).pop(node.name, None)
        node.parent_name = parent
        node.parent = self._cohort(parent) if parent else None
        if node.parent is not None:
            (node.parent.cohorts if node.is_cohort else node.parent.queues)[node.name] = node

    def _rebuild(self, node: Node, former_parent: Node | None) -> None:
        done: set[int] = set()
        for start in (former_parent, node):
            if start is None:
                continue
            top = _top(start)
            if id(top) in done:
                continue
            members = _members(top)
            done.update(map(id, members))
            self._rebuild_members(top, members)
        # A cohort that nothing names any more and that has no object is gone, and perhaps its parent with it.
        for start in (former_parent, node):
            while start is not None and start.is_cohort and not (start.exists or start.cohorts or start.queues):
                parent = start.parent
                self._move(start, "")
                self.cohorts.pop(start.name, None)
                start = parent

    def _rebuild_members(self, top: Node, members: list[Node]) -> None:
        cyclic = top.parent is not None
        for node in members:
            node.in_cycle = cyclic
            node.lendable = None
            if not node.is_cohort:
                node.generation += 1
        if cyclic:
            for node in members:
                _alone(node)
            return
        for node in reversed(members):
            _settle(node)
        for node in members:
            _descend(node)


def _top(node: Node) -> Node:
    """The root above `node`; of a chain that ends in a cycle, some cohort of the cycle."""
    seen = {id(node)}
    while node.parent is not None:
        node = node.parent
        if id(node) in seen:
            return node
        seen.add(id(node))
    return node


def _members(top: Node) -> list[Node]:
    """`top` and everything below it, parents before children."""
    members = [top]
    seen = {id(top)}
    for node in members:
        for child in (*node.cohorts.values(), *node.queues.values()):
            if id(child) not in seen:
                seen.add(id(child))
                members.append(child)
    return members


def _alone(node: Node) -> None:
    """Under a cycle each node stands alone: usage goes on being counted, and nothing is lent."""
    node.height = 0
    for key in node.quotas:
        node.cell(key)
    for key, cell in node.cells.items():
        _own_quota(cell, node.quotas.get(key))
        cell.parent = None
        cell.potential = cell.quota


def _own_quota(cell: Cell, quota: Quota | None) -> None:
    cell.declared = quota is not None
    quota = quota or _NOTHING
    cell.nominal = cell.quota = quota.nominal
    cell.borrowing_limit = quota.borrowing_limit


def _settle(node: Node) -> None:
    """Subtree quota and usage of a node whose children are settled."""
    cells = node.cells
    children = [*node.cohorts.values(), *node.queues.values()] if node.is_cohort else []
    if node.is_cohort:
        node.height = max((child.height + 1 for child in node.cohorts.values()), default=0)
        if children:
            node.height = max(1, node.height)
    wanted = {key for child in children for key in child.cells} | node.quotas.keys()
    if node.is_cohort:
        for key in [key for key in cells if key not in wanted]:
            del cells[key]
    for key in wanted:
        if key not in cells:
            cells[key] = Cell(node, key)
    for key, cell in cells.items():
        _own_quota(cell, node.quotas.get(key))
        if node.is_cohort:
            cell.usage = 0
    for child in children:
        for key, below in child.cells.items():
            cell = cells[key]
            cell.quota = add(cell.quota, subtract(below.quota, below.local))
            cell.usage = clamp(cell.usage + max(0, below.usage - below.local))
            cell.declared = cell.declared or below.declared
    for key, cell in cells.items():
        limit = node.quotas.get(key, _NOTHING).lending_limit
        cell.local = 0 if limit is None else max(0, subtract(cell.quota, limit))
        borrow = cell.borrowing_limit
        cell.ceiling = None if borrow is None else add(subtract(cell.quota, cell.local), borrow)


def _descend(node: Node) -> None:
    """What depends on the parent: the link up and the potential."""
    parents: Mapping[FlavorResource, Cell] = node.parent.cells if node.parent is not None else {}
    for key, cell in node.cells.items():
        parent = cell.parent = parents.get(key)
        if parent is None:
            cell.potential = cell.quota
            continue
        cell.potential = add(cell.local, parent.potential)
        if cell.borrowing_limit is not None:
            cell.potential = min(cell.potential, add(cell.quota, cell.borrowing_limit))


def is_unlimited(value: int) -> bool:
    """Whether an amount computed from cells stands for Unlimited."""
    return value > UNLIMITED >> 1
