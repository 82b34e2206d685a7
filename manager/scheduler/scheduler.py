# SPDX-License-Identifier: Apache-2.0
"""The scheduler loop: feeds the engine, runs its cycles, and writes its decisions.

Promises that cycles run in memory while writes go out in the background, but not while many decisions wait to be
written, and that others run after a long one; that a write that failed is retried or reverted in the engine
(`docs/reference/write-failures.md`); and that the loop never spins: heads are decided again only if something has
changed in their tree, and without that the loop waits for an event or for the time that the engine returns
(`docs/spec/engine.md §1.11` uses sleeps). The engine decides; texts come from `admission_writes`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel

from manager.context import ManagerContext
from manager.scheduler import admission_writes
from manager.scheduler.admission_writes import PendingReason
from manager.scheduler.affected_queues import AffectedQueues
from manager.scheduler.cycle_cost import LONGEST_PACE, SLICE_SECONDS, pause_after
from manager.scheduler.cycle_report import report_cycle
from manager.scheduler.delayed_preemptions import DelayedPreemptions, delay_for_victims
from manager.scheduler.engine_feed import READER, EngineFeed
from manager.scheduler.pending_writes import News, PendingSender, PendingWrites
from manager.scheduler.preemption_report import report_preemption
from manager.scheduler.topology_writes import TopologyWriter
from manager.scheduler.usage_sampling import UsageSampler
from manager.scheduler.withdrawn_reservations import WithdrawnReservations
from manager.scheduler.write_concurrency import WriteConcurrency
from manager.scheduler.write_queue import WriteQueue
from manager.topology.objects import TopologyObjects
from manager.workload.status import Status
from manager.workload.transitions import queued_at, seconds_since
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, WORKLOADS, Resource
from multikueue.core.backoff import Backoff
from multikueue.core.conditions import MAX_EVENT_MESSAGE, truncate_message
from multikueue.core.keys import Key
from multikueue.engine.decisions import Cycle, Decision, Outcome, Victim
from multikueue.engine.engine import Engine
from multikueue.engine.queue.pending import effective_priority
from multikueue.engine.settings import Settings
from multikueue.kube.errors import ApiError, KubeError, Unreachable
from multikueue.kube.rest.retries import Effect, effect_of
from multikueue.kube.runtime.events import Reference
from multikueue.kube.runtime.quarantine import Quarantined

_log = logging.getLogger(__name__)

_MOST_WRITES: Final = 48  # at once; fewer than the default limit of an API server
_REPEAT_SECONDS: Final = 30.0  # how often all heads are decided again, as a precaution
_GONE_PAUSE: Final = 1.0
_REFUSED: Final = Backoff(base=1.0, cap=60.0)  # a refused write is refused again until its cause is fixed
_REASON: Final = "reason"  # the scheduler's slot among the pending writes
_MOST_ASKED: Final = 60.0  # the longest Retry-After that is honoured

Touched = Callable[[Resource, Key], None]


class Scheduler:
    """One engine and the loop around it, for one term of leadership."""

    def __init__(
        self,
        context: ManagerContext,
        *,
        settings: Settings,
        pending_writes: PendingWrites,
        topology: TopologyObjects,
        preemption_delay: float,
        touched: Touched,
    ) -> None:
        """`touched` is called with each object whose figures may have changed.

        `preemption_delay` is in seconds: victims are chosen once more after it, if the preemptor is still pending, and
        evicted then. It is longer while the API server is slow, since ends of workloads are then written later too.
        """
        self._context = context
        self._clock = context.clock
        self._touched = touched
        self._feed = EngineFeed(
            context, settings=settings, topology=topology, changed=self._changed, wake=lambda: self._wake.set()
        )
        self._pending_writes = pending_writes
        self._reasons = PendingSender(self._news, self._write_reason)
        self._preemption_delay = preemption_delay
        self._delayed = DelayedPreemptions()
        self._withdrawn = WithdrawnReservations()
        self._concurrency = WriteConcurrency(most=_MOST_WRITES)
        quarantine = context.caches.quarantine
        self._write_queue = WriteQueue(
            runners=_MOST_WRITES, quarantine=quarantine, concurrency=self._concurrency, clock=context.clock
        )
        self._topologies = TopologyWriter(context, self._write_queue, self._feed)
        self._wake = anyio.Event()
        self._sampler = UsageSampler(self._feed, clock=context.clock, sampled=self._usage_sampled)
        self._repeat_at = 0.0
        self._pause_until = 0.0
        self._failures = 0
        self._refusals: dict[Key, int] = {}
        self._backoff = Backoff(base=0.1, cap=10.0)
        self._affected_queues = AffectedQueues()

    @property
    def writes_decisions(self) -> bool:
        """Whether a reservation or an eviction is still to be written."""
        return self._write_queue.busy

    @property
    def server_overloaded(self) -> bool:
        """Whether the API server is slow to answer even a few writes."""
        return self._concurrency.overloaded(self._clock.monotonic())

    @property
    def engine(self) -> Engine:
        """The current engine; a failed one is replaced."""
        return self._feed.engine

    async def attach(self) -> None:
        """Fill the engine from the caches and subscribe to changes."""
        await self._feed.attach()

    def _changed(self, resource: Resource, key: Key, obj: JsonObject | None) -> None:
        self._mark(resource, key, obj)
        self._wake.set()

    def _mark(self, resource: Resource, key: Key, obj: JsonObject | None) -> None:
        """Report the objects whose figures may have changed."""
        if resource is LOCAL_QUEUES or resource is CLUSTER_QUEUES:
            self._sampler.queues_changed()
        if resource is COHORTS:
            for name in self.engine.moved_cohorts():
                self._touched(COHORTS, Key("", name))
        if resource is WORKLOADS and obj is None:
            self._refusals.pop(key, None)
        for affected in self._affected_queues.of_change(resource, key, obj):
            self._touched(*affected)

    async def run(self) -> None:
        """Decide and write until cancelled; the next leader decides again what was not written."""
        quarantine, keep = self._context.caches.quarantine, self._context.supervisor.keep
        quarantine.add_reporter(self._report_unusable)
        self._context.statuses.follow_answers(self._answered)
        for entry in quarantine.entries():
            self._report_unusable(entry)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write_queue.run, name="admission-writes")
                tasks.start_soon(keep, "scheduler", self._decide, name="scheduler-loop")
                tasks.start_soon(keep, "usage-sampling", self._sampler.run, name="usage-sampling")
        finally:
            self._context.statuses.follow_answers(None)
            quarantine.remove_reporter(self._report_unusable)

    def _answered(self, seconds: float, error: KubeError | None) -> None:
        failure = error if isinstance(error, ApiError | Unreachable) else None
        self._concurrency.answered(seconds, now=self._clock.monotonic(), error=failure)

    def _report_unusable(self, entry: Quarantined) -> None:
        """Write into a Workload's status why the engine cannot use it."""
        if entry.reader != READER or entry.resource is not WORKLOADS:
            return
        row = self._context.caches.view(WORKLOADS).get(entry.key)
        if row is not None:
            self._put_reason(PendingReason(decided=entry, now=self._clock.now(), uid=row.uid))

    async def _rebuild_engine(self) -> None:
        """Rebuild a failed engine, once every write of its decisions has ended."""
        await self._write_queue.drained()
        self._delayed.clear()
        _log.error("engine failed, rebuilding it from the caches")
        await self._feed.rebuild()

    def _usage_sampled(self, local_queues: tuple[Key, ...]) -> None:
        for key in local_queues:
            self._touched(LOCAL_QUEUES, key)
        self._wake.set()

    async def _decide(self) -> None:
        unsuccessful = 0
        while True:
            pause = self._pause_until - self._clock.monotonic()
            if pause > 0:
                await anyio.sleep(pause)
            if self._feed.broken:
                await self._rebuild_engine()
                continue
            # What is decided now could not be written yet, and would hold quota of what comes before it by then.
            await self._write_queue.caught_up()
            started = ended = self._clock.monotonic()
            repeat = started >= self._repeat_at
            if repeat:
                self._repeat_at = started + _REPEAT_SECONDS
            settled, took = True, 0.0
            self._end_delays()
            while self.engine.has_heads(now := self._clock.now(), repeat=repeat):
                cycle = self._cycle(now, repeat=repeat)
                repeat, settled = False, False
                if cycle is None:
                    break
                took, ended = self._clock.monotonic() - ended, self._clock.monotonic()
                unsuccessful = 0 if cycle.success else unsuccessful + 1
                if not cycle.success or self._write_queue.behind or ended - started > SLICE_SECONDS:
                    break
                settled = True
            self._topologies.assign(now)
            if settled:
                await self._rest()
                unsuccessful = 0
            else:
                await self._give_way(took, unsuccessful)

    async def _give_way(self, took: float, unsuccessful: int) -> None:
        """Let others run between two cycles, of which the last one `took` so many seconds."""
        pause = pause_after(took, unsuccessful=unsuccessful)
        if pause:
            await anyio.sleep(pause)
        else:
            await anyio.lowlevel.checkpoint()

    async def _rest(self) -> None:
        """Wait for an event, or for the time at which the engine has something to do."""
        now = self._clock.now()
        due = self.engine.next_wake(now)
        until = self._repeat_at if self._delayed.next_end is None else min(self._repeat_at, self._delayed.next_end)
        seconds = max(0.0, until - self._clock.monotonic())
        if due is not None:
            seconds = min(seconds, max(LONGEST_PACE, (due - now).total_seconds()))
        if not self._wake.is_set():
            with anyio.move_on_after(seconds):
                await self._wake.wait()
        self._wake = anyio.Event()

    def _end_delays(self) -> None:
        """Have the next cycle choose victims again for the preemptors whose delay has ended."""
        for victim in self._delayed.end(self._clock.monotonic(), is_pending=self.engine.is_pending):
            self.engine.eviction_failed(victim, self._clock.now())

    def _cycle(self, now: datetime, *, repeat: bool) -> Cycle | None:
        """One cycle and its consequences; None when the engine failed at a Workload."""
        started = self._clock.monotonic()
        try:
            cycle = self._feed.cycle(now, repeat=repeat)
        except Exception as error:
            self._feed.fail(error)
            return None
        report_cycle(self._context.metrics, cycle, seconds=self._clock.monotonic() - started)
        for decision in cycle.decisions:
            self._carry_out(decision, now)
        for bypassed in cycle.bypassed:
            self._put_reason(PendingReason(decided=bypassed, now=now))
        return cycle

    def _carry_out(self, decision: Decision, now: datetime) -> None:
        self._touched(CLUSTER_QUEUES, Key("", decision.cluster_queue))
        if decision.outcome is Outcome.RESERVED:
            self._pending_writes.drop(decision.workload, slot=_REASON)
            key = decision.workload
            self._write_queue.put(
                key, lambda: self._reserve(decision, now), slot="reserve", replace=True, priority=self._priority(key)
            )
            return
        if decision.outcome is Outcome.PREEMPTING:
            self._evict(decision, now)
        else:
            self._delayed.needs_no_victims(decision.workload, self._clock.monotonic())
        if decision.reason is not None:
            self._put_reason(PendingReason(decided=decision, now=now, uid=decision.uid))

    def _evict(self, decision: Decision, now: datetime) -> None:
        """Evict victims that are not being evicted: after the delay, or at once if it has passed for this preemptor.

        Those whose reservation is not written yet lose it instead. That interrupts none, and without others waits for
        no delay.
        """
        held = self._write_queue.holds
        victims = [each for each in decision.victims if not (each.evicted or held(each.workload, "preempt"))]
        started = self._clock.monotonic()
        unwritten = [each.workload for each in victims if self._may_withdraw(each.workload, started)]
        if len(unwritten) == len(victims):
            self._withdraw(unwritten, decision.workload, started)
            return
        delay = self._concurrency.delay(self._preemption_delay, now=started)
        until = started + max(delay, delay_for_victims(victims, self.engine, self._preemption_delay))
        if until > started and not self._delayed.take_due(decision.workload, started):
            self._delayed.delay(decision.workload, (each.workload for each in victims), until=until)
            return
        priority = self._priority(decision.workload)
        self._withdraw(unwritten, decision.workload, started)
        for victim in victims:
            if victim.workload in unwritten:
                continue
            evict = partial(self._preempt, decision, victim, now)
            self._write_queue.put(victim.workload, evict, slot="preempt", priority=priority)

    def _may_withdraw(self, key: Key, now: float) -> bool:
        """Whether the API server cannot have a Workload's reservation, and it has lost none lately."""
        unwritten = self.engine.holds_unwritten(key) and self._write_queue.holds_unbegun(key, "reserve")
        return unwritten and self._withdrawn.may_withdraw(key, now)

    def _withdraw(self, keys: Iterable[Key], preemptor: Key, now: float) -> None:
        """Take reservations that are not written yet from these Workloads."""
        for key in keys:
            _log.info("reservation withdrawn before it was written workload=%s preemptor=%s", key, preemptor)
            self._write_queue.withdraw(key, "reserve")
            self._withdrawn.add(key, now)
            self._admission_failed(key)

    def _priority(self, key: Key) -> int:
        """That of a Workload in the order of writes."""
        workload = self.engine.workload(key)
        return 0 if workload is None else effective_priority(workload, self.engine.settings)

    async def _reserve(self, decision: Decision, now: datetime, attempt: int = 1) -> None:
        key = decision.workload
        reserved = False

        def notify(workload: JsonObject, before: Status, after: Status) -> None:
            nonlocal reserved
            reserved = True
            waited = seconds_since(queued_at(workload, before), now)
            text = admission_writes.reserved_event(decision, waited=waited)
            self._context.recorder.event(Reference.of(workload), "Normal", "QuotaReserved", text)

        decided_for = self.engine.workload(key)
        if decided_for is None or not self.engine.holds_unwritten(key):
            return  # the workload changed since, and the engine has reverted the reservation
        try:
            written = await self._context.statuses.write(
                key,
                lambda status: admission_writes.reserve(status, decision, now=now),
                uid=decision.uid,
                generation=decided_for.generation,  # not for what a user has changed its requests to since
                written=notify,
            )
        except (ApiError, Unreachable) as error:
            self._reservation_failed(decision, error, lambda: self._reserve(decision, now, attempt + 1), attempt)
            return
        except Exception as error:
            # Its status cannot be read: the engine is fed again without it, so that it does not hold quota for nothing.
            self._feed.hold(WORKLOADS, key, error)
            self._wake.set()
            raise
        self._write_succeeded(key)
        if written is None:
            # It is gone, and its deletion arrives as an event. If that takes long, for example from a hub that was
            # restored, it must not be reserved for again as fast as the server answers.
            self._write_queue.postpone(key, lambda: self._offer_again(key), slot="reserve", seconds=_GONE_PAUSE)
        elif reserved:
            self.engine.admission_written(key, self._clock.now())
        else:
            _log.info(
                "workload changed before its reservation was written workload=%s cluster_queue=%s",
                key,
                decision.cluster_queue,
            )
            self._admission_failed(key)
        self._wake.set()

    def _reservation_failed(
        self, decision: Decision, error: ApiError | Unreachable, again: Callable[[], Awaitable[None]], attempt: int
    ) -> None:
        key = decision.workload
        match effect_of(error):
            case Effect.UNKNOWN:
                # The quota stays reserved until the server has answered whether the reservation is stored: released, it
                # would go to another workload while this one holds it too.
                pause = self._server_failed(key, error, attempt)
                self._write_queue.postpone(key, again, slot="reserve", seconds=pause, priority=self._priority(key))
            case Effect.NONE:
                self._server_failed(key, error, attempt)
                self._admission_failed(key)
            case Effect.REFUSED:
                pause = self._refused(key, error)
                # Meanwhile the engine decides without it: it holds neither quota nor its place in the queue.
                self.engine.delete_workload(key, self._clock.now())
                self._wake.set()
                self._write_queue.postpone(key, lambda: self._offer_again(key), slot="reserve", seconds=pause)

    async def _offer_again(self, key: Key) -> None:
        """Have the engine decide again about a workload whose reservation was not stored."""
        self._admission_failed(key)

    def _admission_failed(self, key: Key) -> None:
        self.engine.admission_failed(key, self._clock.now())
        self._feed.refresh(key)
        self._wake.set()

    def _put_reason(self, reason: PendingReason) -> None:
        self._pending_writes.put(reason.key, self._reasons.about(reason), slot=_REASON)

    def _still_applies(self, reason: PendingReason) -> bool:
        if isinstance(reason.decided, Quarantined):  # not once it is deleted or readable
            return self._context.caches.quarantine.get(READER, WORKLOADS, reason.key) is not None
        return self.engine.is_pending(reason.key)

    def _news(self, reason: PendingReason) -> News:
        workload = self._context.statuses.current(reason.key) if self._still_applies(reason) else None
        if workload is None or (reason.uid and workload["metadata"].get("uid") != reason.uid):
            return News.NOTHING
        statuses, shown = self._context.statuses, Status.of(workload)
        return admission_writes.news(shown, statuses.shown_as(reason.change(statuses.read(workload)), shown))

    async def _write_reason(self, reason: PendingReason) -> None:
        """Write why a workload waits; a failed write is retried, as an inadmissible workload gets no new decision."""
        if not self._still_applies(reason):
            return
        decided = reason.decided

        def notify(workload: JsonObject, before: Status, after: Status) -> None:
            if isinstance(decided, Decision):
                self._context.recorder.event(Reference.of(workload), "Warning", str(decided.reason), decided.message)

        try:
            await self._context.statuses.write(reason.key, reason.change, uid=reason.uid, written=notify)
        except (ApiError, Unreachable) as error:
            if effect_of(error) is Effect.REFUSED:
                pause = _REFUSED.delay(reason.attempt)
                _log.error("API server refused status workload=%s retry_after=%.0f error=%s", reason.key, pause, error)
            else:
                pause = self._server_failed(reason.key, error, reason.attempt)
            again = replace(reason, attempt=reason.attempt + 1)
            self._pending_writes.retry(reason.key, self._reasons.about(again), slot=_REASON, seconds=pause)
        else:
            self._failures = 0

    async def _preempt(self, decision: Decision, victim: Victim, now: datetime, attempt: int = 1) -> None:
        key = victim.workload
        if not self.engine.is_pending(decision.workload):
            self._eviction_failed(key)
            return
        try:
            await self._context.statuses.write(
                key,
                lambda status: admission_writes.preempt(status, victim, now=now),
                uid=victim.uid,
                written=lambda workload, *_: report_preemption(self._context, decision, victim, evicted=workload),
            )
        except (ApiError, Unreachable) as error:
            match effect_of(error):
                case Effect.UNKNOWN:
                    # The same victim again, and not another one: this one may already be evicted.
                    again = partial(self._preempt, decision, victim, now, attempt + 1)
                    pause = self._server_failed(key, error, attempt)
                    priority = self._priority(decision.workload)
                    self._write_queue.postpone(key, again, slot="preempt", seconds=pause, priority=priority)
                case Effect.NONE:
                    self._server_failed(key, error, attempt)
                    self._eviction_failed(key)
                case Effect.REFUSED:
                    pause = self._refused(key, error, preemptor=decision.workload)
                    self._eviction_failed(key, exempt_until=self._clock.now() + timedelta(seconds=pause))
        else:
            self._write_succeeded(key)

    def _eviction_failed(self, key: Key, *, exempt_until: datetime | None = None) -> None:
        """Have the engine choose victims again, this one or another."""
        self.engine.eviction_failed(key, self._clock.now(), exempt_until=exempt_until)
        self._wake.set()

    def _write_succeeded(self, key: Key) -> None:
        self._failures = 0
        self._refusals.pop(key, None)

    def _server_failed(self, key: Key, error: ApiError | Unreachable, attempt: int) -> float:
        """Slow decisions down to what the server can take; returns the seconds until the same write may be retried."""
        self._failures += 1
        asked = min(_MOST_ASKED, error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0
        decided = max(asked, self._backoff.delay(min(self._failures, 10), self._context.random))
        self._pause_until = max(self._pause_until, self._clock.monotonic() + decided)
        _log.warning("status not written, scheduling pauses workload=%s pause=%.1f error=%s", key, decided, error)
        return max(asked, self._backoff.delay(attempt, self._context.random))

    def _refused(self, key: Key, error: ApiError | Unreachable, *, preemptor: Key | None = None) -> float:
        """Report a status that the server refuses; returns the seconds until another attempt."""
        self._refusals[key] = count = self._refusals.get(key, 0) + 1
        pause = _REFUSED.delay(count)
        what = "its quota reservation" if preemptor is None else f"its eviction for {preemptor}"
        _log.error("API server refused write=%s workload=%s retry_after=%.0f error=%s", what, key, pause, error)
        concerned = {key: f"The API server refused {what}"}
        if preemptor is not None:
            concerned[preemptor] = f"The API server refused to evict workload {key}; looking for other victims"
        for each, text in concerned.items():
            workload = self._context.statuses.current(each)
            if workload is not None:
                message = truncate_message(f"{text}: {error}", MAX_EVENT_MESSAGE)
                self._context.recorder.event(Reference.of(workload), "Warning", "WriteRefused", message)
        return pause
