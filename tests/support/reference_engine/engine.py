# SPDX-License-Identifier: Apache-2.0
"""The model's queues, events and cycles (`docs/spec/engine.md §1`, §3.8 to §3.12, §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial

from multikueue.api.reasons import QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine import messages
from multikueue.engine.decisions import Outcome
from multikueue.engine.queue.pending import (
    backoff_expired,
    equivalence_hash,
    is_queueable,
    makes_admissible,
    queue_timestamp,
)
from multikueue.engine.requests import RequestCounter, reserved_usage
from multikueue.engine.settings import Settings
from multikueue.engine.values import ClusterQueue, Cohort, Flavor, LocalQueue, Namespace
from multikueue.engine.workloads import Workload
from tests.support.reference_engine.nomination import Nomination
from tests.support.reference_engine.order import order_of
from tests.support.reference_engine.preemption import Preemption
from tests.support.reference_engine.records import FIT, NO_FIT, PREEMPT, Found, Held, Item, Target, Verdict
from tests.support.reference_engine.tree import Node, Tree, Use


class ReferenceEngine(Nomination, Preemption):
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
        self.flushed: dict[Node, datetime] = {}
        self.times_flushed: dict[str, int] = {}
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
            root, window = tree.root(node), timedelta(seconds=self.settings.flush_window_seconds)
            soon = now + timedelta(seconds=self.settings.flush_gather_seconds)
            self.flushes.setdefault(root, max(soon, self.flushed[root] + window) if root in self.flushed else soon)

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
            self._forget_unused(name)

    def _forget_unused(self, name: str) -> None:
        """What was found out about a queue goes with it, once nothing waits in it or holds its quota."""
        if name in self.queues or self.waiting(name):
            return
        if not any(item.held is not None and item.held.queue == name for item in self.items.values()):
            for known in (self.hashes, self.sticky, self.strategies):
                known.pop(name, None)

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
        queue = item.reservation.queue
        item.held = None
        self.generation[queue] = self.generation.get(queue, 0) + 1
        self.request(("q", queue), now)
        self._forget_unused(queue)

    def _leave(self, item: Item) -> None:
        item.waits = item.inadmissible = False
        item.tried = ()
        item.victims, item.preempted_for, item.preempted_on = frozenset(), (), ()
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
        if item.waits and item.inadmissible and not makes_admissible(old, value, item.evaluated):
            item.value = value
            return
        old_hash = self.hash(item)
        item.value = value
        if self.hash(item) != old_hash:
            item.tried = ()
        if item.waits and not item.inadmissible:
            return
        item.waits = True
        item.backing_off = not backoff_expired(value, now)
        item.inadmissible = item.backing_off or self._inadmissible_by_hash(queue, item)

    # Looking.

    def hash(self, item: Item) -> str:
        return equivalence_hash(item.value, self.counter.pending(item.value), priority=item.value.priority)

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

    def order(self, item: Item, queue: str) -> tuple[bool, int, datetime, str]:
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
                self.flushed[root] = moment
                self._flush(root, now)
        for item in self.items.values():
            if item.waits and item.inadmissible and item.backing_off and backoff_expired(item.value, now):
                item.backing_off = False
                item.inadmissible = self._inadmissible_by_hash(self.queue_of(item), item)

    def _inadmissible_by_hash(self, queue: str, item: Item) -> bool:
        return self.strategies.get(queue) != "StrictFIFO" and self.hash(item) in self.hashes.get(queue, {})

    def _flush(self, root: Node, now: datetime) -> None:
        tree = Tree(self.queues.values(), self.cohorts.values())
        if root not in tree.parents or tree.cyclic(root):
            return
        for _, name in tree.below(root):
            self.hashes[name] = {}
            self.times_flushed[name] = self.times_flushed.get(name, 0) + 1
            for item in self.waiting(name):
                if self._namespace_matches(name, item) and backoff_expired(item.value, now):
                    item.inadmissible = item.backing_off = False

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
            ready = [item for item in self.waiting(queue) if not item.inadmissible]
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
        current = tree
        gone: list[Target] = []
        after: list[Callable[[], None]] = []
        for queue, item, found in order_of(entries, current, self.settings):
            verdicts.append(self._process(current, queue, item, found, gone, now, after))
        # Decisions take effect only after the cycle.
        for step in after:
            step()
        for verdict in rejects:
            mismatched = verdict.message == messages.NAMESPACE_MISMATCH
            self._requeue(verdict, self.items[verdict.workload], "mismatch" if mismatched else "generic", now)
        return verdicts + rejects

    def _fits(self, tree: Tree, queue: str, usage: Use, gone: Iterable[Target]) -> bool:
        what_if = tree.copy()
        for key in {target.item.value.key for target in gone}:
            held = self.items[key].held
            assert held is not None
            what_if.take_all(held.queue, held.usage)
        return all(v <= 0 or v <= what_if.available(("q", queue), fr) for fr, v in usage.items())

    def _process(
        self,
        current: Tree,
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
            without = current.copy()
            for target in gone:
                without.take_all(target.item.reservation.queue, target.item.reservation.usage)
            found = self.nominate(without, queue, item, pins=found.flavors(), gone=keys)
            item.tried = ()
            deferred = found.mode() == FIT
        key, mode = item.value.key, found.mode()

        def verdict(
            outcome: Outcome, reason: QuotaReservedReason, message: str, victims: Iterable[Target] = ()
        ) -> Verdict:
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
            current.put_all(queue, usage)
        elif mode == PREEMPT and not found.targets:
            result = verdict(Outcome.PENDING, QuotaReservedReason.WAITING_FOR_QUOTA, found.message())
            requeue = "nocandidates"
            self._hold(current, queue, found)
        elif any(t.item.value.key in {g.item.value.key for g in gone} for t in found.targets):
            result, requeue = (
                verdict(Outcome.SKIPPED, QuotaReservedReason.WAITING_FOR_QUOTA, messages.OVERLAPPING),
                "skip",
            )
        elif not self._fits(current, queue, usage, [*gone, *found.targets]):
            result, requeue = (
                verdict(Outcome.SKIPPED, QuotaReservedReason.WAITING_FOR_QUOTA, messages.NO_LONGER_FITS),
                "skip",
            )
        else:
            gone.extend(found.targets)
            current.put_all(queue, usage)
            if mode == FIT:
                after.append(lambda: self._reserve(queue, item, found, now))
                return verdict(Outcome.RESERVED, QuotaReservedReason.QUOTA_RESERVED, messages.quota_reserved(queue))
            after.append(partial(_evict, found.targets))
            message = f"{found.message()}. Pending the preemption of {len(found.targets)} workload(s)"
            result = verdict(
                Outcome.PREEMPTING, QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS, message, found.targets
            )
            requeue = "preempting"
            item.victims |= {target.item.value.key for target in found.targets}
            item.preempted_for = tuple(p["count"] for p in found.pod_sets)
            item.preempted_on = found.flavors()
        if requeue in ("nofit", "nocandidates"):
            item.victims, item.preempted_for, item.preempted_on = frozenset(), (), ()
        times = self.times_flushed.get(queue, 0)
        item.cycles = item.cycles + 1 if item.unfinished and item.flushed == times else 0
        item.flushed = times
        item.tried = ()
        if requeue in ("nofit", "nocandidates", "skip"):
            tried = tuple({n: c["tried"] for n, c in p["choices"].items()} for p in found.pod_sets)
            item.tried = () if item.cycles >= 64 else tried
            item.tried_generation = self.generation.get(queue, 0)
            item.tried_cycle = self.number
        after.append(lambda: self._requeue(result, item, requeue, now))
        return result

    def _reserve(self, queue: str, item: Item, found: Found, now: datetime) -> None:
        self.reservations += 1
        item.held = Held(queue, found.assigned(), now, self.reservations, evicted=False)
        self._leave(item)

    def _hold(self, current: Tree, queue: str, found: Found) -> None:
        if self.queues[queue].preemption.reclaim_within_cohort == "Any":
            return
        for fr, value in found.usage().items():
            quota, used = current.quota(("q", queue), fr), current.used(("q", queue), fr)
            if found.level > 0:
                limit = quota.borrowing_limit
                amount = value if limit is None else min(value, quota.nominal + limit - used)
            else:
                amount = max(0, min(value, quota.nominal - used))
            current.put(("q", queue), fr, amount)

    def _requeue(self, verdict: Verdict, item: Item, why: str, now: datetime) -> None:
        queue = verdict.queue
        strict = self.queues[queue].strategy == "StrictFIFO"
        if why == "preempting":
            self.sticky.pop(queue, None)
            if not strict:
                self.sticky[queue] = item.value.key
        immediate = why in ("skip", "preempting") or (strict and why != "mismatch")
        item.backing_off = not backoff_expired(item.value, now)
        item.inadmissible = item.backing_off or not (immediate or item.unfinished)
        if item.inadmissible and why in ("nofit", "nocandidates") and not strict:
            mine = self.hash(item)
            self.hashes.setdefault(queue, {})[mine] = verdict.reason
            for other in self.waiting(queue):
                if self.hash(other) == mine:
                    other.inadmissible = True


def _evict(targets: Iterable[Target]) -> None:
    for target in targets:
        target.item.reservation.evicted = True
