# SPDX-License-Identifier: Apache-2.0
"""The admission engine once more, slowly: the model that `multikueue.engine` is compared with.

Owns a second reading of `docs/spec/engine.md` §1 to §5 without any incremental state: every question is answered from
the list of workloads, every what-if works on a copy. Shares with the engine only its values, the counting of requests
and the words of messages. Knows local queues only where open, no admission fair sharing, no topology.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cmp_to_key

from multikueue.api.reasons import PreemptedReason, QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine import messages, resources
from multikueue.engine.decisions import Outcome
from multikueue.engine.eligibility import mismatch
from multikueue.engine.hashing import equivalence
from multikueue.engine.pending import backoff_expired, is_queueable, queue_timestamp, unparks
from multikueue.engine.requests import RequestCounter, reserved_usage, scaled
from multikueue.engine.resources import FlavorResource, add, subtract
from multikueue.engine.settings import FairStrategy, Settings
from multikueue.engine.values import ClusterQueue, Cohort, Flavor, LocalQueue, Namespace, Quota
from multikueue.engine.workloads import Workload

NO_FIT, NO_CANDIDATES, PREEMPT, RECLAIM, FIT = range(5)
NAMES = {
    0: QuotaReservedReason.TOPOLOGY_PLACEMENT_FAILED,
    1: QuotaReservedReason.WAITING_FOR_QUOTA,
    2: QuotaReservedReason.EXCEEDS_MAX_QUOTA,
    3: QuotaReservedReason.NO_MATCHING_FLAVOR,
}
Node = tuple[str, str]  # ("q", name) or ("c", name)
Use = dict[FlavorResource, int]


@dataclass
class Held:
    """A reservation."""

    queue: str
    usage: Use
    since: datetime
    number: int
    evicted: bool
    assumed: bool = True


@dataclass
class Item:
    """A workload and where it is."""

    value: Workload
    held: Held | None = None
    waits: bool = False
    parked: bool = False
    backing_off: bool = False
    tried: tuple[dict[str, int], ...] = ()
    tried_generation: int = 0
    tried_cycle: int = 0
    evaluated: int | None = None


@dataclass
class Verdict:
    """What is compared of a decision."""

    workload: Key
    queue: str
    outcome: Outcome
    reason: QuotaReservedReason
    message: str
    level: int = 0
    pod_sets: tuple[tuple[str, int, tuple[tuple[str, str], ...]], ...] = ()
    tried: tuple[tuple[tuple[str, int], ...], ...] = ()
    victims: tuple[tuple[Key, PreemptedReason], ...] = ()


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
        for parent in [parent for parent in self.parents.values() if parent is not None]:
            if parent not in self.parents:
                self._add(parent, "", (), 1.0)
        self.children: dict[Node, list[Node]] = {node: [] for node in self.parents}
        for node, parent in self.parents.items():
            if parent is not None:
                self.children[parent].append(node)
        self.frs = sorted({fr for quotas in self.quotas.values() for fr in quotas})
        self._memo: dict[tuple[str, Node, FlavorResource], int] = {}

    def _add(self, node, parent, groups, weight) -> None:
        self.parents[node] = ("c", parent) if parent else None
        self.weights[node] = weight
        self.quotas[node] = {
            FlavorResource(f.name, r): quota for g in groups for f in g.flavors for r, quota in f.quotas.items()
        }

    def copy(self) -> Tree:
        """The same quotas with usage of its own."""
        other = object.__new__(Tree)
        other.__dict__.update(self.__dict__)
        other.usage = dict(self.usage)
        return other

    def chain(self, node: Node) -> list[Node]:
        """The node and its ancestors; ends early, and says so, on a cycle."""
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
        found, todo = set(), [node]
        while todo:
            here = todo.pop()
            if here in found or here not in self.parents:
                continue
            found.add(here)
            todo.extend(self.children[here])
            if self.parents[here] is not None:
                todo.append(self.parents[here])
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


@dataclass
class Target:
    item: Item
    reason: PreemptedReason


@dataclass
class Found:
    """What an assignment search found."""

    pod_sets: list[dict] = field(default_factory=list)
    level: int = 0
    targets: list[Target] = field(default_factory=list)
    deferred: bool = False

    def usage(self) -> Use:
        total: Use = {}
        for pod_set in self.pod_sets:
            for name, choice in pod_set["choices"].items():
                fr = FlavorResource(choice["flavor"], name)
                total[fr] = total.get(fr, 0) + pod_set["requests"][name]
        return {fr: value for fr, value in total.items() if value}

    def assigned(self) -> Use:
        total: Use = {}
        for pod_set in self.pod_sets:
            for name, choice in pod_set["choices"].items():
                fr = FlavorResource(choice["flavor"], name)
                total[fr] = total.get(fr, 0) + pod_set["requests"][name]
        return total

    def contested(self) -> list[FlavorResource]:
        found = []
        for pod_set in self.pod_sets:
            for name, choice in pod_set["choices"].items():
                fr = FlavorResource(choice["flavor"], name)
                if choice["mode"] not in (NO_FIT, FIT) and fr not in found:
                    found.append(fr)
        return found

    @staticmethod
    def coarse(pod_set: dict) -> int:
        if not pod_set["reasons"]:
            return FIT
        modes = [choice["mode"] for choice in pod_set["choices"].values()]
        return min((mode if mode in (NO_FIT, FIT) else PREEMPT for mode in modes), default=NO_FIT)

    def mode(self) -> int:
        return min((self.coarse(pod_set) for pod_set in self.pod_sets), default=NO_FIT)

    def message(self) -> str:
        return "; ".join(
            f"couldn't assign flavors to pod set {p['name']}: {', '.join(sorted(p['reasons']))}"
            for p in self.pod_sets
            if p["reasons"]
        )

    def no_fit_reason(self) -> QuotaReservedReason:
        return NAMES[max((p["severity"] for p in self.pod_sets if self.coarse(p) == NO_FIT), default=3)]


class ReferenceEngine:
    """The model. Its methods are those of `Engine` that the comparison needs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.queues: dict[str, ClusterQueue] = {}
        self.cohorts: dict[str, Cohort] = {}
        self.flavors: dict[str, Flavor] = {}
        self.local_queues: dict[Key, LocalQueue] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.items: dict[Key, Item] = {}
        self.generation: dict[str, int] = {}
        self.strategies: dict[str, str] = {}
        self.hashes: dict[str, dict[str, QuotaReservedReason]] = {}
        self.sticky: dict[str, Key] = {}
        self.flushes: dict[Node, datetime] = {}
        self.counter = RequestCounter(settings)
        self.number = 0
        self.reservations = 0

    # Events.

    def tree(self, *, gone: Iterable[Key] = ()) -> Tree:
        """The tree as the reservations make it."""
        tree = Tree(self.queues.values(), self.cohorts.values())
        for key, item in self.items.items():
            if item.held is not None and key not in gone:
                if ("q", item.held.queue) not in tree.parents:
                    continue
                tree.put_all(item.held.queue, item.held.usage)
        return tree

    def _edited(self, node: Node, before: Tree) -> None:
        after = Tree(self.queues.values(), self.cohorts.values())
        touched = (before.component(node) | after.component(node)) | {node}
        for kind, name in touched:
            if kind == "q":
                self.generation[name] = self.generation.get(name, 0) + 1

    def request(self, node: Node, now: datetime) -> None:
        tree = Tree(self.queues.values(), self.cohorts.values())
        if node in tree.parents and not tree.cyclic(node):
            self.flushes.setdefault(tree.root(node), now + timedelta(seconds=self.settings.flush_window_seconds))

    def upsert_flavor(self, value: Flavor, now: datetime) -> None:
        old = self.flavors.get(value.name)
        if old == value:
            return
        before = {name for name in self.queues if self.active(name)}
        self.flavors[value.name] = value
        for name, queue in self.queues.items():
            uses = any(f.name == value.name for g in queue.resource_groups for f in g.flavors)
            if uses and (old is not None or (name not in before and self.active(name))):
                self.request(("q", name), now)

    def delete_flavor(self, name: str, now: datetime) -> None:
        self.flavors.pop(name, None)

    def upsert_namespace(self, value: Namespace, now: datetime) -> None:
        self.namespaces[value.name] = value

    def upsert_cluster_queue(self, value: ClusterQueue, now: datetime) -> None:
        old = self.queues.get(value.name)
        if old == value:
            return
        before = Tree(self.queues.values(), self.cohorts.values())
        self.queues[value.name] = value
        self.strategies[value.name] = value.strategy
        if old is None or (old.cohort, old.resource_groups, old.weight) != (
            value.cohort,
            value.resource_groups,
            value.weight,
        ):
            self._edited(("q", value.name), before)
        self.request(("q", value.name), now)

    def delete_cluster_queue(self, name: str, now: datetime) -> None:
        before = Tree(self.queues.values(), self.cohorts.values())
        if self.queues.pop(name, None) is not None:
            self._edited(("q", name), before)

    def upsert_cohort(self, value: Cohort, now: datetime) -> None:
        if self.cohorts.get(value.name) == value:
            return
        before = Tree(self.queues.values(), self.cohorts.values())
        self.cohorts[value.name] = value
        self._edited(("c", value.name), before)
        self.request(("c", value.name), now)

    def delete_cohort(self, name: str, now: datetime) -> None:
        before = Tree(self.queues.values(), self.cohorts.values())
        if self.cohorts.pop(name, None) is not None:
            self._edited(("c", name), before)
            self.request(("c", name), now)

    def upsert_local_queue(self, value: LocalQueue, now: datetime) -> None:
        old = self.local_queues.get(value.key)
        if old == value:
            return
        self.local_queues[value.key] = value
        for item in self.items.values():
            if item.held is None and Key(item.value.key.namespace, item.value.queue_name) == value.key:
                self._offer(item, item.value, now)

    def upsert_workload(self, value: Workload, now: datetime) -> None:
        item = self.items.get(value.key)
        if item is None:
            item = self.items[value.key] = Item(value)
        if item.held is not None and value.reserved and value.admission is not None:
            old = item.held
            usage = reserved_usage(value)
            item.value = value
            less = any(usage.get(fr, 0) < amount for fr, amount in old.usage.items())
            if usage != old.usage:
                self.generation[old.queue] = self.generation.get(old.queue, 0) + 1
            old.usage = usage
            old.evicted = old.evicted or value.evicted
            old.assumed = False
            if less:
                self.request(("q", old.queue), now)
            return
        if item.held is not None:
            self._release(item, now)
        if value.finished or not value.active:
            item.value = value
            self._leave(item)
        else:
            self._offer(item, value, now)

    def delete_workload(self, key: Key, now: datetime) -> None:
        item = self.items.pop(key, None)
        if item is None:
            return
        if item.held is not None:
            self._release(item, now)
        self._leave(item)

    def _release(self, item: Item, now: datetime) -> None:
        assert item.held is not None
        queue = item.held.queue
        item.held = None
        self.generation[queue] = self.generation.get(queue, 0) + 1
        self.request(("q", queue), now)

    def _leave(self, item: Item) -> None:
        item.waits = item.parked = False
        item.tried = ()
        item.evaluated = None
        for queue, key in list(self.sticky.items()):
            if key == item.value.key:
                del self.sticky[queue]

    def _offer(self, item: Item, value: Workload, now: datetime) -> None:
        old = item.value
        local = self.local_queues.get(Key(value.key.namespace, value.queue_name))
        if local is None or local.stop_policy != "None" or not is_queueable(value, self.settings):
            item.value = value
            self._leave(item)
            return
        queue = local.cluster_queue
        if item.waits and item.parked and not unparks(old, value, item.evaluated):
            item.value = value
            return
        old_hash = self.hash(item)
        item.value = value
        if self.hash(item) != old_hash:
            item.tried = ()
        if item.waits and not item.parked:
            return
        item.waits = True
        item.backing_off = not backoff_expired(value, now)
        item.parked = item.backing_off or self._parked_by_hash(queue, item)

    # Looking.

    def hash(self, item: Item) -> str:
        return equivalence(item.value, self.counter.pending(item.value), priority=item.value.priority)

    def queue_of(self, item: Item) -> str:
        return self.local_queues[Key(item.value.key.namespace, item.value.queue_name)].cluster_queue

    def active(self, name: str) -> bool:
        value = self.queues[name]
        return value.stop_policy == "None" and all(
            f.name in self.flavors for g in value.resource_groups for f in g.flavors
        )

    def waiting(self, queue: str) -> list[Item]:
        """All that waits, in heap order."""
        found = [item for item in self.items.values() if item.waits and self.queue_of(item) == queue]
        return sorted(found, key=lambda item: self.order(item, queue))

    def order(self, item: Item, queue: str) -> tuple:
        value = item.value
        return (
            self.sticky.get(queue) != value.key,
            -value.priority,
            queue_timestamp(value, self.settings),
            value.uid,
        )

    def catch_up(self, now: datetime) -> None:
        for root, moment in sorted(self.flushes.items()):
            if moment <= now:
                del self.flushes[root]
                self._flush(root, now)
        for item in self.items.values():
            if item.waits and item.parked and item.backing_off and backoff_expired(item.value, now):
                item.backing_off = False
                item.parked = self._parked_by_hash(self.queue_of(item), item)

    def _parked_by_hash(self, queue: str, item: Item) -> bool:
        return self.strategies.get(queue) != "StrictFIFO" and self.hash(item) in self.hashes.get(queue, {})

    def _flush(self, root: Node, now: datetime) -> None:
        tree = Tree(self.queues.values(), self.cohorts.values())
        if root not in tree.parents or tree.cyclic(root):
            return
        for _, name in tree.below(root):
            self.hashes[name] = {}
            for item in self.waiting(name):
                if self._namespace_matches(name, item) and backoff_expired(item.value, now):
                    item.parked = item.backing_off = False

    def _namespace_matches(self, queue: str, item: Item) -> bool:
        namespace = self.namespaces.get(item.value.key.namespace)
        selector = self.queues[queue].namespace_selector
        return namespace is not None and selector is not None and selector.matches(namespace.labels)

    # The cycle.

    def cycle(self, now: datetime) -> list[Verdict]:
        self.catch_up(now)
        self.number += 1
        heads = []
        for queue in sorted(self.queues):
            ready = [item for item in self.waiting(queue) if not item.parked]
            if self.active(queue) and ready:
                ready[0].evaluated = ready[0].value.generation
                heads.append((queue, ready[0]))
        tree = self.tree()
        entries: list[tuple[str, Item, Found]] = []
        rejects: list[Verdict] = []
        for queue, item in heads:
            message, reason = "", QuotaReservedReason.MISCONFIGURED
            if tree.cyclic(("q", queue)):
                message, reason = f"ClusterQueue {queue} is inactive", QuotaReservedReason.SUSPENDED
            elif item.value.key.namespace not in self.namespaces:
                message = messages.namespace_missing(item.value.key.namespace)
            elif not self._namespace_matches(queue, item):
                message = messages.NAMESPACE_MISMATCH
            if message:
                rejects.append(Verdict(item.value.key, queue, Outcome.INADMISSIBLE, reason, message))
                continue
            age = self.number - item.tried_cycle
            if item.tried and age > 1 and self.generation.get(queue, 0) > item.tried_generation:
                item.tried = ()
            entries.append((queue, item, self.nominate(tree.copy(), queue, item, tried=item.tried)))
        verdicts = []
        live = tree
        gone: list[Target] = []
        after: list[Callable[[], None]] = []
        for queue, item, found in self._order(entries, live):
            verdicts.append(self._process(live, queue, item, found, gone, now, after))
        # What was decided shows to nobody before the cycle is over.
        for step in after:
            step()
        for verdict in rejects:
            mismatched = verdict.message == messages.NAMESPACE_MISMATCH
            self._requeue(verdict, self.items[verdict.workload], "mismatch" if mismatched else "generic", now)
        return verdicts + rejects

    def _order(self, entries, live: Tree):
        entries = list(entries)
        if not self.settings.fair_sharing:
            entries.sort(
                key=lambda e: (
                    e[2].level,
                    -e[1].value.priority,
                    queue_timestamp(e[1].value, self.settings),
                    e[1].value.uid,
                )
            )
            yield from entries
            return
        # Which tree comes first is nobody's concern; the engine takes one after the other.
        roots = list(dict.fromkeys(live.root(("q", queue)) for queue, _, _ in entries))
        for root in roots:
            rest = [entry for entry in entries if live.root(("q", entry[0])) == root]
            while rest:
                best = rest[0] if root[0] == "q" else self._winner(live, root, rest)[1]
                rest.remove(best)
                yield best

    def _winner(self, tree: Tree, cohort: Node, entries):
        """The best contestant below a cohort, recomputed from the bottom."""
        ranked = []
        for child in tree.children[cohort]:
            if child[0] == "q":
                entry = next((e for e in entries if e[0] == child[1]), None)
            else:
                entry = (self._winner(tree, child, entries) or (None, None))[1]
            if entry is None:
                continue
            queue, item, found = entry
            with_entry = tree.copy()
            with_entry.put_all(queue, found.usage())
            rank = (
                not with_entry.within(child, found.usage()),
                with_entry.share(child),
                -item.value.priority,
                queue_timestamp(item.value, self.settings),
                item.value.uid,
            )
            ranked.append((rank, entry))
        return min(ranked, key=lambda pair: pair[0]) if ranked else None

    def _fits(self, tree: Tree, queue: str, usage: Use, gone: Iterable[Target]) -> bool:
        what_if = tree.copy()
        for key in {target.item.value.key for target in gone}:
            held = self.items[key].held
            assert held is not None
            what_if.take_all(held.queue, held.usage)
        return all(v <= 0 or v <= what_if.available(("q", queue), fr) for fr, v in usage.items())

    def _process(
        self,
        live: Tree,
        queue: str,
        item: Item,
        found: Found,
        gone: list[Target],
        now: datetime,
        after: list[Callable[[], None]],
    ) -> Verdict:
        keys = {target.item.value.key for target in gone}
        deferred = False
        if any(target.item.value.key in keys for target in found.targets):
            without = live.copy()
            for target in gone:
                without.take_all(target.item.held.queue, target.item.held.usage)
            pins = [{name: c["flavor"] for name, c in p["choices"].items()} for p in found.pod_sets]
            found = self.nominate(without, queue, item, pins=pins, gone=keys)
            item.tried = ()
            deferred = found.mode() == FIT
        key, mode = item.value.key, found.mode()

        def verdict(outcome, reason, message, victims=()):
            return Verdict(
                key,
                queue,
                outcome,
                reason,
                message,
                found.level,
                tuple(
                    (p["name"], p["count"], tuple(sorted((n, c["flavor"]) for n, c in p["choices"].items())))
                    for p in found.pod_sets
                ),
                tuple(tuple(sorted((n, c["tried"]) for n, c in p["choices"].items())) for p in found.pod_sets),
                tuple((t.item.value.key, t.reason) for t in victims),
            )

        usage = found.usage()
        if mode == NO_FIT:
            result, requeue = verdict(Outcome.PENDING, found.no_fit_reason(), found.message()), "nofit"
        elif deferred:
            result = verdict(Outcome.PENDING, QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS, messages.DEFERRED)
            requeue = "preempting"
            live.put_all(queue, usage)
        elif mode == PREEMPT and not found.targets:
            result = verdict(Outcome.PENDING, QuotaReservedReason.WAITING_FOR_QUOTA, found.message())
            requeue = "nocandidates"
            self._hold(live, queue, found)
        elif any(t.item.value.key in {g.item.value.key for g in gone} for t in found.targets):
            result, requeue = (
                verdict(Outcome.SKIPPED, QuotaReservedReason.WAITING_FOR_QUOTA, messages.OVERLAPPING),
                "skip",
            )
        elif not self._fits(live, queue, usage, [*gone, *found.targets]):
            result, requeue = (
                verdict(Outcome.SKIPPED, QuotaReservedReason.WAITING_FOR_QUOTA, messages.NO_LONGER_FITS),
                "skip",
            )
        else:
            gone.extend(found.targets)
            live.put_all(queue, usage)
            if mode == FIT:
                after.append(lambda: self._reserve(queue, item, found, now))
                return verdict(Outcome.RESERVED, QuotaReservedReason.QUOTA_RESERVED, messages.quota_reserved(queue))
            after.append(lambda: [setattr(target.item.held, "evicted", True) for target in found.targets])
            message = f"{found.message()}. Pending the preemption of {len(found.targets)} workload(s)"
            result = verdict(
                Outcome.PREEMPTING, QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS, message, found.targets
            )
            requeue = "preempting"
        item.tried = ()
        if requeue in ("nofit", "nocandidates", "skip"):
            item.tried = tuple({n: c["tried"] for n, c in p["choices"].items()} for p in found.pod_sets)
            item.tried_generation = self.generation.get(queue, 0)
            item.tried_cycle = self.number
        after.append(lambda: self._requeue(result, item, requeue, now))
        return result

    def _reserve(self, queue: str, item: Item, found: Found, now: datetime) -> None:
        self.reservations += 1
        item.held = Held(queue, found.assigned(), now, self.reservations, evicted=False)
        self._leave(item)

    def _hold(self, live: Tree, queue: str, found: Found) -> None:
        if self.queues[queue].preemption.reclaim_within_cohort == "Any":
            return
        for fr, value in found.usage().items():
            quota, used = live.quota(("q", queue), fr), live.used(("q", queue), fr)
            if found.level > 0:
                limit = quota.borrowing_limit
                amount = value if limit is None else min(value, quota.nominal + limit - used)
            else:
                amount = max(0, min(value, quota.nominal - used))
            live.put(("q", queue), fr, amount)

    def _requeue(self, verdict: Verdict, item: Item, why: str, now: datetime) -> None:
        queue = verdict.queue
        strict = self.queues[queue].strategy == "StrictFIFO"
        if why == "preempting":
            self.sticky.pop(queue, None)
            if not strict:
                self.sticky[queue] = item.value.key
        immediate = why in ("skip", "preempting") or (strict and why != "mismatch")
        unfinished = any(index != -1 for p in item.tried for index in p.values())
        item.backing_off = not backoff_expired(item.value, now)
        item.parked = item.backing_off or not (immediate or unfinished)
        if item.parked and why in ("nofit", "nocandidates") and not strict:
            mine = self.hash(item)
            self.hashes.setdefault(queue, {})[mine] = verdict.reason
            for other in self.waiting(queue):
                if self.hash(other) == mine:
                    other.parked = True

    # Nomination.

    def nominate(self, tree: Tree, queue: str, item: Item, *, tried=(), pins=None, gone=()) -> Found:
        requests = list(self.counter.pending(item.value))
        found = self._assign(tree, queue, item, requests, tried, pins, gone)
        if found.mode() == PREEMPT:
            found.targets = self.search(tree, queue, item, found.usage(), found.contested(), gone)
        pod_sets = item.value.pod_sets
        if (
            found.mode() == FIT
            or found.targets
            or not any(p.min_count is not None and p.min_count < p.count for p in pod_sets)
        ):
            return found
        deltas = [p.count - p.min_count if p.min_count is not None else 0 for p in pod_sets]
        low, high, best = 0, sum(deltas) + 1, None
        while low < high:
            mid = (low + high) // 2
            fewer = [
                scaled(counted, p.count - d * mid // sum(deltas))
                for p, counted, d in zip(pod_sets, requests, deltas, strict=True)
            ]
            attempt = self._assign(tree, queue, item, fewer, tried, pins, gone)
            if attempt.mode() == PREEMPT:
                attempt.targets = self.search(tree, queue, item, attempt.usage(), attempt.contested(), gone)
            if attempt.mode() == FIT or attempt.targets:
                best, high = (mid, attempt), mid
            else:
                low = mid + 1
        return best[1] if best is not None and best[0] == low else found

    def _assign(self, tree: Tree, queue: str, item: Item, requests, tried, pins, gone) -> Found:
        value = self.queues[queue]
        found = Found()
        used: Use = {}
        groups = {r: g for g in value.resource_groups for r in g.covered}
        for position, (pod_set, counted) in enumerate(zip(item.value.pod_sets, requests, strict=True)):
            total = dict(counted.total)
            if "pods" in groups:
                total["pods"] = counted.count
            result = {
                "name": pod_set.name,
                "count": counted.count,
                "requests": total,
                "choices": {},
                "reasons": [],
                "severity": 3,
            }
            found.pod_sets.append(result)
            failed = False
            for r in sorted(total, key=resources.fnv1a):
                if r in result["choices"] or (r not in groups and total[r] == 0):
                    continue
                if r not in groups:
                    result["reasons"] = [f"resource {r} unavailable in ClusterQueue"]
                    failed = True
                    break
                start = 0
                if position < len(tried):
                    start = tried[position].get(r, -1) + 1
                pinned = None if pins is None else (pins[position] if position < len(pins) else {})
                best, reasons, severity = self._choose(
                    tree, queue, item, pod_set, groups[r], r, total, used, start, pinned, gone
                )
                if best is None:
                    result["reasons"], result["severity"] = reasons, severity
                    failed = True
                    break
                result["choices"].update(best["choices"])
                if best["mode"] != FIT:
                    result["reasons"] = result["reasons"] + reasons
            if failed:
                result["choices"] = {}
                break
            for name, choice in result["choices"].items():
                fr = FlavorResource(choice["flavor"], name)
                used[fr] = used.get(fr, 0) + total[name]
                found.level = max(found.level, choice["level"])
        return found

    def _choose(self, tree, queue, item, pod_set, group, resource, total, used, start, pinned, gone):
        policy = self.queues[queue].fungibility
        flavors = group.flavors
        if start >= len(flavors):
            start = 0
        best, reasons, severities, position = None, [], [], start
        for position in range(start, len(flavors)):
            name = flavors[position].name
            problem = ""
            if pinned is not None and pinned.get(resource) != name:
                problem = f"skipping flavor {name} as it is not found in the nomination mapping for resource {resource}"
            elif name not in self.flavors:
                problem = f"flavor {name} not found"
            else:
                problem = mismatch(self.flavors[name], pod_set.shape)
            if problem:
                reasons.append(problem)
                severities.append(3)
                continue
            mode, level, choices, severity = FIT, 0, {}, 0
            for r in [r for r in total if r in group.covered]:
                fr = FlavorResource(name, r)
                m, lv, why, s = self._check(tree, queue, item, fr, used.get(fr, 0), total[r], gone)
                reasons.extend(why)
                severity = max(severity, s)
                choices[r] = {"flavor": name, "mode": m, "level": lv, "tried": -1}
                if self._preferred(policy, (mode, level), (m, lv)):
                    mode, level = m, lv
            severities.append(severity)
            attempt = {"mode": mode, "level": level, "choices": choices}
            stop = not (
                mode in (NO_FIT, NO_CANDIDATES)
                or (mode in (PREEMPT, RECLAIM) and policy.when_can_preempt == "TryNextFlavor")
                or (level > 0 and policy.when_can_borrow == "TryNextFlavor")
            )
            if stop:
                best = attempt
                break
            if mode != NO_FIT and (
                best is None or self._preferred(policy, (mode, level), (best["mode"], best["level"]))
            ):
                best = attempt
        if best is not None:
            for choice in best["choices"].values():
                choice["tried"] = -1 if position == len(flavors) - 1 else position
        return best, reasons, min(severities, default=3)

    @staticmethod
    def _preferred(policy, a, b) -> bool:
        if a[0] == NO_FIT:
            return False
        if b[0] == NO_FIT:
            return True
        if (a[0] == NO_CANDIDATES) != (b[0] == NO_CANDIDATES):
            return b[0] == NO_CANDIDATES
        if policy.preference == "PreemptionOverBorrowing":
            return (a[1], -a[0]) < (b[1], -b[0])
        return (-a[0], a[1]) < (-b[0], b[1])

    def _check(self, tree: Tree, queue, item, fr, used, wanted, gone):
        node, value = ("q", queue), used + wanted
        r = fr.resource
        most = tree.potential(node, fr)
        if value > most:
            text = (
                f"insufficient quota for {r} in flavor {fr.flavor}, previously considered podsets requests"
                f" ({resources.text(r, used)}) + current podset request ({resources.text(r, wanted)})"
                f" > maximum capacity ({resources.text(r, most)})"
            )
            return NO_FIT, 0, [text], 2
        level, may_reclaim = tree.level(queue, fr, value)
        available = max(0, tree.available(node, fr))
        if value <= available:
            return FIT, level, [], 0
        short = resources.text(r, value - available)
        text = f"insufficient unused quota for {r} in flavor {fr.flavor}, {short} more needed"
        policy = self.queues[queue].preemption
        while_borrowing = (policy.borrow_within_cohort or "Never") != "Never" or (
            self.settings.fair_sharing and policy.reclaim_within_cohort != "Never"
        )
        if not (tree.quota(node, fr).nominal >= value or may_reclaim or while_borrowing):
            return NO_FIT, level, [text], 1
        targets = self.search(tree, queue, item, {fr: value}, [fr], gone)
        if not targets:
            return NO_CANDIDATES, level, [text], 0
        without = tree.copy()
        for target in targets:
            without.take_all(target.item.held.queue, target.item.held.usage)
        own = any(target.item.held.queue == queue for target in targets)
        return (PREEMPT if own else RECLAIM), without.level(queue, fr, value)[0], [text], 0

    # Preemption.

    def search(self, tree: Tree, queue, item, requested: Use, contested, gone) -> list[Target]:
        tree = tree.copy()
        return (self._fair if self.settings.fair_sharing else self._classical)(
            tree, queue, item, requested, contested, set(gone)
        )

    def _candidates(self, queue: str, frs, gone) -> list[Item]:
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

    def _before(self, queue: str):
        """Comparison of candidates, §4.2."""

        def key(other: Item) -> tuple:
            held = other.held
            return (
                not held.evicted,
                held.queue == queue,
                other.value.priority,
                -held.since.timestamp(),
                -held.number,
                other.value.uid,
            )

        return key

    def _classical(self, tree: Tree, queue, item, requested: Use, contested, gone) -> list[Target]:
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
            if candidate.held.queue == queue:
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
            for candidate in sorted((c for c in group if c.held.evicted == evicted), key=order)
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
                    path = self._to_common(state, candidate.held.queue, node)
                    if any(state.within(part, contested) for part in path):
                        continue
                state.take_all(candidate.held.queue, candidate.held.usage)
                targets.append(Target(candidate, reasons[kind]))
                if self._room(state, queue, requested, borrowing=borrowing):
                    return self._fill_back(state, queue, requested, targets, borrowing=borrowing)
        return []

    def _below(self, tree: Tree, cohort: Node, last: Node, contested) -> list[str]:
        found = []
        for child in tree.children[cohort]:
            if child == last or tree.within(child, contested):
                continue
            found.extend([child[1]] if child[0] == "q" else self._below(tree, child, last, contested))
        return found

    def _to_common(self, tree: Tree, other: str, node: Node) -> list[Node]:
        mine = tree.chain(node)
        return [part for part in tree.chain(("q", other)) if part not in mine]

    def _room(self, tree: Tree, queue: str, requested: Use, *, borrowing: bool) -> bool:
        node = ("q", queue)
        for fr, value in requested.items():
            if value > max(0, tree.available(node, fr)):
                return False
            if not borrowing and tree.used(node, fr) + value > tree.quota(node, fr).nominal:
                return False
        return True

    def _fill_back(self, tree: Tree, queue, requested, targets: list[Target], *, borrowing: bool) -> list[Target]:
        for position in range(len(targets) - 2, -1, -1):
            held = targets[position].item.held
            tree.put_all(held.queue, held.usage)
            if self._room(tree, queue, requested, borrowing=borrowing):
                targets[position] = targets[-1]
                targets.pop()
            else:
                tree.take_all(held.queue, held.usage)
        return targets

    def _fair(self, tree: Tree, queue, item, requested: Use, contested, gone) -> list[Target]:
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
            return self._room(what_if, queue, requested, borrowing=True)

        def remove(candidate: Item, reason: PreemptedReason) -> bool:
            left[candidate.held.queue].remove(candidate)
            tree.take_all(candidate.held.queue, candidate.held.usage)
            targets.append(Target(candidate, reason))
            return fits()

        def done() -> list[Target]:
            tree.take_all(queue, requested)
            return self._fill_back(tree, queue, requested, targets, borrowing=True)

        left: dict[str, list[Item]] = {}
        for candidate in found:
            left.setdefault(candidate.held.queue, []).append(candidate)
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
                    what_if.take_all(candidate.held.queue, candidate.held.usage)
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
            left.setdefault(candidate.held.queue, []).append(candidate)
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
            queues, cohorts = [], []
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
