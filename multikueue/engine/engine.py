# SPDX-License-Identifier: Apache-2.0
"""The engine: queues and quota behind one object.

Events change the state, `cycle` decides. A cycle depends only on earlier events and on `now`; nothing here reads a
clock. `next_wake` says when to call again. A reservation counts from the cycle that made it; `admission_failed` reverts
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from multikueue.api.reasons import QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine import figures, lifecycle, states
from multikueue.engine.cache import quota, releases
from multikueue.engine.cache.cache import Cache
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.tree import QuotaNode
from multikueue.engine.cycle import verdicts
from multikueue.engine.cycle.blocking_heads import BlockingHeads
from multikueue.engine.cycle.cycle import CycleRunner, Head, HeadVerdict, required_checks
from multikueue.engine.cycle.evaluated import EvaluatedHead, EvaluatedTrees
from multikueue.engine.cycle.nomination import NominatedHead, Nominator
from multikueue.engine.decisions import (
    Bypassed,
    ClusterQueueState,
    CohortState,
    Cycle,
    LocalQueueState,
    Outcome,
    PendingPosition,
    RequeueReason,
    TopologyDecision,
)
from multikueue.engine.explain import Explanation, explain
from multikueue.engine.figures import CohortFigures, QueueFigures
from multikueue.engine.queue.pending import NO_PREEMPTIONS, ScanProgress
from multikueue.engine.queue.queue import Preemptor
from multikueue.engine.settings import Settings
from multikueue.engine.workloads import Workload


class _QueueBefore(NamedTuple):
    """What a queue had before a cycle, and the cycle in which its head tried its first flavor."""

    preemptor: Preemptor | None
    began: int


class Engine(Cache):
    """The admission engine (`docs/spec/engine.md`): the events of `Cache` go in, decisions of `cycle` come out."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._nominator = Nominator(
            settings=settings,
            referenced=self.referenced,
            cluster_queues=self.cluster_queues,
            counter=self.counter,
            records=self.reservations.records,
            waiting=self.waiting.pending,
            usage_of=self.usage_order.usage if self.usage_order is not None else None,
            capacity=self.capacity,
        )
        self._runner = CycleRunner(
            settings=settings,
            nominator=self._nominator,
            withheld=self.withheld,
            offered=self.offered,
            capacity=self.capacity,
        )
        self._number = 0
        self._waits_for_pods = False
        self._evaluated = EvaluatedTrees()
        self._blocking = BlockingHeads(self.cluster_queues)
        self._turns: dict[QuotaNode, int] = {}
        """The last cycle of each tree, while not all of them have a turn in each."""
        self._configured = 0

    # Deciding.

    @property
    def deciding(self) -> Key | None:
        """The workload at which the last cycle failed; after that, this engine's quota is not reliable."""
        return self._runner.deciding

    def has_heads(self, now: datetime, *, repeat: bool = True) -> bool:
        """Whether a cycle would find a head; without `repeat`, one that it may decide otherwise than the last one."""
        self._catch_up(now)
        if self._blocked():
            return False
        return bool(self._queues_to_evaluate(repeat=repeat))

    def cycle(self, now: datetime, *, repeat: bool = True, most_heads: int | None = None) -> Cycle:
        """Evaluate the head of every active queue once.

        Without `repeat`, trees in which nothing has changed since their heads were evaluated are left out: they would
        get the same decisions again. With `most_heads`, no further tree is begun after so many heads: the others come
        in the next cycles, and trees take turns. What one tree decides concerns no other one, but for
        `waitForPodsReady.blockAdmission`, with which all heads are evaluated.
        """
        self._catch_up(now)
        if self._blocked():
            return Cycle(number=self._number, decisions=(), success=False)
        self._number += 1
        heads = self._heads(repeat=repeat, most=most_heads)
        before = {head.cluster_queue.name: self._before(head) for head in heads}
        waits = self._blocks_admission and self.reservations.not_ready > 0
        taken, blocked = self._runner.run(heads, number=self._number, waits_for_pods=waits)
        self._waits_for_pods = blocked
        decisions = []
        bypassed: list[Bypassed] = []
        progress = False
        for verdict in taken:
            # Before anything is recorded: a decision describes victims as they were.
            decisions.append(verdicts.decision(verdict, self.settings))
            if verdict.requeue is None:
                self._reserve(verdict.nomination, now)
            else:
                progress = self._restored(verdict, verdict.requeue, bypassed, now) or progress
                if verdict.again:
                    self.reservations.changed.add(verdict.nomination.cluster_queue.node)
                self._blocking.add(verdict.behind, verdict.nomination.cluster_queue.node.root())
        if not blocked:
            self._note_evaluated(heads, before)
        reported = tuple(d for d in decisions if d.reason is not None)
        return Cycle(
            number=self._number,
            decisions=reported,
            success=any(decision.outcome is Outcome.RESERVED for decision in reported),
            bypassed=tuple(bypassed),
            scan_progress=progress,
        )

    def assign_topologies(self, now: datetime) -> tuple[TopologyDecision, ...]:
        """Places for workloads whose second pass is due (§1.12); what they get counts from now on."""
        decisions = []
        for key in self.second_pass.take(now):
            record = self.reservations.records.get(key)
            if record is not None:
                self._runner.deciding = key
                decisions.append(self._nominator.topologies.decide_again(record))
                self._runner.deciding = None
                if decisions[-1].problem:
                    self.second_pass.offer(record.workload, now)
        return tuple(decisions)

    def topologies_failed(self, key: Key) -> None:
        """Places of a second pass could not be written: the next object of the workload says which it has."""
        record = self.reservations.records.get(key)
        if record is not None:
            record.places_before = None

    def next_wake(self, now: datetime) -> datetime | None:
        """When a flush window, a back-off, an exemption or an offer of freed quota ends next.

        Without that, the same heads are decided alike.
        """
        self._catch_up(now)
        moments = [
            self.flushes.next(),
            self.waiting.next_wake(),
            self.next_exemption_end,
            self.offered.next_end(),
            self.second_pass.next(),
        ]
        return min((moment for moment in moments if moment is not None), default=None)

    def allow_early_flushes(self, heads: float) -> None:
        """Evaluate so many heads a second sooner than a window after the last flush of their tree."""
        self.flushes.allowance = heads

    def defer_admissions(self) -> None:
        """From now on, leave admissions for later cycles that others would preempt soon (ADR 0032).

        Those are heads that need what ended workloads held before the next flush of a tree with inadmissible workloads,
        which would get it with the flush (§1.7); and heads that borrow of that what its owner would reclaim at once.
        """
        self.withheld.enabled = True

    def flush(self, now: datetime) -> None:
        """Carry out requested flushes now instead of at the end of their window."""
        self._flush(None, now)

    def admission_written(self, key: Key, now: datetime) -> None:
        """The API has the reservation of a cycle; an object without it is newer from now on."""
        record = self.reservations.records.get(key)
        if record is not None:
            record.assumed = False

    def holds_unwritten(self, key: Key) -> bool:
        """Whether a workload holds a reservation of a cycle that the API may not have yet."""
        record = self.reservations.records.get(key)
        return record is not None and record.assumed

    def is_pending(self, key: Key) -> bool:
        """Whether a workload waits for quota."""
        return key in self.waiting.pending

    def admission_failed(self, key: Key, now: datetime) -> None:
        """A reservation could not be written: revert it and retry the workload at once."""
        record = self.reservations.records.get(key)
        if record is None or not record.assumed:
            return
        self._release(record, now)
        self.waiting.readmit(record.workload, now, RequeueReason.FAILED_AFTER_NOMINATION)

    def sample_usage(self, now: datetime) -> tuple[datetime | None, tuple[Key, ...]]:
        """Sample the consumption of local queues that are due: when to call next, and which were sampled (§1.10)."""
        order = self.usage_order
        if order is None:
            return None, ()
        following: list[datetime] = []
        sampled: list[Key] = []
        for key, value in self.waiting.local_queues.items():
            cluster_queue = self.cluster_queues.get(value.cluster_queue)
            if cluster_queue is None or cluster_queue.queue.usage_of is None:
                continue
            due = order.due(key)
            if due is None or due <= now:
                held = self.reservations.holdings.get(key)
                admitted: dict[str, int] = {}
                for flavor_resource, amount in held.admitted.items() if held is not None else ():
                    admitted[flavor_resource.resource] = admitted.get(flavor_resource.resource, 0) + amount
                order.sample(key, admitted, now)
                sampled.append(key)
                self.configured += 1
                due = order.due(key)
            if due is not None:
                following.append(due)
        return min(following, default=None), tuple(sampled)

    # Reading.

    def workload(self, key: Key) -> Workload | None:
        """The workload as of its last event; None if it is unknown or has finished."""
        return self.workloads.get(key)

    def mean_runs(self, cluster_queues: Iterable[str]) -> tuple[float | None, ...]:
        """How long workloads of each queue that ended lately held quota, in seconds; None if that is not known.

        If none of a queue has ended, it is the mean of the queues of its cohorts in which some have.
        """
        return releases.mean_runs(cluster_queues, self.cluster_queues)

    def seconds_until_released(self, holders: Iterable[Key]) -> float | None:
        """How soon workloads of their cohorts release on the mean as much as these hold; None if that is not known."""
        records = [self.reservations.records[key] for key in holders if key in self.reservations.records]
        return releases.seconds_until_released(records, self.cluster_queues)

    def cluster_queue_state(self, name: str) -> ClusterQueueState:
        """The figures of a ClusterQueue."""
        cluster_queue = self.cluster_queues.get(name) or CachedClusterQueue(name, QuotaNode(name, is_cohort=False))
        return states.cluster_queue(cluster_queue, self.referenced, fair_sharing=self.settings.fair_sharing)

    def local_queue_state(self, key: Key) -> LocalQueueState:
        """The figures of a LocalQueue. Raises KeyError for an unknown one."""
        value = self.waiting.local_queues[key]
        cluster_queue = self.cluster_queues.get(value.cluster_queue)
        order = self.usage_order if cluster_queue is not None and cluster_queue.queue.usage_of is not None else None
        return states.local_queue(
            value,
            cluster_queue,
            self.referenced,
            holdings=self.reservations.holdings.get(key),
            pending=self.waiting.counts.get(key, 0),
            consumption=order.of(key) if order is not None else None,
            usage=order.usage(key) if order is not None else None,
        )

    def cohort_state(self, name: str) -> CohortState:
        """The figures of a cohort. Raises KeyError for one that nothing names."""
        return states.cohort(self.forest.cohorts[name], fair_sharing=self.settings.fair_sharing)

    def queue_figures(self) -> list[QueueFigures]:
        """What metrics show of each ClusterQueue beyond its status."""
        known = (queue for queue in self.cluster_queues.values() if queue.value is not None)
        return [figures.of_queue(queue, fair_sharing=self.settings.fair_sharing) for queue in known]

    def cohort_figures(self) -> list[CohortFigures]:
        """What metrics show of each cohort that is part of a tree."""
        admitted = {name: queue.reserved.admitted_count for name, queue in self.cluster_queues.items()}
        return [
            figures.of_cohort(node, admitted, fair_sharing=self.settings.fair_sharing)
            for node in self.forest.cohorts.values()
            if not node.cut_off
        ]

    def pending(self, cluster_queue: str) -> tuple[PendingPosition, ...]:
        """The pending workloads of a queue, in the order in which they would be evaluated."""
        cached = self.cluster_queues.get(cluster_queue)
        found: list[PendingPosition] = []
        in_local_queue: dict[Key, int] = {}
        for position, pending in enumerate(cached.queue.in_order() if cached is not None else ()):
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
                    inadmissible=pending.queue is not None and pending.queue.is_inadmissible(pending),
                )
            )
        return tuple(found)

    def bypassed(self, key: Key) -> Bypassed | None:
        """Why a workload is not evaluated because an equal one failed (§7.12); None if that is not so."""
        pending = self.waiting.pending.get(key)
        if pending is None or pending.queue is None:
            return None
        why = pending.queue.inadmissible_with_equals(pending)
        if why is None:
            return None
        return verdicts.bypassed(pending, self.waiting.cluster_queue_of(pending), why, self.settings)

    def claims_problem(self, key: Key) -> str:
        """Why the devices that a workload claims cannot be counted, so that it is not queued; empty if they can."""
        workload = self.workloads.get(key)
        return "" if workload is None else self.counter.claims_problem(workload)

    def claims_beyond(self, key: Key) -> str:
        """Why new pods of a workload would claim more devices than it was admitted with; empty if not (§2.3)."""
        return self.claimants.grown(key) if self.counter.counts_claims else ""

    def explain(self, key: Key, now: datetime) -> Explanation:
        """Explain a workload's state by evaluating it as a cycle would. Changes nothing."""
        return explain(self, self._nominator, key)

    # Inside a cycle.

    @property
    def _blocks_admission(self) -> bool:
        ready = self.settings.pods_ready
        return ready is not None and ready.block_admission

    def _blocked(self) -> bool:
        if self._waits_for_pods and self.reservations.not_ready == 0:
            self._waits_for_pods = False
        return self._waits_for_pods

    def _catch_up(self, now: datetime) -> None:
        self._end_exemptions(now)
        for root in self._blocking.take_ended():
            self.flushes.request(root, now)
        self.reservations.changed.update(self.offered.end(now))
        self._flush(now, now)
        self.waiting.wake(now)

    def _flush(self, until: datetime | None, now: datetime) -> None:
        for is_cohort, name in self.flushes.take(until, now):
            node = (self.forest.cohorts if is_cohort else self.forest.queues).get(name)
            if node is not None:
                self._offer(node, now)
            # An edit within the window may have cut the node off; such nodes are not flushed.
            for queue in node.all_queues() if node is not None and not node.cut_off else ():
                cluster_queue = self.cluster_queues.get(queue.name)
                if cluster_queue is not None and cluster_queue.value is not None:
                    self.waiting.flush(cluster_queue, now)

    def _offer(self, root: QuotaNode, now: datetime) -> None:
        self.offered.on_flush(root)
        freed = self.withheld.release(root)
        if freed is not None:
            self.offered.offer(root, freed, now)
            # Heads that would have taken it are evaluated again.
            self.reservations.changed.add(root)

    def _queues_to_evaluate(self, *, repeat: bool) -> list[str]:
        """The active queues with a head, by name; without `repeat`, those of trees in which something has changed."""
        ready, changed = self.waiting.ready, self.reservations.changed
        if repeat or self._configured != self.configured:
            self._configured = self.configured
            ready |= self._evaluated.forget_all()
        for node in changed:
            ready |= self._evaluated.forget(node.root())
        changed.clear()
        for name in list(ready):
            cluster_queue = self.cluster_queues.get(name)
            if cluster_queue is None or not cluster_queue.active:
                ready.discard(name)  # else its tree never would be as it was; it is ready again once it is active
                continue
            root, head = cluster_queue.node.root(), cluster_queue.queue.head()
            if not self._evaluated.is_as_evaluated(root, name, head):
                ready |= self._evaluated.forget(root)
            elif head is None or self._evaluated.has(root):
                ready.discard(name)
        return sorted(name for name in ready if (found := self.cluster_queues.get(name)) is not None and found.active)

    def _note_evaluated(self, heads: list[Head], before: Mapping[str, _QueueBefore]) -> None:
        """Note the trees in which the evaluated heads are the heads again, and no decision changed anything."""
        changed = {node.root() for node in self.reservations.changed}
        found: dict[QuotaNode, dict[str, EvaluatedHead]] = {}
        for head in heads:
            queue, root = head.cluster_queue.queue, head.cluster_queue.node.root()
            was = before[queue.name]
            if queue.preemptor != was.preemptor or queue.head() is not head.pending:
                changed.add(root)
            else:
                found.setdefault(root, {})[queue.name] = EvaluatedHead(head.pending, was.began)
        for root in changed:
            self.waiting.ready |= self._evaluated.forget(root)
        for root, evaluated in found.items():
            if root not in changed and self._evaluated.add(root, evaluated, cycle=self._number):
                self.waiting.ready.difference_update(evaluated)

    def _before(self, head: Head) -> _QueueBefore:
        progress = head.pending.progress
        began = progress.began if progress is not None and progress.unfinished else self._number
        return _QueueBefore(head.cluster_queue.queue.preemptor, began)

    def _in_turn(self, names: list[str], most: int) -> list[str]:
        """The queues of as many whole trees as have `most` heads; those that have waited longest come first."""
        by_root: dict[QuotaNode, list[str]] = {}
        for name in names:
            by_root.setdefault(self.cluster_queues[name].node.root(), []).append(name)
        turns = {root: self._turns.get(root, 0) for root in by_root}
        found: list[str] = []
        for root in sorted(by_root, key=turns.__getitem__):
            if len(found) >= most:
                break
            found += by_root[root]
            turns[root] = self._number
        self._turns = turns
        return found

    def _heads(self, *, repeat: bool, most: int | None) -> list[Head]:
        heads = []
        names = self._queues_to_evaluate(repeat=repeat)
        if most is not None and len(names) > most and not self._blocks_admission:
            names = self._in_turn(names, most)
        for name in names:
            cluster_queue = self.cluster_queues[name]
            pending = cluster_queue.queue.pop()
            if pending is None:
                self.waiting.ready.discard(name)
            elif pending.workload.key in self.reservations.records:
                self.waiting.withdraw(pending.workload.key)
            else:
                heads.append(Head(cluster_queue, pending, active=True))
        return heads

    def _reserve(self, nomination: NominatedHead, now: datetime) -> None:
        """Reserve the quota that a workload was assigned."""
        cluster_queue, pending = nomination.cluster_queue, nomination.pending
        workload = pending.workload
        usage = nomination.usage()
        replaced = nomination.replaced
        if replaced is not None:
            quota.remove_all(nomination.amounts)
            # It has ended: the new slice may use less of something, and may be the victim that it was.
            self._free(replaced, now)
            self.replaced_slices.add(replaced.workload.key, workload.key)
            quota.add_all((cluster_queue.node.cell(key), amount) for key, amount in usage.items())
        delayed = any(pod_set.delayed for pod_set in nomination.assignment.pod_sets)
        admitted = not delayed and lifecycle.checks_ready(workload, required_checks(nomination))
        self.waiting.withdraw(workload.key)
        places = nomination.places
        self.reservations.assume(cluster_queue, workload, usage, places, now=now, admitted=admitted)
        self.claimants.admit(workload.key)
        if self.usage_order is not None and cluster_queue.queue.usage_of is not None:
            total: dict[str, int] = {}
            for counted in pending.requests:
                for name, amount in counted.total.items():
                    total[name] = total.get(name, 0) + amount
            self.usage_order.add_penalty(pending.local_queue, workload.key, total)

    def _restored(self, verdict: HeadVerdict, reason: RequeueReason, bypassed: list[Bypassed], now: datetime) -> bool:
        """Requeue a head; whether it is back in the heap to continue its scan of flavors."""
        nomination = verdict.nomination
        cluster_queue, pending = nomination.cluster_queue, nomination.pending
        if verdict.evaluated:
            pending.progress = self._progress(nomination) if verdict.keeps_progress else None
        if verdict.outcome is Outcome.PREEMPTING:
            pending.preemptions = nomination.issued(target.record.workload.key for target in verdict.targets)
        elif reason.lacks_quota:
            pending.preemptions = NO_PREEMPTIONS
        for target in verdict.targets:
            self.reservations.mark_evicted(self.cluster_queues[target.record.node.name], target.record, evicted=True)
        if self.waiting.requeue(cluster_queue, pending, reason, now):
            return pending.progress is not None and pending.progress.unfinished
        for equal in self.waiting.set_equals_inadmissible(cluster_queue, pending, reason, verdict.reason):
            why = verdict.reason or QuotaReservedReason.PENDING_EVALUATION
            bypassed.append(verdicts.bypassed(equal, cluster_queue, why, self.settings))
        return False

    def _progress(self, nomination: NominatedHead) -> ScanProgress:
        return ScanProgress.after(
            nomination.pending.progress,
            nomination.assignment.tried(),
            generation=nomination.cluster_queue.node.generation,
            cycle=self._number,
            flush=nomination.cluster_queue.queue.last_flush,
        )
