# SPDX-License-Identifier: Apache-2.0
"""The engine: queues and quota behind one object.

Owns the order of things: events change the world, `cycle` decides. Promises that a cycle is a function of what came
before it and of `now`; nothing here reads a clock. Time comes in, and `next_wake` says when to come back. What is
reserved in a cycle counts at once; `admission_failed` takes it back.
"""

from __future__ import annotations

from datetime import datetime

from multikueue.api.reasons import QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine import quota, states, verdicts
from multikueue.engine.cycle import CycleRunner, Head, Verdict, required_checks
from multikueue.engine.decisions import (
    Bypassed,
    ClusterQueueState,
    CohortState,
    Cycle,
    LocalQueueState,
    Outcome,
    PendingPosition,
    RequeueReason,
)
from multikueue.engine.explain import Explanation, explain
from multikueue.engine.live import LiveQueue
from multikueue.engine.nomination import Nomination, Nominator
from multikueue.engine.pending import ScanProgress
from multikueue.engine.settings import Settings
from multikueue.engine.topology import Placer
from multikueue.engine.tree import Node
from multikueue.engine.workloads import Workload
from multikueue.engine.world import World


class Engine(World):
    """The admission engine (`docs/spec/engine.md`). Values in by the methods of `World`, decisions out by `cycle`."""

    def __init__(self, settings: Settings, *, placer: Placer | None = None) -> None:
        super().__init__(settings)
        self._nominator = Nominator(
            settings=settings,
            knowledge=self.knowledge,
            lives=self.lives,
            counter=self.counter,
            records=self.reservations.records,
            usage_of=self.usage_order.usage if self.usage_order is not None else None,
            placer=placer,
        )
        self._runner = CycleRunner(settings=settings, nominator=self._nominator)
        self._number = 0
        self._waits_for_pods = False

    # Deciding.

    @property
    def deciding(self) -> Key | None:
        """The workload at which the last cycle broke. What such an engine knows of quota is not to be relied on."""
        return self._runner.deciding

    def has_heads(self, now: datetime) -> bool:
        """Whether a cycle would find something to look at."""
        self._catch_up(now)
        if self._blocked():
            return False
        ready = self.waiting.ready
        for name in list(ready):
            live = self.lives.get(name)
            if live is None or not live.queue.has_head:
                ready.discard(name)
            elif self.active.get(name, False):
                return True
        return False

    def cycle(self, now: datetime) -> Cycle:
        """Look at the head of every active queue once."""
        self._catch_up(now)
        if self._blocked():
            return Cycle(number=self._number, decisions=(), success=False)
        self._number += 1
        heads = self._heads()
        ready = self.settings.pods_ready
        waits = ready is not None and ready.block_admission and self.reservations.not_ready > 0
        taken, blocked = self._runner.run(heads, number=self._number, waits_for_pods=waits)
        self._waits_for_pods = blocked
        decisions = []
        bypassed: list[Bypassed] = []
        progress = False
        for verdict in taken:
            # Before anything is recorded: a decision tells of victims as they were.
            decisions.append(verdicts.decision(verdict, self.settings))
            if verdict.requeue is None:
                self._reserve(verdict.nomination, now)
            else:
                progress = self._put_back(verdict, verdict.requeue, bypassed, now) or progress
        told = tuple(d for d in decisions if d.reason is not None)
        return Cycle(
            number=self._number,
            decisions=told,
            success=any(decision.outcome is Outcome.RESERVED for decision in told),
            bypassed=tuple(bypassed),
            scan_progress=progress,
        )

    def next_wake(self, now: datetime) -> datetime | None:
        """When something will happen by itself: a flush window or a back-off ends. Now, if there are heads."""
        if self.has_heads(now):
            return now
        moments = [self.flushes.next(), self.waiting.next_wake()]
        return min((moment for moment in moments if moment is not None), default=None)

    def flush(self, now: datetime) -> None:
        """Carry out what was requested at once, and not when its window is over."""
        self._flush(None, now)

    def admission_written(self, key: Key, now: datetime) -> None:
        """The API has a reservation of a cycle: an object without it is a newer one from here on."""
        record = self.reservations.records.get(key)
        if record is not None:
            record.assumed = False

    def admission_failed(self, key: Key, now: datetime) -> None:
        """A reservation could not be written: take it back and try the workload again at once."""
        record = self.reservations.records.get(key)
        if record is None or not record.assumed:
            return
        self.reservations.remove(self.lives[record.node.name], record)
        if self.usage_order is not None:
            self.usage_order.absolve(record.local_queue, key)
        self.waiting.readmit(record.workload, now, RequeueReason.FAILED_AFTER_NOMINATION)

    def sample_usage(self, now: datetime) -> tuple[datetime | None, tuple[Key, ...]]:
        """Sample what local queues consume, where that is due: when to come back, and whose was sampled (§1.10)."""
        order = self.usage_order
        if order is None:
            return None, ()
        following: list[datetime] = []
        sampled: list[Key] = []
        for key, value in self.waiting.local_queues.items():
            live = self.lives.get(value.cluster_queue)
            if live is None or live.queue.usage_of is None:
                continue
            due = order.due(key)
            if due is None or due <= now:
                held = self.reservations.holdings.get(key)
                admitted: dict[str, int] = {}
                for flavor_resource, amount in held.admitted.items() if held is not None else ():
                    admitted[flavor_resource.resource] = admitted.get(flavor_resource.resource, 0) + amount
                order.sample(key, admitted, now)
                sampled.append(key)
                due = order.due(key)
            if due is not None:
                following.append(due)
        return min(following, default=None), tuple(sampled)

    # Looking.

    def workload(self, key: Key) -> Workload | None:
        """The workload as it was last handed in."""
        return self.workloads.get(key)

    def cluster_queue_state(self, name: str) -> ClusterQueueState:
        """The figures of a ClusterQueue."""
        live = self.lives.get(name) or LiveQueue(name, Node(name, is_cohort=False))
        return states.cluster_queue(live, self.knowledge, fair_sharing=self.settings.fair_sharing)

    def local_queue_state(self, key: Key) -> LocalQueueState:
        """The figures of a LocalQueue. Raises KeyError for one that is not known."""
        value = self.waiting.local_queues[key]
        live = self.lives.get(value.cluster_queue)
        order = self.usage_order if live is not None and live.queue.usage_of is not None else None
        return states.local_queue(
            value,
            live,
            self.knowledge,
            holdings=self.reservations.holdings.get(key),
            pending=self.waiting.counts.get(key, 0),
            consumption=order.of(key) if order is not None else None,
            usage=order.usage(key) if order is not None else None,
        )

    def cohort_state(self, name: str) -> CohortState:
        """The figures of a cohort. Raises KeyError for one that nothing names."""
        return states.cohort(self.forest.cohorts[name], fair_sharing=self.settings.fair_sharing)

    def pending(self, cluster_queue: str) -> tuple[PendingPosition, ...]:
        """What waits in a queue, in the order in which it would be looked at."""
        live = self.lives.get(cluster_queue)
        found: list[PendingPosition] = []
        in_local_queue: dict[Key, int] = {}
        for position, pending in enumerate(live.queue.in_order() if live is not None else ()):
            place = in_local_queue.get(pending.local_queue, 0)
            in_local_queue[pending.local_queue] = place + 1
            found.append(
                PendingPosition(
                    workload=pending.workload.key,
                    local_queue=pending.local_queue,
                    priority=pending.priority,
                    created=pending.workload.created,
                    position_in_cluster_queue=position,
                    position_in_local_queue=place,
                    parked=pending.queue is not None and pending.queue.is_parked(pending),
                )
            )
        return tuple(found)

    def bypassed(self, key: Key) -> Bypassed | None:
        """Why a workload is not looked at, if that is because an equal one failed (§7.12); also one that came later."""
        pending = self.waiting.pending.get(key)
        if pending is None or pending.queue is None:
            return None
        why = pending.queue.parked_with_equals(pending)
        if why is None:
            return None
        return verdicts.bypassed(pending, self.waiting.live_of(pending), why, self.settings)

    def explain(self, key: Key, now: datetime) -> Explanation:
        """Why a workload stands where it stands, by looking at it as a cycle would. Changes nothing."""
        return explain(self, self._nominator, key)

    # Inside a cycle.

    def _blocked(self) -> bool:
        if self._waits_for_pods and self.reservations.not_ready == 0:
            self._waits_for_pods = False
        return self._waits_for_pods

    def _catch_up(self, now: datetime) -> None:
        self._flush(now, now)
        self.waiting.wake(now)

    def _flush(self, until: datetime | None, now: datetime) -> None:
        for is_cohort, name in self.flushes.take(until, now):
            node = (self.forest.cohorts if is_cohort else self.forest.queues).get(name)
            # An edit within the window may have closed a cycle: such trees are not flushed.
            for queue in node.all_queues() if node is not None and not node.in_cycle else ():
                live = self.lives.get(queue.name)
                if live is not None and live.value is not None:
                    self.waiting.flush(live, now)

    def _heads(self) -> list[Head]:
        heads = []
        for name in sorted(self.waiting.ready):
            live = self.lives.get(name)
            if live is None:
                self.waiting.ready.discard(name)
                continue
            if not self.active.get(name, False):
                continue
            pending = live.queue.pop()
            if pending is None:
                self.waiting.ready.discard(name)
            elif pending.workload.key in self.reservations.records:
                self.waiting.withdraw(pending.workload.key)
            else:
                heads.append(Head(live, pending, active=True))
        return heads

    def _reserve(self, nomination: Nomination, now: datetime) -> None:
        """Let a workload hold what it was given."""
        live, pending = nomination.live, nomination.pending
        replaced = nomination.replaced
        if replaced is not None and replaced.workload.key in self.reservations.records:
            quota.give_all(nomination.occupied)
            self.reservations.remove(live, replaced)
            quota.take_all(nomination.amounts)
        usage = {cell.key: amount for cell, amount in nomination.assignment.usage.items()}
        admitted = not required_checks(nomination)
        workload = pending.workload
        self.waiting.withdraw(workload.key)
        self.reservations.assume(live, workload, usage, now=now, admitted=admitted)
        if self.usage_order is not None and live.queue.usage_of is not None:
            total: dict[str, int] = {}
            for counted in pending.requests:
                for name, amount in counted.total.items():
                    total[name] = total.get(name, 0) + amount
            self.usage_order.penalize(pending.local_queue, workload.key, total)

    def _put_back(self, verdict: Verdict, reason: RequeueReason, bypassed: list[Bypassed], now: datetime) -> bool:
        """Requeue a head; whether it is back in the heap to go on with its scan of flavors."""
        nomination = verdict.nomination
        live, pending = nomination.live, nomination.pending
        if verdict.looked_at:
            pending.progress = self._progress(nomination) if verdict.keeps_progress else None
        for target in verdict.targets:
            self.reservations.mark_evicted(self.lives[target.record.node.name], target.record, evicted=True)
        if self.waiting.requeue(live, pending, reason, now):
            return pending.progress is not None and pending.progress.unfinished
        for equal in self.waiting.park_equals(live, pending, reason, verdict.reason):
            why = verdict.reason or QuotaReservedReason.PENDING_EVALUATION
            bypassed.append(verdicts.bypassed(equal, live, why, self.settings))
        return False

    def _progress(self, nomination: Nomination) -> ScanProgress:
        return ScanProgress(nomination.assignment.tried(), nomination.live.node.generation, self._number)
