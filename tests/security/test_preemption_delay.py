# SPDX-License-Identifier: Apache-2.0
"""A tenant whose Workloads end soon makes preemptions wait longer, and gains no more than the longest delay by it.

In virtual time with the real engine and the real delays. `preemptionDelay` is 100 ms, so that the longest delay is 4 s.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from random import Random

import pytest

from manager.scheduler.delayed_preemptions import DelayedPreemptions, delay_for_victims
from multikueue.core.keys import Key
from multikueue.engine import Engine, Outcome, Settings, lifecycle
from multikueue.engine.decisions import Decision
from multikueue.engine.values import Flavor, LocalQueue, Namespace
from multikueue.engine.workloads import PodSet, Workload
from tests.bench.engine.mix import START, cluster_queue, shape

PREEMPTION_DELAY = 0.1
LONGEST_DELAY = 4.0
EVICTION_SECONDS = 0.5
"""Until a victim that was told to stop has released its quota."""
CYCLE_SECONDS = 0.01
OWNED = 20
"""What each queue has, and what is borrowed of the owner."""
LONG = 35
"""The Workloads that never end, which the short ones are to keep from being preempted."""


class Cohort:
    """Hostile queues that have borrowed all and replace each Workload that ends, and the owner of a part of it.

    The Workloads that end are of the queue in which the others run without end, or of a queue `beside` it.
    """

    def __init__(self, *, run: float, beside: bool = False) -> None:
        self._run = run
        self._random = Random(1)
        self._now = 0.0
        self._number = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._workloads: dict[Key, Workload] = {}
        self._delayed = DelayedPreemptions()
        self.evictions = 0
        self.admitted: dict[str, float] = {}
        self.engine = Engine(Settings(pods_ready=None))
        self.engine.defer_admissions()
        self.engine.upsert_flavor(Flavor(name="rf"), START)
        queues = ("hostile", "beside", "owner") if beside else ("hostile", "owner")
        self._ending = "beside" if beside else "hostile"
        for name in queues:
            self.engine.upsert_cluster_queue(cluster_queue(name, "cohort"), START)
            self.engine.upsert_namespace(Namespace(name), START)
            self.engine.upsert_local_queue(LocalQueue(key=Key(name, name), cluster_queue=name), START)
        self._long = {self.submit("hostile", cpu=1, priority=1_000_000) for _ in range(LONG)}
        for _ in range(OWNED * len(queues) - LONG + 10):  # some always wait, to take whatever is released
            self.submit(self._ending, cpu=1, priority=1_000_000)

    def submit(self, queue: str, *, cpu: int, priority: int) -> str:
        """A Workload now; gives its name."""
        self._number += 1
        name = f"w-{self._number}"
        self._put(
            Workload(
                key=Key(queue, name),
                uid=name,
                created=self._time,
                queue_name=queue,
                pod_sets=(PodSet(shape=shape(cpu)),),
                priority=priority,
            )
        )
        return name

    def pass_seconds(self, seconds: float) -> None:
        """Let that much time pass."""
        end = self._now + seconds
        self._decide()
        while self._events and self._events[0][0] <= end:
            self._now, _, event = heappop(self._events)
            event()
            self._decide()
        self._now = end

    @property
    def now(self) -> float:
        return self._now

    @property
    def _time(self) -> datetime:
        return START + timedelta(seconds=self._now)

    def _after(self, seconds: float, event: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._events, (self._now + seconds, self._number, event))

    def _put(self, workload: Workload) -> None:
        self._workloads[workload.key] = workload
        self.engine.upsert_workload(workload, self._time)

    def _decide(self) -> None:
        for victim in self._delayed.end(self._now, is_pending=self.engine.is_pending):
            self.engine.eviction_failed(victim, self._time)
        while self.engine.has_heads(self._time, repeat=False):
            cycle = self.engine.cycle(self._time, repeat=False)
            for decision in cycle.decisions:
                if decision.outcome is Outcome.RESERVED:
                    self._admit(decision)
                elif decision.outcome is Outcome.PREEMPTING:
                    self._preempt(decision)
                else:
                    self._delayed.needs_no_victims(decision.workload, self._now)
            if not cycle.success:
                break
        wake = self.engine.next_wake(self._time)
        if wake is not None:
            self._after(max((wake - self._time).total_seconds(), CYCLE_SECONDS), lambda: None)

    def _admit(self, decision: Decision) -> None:
        key = decision.workload
        self._put(lifecycle.reserved(self._workloads[key], decision, self._time))
        self.engine.admission_written(key, self._time)
        self.admitted[key.name] = self._now
        if key.namespace != "owner" and key.name not in self._long:
            self._after(self._run * self._random.uniform(0.5, 1.5), partial(self._end, key))

    def _end(self, key: Key) -> None:
        if self._workloads[key].reserved and not self._workloads[key].evicted:
            self._put(lifecycle.finished(self._workloads[key], "Succeeded", "", self._time))
            self.submit(self._ending, cpu=1, priority=1_000_000)

    def _preempt(self, decision: Decision) -> None:
        victims = [each for each in decision.victims if not each.evicted]
        delay = delay_for_victims(victims, self.engine, PREEMPTION_DELAY)
        if victims and not self._delayed.take_due(decision.workload, self._now):
            self._delayed.delay(decision.workload, (each.workload for each in victims), until=self._now + delay)
            self._after(delay, lambda: None)
            return
        for victim in victims:
            self.evictions += 1
            value = self._workloads[victim.workload]
            self._put(lifecycle.evicted(value, "Preempted", victim.message, self._time, preempted=victim.reason))
            self._after(EVICTION_SECONDS, partial(self._release, victim.workload))

    def _release(self, key: Key) -> None:
        self._put(lifecycle.released(self._workloads[key], self._time))


@pytest.mark.parametrize("run", [0.05, 0.5, 1.9, 5.0, 9.9, 60.0])
@pytest.mark.parametrize("beside", [False, True], ids=["in the queue", "in another of the cohort"])
def test_a_queue_gets_its_own_quota_back_after_one_delay_however_soon_the_borrower_replaces_its_workloads(
    run: float, beside: bool
) -> None:
    cohort = Cohort(run=run, beside=beside)
    cohort.pass_seconds(2 * run + 5.0)
    submitted = cohort.now
    name = cohort.submit("owner", cpu=OWNED, priority=0)
    cohort.pass_seconds(60.0)
    waited = cohort.admitted[name] - submitted
    assert waited <= LONGEST_DELAY + EVICTION_SECONDS
    assert cohort.evictions <= OWNED
