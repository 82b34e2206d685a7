# SPDX-License-Identifier: Apache-2.0
"""The measurements of `docs/performance.md` that concern the engine.

Owns one function for each figure. All time is processor time of this process.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from time import process_time

from multikueue.core.conditions import Condition
from multikueue.core.keys import Key
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
from multikueue.engine.workloads import Admission, PodSet, PodSetAdmission, Workload
from tests.bench.engine import mix
from tests.bench.figure import Figure

MICRO = 1_000_000


def run_mix(which: mix.Mix, goal: float) -> Figure:
    """The whole mix of §10.2."""
    gc.collect()
    before = process_time()
    result = mix.run(which)
    spent = process_time() - before
    note = (
        f"{result.cycles} cycles, {result.decisions} decisions, {result.admitted} admissions, "
        f"{result.preempted} preemptions, {result.virtual_seconds:.0f} s of virtual time"
    )
    return Figure(f"mix {which.name}: {result.finished} workloads", spent, "CPU s", goal, note)


def queue(name: str, *, nominal: int, cohort: str, reclaim: str = "Any", borrow: str | None = None) -> ClusterQueue:
    """A queue with processors of one flavor, in milli-units."""
    return ClusterQueue(
        name=name,
        cohort=cohort,
        resource_groups=(ResourceGroup(("cpu",), (FlavorQuotas("rf", {"cpu": Quota(nominal)}),)),),
        namespace_selector=mix.cluster_queue("", "").namespace_selector,
        preemption=PreemptionRules(
            within_cluster_queue="LowerPriority", reclaim_within_cohort=reclaim, borrow_within_cohort=borrow
        ),
    )


def engine_of(queues: list[ClusterQueue], *, fair: bool = False) -> Engine:
    """An engine with queues and a local queue for each."""
    engine = Engine(Settings(pods_ready=None, fair_sharing=fair))
    engine.upsert_flavor(Flavor(name="rf"), mix.START)
    engine.upsert_namespace(Namespace("default"), mix.START)
    for value in queues:
        engine.upsert_cluster_queue(value, mix.START)
        engine.upsert_local_queue(LocalQueue(key=Key("default", value.name), cluster_queue=value.name), mix.START)
    engine.flush(mix.START)
    return engine


def pending(number: int, queue_name: str, *, cpu: int, priority: int = 0) -> Workload:
    """A workload of one pod."""
    return Workload(
        key=Key("default", f"w{number}"),
        uid=f"uid-{number:08}",
        created=mix.START + timedelta(milliseconds=number),
        queue_name=queue_name,
        pod_sets=(PodSet(shape=mix.shape(cpu)),),
        priority=priority,
    )


def holding(value: Workload, cluster_queue: str, *, cpu: int) -> Workload:
    """The workload with its quota, reserved in the order of numbers."""
    usage = {"cpu": cpu * 1000}
    return replace(
        value,
        admission=Admission(
            cluster_queue, (PodSetAdmission(name="main", flavors={"cpu": "rf"}, usage=usage, count=1),)
        ),
        conditions=(
            Condition(type="QuotaReserved", status="True", reason="QuotaReserved", last_transition_time=value.created),
        ),
    )


class RepeatedCycle:
    """An engine with that many reserved workloads in ten queues of one cohort, to repeat the same cycle.

    Half of its ten heads fit; the others look for victims and find none. After each cycle all is as before.
    """

    heads = 10

    def __init__(self, reserved: int) -> None:
        self.reserved = reserved
        self.names = [f"q{i}" for i in range(self.heads)]
        share = reserved // self.heads
        self.engine = engine_of([queue(name, nominal=share * 1000 + 20_000, cohort="c") for name in self.names])
        self.number = reserved
        self.later = mix.START + timedelta(days=1)
        self.best = float("inf")
        for number in range(reserved):
            name = self.names[number % self.heads]
            self.engine.upsert_workload(holding(pending(number, name, cpu=1, priority=5), name, cpu=1), mix.START)

    def cycle(self) -> None:
        """One cycle, measured."""
        added = []
        for position, name in enumerate(self.names):
            self.number += 1
            cpu = 1 if position % 2 == 0 else self.reserved // self.heads + 500
            added.append(pending(self.number, name, cpu=cpu, priority=5))
            self.engine.upsert_workload(added[-1], mix.START)
        before = process_time()
        cycle = self.engine.cycle(self.later)
        self.best = min(self.best, process_time() - before)
        assert sum(decision.outcome is Outcome.RESERVED for decision in cycle.decisions) == self.heads // 2
        for value in added:
            self.engine.delete_workload(value.key, mix.START)


def cycle_ratio(rounds: int = 200) -> list[Figure]:
    """The same cycle over 1k, 10k and 100k reserved workloads, alternating, so that all run under the same load."""
    engines = [RepeatedCycle(reserved) for reserved in (1_000, 10_000, 100_000)]
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for engine in engines:
            engine.cycle()
    gc.enable()
    note = ", ".join(f"{engine.reserved // 1000}k: {engine.best * MICRO:.0f} µs" for engine in engines)
    return [
        Figure(f"a cycle over {engine.reserved} reserved, against 1000", engine.best / engines[0].best, "×", 1.3, note)
        for engine in engines[1:]
    ]


def quota_edit() -> Figure:
    """An edit of one queue among 1,000 in 100 trees, against one in an engine with only its tree."""

    def edit(engine: Engine) -> float:
        spent = []
        for size in range(50):
            value = queue("q-0-0", nominal=(20 + size) * 1000, cohort="c0")
            before = process_time()
            engine.upsert_cluster_queue(value, mix.START)
            spent.append(process_time() - before)
        return sorted(spent)[len(spent) // 2] * MICRO

    def engine(trees: int) -> Engine:
        return engine_of(
            [queue(f"q-{tree}-{i}", nominal=20_000, cohort=f"c{tree}") for tree in range(trees) for i in range(10)]
        )

    alone, among = edit(engine(1)), edit(engine(100))
    return Figure("a quota edit among 1,000 queues over one among 10", among / alone, "×", 1.3, f"{among:.0f} µs")


def many_candidates(*, needed: int, queues: int = 1, fair: bool = False, count: int = 10_000) -> Figure:
    """A preemptor that could evict any of that many workloads, of so many other queues, and needs some."""
    others = [f"other{i}" for i in range(queues)]
    engine = engine_of(
        [
            queue("mine", nominal=count * 1000, cohort="c"),
            *(queue(name, nominal=0, cohort="c") for name in others),
        ],
        fair=fair,
    )
    for number in range(count):
        name = others[number % queues]
        engine.upsert_workload(holding(pending(number, name, cpu=1), name, cpu=1), mix.START)
    spent = []
    for attempt in range(3):
        head = pending(count + attempt, "mine", cpu=needed, priority=10)
        engine.upsert_workload(head, mix.START)
        gc.collect()
        before = process_time()
        explained = engine.explain(head.key, mix.START)
        spent.append(process_time() - before)
        assert len(explained.victims) == needed, len(explained.victims)
        engine.delete_workload(head.key, mix.START)
    name = f"a preemptor facing {count} candidates in {queues} queues, evicting {needed}"
    return Figure(f"{name}, fair sharing" if fair else name, min(spent) * 1000, "ms", 20.0)


def unfair(count: int = 10_000) -> Figure:
    """A preemptor under fair sharing who has had its share, so that no candidate may be evicted for it."""
    engine = engine_of(
        [
            queue("mine", nominal=0, cohort="c"),
            queue("other", nominal=0, cohort="c"),
            queue("lender", nominal=2 * count * 1000, cohort="c"),
        ],
        fair=True,
    )
    for number in range(2 * count):
        name = "mine" if number % 2 else "other"
        engine.upsert_workload(holding(pending(number, name, cpu=1, priority=5), name, cpu=1), mix.START)
    head = pending(2 * count, "mine", cpu=10, priority=5)
    engine.upsert_workload(head, mix.START)
    spent = []
    for _ in range(3):
        gc.collect()
        before = process_time()
        explained = engine.explain(head.key, mix.START)
        spent.append(process_time() - before)
        assert not explained.victims
    return Figure(
        f"a preemptor facing {count} candidates, none of whom it would be fair to evict", min(spent) * 1000, "ms", 20.0
    )


def hopeless(count: int = 10_000) -> Figure:
    """A preemptor whom all candidates together could not help."""
    engine = engine_of([queue("mine", nominal=count * 1000, cohort="c"), queue("other", nominal=0, cohort="c")])
    for number in range(count):
        priority = 0 if number % 2 else 20
        engine.upsert_workload(holding(pending(number, "mine", cpu=1, priority=priority), "mine", cpu=1), mix.START)
    head = pending(count, "mine", cpu=count // 2 + 1, priority=10)
    engine.upsert_workload(head, mix.START)
    spent = []
    for _ in range(3):
        gc.collect()
        before = process_time()
        explained = engine.explain(head.key, mix.START)
        spent.append(process_time() - before)
        assert not explained.victims
    return Figure(f"a preemptor facing {count} candidates, none of whom would do", min(spent) * 1000, "ms", 20.0)


def fair_cycle(count: int = 1_000) -> Figure:
    """A cycle with a head in each of 1,000 queues of one cohort, under fair sharing, against the same without."""

    def run(*, fair: bool) -> float:
        spent = []
        for _ in range(3):
            engine = engine_of([queue(f"q{i}", nominal=2000, cohort="c") for i in range(count)], fair=fair)
            for i in range(count):
                engine.upsert_workload(pending(i, f"q{i}", cpu=1 + i % 3, priority=i % 5), mix.START)
            gc.collect()
            before = process_time()
            engine.cycle(mix.START)
            spent.append(process_time() - before)
        return sorted(spent)[1] * 1000

    fair, classical = run(fair=True), run(fair=False)
    note = f"the whole cycle takes {fair:.0f} ms, without fair sharing {classical:.0f} ms"
    return Figure(f"fair order over a cohort of {count} queues", fair - classical, "ms", 50.0, note)


def memory(count: int = 100_000) -> Figure:
    """What a pending workload occupies, value and all."""
    engine = engine_of([queue(f"q{i}", nominal=1000, cohort=f"c{i % 10}") for i in range(100)])
    shapes = [mix.shape(cpu) for cpu in (1, 2, 4)]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(count):
        value = Workload(
            key=Key("default", f"workload-{number:06}-{number % 977}"),
            uid=f"8f14e45f-ceea-467f-a0e6-{number:012}",
            created=mix.START + timedelta(seconds=number),
            queue_name=f"q{number % 100}",
            pod_sets=(PodSet(shape=shapes[number % 3], count=1 + number % 7),),
            priority=number % 5,
        )
        engine.upsert_workload(value, mix.START)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert engine.cluster_queue_state("q0").pending == count // 100
    return Figure(f"a pending workload among {count}", used / count / 1024, "KiB", 2.0)


def upsert_cost(count: int = 20_000) -> Figure:
    """Taking in one new pending workload."""
    engine = engine_of([queue(f"q{i}", nominal=1000, cohort="c") for i in range(10)])
    values = [pending(number, f"q{number % 10}", cpu=1 + number % 3) for number in range(count)]
    before = process_time()
    for value in values:
        engine.upsert_workload(value, mix.START)
    return Figure("taking in a pending workload", (process_time() - before) / count * MICRO, "µs", 60.0)


def finish_cost(count: int = 20_000) -> Figure:
    """Taking in the end of one reserved workload."""
    engine = engine_of([queue(f"q{i}", nominal=10**9, cohort="c") for i in range(10)])
    values = []
    for number in range(count):
        name = f"q{number % 10}"
        values.append(holding(pending(number, name, cpu=1), name, cpu=1))
        engine.upsert_workload(values[-1], mix.START)
    ended = [lifecycle.finished(value, "Succeeded", "", mix.START) for value in values]
    before = process_time()
    for value in ended:
        engine.upsert_workload(value, mix.START)
    return Figure("taking in the end of a workload", (process_time() - before) / count * MICRO, "µs", 60.0)


def all_figures() -> list[Callable[[], Figure | list[Figure]]]:
    """Everything, cheapest first."""
    return [
        upsert_cost,
        finish_cost,
        quota_edit,
        lambda: many_candidates(needed=100),
        lambda: many_candidates(needed=100, queues=1000),
        lambda: many_candidates(needed=2000),
        lambda: many_candidates(needed=100, fair=True),
        lambda: many_candidates(needed=100, queues=100, fair=True),
        lambda: many_candidates(needed=100, queues=1000, fair=True),
        hopeless,
        unfair,
        fair_cycle,
        memory,
        cycle_ratio,
        lambda: run_mix(mix.BASELINE, 15.0),
        lambda: run_mix(mix.LARGE_SCALE, 60.0),
    ]
