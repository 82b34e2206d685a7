# SPDX-License-Identifier: Apache-2.0
"""Quota and usage of all nodes, by the formulas of `docs/spec/engine.md §2.5` to §2.7."""

from __future__ import annotations

from collections.abc import Iterable

from multikueue.engine import resources
from multikueue.engine.resources import FlavorResource, add, subtract
from multikueue.engine.values import ClusterQueue, Cohort, Quota, ResourceGroup

Use = dict[FlavorResource, int]
Node = tuple[str, str]
"""("q", name) is a queue, ("c", name) a cohort."""


class Tree:
    """Quota and usage of all nodes; `usage` is a plain dictionary, so that copies are cheap to make and to forget."""

    def __init__(self, queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort]) -> None:
        self.quotas: dict[Node, dict[FlavorResource, Quota]] = {}
        self.parents: dict[Node, Node | None] = {}
        self.weights: dict[Node, float] = {}
        self.usage: dict[tuple[Node, FlavorResource], int] = {}
        for cohort in cohorts:
            self._add(("c", cohort.name), cohort.parent, cohort.resource_groups, cohort.weight)
        for queue in queues:
            self._add(("q", queue.name), queue.cohort, queue.resource_groups, queue.weight)
        for named in [parent for parent in self.parents.values() if parent is not None]:
            if named not in self.parents:
                self._add(named, "", (), 1.0)
        self.children: dict[Node, list[Node]] = {node: [] for node in self.parents}
        for node, parent in self.parents.items():
            if parent is not None:
                self.children[parent].append(node)
        self.frs = sorted({fr for quotas in self.quotas.values() for fr in quotas})
        self._memo: dict[tuple[str, Node, FlavorResource], int] = {}

    def _add(self, node: Node, parent: str, groups: Iterable[ResourceGroup], weight: float) -> None:
        self.parents[node] = ("c", parent) if parent else None
        self.weights[node] = weight
        self.quotas[node] = {
            FlavorResource(f.name, r): quota for g in groups for f in g.flavors for r, quota in f.quotas.items()
        }

    def copy(self) -> Tree:
        """The same quotas with separate usage."""
        other = object.__new__(Tree)
        other.__dict__.update(self.__dict__)
        other.usage = dict(self.usage)
        return other

    def chain(self, node: Node) -> list[Node]:
        """The node and its ancestors; ends early, with a flag, on a cycle."""
        found = [node]
        while (parent := self.parents[found[-1]]) is not None:
            if parent in found:
                return []
            found.append(parent)
        return found

    def cyclic(self, node: Node) -> bool:
        return not self.chain(node)

    def parent(self, node: Node) -> Node | None:
        return None if self.cyclic(node) else self.parents[node]

    def root(self, node: Node) -> Node:
        chain = self.chain(node)
        return chain[-1] if chain else node

    def below(self, node: Node) -> list[Node]:
        if node[0] == "q":
            return [node]
        return [queue for child in self.children[node] for queue in self.below(child)]

    def component(self, node: Node) -> set[Node]:
        """All nodes that are connected with a node, cycles included."""
        found: set[Node] = set()
        todo = [node]
        while todo:
            here = todo.pop()
            if here in found or here not in self.parents:
                continue
            found.add(here)
            todo.extend(self.children[here])
            if (parent := self.parents[here]) is not None:
                todo.append(parent)
        return found

    def quota(self, node: Node, fr: FlavorResource) -> Quota:
        return self.quotas[node].get(fr, Quota())

    def subtree(self, node: Node, fr: FlavorResource) -> int:
        key = ("subtree", node, fr)
        if key not in self._memo:
            total = self.quota(node, fr).nominal
            for child in self.children[node] if not self.cyclic(node) else ():
                total = add(total, subtract(self.subtree(child, fr), self.local(child, fr)))
            self._memo[key] = total
        return self._memo[key]

    def local(self, node: Node, fr: FlavorResource) -> int:
        limit = self.quota(node, fr).lending_limit
        if limit is None or self.cyclic(node):
            return 0
        return max(0, subtract(self.subtree(node, fr), limit))

    def potential(self, node: Node, fr: FlavorResource) -> int:
        key = ("potential", node, fr)
        if key not in self._memo:
            parent = self.parent(node)
            if parent is None:
                value = self.subtree(node, fr)
            else:
                value = add(self.local(node, fr), self.potential(parent, fr))
                limit = self.quota(node, fr).borrowing_limit
                if limit is not None:
                    value = min(value, add(self.subtree(node, fr), limit))
            self._memo[key] = value
        return self._memo[key]

    def used(self, node: Node, fr: FlavorResource) -> int:
        return self.usage.get((node, fr), 0)

    def put(self, node: Node, fr: FlavorResource, value: int) -> None:
        spill = value - max(0, self.local(node, fr) - self.used(node, fr))
        self.usage[node, fr] = self.used(node, fr) + value
        parent = self.parent(node)
        if parent is not None and spill > 0:
            self.put(parent, fr, spill)

    def take(self, node: Node, fr: FlavorResource, value: int) -> None:
        stored = self.used(node, fr) - self.local(node, fr)
        self.usage[node, fr] = self.used(node, fr) - value
        parent = self.parent(node)
        if parent is not None and stored > 0:
            self.take(parent, fr, min(value, stored))

    def put_all(self, queue: str, usage: Use) -> None:
        for fr, value in usage.items():
            self.put(("q", queue), fr, value)

    def take_all(self, queue: str, usage: Use) -> None:
        for fr, value in usage.items():
            self.take(("q", queue), fr, value)

    def available(self, node: Node, fr: FlavorResource) -> int:
        parent = self.parent(node)
        if parent is None:
            return self.subtree(node, fr) - self.used(node, fr)
        local, used = self.local(node, fr), self.used(node, fr)
        above = self.available(parent, fr)
        limit = self.quota(node, fr).borrowing_limit
        if limit is not None:
            above = min(add(subtract(self.subtree(node, fr), local), limit) - max(0, used - local), above)
        return max(0, local - used) + above

    def height(self, node: Node) -> int:
        cohorts = [child for child in self.children[node] if child[0] == "c"]
        if not self.children[node]:
            return 0
        return max(1, 1 + max((self.height(child) for child in cohorts), default=0))

    def level(self, queue: str, fr: FlavorResource, value: int) -> tuple[int, bool]:
        node = ("q", queue)
        parent = self.parent(node)
        if parent is None:
            return 0, False
        if self.used(node, fr) + value <= self.quota(node, fr).nominal:
            return 0, True
        rest = value - max(0, self.local(node, fr) - self.used(node, fr))
        for ancestor in self.chain(parent):
            if self.used(ancestor, fr) + rest <= self.subtree(ancestor, fr):
                return self.height(ancestor), self.parent(ancestor) is not None
            rest -= max(0, self.local(ancestor, fr) - self.used(ancestor, fr))
        return self.height(self.root(node)), False

    def within(self, node: Node, frs: Iterable[FlavorResource]) -> bool:
        return all(self.used(node, fr) <= self.subtree(node, fr) for fr in frs)

    def declared(self, node: Node) -> set[FlavorResource]:
        return set(self.quotas[node]).union(*(self.declared(child) for child in self.children[node]))

    def borrows(self, node: Node) -> bool:
        return self.parent(node) is not None and not self.within(node, self.declared(node))

    def share(self, node: Node) -> tuple[bool, float]:
        parent = self.parent(node)
        if parent is None:
            return False, 0.0
        borrowed: dict[str, int] = {}
        for fr in self.declared(node):
            excess = self.used(node, fr) - self.subtree(node, fr)
            if excess > 0:
                borrowed[fr.resource] = borrowed.get(fr.resource, 0) + excess
        ratio = 0.0
        for resource, excess in borrowed.items():
            lendable = 0
            for fr in self.declared(self.root(node)):
                if fr.resource == resource:
                    lendable = add(lendable, self.potential(parent, fr))
            lendable = min(lendable, resources.MAX_INT64)
            if lendable > 0:
                ratio = max(ratio, 1000 * excess / lendable)
        if ratio == 0:
            return False, 0.0
        return (True, ratio) if self.weights[node] == 0 else (False, ratio / self.weights[node])

    def path(self, queue: str) -> str:
        return "/" + "/".join(name for _, name in reversed(self.chain(("q", queue))))
