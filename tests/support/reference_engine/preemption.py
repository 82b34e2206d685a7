# SPDX-License-Identifier: Apache-2.0
"""Whom the model has evicted (`docs/spec/engine.md §4`)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cmp_to_key

from multikueue.api.reasons import PreemptedReason
from multikueue.core.keys import Key
from multikueue.engine.queue.pending import queue_timestamp
from multikueue.engine.resources import FlavorResource
from multikueue.engine.settings import FairStrategy, Settings
from multikueue.engine.values import ClusterQueue
from tests.support.reference_engine.records import Item, Target
from tests.support.reference_engine.tree import Node, Tree, Use

FlavorResources = Collection[FlavorResource]
Rank = tuple[bool, bool, int, float, int, str]


class Preemption:
    """The part of the model that searches for victims."""

    settings: Settings
    queues: dict[str, ClusterQueue]
    items: dict[Key, Item]

    def search(
        self, tree: Tree, queue: str, item: Item, requested: Use, contested: FlavorResources, gone: Collection[Key]
    ) -> list[Target]:
        tree = tree.copy()
        return (self._fair if self.settings.fair_sharing else self._classical)(
            tree, queue, item, requested, contested, set(gone)
        )

    def _candidates(self, queue: str, frs: FlavorResources, gone: Collection[Key]) -> list[Item]:
        return [
            other
            for key, other in self.items.items()
            if other.held is not None
            and other.held.queue == queue
            and key not in gone
            and any(fr in other.held.usage for fr in frs)
        ]

    def _allows(self, policy: str, item: Item, other: Item) -> bool:
        mine, theirs = item.value.priority, other.value.priority
        if policy == "Any":
            return True
        if policy == "LowerPriority":
            return mine > theirs
        if policy == "LowerOrNewerEqualPriority":
            newer = queue_timestamp(item.value, self.settings) < queue_timestamp(other.value, self.settings)
            return mine > theirs or (mine == theirs and newer)
        return False

    def _before(self, queue: str) -> Callable[[Item], Rank]:
        """Comparison of candidates, §4.2."""

        def key(other: Item) -> Rank:
            held = other.reservation
            return (
                not held.evicted,
                held.queue == queue,
                other.value.priority,
                -held.since.timestamp(),
                -held.number,
                other.value.uid,
            )

        return key

    def _classical(
        self, tree: Tree, queue: str, item: Item, requested: Use, contested: FlavorResources, gone: Collection[Key]
    ) -> list[Target]:
        node = ("q", queue)
        policy = self.queues[queue].preemption
        own = [
            o for o in self._candidates(queue, contested, gone) if self._allows(policy.within_cluster_queue, item, o)
        ]
        hierarchy: list[Item] = []
        priority: list[Item] = []
        if tree.parent(node) is not None and policy.reclaim_within_cohort != "Never":
            advantage = all(tree.used(node, fr) + v <= tree.subtree(node, fr) for fr, v in requested.items())
            rest = {fr: max(0, v - max(0, tree.local(node, fr) - tree.used(node, fr))) for fr, v in requested.items()}
            last = node
            for ancestor in tree.chain(node)[1:]:
                for other in self._below(tree, ancestor, last, contested):
                    for candidate in self._candidates(other, contested, gone):
                        if self._allows(policy.reclaim_within_cohort, item, candidate):
                            (hierarchy if advantage else priority).append(candidate)
                advantage = advantage or all(
                    tree.used(ancestor, fr) + v <= tree.subtree(ancestor, fr) for fr, v in rest.items()
                )
                rest = {
                    fr: max(0, v - max(0, tree.local(ancestor, fr) - tree.used(ancestor, fr))) for fr, v in rest.items()
                }
                last = ancestor
        borrow = policy.borrow_within_cohort or "Never"
        forbidden = borrow == "Never"

        def variant(candidate: Item) -> str:
            if candidate.reservation.queue == queue:
                return "own"
            if candidate in hierarchy:
                return "hierarchy"
            threshold = policy.max_priority_threshold
            high = threshold is not None and candidate.value.priority > threshold
            if forbidden or candidate.value.priority >= item.value.priority or high:
                return "reclaim"
            return "borrowing"

        under = all(tree.used(node, fr) < tree.quota(node, fr).nominal for fr in contested)
        if not (hierarchy or priority) or (forbidden and not under):
            attempts = [True]
        elif forbidden and not hierarchy:
            attempts = [False, True]
        else:
            attempts = [True, False]
        order = self._before(queue)
        sequence = [
            candidate
            for evicted in (True, False)
            for group in (hierarchy, priority, own)
            for candidate in sorted((c for c in group if c.reservation.evicted == evicted), key=order)
        ]
        reasons = {
            "own": PreemptedReason.IN_CLUSTER_QUEUE,
            "hierarchy": PreemptedReason.IN_COHORT_RECLAMATION,
            "reclaim": PreemptedReason.IN_COHORT_RECLAMATION,
            "borrowing": PreemptedReason.IN_COHORT_RECLAIM_WHILE_BORROWING,
        }
        for borrowing in attempts:
            state = tree.copy()
            targets: list[Target] = []
            for candidate in sequence:
                kind = variant(candidate)
                if kind != "own":
                    if borrowing and kind == "reclaim":
                        continue
                    path = self._to_common(state, candidate.reservation.queue, node)
                    if any(state.within(part, contested) for part in path):
                        continue
                state.take_all(candidate.reservation.queue, candidate.reservation.usage)
                targets.append(Target(candidate, reasons[kind]))
                if self._free_slots(state, queue, requested, borrowing=borrowing):
                    return self._fill_back(state, queue, requested, targets, borrowing=borrowing)
        return []

    def _below(self, tree: Tree, cohort: Node, last: Node, contested: FlavorResources) -> list[str]:
        found: list[str] = []
        for child in tree.children[cohort]:
            if child == last or tree.within(child, contested):
                continue
            found.extend([child[1]] if child[0] == "q" else self._below(tree, child, last, contested))
        return found

    def _to_common(self, tree: Tree, other: str, node: Node) -> list[Node]:
        mine = tree.chain(node)
        return [part for part in tree.chain(("q", other)) if part not in mine]

    def _free_slots(self, tree: Tree, queue: str, requested: Use, *, borrowing: bool) -> bool:
        node = ("q", queue)
        for fr, value in requested.items():
            if value > max(0, tree.available(node, fr)):
                return False
            if not borrowing and tree.used(node, fr) + value > tree.quota(node, fr).nominal:
                return False
        return True

    def _fill_back(
        self, tree: Tree, queue: str, requested: Use, targets: list[Target], *, borrowing: bool
    ) -> list[Target]:
        for position in range(len(targets) - 2, -1, -1):
            held = targets[position].item.reservation
            tree.put_all(held.queue, held.usage)
            if self._free_slots(tree, queue, requested, borrowing=borrowing):
                targets[position] = targets[-1]
                targets.pop()
            else:
                tree.take_all(held.queue, held.usage)
        return targets

    def _fair(
        self, tree: Tree, queue: str, item: Item, requested: Use, contested: FlavorResources, gone: Collection[Key]
    ) -> list[Target]:
        node = ("q", queue)
        policy = self.queues[queue].preemption
        found = [
            o for o in self._candidates(queue, contested, gone) if self._allows(policy.within_cluster_queue, item, o)
        ]
        if tree.parent(node) is not None and policy.reclaim_within_cohort != "Never":
            for other in tree.below(tree.root(node)):
                if other == node or all(tree.used(other, fr) <= tree.quota(other, fr).nominal for fr in contested):
                    continue
                found.extend(
                    c
                    for c in self._candidates(other[1], contested, gone)
                    if self._allows(policy.reclaim_within_cohort, item, c)
                )
        found.sort(key=self._before(queue))
        targets: list[Target] = []
        tree.put_all(queue, requested)
        frs = list(contested)
        within = all(tree.used(node, fr) <= tree.quota(node, fr).nominal for fr in frs)

        def fits() -> bool:
            what_if = tree.copy()
            what_if.take_all(queue, requested)
            return self._free_slots(what_if, queue, requested, borrowing=True)

        def remove(candidate: Item, reason: PreemptedReason) -> bool:
            left[candidate.reservation.queue].remove(candidate)
            tree.take_all(candidate.reservation.queue, candidate.reservation.usage)
            targets.append(Target(candidate, reason))
            return fits()

        def done() -> list[Target]:
            tree.take_all(queue, requested)
            return self._fill_back(tree, queue, requested, targets, borrowing=True)

        left: dict[str, list[Item]] = {}
        for candidate in found:
            left.setdefault(candidate.reservation.queue, []).append(candidate)
        strategies = self.settings.fair_strategies
        pruned: set[Node] = set()
        retry: list[Item] = []
        if tree.parent(node) is None:
            for candidate in list(left.get(queue, [])):
                if remove(candidate, PreemptedReason.IN_CLUSTER_QUEUE):
                    return done()
            return []
        while (chosen := self._next(tree, node, left, pruned)) is not None:
            candidates = left[chosen[1]]
            if chosen == node:
                if remove(candidates[0], PreemptedReason.IN_CLUSTER_QUEUE):
                    return done()
            elif within:
                if remove(candidates[0], PreemptedReason.IN_COHORT_RECLAMATION):
                    return done()
            else:
                mine, theirs = self._sides(tree, node, chosen)
                new, old = tree.share(mine), tree.share(theirs)
                for candidate in list(candidates):
                    what_if = tree.copy()
                    what_if.take_all(candidate.reservation.queue, candidate.reservation.usage)
                    if strategies[0] is FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE:
                        passes = new <= what_if.share(theirs)
                    else:
                        passes = new < old
                    if new[0] and not old[0]:
                        passes = False
                    if passes:
                        if remove(candidate, PreemptedReason.IN_COHORT_FAIR_SHARING):
                            return done()
                        break
                    candidates.remove(candidate)
                    retry.append(candidate)
        if len(strategies) < 2:
            return []
        left = {}
        for candidate in retry:
            left.setdefault(candidate.reservation.queue, []).append(candidate)
        pruned = set()
        while (chosen := self._next(tree, node, left, pruned)) is not None:
            mine, theirs = self._sides(tree, node, chosen)
            candidate = left[chosen[1]][0]
            passes = tree.share(mine) < tree.share(theirs)
            fitting = passes and remove(candidate, PreemptedReason.IN_COHORT_FAIR_SHARING)
            left[chosen[1]] = []
            if fitting:
                return done()
        return []

    def _next(self, tree: Tree, node: Node, left: dict[str, list[Item]], pruned: set[Node]) -> Node | None:
        root = tree.root(node)
        line = tree.chain(node)

        def descend(cohort: Node) -> Node | None:
            queues: list[Node] = []
            cohorts: list[Node] = []
            for child in tree.children[cohort]:
                if child in pruned:
                    continue
                if child[0] == "q":
                    if not left.get(child[1]) or (child != node and not tree.borrows(child)):
                        pruned.add(child)
                    else:
                        queues.append(child)
                elif child not in line and not tree.borrows(child):
                    pruned.add(child)
                else:
                    cohorts.append(child)
            if not queues and not cohorts:
                pruned.add(cohort)
                return None
            order = self._before(node[1])

            def compare(a: Node, b: Node) -> int:
                if tree.share(a) != tree.share(b):
                    return -1 if tree.share(a) > tree.share(b) else 1
                return -1 if order(left[a[1]][0]) < order(left[b[1]][0]) else 1

            queue = min(queues, key=cmp_to_key(compare), default=None)
            below = min(cohorts, key=lambda c: (-tree.share(c)[0], -tree.share(c)[1], c[1]), default=None)
            if below is None:
                return queue
            if queue is None or tree.share(below) >= tree.share(queue):
                return descend(below)
            return queue

        while root not in pruned:
            chosen = descend(root)
            if chosen is not None:
                return chosen
        return None

    def _sides(self, tree: Tree, node: Node, other: Node) -> tuple[Node, Node]:
        mine, theirs = tree.chain(node), tree.chain(other)
        common = next(part for part in mine if part in theirs)
        return mine[mine.index(common) - 1], theirs[theirs.index(common) - 1]
