# SPDX-License-Identifier: Apache-2.0
"""The workload mix of `docs/spec/engine.md §10.2` in virtual time.

Owns the scenario: queues, arrivals, run times, and a job side that completes evictions at once. Time passes from one
event to the next; a cycle takes none. The engine is driven as the manager drives it: what it decides is written, and
comes back as an object.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

from multikueue.api.constants import PreemptionPolicy
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.core.selectors import LabelSelector
from multikueue.engine import Engine, Outcome, Settings, lifecycle
from multikueue.engine.values import (
    ClusterQueue,
    Flavor,
    FlavorQuotas,
    LocalQueue,
    Namespace,
    PreemptionRules,
    Quota,
    ResourceGroup,
)
from multikueue.engine.workloads import ContainerRequests, PodSet, PodShape, Workload

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Class:
    """One class of workloads of a queue."""

    name: str
    count: int
    every_ms: int
    runs_ms: int
    priority: int
    cpu: int


@dataclass(frozen=True, slots=True)
class Mix:
    """A size of the benchmark."""

    name: str
    cohorts: int
    queues: int
    classes: tuple[Class, ...]


BASELINE = Mix(
    "baseline",
    5,
    6,
    (
        Class("small", 350, 100, 200, 50, 1),
        Class("medium", 100, 500, 500, 100, 5),
        Class("large", 50, 1200, 1000, 200, 20),
    ),
)
LARGE_SCALE = Mix(
    "large-scale",
    10,
    100,
    (
        Class("small", 35, 60, 150, 50, 1),
        Class("medium", 11, 300, 350, 100, 5),
        Class("large", 4, 700, 700, 200, 20),
    ),
)


@dataclass(slots=True)
class Run:
    """What one run came to."""

    mix: Mix
    engine: Engine
    cycles: int = 0
    decisions: int = 0
    admitted: int = 0
    finished: int = 0
    preempted: int = 0
    virtual_seconds: float = 0.0


def shape(cpu: int) -> PodShape:
    """A pod with one container that requests cpu."""
    return PodShape(containers=(ContainerRequests(requests={"cpu": Quantity.of(cpu)}),), fingerprint=f"cpu={cpu}")


def cluster_queue(name: str, cohort: str) -> ClusterQueue:
    """A queue of the benchmark: 20 cpus, and 100 more to borrow."""
    quotas = {"cpu": Quota(nominal=20_000, borrowing_limit=100_000)}
    return ClusterQueue(
        name=name,
        cohort=cohort,
        resource_groups=(ResourceGroup(("cpu",), (FlavorQuotas("rf", quotas),)),),
        namespace_selector=LabelSelector(),
        preemption=PreemptionRules(
            within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY, reclaim_within_cohort=PreemptionPolicy.ANY
        ),
    )


def run(mix: Mix, *, engine: Engine | None = None) -> Run:
    """Run a mix to its end."""
    engine = engine or Engine(Settings(pods_ready=None))
    result = Run(mix, engine)
    engine.upsert_flavor(Flavor(name="rf"), START)
    events: list[tuple[datetime, int, str, Workload]] = []
    number = 0
    shapes = {item.name: shape(item.cpu) for item in mix.classes}
    runs = {item.name: timedelta(milliseconds=item.runs_ms) for item in mix.classes}
    kinds: dict[Key, str] = {}
    for cohort in range(mix.cohorts):
        for index in range(mix.queues):
            name = f"cq-{index}-cohort-{cohort}"
            engine.upsert_cluster_queue(cluster_queue(name, f"cohort-{cohort}"), START)
            engine.upsert_namespace(Namespace(name), START)
            engine.upsert_local_queue(LocalQueue(key=Key(name, name), cluster_queue=name), START)
            for item in mix.classes:
                for position in range(item.count):
                    number += 1
                    created = START + timedelta(milliseconds=item.every_ms * (position + 1))
                    key = Key(name, f"{item.name}-{position}")
                    kinds[key] = item.name
                    workload = Workload(
                        key=key,
                        uid=f"uid-{number:06}",
                        created=created,
                        queue_name=name,
                        pod_sets=(PodSet(shape=shapes[item.name]),),
                        priority=item.priority,
                    )
                    heappush(events, (created, number, "created", workload))
    running: dict[Key, int] = {}
    now = START
    while True:
        while events and events[0][0] <= now:
            _, sequence, kind, workload = heappop(events)
            if kind == "created":
                engine.upsert_workload(workload, now)
            elif running.get(workload.key) == sequence:
                del running[workload.key]
                result.finished += 1
                engine.upsert_workload(lifecycle.finished(workload, "Succeeded", "", now), now)
        while engine.has_heads(now):
            cycle = engine.cycle(now)
            result.cycles += 1
            result.decisions += len(cycle.decisions)
            for decision in cycle.decisions:
                if decision.outcome is Outcome.RESERVED:
                    result.admitted += 1
                    number += 1
                    waiting = engine.workload(decision.workload)
                    assert waiting is not None, decision.workload
                    held = lifecycle.reserved(waiting, decision, now)
                    engine.upsert_workload(held, now)
                    running[held.key] = number
                    heappush(events, (now + runs[kinds[held.key]], number, "finished", held))
                for victim in decision.victims:
                    result.preempted += 1
                    running.pop(victim.workload, None)
                    evicted = engine.workload(victim.workload)
                    assert evicted is not None, victim.workload
                    evicted = lifecycle.evicted(evicted, "Preempted", victim.message, now, preempted=victim.reason)
                    engine.upsert_workload(lifecycle.released(evicted, now), now)
            if not cycle.success:
                break
        upcoming = [events[0][0]] if events else []
        wake = engine.flushes.next()
        if wake is not None:
            upcoming.append(wake)
        if not upcoming:
            if not engine.has_heads(now):
                break
            upcoming.append(now + timedelta(milliseconds=1))
        if engine.has_heads(now):
            upcoming.append(now + timedelta(milliseconds=1))
        now = max(min(upcoming), now)
    result.virtual_seconds = (now - START).total_seconds()
    return result
