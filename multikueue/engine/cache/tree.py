# SPDX-License-Identifier: Apache-2.0
"""The tree of cohorts and queues, and the quota in it (`docs/spec/engine.md §2.5`).

Owns the nodes, their edges, cohorts that exist only because others name them, cycles, depth, heights, and for each node
and flavor resource one `Cell` with what is static between edits. An edit costs at most the part of its tree that is not
cut off. Cells keep their identity as long as their node exists, so that reservations may hold them. Usage is changed by
`engine.cache.quota`.

A tree has at most `MAX_LEVELS` levels of cohorts. Cohorts below those, cohorts of a cycle, and everything below either,
are cut off: each is isolated, its queues admit nothing, and the rest of the tree ignores it. Everything below a node
that is cut off is cut off too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from multikueue.engine.resources import UNLIMITED, FlavorResource, add, clamp, subtract
from multikueue.engine.values import ClusterQueue, Cohort, Quota, ResourceGroup

MAX_LEVELS: Final = 64
_NOTHING: Final = Quota()


class Cell:
    """One flavor resource at one node.

    `quota` is the SubtreeQuota, `local` the part of it that the parent does not see, `ceiling` the most that may be
    used beyond `local` (None without a borrowing limit), `potential` the most that could be had if nothing were used.
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

    def __init__(self, node: QuotaNode, key: FlavorResource) -> None:
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


class QuotaNode:
    """A queue or a cohort."""

    __slots__ = (
        "cells",
        "cohorts",
        "cut_off",
        "exists",
        "generation",
        "height",
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
        self.parent: QuotaNode | None = None
        self.cohorts: dict[str, QuotaNode] = {}
        self.queues: dict[str, QuotaNode] = {}
        self.quotas: dict[FlavorResource, Quota] = {}
        self.weight = 1.0
        self.height = 0
        self.generation = 0
        self.cut_off = False
        self.cells: dict[FlavorResource, Cell] = {}
        self.lendable: dict[str, int] | None = None

    def __repr__(self) -> str:
        return f"Node({self.name})"

    def cell(self, key: FlavorResource) -> Cell:
        """The cell of a flavor resource; created with those of the ancestors if there is no quota here."""
        cell = self.cells.get(key)
        if cell is not None:
            return cell
        missing = [self]
        above: Cell | None = None
        for node in self.ancestors():
            above = node.cells.get(key)
            if above is not None:
                break
            missing.append(node)
        for node in reversed(missing):
            cell = node.cells[key] = Cell(node, key)
            cell.parent = above
            cell.potential = 0 if above is None else above.potential
            above = cell
        assert cell is not None
        return cell

    def root(self) -> QuotaNode:
        """The top of the tree; the node itself if it has no cohort or is cut off."""
        node = self
        while node.parent is not None and not node.cut_off:
            node = node.parent
        return node

    def ancestors(self) -> Iterator[QuotaNode]:
        """The cohorts above, lowest first; none if the node is cut off."""
        node = None if self.cut_off else self.parent
        while node is not None:
            yield node
            node = node.parent

    def children(self) -> Iterator[QuotaNode]:
        """The cohorts and queues directly below that are not cut off."""
        for child in chain(self.cohorts.values(), self.queues.values()):
            if not child.cut_off:
                yield child

    def all_queues(self) -> Iterator[QuotaNode]:
        """The queues below that are not cut off, or the queue itself."""
        if not self.is_cohort:
            yield self
            return
        stack = [self]
        while stack:
            for child in stack.pop().children():
                if child.is_cohort:
                    stack.append(child)
                else:
                    yield child

    def path(self) -> str:
        """The names from the root down, as messages print them."""
        names = [self.name, *(node.name for node in self.ancestors())]
        return "/" + "/".join(reversed(names))


def in_cycle(node: QuotaNode) -> bool:
    """Whether a cut-off node leads to a cycle of at most `MAX_LEVELS` cohorts; a longer one is too deep."""
    seen: set[int] = set()
    at: QuotaNode | None = node
    while at is not None and len(seen) <= 2 * MAX_LEVELS:
        if id(at) in seen:
            return True
        seen.add(id(at))
        at = at.parent
    return False


class Forest:
    """All trees. `moved` are the cohorts that were cut off or rejoined since the reader last emptied it."""

    def __init__(self) -> None:
        self.queues: dict[str, QuotaNode] = {}
        self.cohorts: dict[str, QuotaNode] = {}
        self.moved: set[str] = set()

    @classmethod
    def of(cls, queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort]) -> Forest:
        """A forest of all of these, built at once: each tree is settled once."""
        forest = cls()
        for cohort in cohorts:
            node = forest._cohort(cohort.name)
            forest._declare(node, parent=cohort.parent, groups=cohort.resource_groups, weight=cohort.weight)
        for queue in queues:
            node = forest.queue(queue.name)
            forest._declare(node, parent=queue.cohort, groups=queue.resource_groups, weight=queue.weight)
        settled: set[int] = set()
        for node in [*forest.cohorts.values(), *forest.queues.values()]:
            top = _top(node)
            if top is None:
                forest._cut_off(node)
            elif id(top) not in settled:
                settled.add(id(top))
                forest._settle_tree(top)
        return forest

    def queue(self, name: str) -> QuotaNode:
        """The node of a queue, whose object may not exist yet: reservations can be read before their queue."""
        node = self.queues.get(name)
        if node is None:
            node = self.queues[name] = QuotaNode(name, is_cohort=False)
        return node

    def set_queue(self, name: str, *, cohort: str, groups: Iterable[ResourceGroup], weight: float) -> None:
        """Create or change a queue."""
        self._set(self.queue(name), parent=cohort, groups=groups, weight=weight)

    def remove_queue(self, name: str) -> None:
        """Remove a queue from its tree; its node stays while reservations refer to it."""
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
        """Remove a Cohort object; the cohort stays while something names it."""
        node = self.cohorts.get(name)
        if node is not None:
            self._unset(node)

    def _cohort(self, name: str) -> QuotaNode:
        node = self.cohorts.get(name)
        if node is None:
            node = self.cohorts[name] = QuotaNode(name, is_cohort=True)
        return node

    def _set(self, node: QuotaNode, *, parent: str, groups: Iterable[ResourceGroup], weight: float) -> None:
        old = node.parent
        self._declare(node, parent=parent, groups=groups, weight=weight)
        self._rebuild(node, old)

    def _declare(self, node: QuotaNode, *, parent: str, groups: Iterable[ResourceGroup], weight: float) -> None:
        """Set quota and parent; derived values are settled later."""
        node.exists = True
        node.weight = weight
        node.quotas = {}
        covered: set[str] = set()
        for group in groups:
            for flavor in group.flavors:
                for resource, quota in flavor.quotas.items():
                    if resource not in covered:
                        node.quotas.setdefault(FlavorResource(flavor.name, resource), quota)
            covered.update(group.covered)
        if not node.is_cohort:
            for key in [key for key, cell in node.cells.items() if key not in node.quotas and not cell.usage]:
                del node.cells[key]
        self._move(node, parent)

    def _unset(self, node: QuotaNode) -> None:
        old = node.parent
        node.exists = False
        node.weight = 1.0
        node.quotas = {}
        self._move(node, "")
        self._rebuild(node, old)

    def _move(self, node: QuotaNode, parent: str) -> None:
        if node.parent is not None:
            (node.parent.cohorts if node.is_cohort else node.parent.queues).pop(node.name, None)
        node.parent_name = parent
        node.parent = self._cohort(parent) if parent else None
        if node.parent is not None:
            (node.parent.cohorts if node.is_cohort else node.parent.queues)[node.name] = node

    def _rebuild(self, node: QuotaNode, former_parent: QuotaNode | None) -> None:
        done: QuotaNode | None = None
        for start in (former_parent, node):
            if start is None:
                continue
            top = _top(start)
            if top is None:
                self._cut_off(start)
            elif top is not done:
                self._settle_tree(top)
                done = top
        # A cohort without an object that nothing names any more is removed, and perhaps its parent too.
        for start in (former_parent, node):
            while start is not None and start.is_cohort and not (start.exists or start.cohorts or start.queues):
                parent = start.parent
                self._move(start, "")
                self.cohorts.pop(start.name, None)
                start = parent

    def _settle_tree(self, top: QuotaNode) -> None:
        members = self._members(top)
        for node in members:
            node.lendable = None
            if not node.is_cohort:
                node.generation += 1
        for node in reversed(members):
            _settle(node)
        for node in members:
            _descend(node)

    def _members(self, top: QuotaNode) -> list[QuotaNode]:
        """`top` and the nodes below it within the levels, parents first; deeper ones are cut off."""
        self._join(top)
        members = [top]
        level = [top] if top.is_cohort else []
        for number in range(1, MAX_LEVELS + 1):
            below: list[QuotaNode] = []
            for cohort in level:
                for queue in cohort.queues.values():
                    self._join(queue)
                    members.append(queue)
                below.extend(cohort.cohorts.values())
            for cohort in below:
                if number < MAX_LEVELS:
                    self._join(cohort)
                    members.append(cohort)
                elif not cohort.cut_off:
                    self._cut_off(cohort)
            level = below
            if not level:
                break
        return members

    def _join(self, node: QuotaNode) -> None:
        if node.cut_off:
            node.cut_off = False
            if node.is_cohort:
                self.moved.add(node.name)

    def _cut_off(self, top: QuotaNode) -> None:
        """Isolate a node, and everything below it that is not cut off yet."""
        stack = [top]
        while stack:
            node = stack.pop()
            if not node.cut_off:
                node.cut_off = True
                if node.is_cohort:
                    self.moved.add(node.name)
            stack.extend(node.children())
            if not node.is_cohort:
                node.generation += 1
            node.lendable = None
            _alone(node)


def _top(node: QuotaNode) -> QuotaNode | None:
    """The root above `node`; None if there are too many levels, as in a cycle."""
    levels = 1 if node.is_cohort else 0
    while node.parent is not None:
        node = node.parent
        levels += 1
        if levels > MAX_LEVELS:
            return None
    return node


def _alone(node: QuotaNode) -> None:
    """Settle a node that is cut off: a queue's usage is still counted, nothing is lent."""
    node.height = 0
    for key in node.quotas:
        node.cell(key)
    for key, cell in node.cells.items():
        if node.is_cohort:
            cell.usage = 0
        cell.local = 0
        cell.ceiling = None
        _own_quota(cell, node.quotas.get(key))
        cell.parent = None
        cell.potential = cell.quota


def _own_quota(cell: Cell, quota: Quota | None) -> None:
    cell.declared = quota is not None
    quota = quota or _NOTHING
    cell.nominal = cell.quota = quota.nominal
    cell.borrowing_limit = quota.borrowing_limit


def _settle(node: QuotaNode) -> None:
    """Subtree quota and usage of a node whose children are settled."""
    cells = node.cells
    children = list(node.children())
    if node.is_cohort:
        height = 1 if children else 0
        for child in children:
            if child.height >= height and child.is_cohort:
                height = child.height + 1
        node.height = height
    if not cells and not node.quotas and not any(child.cells for child in children):
        return
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


def _descend(node: QuotaNode) -> None:
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
    """Whether an amount computed from cells means Unlimited."""
    return value > UNLIMITED >> 1
