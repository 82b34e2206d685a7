# SPDX-License-Identifier: Apache-2.0
"""The mix as a model in virtual time: `python -m tests.bench.queueing.model`.

The engine and the delays of preemptions are the real ones; the API server is a latency, which is longer while
Workloads are created, and the worker makes one call after another, as in the bench. A cohort of the mix takes seconds,
and evictions differ by a factor of ten between seeds, so that several seeds are run with each rule.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from heapq import heappop, heappush
from itertools import product
from random import Random
from statistics import mean
from typing import Any, Final

from manager.scheduler.delayed_preemptions import DelayedPreemptions, delay_for_victims
from multikueue.core.keys import Key
from multikueue.engine import Engine, Outcome, Settings, lifecycle
from multikueue.engine.decisions import Decision, Victim
from multikueue.engine.values import Flavor, LocalQueue, Namespace
from multikueue.engine.workloads import PodSet, Workload
from tests.bench.engine.mix import BASELINE, LARGE_SCALE, START, Class, Mix, cluster_queue, shape
from tests.bench.figure import FigureShape

_EARLY_HEADS: Final = 1000.0
_ADMISSION_SECONDS: Final = 0.02
_WATCH_SECONDS: Final = 0.005
_BUSY: Final = 1.7  # how much longer a call takes while Workloads are created
_BUSY_ADMISSION: Final = 2.5
_LARGE_CREATION: Final = 205.0


class Rule(StrEnum):
    """What happens to the victims of a decision."""

    FIRST = "first"
    """All victims of the first decision that have not ended are evicted after the delay, as up to November 2026."""
    AGAIN = "again"
    """They are chosen again after it."""
    RUNS = "runs"
    """The same, and the delay follows the runs of Workloads that end soon."""


@dataclass(frozen=True, slots=True)
class ModelRun:
    """What one run came to; `waits` are mean seconds from the creation to the last admission, by class."""

    wall: float
    evictions: int
    waits: dict[str, float]


class Model:
    """One run; `call` is how many seconds a call of the worker takes when nothing is created."""

    def __init__(
        self,
        mix: Mix,
        *,
        rule: Rule,
        delay: float,
        call: float,
        seed: int,
        creation: float | None = None,
        pause: float = 0.0,
    ) -> None:
        """Workloads are created on time, or in `creation` seconds: one of each class and queue after another, those of
        one cohort in a tenth of that, as there are ten cohorts.

        A cycle is at least `pause` seconds after the last one; without it cycles follow at once, and take no time.
        """
        self._mix, self._rule, self._delay, self._call = mix, rule, delay, call
        self._creation, self._pause = creation, pause
        self._next_cycle = 0.0
        self._random = Random(seed)
        self._engine = Engine(Settings(pods_ready=None))
        self._engine.defer_admissions()
        self._engine.allow_early_flushes(_EARLY_HEADS * mix.cohorts / BASELINE.cohorts)
        self._delayed = DelayedPreemptions()
        self._now = 0.0
        self._number = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._values: dict[Key, Workload] = {}
        self._classes: dict[Key, Class] = {}
        self._created_at: dict[Key, float] = {}
        self._admitted_at: dict[Key, float] = {}
        self._evicting: set[Key] = set()
        self._due: list[tuple[float, int, Key, Callable[[Key], Workload]]] = []
        self._expected: dict[Key, int] = {}
        self._calling = False
        self._wake: datetime | None = None
        self._evictions = 0
        self._busy_until = creation or max(each.every_ms * each.count for each in mix.classes) / 1000

    def run(self) -> ModelRun:
        """Run to the end."""
        self._make_queues()
        while self._events:
            self._now, _, event = heappop(self._events)
            event()
            self._decide()
        waits: defaultdict[str, list[float]] = defaultdict(list)
        for key, admitted in self._admitted_at.items():
            waits[self._classes[key].name].append(admitted - self._created_at[key])
        return ModelRun(self._now, self._evictions, {name: mean(found) for name, found in waits.items()})

    def unfinished(self) -> list[Key]:
        """The Workloads that have not ended."""
        return [key for key in self._created_at if key not in self._values or not self._values[key].finished]

    def _make_queues(self) -> None:
        self._engine.upsert_flavor(Flavor(name="rf"), START)
        for name in self._queues():
            self._engine.upsert_cluster_queue(cluster_queue(name, f"cohort-{name.split('-')[1]}"), START)
            self._engine.upsert_namespace(Namespace(name), START)
            self._engine.upsert_local_queue(LocalQueue(key=Key(name, name), cluster_queue=name), START)
        shapes = {each.name: shape(each.cpu) for each in self._mix.classes}
        for moment, name, each, position in self._arrivals():
            workload = Workload(
                key=Key(name, f"{each.name}-{position}"),
                uid=f"{name}-{each.name}-{position}",
                created=START + timedelta(seconds=moment),
                queue_name=name,
                pod_sets=(PodSet(shape=shapes[each.name]),),
                priority=each.priority,
            )
            self._classes[workload.key] = each
            self._created_at[workload.key] = moment
            self._at(moment, partial(self._put, workload))

    def _queues(self) -> list[str]:
        return [f"q-{cohort}-{index}" for cohort in range(self._mix.cohorts) for index in range(self._mix.queues)]

    def _arrivals(self) -> Iterator[tuple[float, str, Class, int]]:
        """When which Workload of which queue and class is created."""
        queues, classes = self._queues(), self._mix.classes
        if self._creation is None:
            for name, each in product(queues, classes):
                for position in range(each.count):
                    yield each.every_ms * (position + 1) / 1000 + self._random.random() / 20, name, each, position
            return
        rounds = range(max(each.count for each in classes))
        seconds = self._creation / len(rounds)
        for position, (index, name), each in product(rounds, enumerate(queues), classes):
            if position < each.count:
                share = index / len(queues) / LARGE_SCALE.cohorts
                yield seconds * (position + share), name, each, position

    def _at(self, moment: float, event: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._events, (moment, self._number, event))

    @property
    def _time(self) -> datetime:
        return START + timedelta(seconds=self._now)

    def _takes(self, seconds: float, busy: float) -> float:
        return seconds * (busy if self._now < self._busy_until else 1.0) * self._random.uniform(0.7, 1.3)

    def _put(self, workload: Workload) -> None:
        self._values[workload.key] = workload
        self._engine.upsert_workload(workload, self._time)

    # The manager.

    def _decide(self) -> None:
        self._end_delays()
        while self._now >= self._next_cycle and self._engine.has_heads(self._time, repeat=False):
            cycle = self._engine.cycle(self._time, repeat=False)
            if self._pause:
                self._next_cycle = self._now + self._pause
                self._at(self._next_cycle, lambda: None)
            for decision in cycle.decisions:
                if decision.outcome is Outcome.RESERVED:
                    answered = self._now + self._takes(_ADMISSION_SECONDS, _BUSY_ADMISSION)
                    self._at(answered, partial(self._admit, decision))
                elif decision.outcome is Outcome.PREEMPTING:
                    self._preempt(decision)
                else:
                    self._delayed.needs_no_victims(decision.workload, self._now)
            if not cycle.success:
                break
        due = self._engine.next_wake(self._time)
        if due is not None and due != self._wake:
            self._wake = due
            self._at(max((due - START).total_seconds(), self._now + 0.001), lambda: None)

    def _preempt(self, decision: Decision) -> None:
        victims = [each for each in decision.victims if not each.evicted and each.workload not in self._evicting]
        if not victims:
            return
        delay = delay_for_victims(victims, self._engine, self._delay) if self._rule is Rule.RUNS else self._delay
        if self._rule is Rule.FIRST:
            for victim in victims:
                self._evicting.add(victim.workload)
                self._at(self._now + delay, partial(self._evict_if_pending, decision, victim))
        elif delay > 0 and not self._delayed.take_due(decision.workload, self._now):
            self._delayed.delay(decision.workload, (each.workload for each in victims), until=self._now + delay)
            self._at(self._now + delay, lambda: None)
        else:
            for victim in victims:
                self._evict(victim)

    def _end_delays(self) -> None:
        for victim in self._delayed.end(self._now, is_pending=self._engine.is_pending):
            self._engine.eviction_failed(victim, self._time)

    def _evict_if_pending(self, decision: Decision, victim: Victim) -> None:
        if self._engine.is_pending(decision.workload):
            self._evict(victim)
        else:
            self._evicting.discard(victim.workload)
            self._engine.eviction_failed(victim.workload, self._time)

    def _evict(self, victim: Victim) -> None:
        self._evicting.add(victim.workload)
        self._at(self._now + self._takes(_ADMISSION_SECONDS, _BUSY_ADMISSION), partial(self._evicted, victim))

    def _evicted(self, victim: Victim) -> None:
        self._evicting.discard(victim.workload)
        value = self._values[victim.workload]
        if value.finished or not value.reserved:
            return
        self._evictions += 1
        self._put(lifecycle.evicted(value, "Preempted", victim.message, self._time, preempted=victim.reason))
        self._expect(victim.workload, self._now, self._released)

    def _admit(self, decision: Decision) -> None:
        key = decision.workload
        self._put(lifecycle.reserved(self._values[key], decision, self._time))
        self._engine.admission_written(key, self._time)
        self._admitted_at[key] = self._now
        self._expect(key, self._now + self._classes[key].runs_ms / 1000, self._finished)

    # The worker.

    def _expect(self, key: Key, due: float, answer: Callable[[Key], Workload]) -> None:
        self._number += 1
        self._expected[key] = self._number
        heappush(self._due, (due + _WATCH_SECONDS, self._number, key, answer))
        self._at(due + _WATCH_SECONDS, self._call_next)

    def _call_next(self) -> None:
        while self._due and not self._calling and self._due[0][0] <= self._now:
            _, number, key, answer = heappop(self._due)
            if self._expected.get(key) == number:
                self._calling = True
                self._at(self._now + self._takes(self._call, _BUSY), partial(self._answered, key, answer))

    def _answered(self, key: Key, answer: Callable[[Key], Workload]) -> None:
        self._calling = False
        self._put(answer(key))
        self._call_next()

    def _finished(self, key: Key) -> Workload:
        return lifecycle.finished(self._values[key], "Succeeded", "", self._time)

    def _released(self, key: Key) -> Workload:
        return lifecycle.released(self._values[key], self._time)


FIGURES = (
    FigureShape("*.wall_seconds", "s"),
    FigureShape("*.evictions", ""),
    FigureShape("*.mean_wait_seconds.*", "s"),
)


def main() -> dict[str, Any]:
    """Means of four seeds with each rule."""
    figures = {}
    for rule in Rule:
        runs = played(rule, seeds=4)
        waits = {each.name: round(mean(run.waits[each.name] for run in runs), 1) for each in BASELINE.classes}
        figures[rule.value] = {
            "wall_seconds": round(mean(run.wall for run in runs), 1),
            "evictions": mean(run.evictions for run in runs),
            "mean_wait_seconds": waits,
        }
    return figures


def played(
    rule: Rule, *, seeds: int, delay: float = 0.1, call: float = 0.012, large: int = 0, pause: float = 0.0
) -> list[ModelRun]:
    """Runs of a part of the mix, with a worker that is slower in proportion.

    It is one cohort of the five of the baseline; or `large` of the thousand queues of the large mix, whose Workloads
    are created in as many seconds as with a real API server.
    """
    whole = LARGE_SCALE if large else BASELINE
    mix = replace(whole, cohorts=1, queues=large) if large else replace(whole, cohorts=1)
    call *= whole.cohorts * whole.queues / mix.queues
    creation = _LARGE_CREATION if large else None
    return [
        Model(mix, rule=rule, delay=delay, call=call, seed=seed, creation=creation, pause=pause).run()
        for seed in range(1, seeds + 1)
    ]


if __name__ == "__main__":
    flags = argparse.ArgumentParser(prog="python -m tests.bench.queueing.model", description=__doc__.partition("\n")[0])
    flags.add_argument("--seeds", type=int, default=4, help="runs with each rule and delay (4)")
    flags.add_argument("--call-ms", type=float, default=12.0, help="how long a call of the worker takes (12)")
    flags.add_argument("--delay", type=float, default=0.1, help="the shortest delay in seconds (0.1)")
    flags.add_argument("--large", type=int, default=0, metavar="N", help="N queues of the mix large-scale")
    flags.add_argument("--pause", type=float, default=0.0, help="seconds between two cycles (0)")
    options = flags.parse_args()
    for rule in Rule:
        runs = played(
            rule,
            seeds=options.seeds,
            delay=options.delay,
            call=options.call_ms / 1000,
            large=options.large,
            pause=options.pause,
        )
        waits = ", ".join(
            f"{each.name} {mean(run.waits[each.name] for run in runs):.0f} s" for each in BASELINE.classes
        )
        counts = sorted(run.evictions for run in runs)
        print(
            f"{rule:5} wall {mean(run.wall for run in runs):.0f} s, evictions {mean(counts):.0f}"
            f" ({', '.join(map(str, counts))}), mean waits {waits}",
            flush=True,
        )
