# SPDX-License-Identifier: Apache-2.0
"""The scheduler loop: feeds the engine, runs its cycles, and sends out what it decided.

Owns the one `Engine` of the process. Promises that cycles run back to back in memory while writes go out in the
background, that a write that failed is taken back in the engine, and that the loop never spins: after a cycle that
decided exactly what the one before decided it waits for an event or for the time the engine names
(`docs/spec/engine.md §1.11` paces by sleeps instead). Decisions are the engine's, texts are `admission_writes`'.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

import anyio
import anyio.lowlevel

from manager import admission_writes
from manager.context import ManagerContext
from manager.outbox import Outbox
from manager.set_aside import SetAside, Undecidable
from manager.transitions import queued_at, seconds_since
from manager.workload_status import Status
from multikueue.api.meta import JsonObject
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    NAMESPACES,
    RESOURCE_FLAVORS,
    RUNTIME_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.core.backoff import Backoff
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.engine import intake
from multikueue.engine.decisions import Bypassed, Cycle, Decision, Outcome, Victim
from multikueue.engine.engine import Engine
from multikueue.engine.settings import Settings
from multikueue.kube.errors import ApiError, Unreachable
from multikueue.kube.events import Reference
from multikueue.kube.informer import Change

_log = logging.getLogger(__name__)

_RUNNERS: Final = 48  # more writes at once than one API server answers in a round trip, fewer than its default limit
_SLICE_SECONDS: Final = 0.02  # how long cycles may hold the event loop before watches and writes get a turn
_PACES: Final = (0.001, 0.002, 0.004, 0.008, 0.010)
_MIN_SAMPLING_SECONDS: Final = 1.0  # a configured interval of nothing must not spin
_GONE_PAUSE: Final = 1.0
_INVALID_PAUSE: Final = 1.0  # a write that is refused will be refused again; once a second shows it without spinning

Touched = Callable[[Resource, Key], None]


class Scheduler:
    """One engine and the loop around it; lives as long as this process leads."""

    def __init__(self, context: ManagerContext, *, settings: Settings, touched: Touched, aside: SetAside) -> None:
        """`touched` is told which queue's figures may have changed; workloads that are set aside count as absent."""
        self._context = context
        self._aside = aside
        self._clock = context.clock
        self._touched = touched
        self.engine = Engine(settings)
        self._shapes = intake.Shapes()
        self._outbox = Outbox(runners=_RUNNERS)
        self._wake = anyio.Event()
        self._queues_changed = anyio.Event()
        self._events = 0  # a cycle is only repeated for news when this has moved
        self._pause_until = 0.0
        self._failures = 0
        self._backoff = Backoff(base=0.1, cap=10.0)
        self._places: dict[Key, tuple[str, Key]] = {}
        self._targets: dict[Key, str] = {}

    async def attach(self) -> None:
        """Fill the engine from the caches and follow them from here on; the world comes before the workloads.

        Ten thousand workloads take seconds, in which the lease of the leader is to be renewed.
        """
        replay = self._context.caches.replay
        engine = self.engine

        async def world(
            resource: Resource,
            upsert: Callable[[JsonObject, datetime], None],
            delete: Callable[[Key, datetime], None],
        ) -> None:
            await replay(resource, lambda change: self._feed(resource, change, upsert, delete))

        await world(
            NAMESPACES,
            lambda obj, now: engine.upsert_namespace(intake.namespace(obj), now),
            lambda key, now: engine.delete_namespace(key.name, now),
        )
        await world(
            LIMIT_RANGES,
            lambda obj, now: engine.upsert_limit_range(intake.limit_range(obj), now),
            engine.delete_limit_range,
        )
        await world(
            RUNTIME_CLASSES,
            lambda obj, now: engine.upsert_runtime_class(intake.runtime_class(obj), now),
            lambda key, now: engine.delete_runtime_class(key.name, now),
        )
        await world(
            RESOURCE_FLAVORS,
            lambda obj, now: engine.upsert_flavor(intake.flavor(obj), now),
            lambda key, now: engine.delete_flavor(key.name, now),
        )
        await world(
            ADMISSION_CHECKS,
            lambda obj, now: engine.upsert_admission_check(intake.admission_check(obj), now),
            lambda key, now: engine.delete_admission_check(key.name, now),
        )
        await world(
            COHORTS,
            lambda obj, now: engine.upsert_cohort(intake.cohort(obj), now),
            lambda key, now: engine.delete_cohort(key.name, now),
        )
        await world(
            CLUSTER_QUEUES,
            lambda obj, now: engine.upsert_cluster_queue(intake.cluster_queue(obj), now),
            lambda key, now: engine.delete_cluster_queue(key.name, now),
        )
        await world(
            LOCAL_QUEUES,
            lambda obj, now: engine.upsert_local_queue(intake.local_queue(obj), now),
            engine.delete_local_queue,
        )
        await world(
            WORKLOADS,
            lambda obj, now: engine.upsert_workload(intake.workload(obj, self._shapes), now),
            engine.delete_workload,
        )

    def _feed(
        self,
        resource: Resource,
        change: Change,
        upsert: Callable[[JsonObject, datetime], None],
        delete: Callable[[Key, datetime], None],
    ) -> None:
        now = self._clock.now()
        self._events += 1
        if change.new is None:
            delete(change.key, now)
            self._mark(resource, change.key, None)
        else:
            obj = self._context.caches.view(resource).parse(change.new)
            try:
                if resource is WORKLOADS and self._aside.holds(obj):
                    delete(change.key, now)
                else:
                    upsert(obj, now)
            except (BadInput, ValueError) as error:
                # What cannot be read counts as absent: nobody is admitted by half of a queue.
                _log.error("%s %s cannot be used: %s; correct the object", resource.kind, change.key, error)
                self._context.recorder.event(Reference.of(obj), "Warning", "BadInput", str(error))
                delete(change.key, now)
            self._mark(resource, change.key, obj)
        self._wake.set()

    def _mark(self, resource: Resource, key: Key, obj: JsonObject | None) -> None:
        """Tell whose figures may have changed."""
        if resource is LOCAL_QUEUES or resource is CLUSTER_QUEUES:
            self._queues_changed.set()
        if resource is LOCAL_QUEUES:
            self._targets.pop(key, None)
            if obj is not None:
                self._targets[key] = obj["spec"].get("clusterQueue") or ""
        if resource is not WORKLOADS:
            self._touched(resource, key)
            return
        before = self._places.pop(key, None)
        after: tuple[str, Key] | None = None
        if obj is not None:
            admission: JsonObject = (obj.get("status") or {}).get("admission") or {}
            queue = Key(key.namespace, obj["spec"].get("queueName") or "")
            after = self._places[key] = (admission.get("clusterQueue") or self._targets.get(queue, ""), queue)
        for place in {before, after} - {None}:
            assert place is not None
            cluster_queue, local_queue = place
            self._touched(LOCAL_QUEUES, local_queue)
            if cluster_queue:
                self._touched(CLUSTER_QUEUES, Key("", cluster_queue))

    async def run(self) -> None:
        """Decide and write until cancelled. What was decided and not yet written then is decided again by the next."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._outbox.run, name="admission-writes")
            tasks.start_soon(self._decide, name="scheduler-loop")
            tasks.start_soon(self._sample_usage, name="usage-sampling")

    async def _sample_usage(self) -> None:
        """Let what local queues used fade, each time the engine says (`docs/spec/engine.md §1.10`)."""
        while True:
            self._queues_changed = anyio.Event()
            now = self._clock.now()
            due, sampled = self.engine.sample_usage(now)
            for key in sampled:
                self._touched(LOCAL_QUEUES, key)
            if sampled:
                self._events += 1  # another local queue may be first now
                self._wake.set()
            pause = None if due is None else max(_MIN_SAMPLING_SECONDS, (due - now).total_seconds())
            with anyio.move_on_after(pause):
                await self._queues_changed.wait()

    async def _decide(self) -> None:
        unsuccessful = 0
        last: frozenset[tuple[Key, Outcome, str]] | None = None
        seen = -1
        while True:
            pause = self._pause_until - self._clock.monotonic()
            if pause > 0:
                await anyio.sleep(pause)
            started = self._clock.monotonic()
            settled = True
            while self.engine.has_heads(now := self._clock.now()):
                events = self._events
                cycle = self._cycle(now)
                decided = frozenset((item.workload, item.outcome, item.message) for item in cycle.decisions)
                # The engine is a function of events and time: the same heads with the same answer and no news in
                # between will get it again, until something happens.
                settled = not cycle.success and not cycle.scan_progress and decided == last and events == seen
                last, seen = decided, events
                if settled:
                    break
                unsuccessful = 0 if cycle.success else unsuccessful + 1
                if not cycle.success or self._clock.monotonic() - started > _SLICE_SECONDS:
                    settled = False
                    break
            if settled:
                await self._rest()
                unsuccessful = 0
            elif unsuccessful:
                await anyio.sleep(_PACES[min(unsuccessful, len(_PACES)) - 1])
            else:
                await anyio.lowlevel.checkpoint()

    async def _rest(self) -> None:
        """Wait for an event, or for the time at which the engine has something to do."""
        now = self._clock.now()
        due = self.engine.next_wake(now)
        seconds = None if due is None else max(_PACES[-1], (due - now).total_seconds())
        if not self._wake.is_set():
            with anyio.move_on_after(seconds):
                await self._wake.wait()
        self._wake = anyio.Event()

    def _cycle(self, now: datetime) -> Cycle:
        started = self._clock.monotonic()
        try:
            cycle = self.engine.cycle(now)
        except Exception as error:
            if self.engine.deciding is None:
                raise
            raise Undecidable(self.engine.deciding, error) from error
        metrics = self._context.metrics
        result = "success" if cycle.success else "inadmissible"
        if cycle.decisions:
            metrics.admission_attempts.labels(result, metrics.role).inc()
            metrics.admission_attempt_duration.labels(result, metrics.role).observe(self._clock.monotonic() - started)
        for decision in cycle.decisions:
            self._carry_out(decision, now)
        for bypassed in cycle.bypassed:
            self._put_bypass(bypassed, now)
        return cycle

    def _carry_out(self, decision: Decision, now: datetime) -> None:
        self._touched(CLUSTER_QUEUES, Key("", decision.cluster_queue))
        if decision.outcome is Outcome.RESERVED:
            self._outbox.put(decision.workload, lambda: self._reserve(decision, now), slot="reserve")
            return
        for victim in decision.victims:
            if not victim.evicted and not self._outbox.holds(victim.workload, "preempt"):
                self._put_preempt(decision, victim, now)
        if decision.reason is not None:
            self._outbox.put(decision.workload, lambda: self._pend(decision, now), slot="pend", replace=True)

    def _put_preempt(self, decision: Decision, victim: Victim, now: datetime) -> None:
        self._outbox.put(victim.workload, lambda: self._preempt(decision, victim, now), slot="preempt")

    def _put_bypass(self, bypassed: Bypassed, now: datetime) -> None:
        self._outbox.put(bypassed.workload, lambda: self._bypass(bypassed, now), slot="pend", replace=True)

    async def _reserve(self, decision: Decision, now: datetime) -> None:
        key = decision.workload
        reserved = False

        def tell(workload: JsonObject, before: Status, after: Status) -> None:
            nonlocal reserved
            reserved = True
            waited = seconds_since(queued_at(workload, before), now)
            text = admission_writes.reserved_event(decision, waited=waited)
            self._context.recorder.event(Reference.of(workload), "Normal", "QuotaReserved", text)

        try:
            written = await self._context.statuses.write(
                key,
                lambda status: admission_writes.reserve(status, decision, now=now),
                uid=decision.uid,
                written=tell,
            )
        except (ApiError, Unreachable) as error:
            await self._write_failed(key, error)
            self._admission_failed(key)
            return
        self._failures = 0
        if written is None:
            # It is gone, and the deletion comes as an event of its own. Where that is long in coming, as from a hub
            # that was put back in time, it must not be reserved for again as fast as the server answers.
            await anyio.sleep(_GONE_PAUSE)
            self._admission_failed(key)
        elif reserved:
            self.engine.admission_written(key, self._clock.now())
        else:
            _log.info("%s moved on before its reservation in %s was written", key, decision.cluster_queue)
            self._admission_failed(key)
        self._wake.set()

    def _admission_failed(self, key: Key) -> None:
        self._events += 1
        self.engine.admission_failed(key, self._clock.now())
        workload = self._context.statuses.current(key)
        if workload is not None:
            self.engine.upsert_workload(intake.workload(workload, self._shapes), self._clock.now())
        self._wake.set()

    async def _pend(self, decision: Decision, now: datetime) -> None:
        def tell(workload: JsonObject, before: Status, after: Status) -> None:
            self._context.recorder.event(Reference.of(workload), "Warning", str(decision.reason), decision.message)

        try:
            await self._context.statuses.write(
                decision.workload,
                lambda status: admission_writes.pend(status, decision, now=now),
                uid=decision.uid,
                written=tell,
            )
        except (ApiError, Unreachable) as error:
            await self._write_failed(decision.workload, error)

    async def _bypass(self, bypassed: Bypassed, now: datetime) -> None:
        try:
            await self._context.statuses.write(
                bypassed.workload, lambda status: admission_writes.bypass(status, bypassed, now=now)
            )
        except (ApiError, Unreachable) as error:
            await self._write_failed(bypassed.workload, error)

    async def _preempt(self, decision: Decision, victim: Victim, now: datetime) -> None:
        try:
            await self._context.statuses.write(
                victim.workload,
                lambda status: admission_writes.preempt(status, victim, now=now),
                uid=victim.uid,
                written=lambda workload, before, after: self._preempted(decision, victim, workload),
            )
        except (ApiError, Unreachable) as error:
            # The next cycle finds the victim unevicted and asks again.
            await self._write_failed(victim.workload, error)

    def _preempted(self, decision: Decision, victim: Victim, evicted: JsonObject) -> None:
        _log.info(
            "preempted %s in %s for %s: %s (%s)",
            victim.workload,
            victim.cluster_queue,
            decision.workload,
            victim.reason,
            victim.rule,
        )
        metrics, recorder = self._context.metrics, self._context.recorder
        metrics.preempted.labels(decision.cluster_queue, str(victim.reason), metrics.role).inc()
        preemptor = self._context.statuses.current(decision.workload)
        priorities = _priorities(preemptor, victim)
        recorder.event(Reference.of(evicted), "Normal", "Preempted", f"{victim.message}; {priorities}")
        if preemptor is not None:
            recorder.event(
                Reference.of(preemptor),
                "Normal",
                "PreemptedWorkload",
                f"Preempted workload {victim.workload} (UID: {victim.uid}) in ClusterQueue {victim.cluster_queue};"
                f" {priorities}",
            )

    async def _write_failed(self, key: Key, error: ApiError | Unreachable) -> None:
        self._failures += 1
        self._events += 1  # what failed is to be asked for again
        self._wake.set()
        if isinstance(error, ApiError) and 400 <= error.status < 500 and error.status not in (409, 429):
            _log.error("Workload %s: the API server refused its status: %s", key, error)
            await anyio.sleep(_INVALID_PAUSE)
            return
        # Everything else is the server's trouble: no use in deciding faster than it can take.
        pause = self._backoff.delay(min(self._failures, 10), self._context.random)
        self._pause_until = max(self._pause_until, self._clock.monotonic() + pause)
        _log.warning("Workload %s: status not written, deciding goes on in %.1f s: %s", key, pause, error)


def _priorities(preemptor: JsonObject | None, victim: Victim) -> str:
    base = 0 if preemptor is None else preemptor["spec"].get("priority") or 0
    return (
        f"preemptor effective priority: {base} (base: {base}, boost: 0);"
        f" preemptee effective priority: {victim.priority} (base: {victim.priority}, boost: 0)"
    )
