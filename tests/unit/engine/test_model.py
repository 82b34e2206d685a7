# SPDX-License-Identifier: Apache-2.0
"""The engine against the model, after every step (`tests/support/reference_engine.py`)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from multikueue.core.conditions import Condition
from multikueue.core.keys import Key
from multikueue.engine import Engine, Settings, lifecycle
from multikueue.engine.decisions import Cycle, Decision, Outcome
from multikueue.engine.settings import FairStrategy
from multikueue.engine.values import ClusterQueue, Cohort, Flavor, LocalQueue, Namespace, ResourceGroup
from multikueue.engine.workloads import PodSet, Workload
from tests.support.engine_builders import (
    HOLD,
    NAMESPACE,
    START,
    STRICT,
    fungibility,
    group,
    key,
    pods,
    preemption,
    queue,
    tainted,
    workload,
)
from tests.support.engine_builders import shape as pod_shape
from tests.support.engine_builders import tolerates as toleration
from tests.support.reference_engine import ReferenceEngine, Tree, Verdict

QUEUES = ("q0", "q1", "q2", "q3")
COHORTS = ("c0", "c1", "c2", "c3")
FLAVORS = ("fa", "fb")


def quotas(draw: Random, *, limited: bool) -> str:
    text = str(draw.randint(0, 8))
    if not limited:
        return text
    limits = [str(draw.randint(0, 4)) if draw.random() < 0.35 else "" for _ in range(2)]
    return "/".join([text, *limits])


def groups(draw: Random, *, limited: bool) -> tuple[ResourceGroup, ...]:
    names = draw.choice((("fa",), ("fa", "fb"), ("fb", "fa")))
    cpu = group(**{name: quotas(draw, limited=limited) for name in names})
    if draw.random() < 0.75:
        return (cpu,)
    return (cpu, group(fm={"memory": quotas(draw, limited=limited)}))


def queue_value(draw: Random, name: str) -> ClusterQueue:
    cohort = draw.choice(("", *COHORTS, *COHORTS, "c0", "c0"))
    reclaim = draw.choice(("Never", "LowerPriority", "Any", "Any"))
    borrow = draw.choice((None, "Never", "LowerPriority")) if reclaim != "Never" else None
    whens = ("MayStopSearch", "TryNextFlavor")
    when = (draw.choice(whens), draw.choice(whens))
    preference = "PreemptionOverBorrowing" if set(when) == {"TryNextFlavor"} and draw.random() < 0.5 else ""
    value = queue(
        name,
        *groups(draw, limited=bool(cohort)),
        cohort=cohort,
        preemption=preemption(
            draw.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
            reclaim,
            borrow,
            draw.choice((None, 1)) if borrow else None,
        ),
        fungibility=fungibility(*when, preference),
        weight=draw.choice((1.0, 1.0, 2.0, 0.0)),
    )
    return replace(value, strategy=STRICT) if draw.random() < 0.25 else value


def cohort_value(draw: Random, name: str) -> Cohort:
    # Mostly a tree up to four cohorts deep; now and then an edge back to the first, which may close a cycle.
    above = COHORTS[COHORTS.index(name) + 1 :]
    parent = draw.choice(("", *above, *above)) if draw.random() < 0.9 else "c0"
    return Cohort(
        name=name,
        parent=parent,
        resource_groups=groups(draw, limited=bool(parent)) if draw.random() < 0.7 else (),
        weight=draw.choice((1.0, 1.0, 2.0, 0.0)),
    )


def pod_sets(draw: Random) -> tuple[PodSet, ...]:
    found = []
    for position in range(draw.choice((1, 1, 1, 2))):
        count = draw.randint(1, 4)
        minimum = draw.randint(1, count) if position == 0 and draw.random() < 0.25 else None
        wanted = {"cpu": str(draw.randint(1, 3))}
        if draw.random() < 0.2:
            wanted["memory"] = str(draw.randint(1, 3))
        pod_set = pods(count, f"ps{position}", minimum, **wanted)
        if draw.random() < 0.6:
            pod_set = replace(pod_set, shape=pod_shape((toleration(),), None, **wanted))
        found.append(pod_set)
    return tuple(found)


seeds = st.integers(0, 2**32 - 1).map(Random)


class EngineMachine(RuleBasedStateMachine):
    """Random edits, arrivals, ends and cycles; the model gets the same."""

    fair = False

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.number = 0
        self.known: dict[str, Workload] = {}
        self.decided: dict[str, tuple[Decision, datetime]] = {}
        self.latest: dict[Key, Decision] = {}
        """The last decision of the frugal engine about each workload."""
        self.compared = True

    @initialize(draw=seeds)
    def begin(self, draw: Random) -> None:
        strategies = draw.choice(
            (
                tuple(FairStrategy),
                (FairStrategy.LESS_THAN_INITIAL_SHARE,),
                (FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,),
            )
        )
        chosen = Settings(fair_sharing=self.fair, fair_strategies=strategies, pods_ready=None)
        self.engine, self.twin, self.model = Engine(chosen), Engine(chosen), ReferenceEngine(chosen)
        self.frugal = Engine(chosen)  # leaves out trees in which nothing has changed
        self.all("upsert_namespace", Namespace(NAMESPACE))
        for name in ("fa", "fb", "fm"):
            self.all("upsert_flavor", tainted(name) if name == "fa" else Flavor(name=name))
        for name in COHORTS[: draw.choice((0, 0, 2, 3, 4))]:
            self.all("upsert_cohort", cohort_value(draw, name))
        for name in QUEUES[: draw.randint(1, 4)]:
            self.all("upsert_cluster_queue", queue_value(draw, name))
        for name in QUEUES:
            self.all("upsert_local_queue", LocalQueue(key=key(name), cluster_queue=name))
        for _ in range(draw.randint(2, 8)):
            self.submit(draw)

    def all(self, method: str, value: object) -> None:
        for engine in (self.engine, self.twin, self.frugal, self.model):
            getattr(engine, method)(value, self.now)

    def put(self, value: Workload) -> None:
        self.known[value.key.name] = value
        self.all("upsert_workload", value)

    @rule(draw=seeds, name=st.sampled_from(QUEUES))
    def edit_queue(self, draw: Random, name: str) -> None:
        self.all("upsert_cluster_queue", queue_value(draw, name))

    @rule(name=st.sampled_from(QUEUES))
    def remove_queue(self, name: str) -> None:
        self.all("delete_cluster_queue", name)

    @rule(draw=seeds, name=st.sampled_from(COHORTS))
    def edit_cohort(self, draw: Random, name: str) -> None:
        self.all("upsert_cohort", cohort_value(draw, name))

    @rule(name=st.sampled_from(COHORTS))
    def remove_cohort(self, name: str) -> None:
        self.all("delete_cohort", name)

    @rule(name=st.sampled_from(FLAVORS), spot=st.booleans())
    def edit_flavor(self, name: str, spot: bool) -> None:
        self.all("upsert_flavor", tainted(name) if spot else Flavor(name=name))

    @rule(name=st.sampled_from(FLAVORS))
    def remove_flavor(self, name: str) -> None:
        self.all("delete_flavor", name)

    @rule(name=st.sampled_from(QUEUES), stopped=st.booleans())
    def stop_or_resume(self, name: str, stopped: bool) -> None:
        value = LocalQueue(key=key(name), cluster_queue=name)
        self.all("upsert_local_queue", replace(value, stop_policy=HOLD) if stopped else value)

    @rule(draw=seeds)
    def submit(self, draw: Random) -> None:
        self.number += 1
        self.put(
            workload(
                f"w{self.number}",
                draw.choice(QUEUES),
                *pod_sets(draw),
                priority=draw.randint(0, 2),
                created=draw.randint(0, 20),
            )
        )

    @rule(draw=seeds)
    def submit_several(self, draw: Random) -> None:
        for _ in range(3):
            self.submit(draw)

    @precondition(lambda self: self.known)
    @rule(draw=seeds, priority=st.integers(0, 2))
    def change_priority(self, draw: Random, priority: int) -> None:
        name = draw.choice(sorted(self.known))
        if name not in self.decided:
            self.put(replace(self.known[name], priority=priority, generation=self.known[name].generation + 1))

    @precondition(lambda self: self.known)
    @rule(draw=seeds)
    def finish(self, draw: Random) -> None:
        name = draw.choice(sorted(self.known))
        self.written(name)
        self.put(lifecycle.finished(self.known[name], "Succeeded", "", self.now))
        self.forget(name)

    @precondition(lambda self: self.known)
    @rule(draw=seeds)
    def delete(self, draw: Random) -> None:
        name = draw.choice(sorted(self.known))
        self.all("delete_workload", key(name))
        self.forget(name)

    @precondition(lambda self: self.decided)
    @rule(draw=seeds, gone=st.sampled_from((0, 1, 2)))
    def reclaim(self, draw: Random, gone: int) -> None:
        name = draw.choice(sorted(self.decided))
        self.written(name)
        value = self.known[name]
        self.put(replace(value, reclaimable={value.pod_sets[0].name: gone}))

    @precondition(lambda self: self.decided)
    @rule(draw=seeds, backoff=st.sampled_from((None, 2, 5)))
    def evict(self, draw: Random, backoff: int | None) -> None:
        name = draw.choice(sorted(self.decided))
        self.written(name)
        value = self.known[name]
        reason = "Preempted" if backoff is None else "AdmissionCheck"
        value = lifecycle.released(lifecycle.evicted(value, reason, "", self.now), self.now)
        if backoff is not None:
            flipped = tuple(
                Condition(
                    type=c.type,
                    status="True" if c.type == "Requeued" else c.status,
                    reason=c.reason,
                    last_transition_time=c.last_transition_time,
                )
                for c in value.conditions
            )
            value = replace(value, conditions=flipped, requeue_at=self.now + timedelta(seconds=backoff))
        del self.decided[name]
        self.put(value)

    @rule(seconds=st.sampled_from((0.0, 0.5, 1.0, 3.0)))
    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(instant=st.booleans())
    def settle(self, instant: bool) -> None:
        self.now += timedelta(seconds=1)
        self.cycle(4, instant)

    @rule(times=st.integers(1, 3), instant=st.booleans())
    def cycle(self, times: int, instant: bool) -> None:
        for _ in range(times):
            found = self.engine.cycle(self.now)
            again = self.twin.cycle(self.now)
            assert found == again, "a cycle is a function of what came before"
            self.compare_what_was_left_out(found)
            wanted = self.model.cycle(self.now)
            assert [comparable(decision) for decision in found.decisions] == wanted
            victims: list[str] = []
            for decision in found.decisions:
                if decision.outcome is Outcome.RESERVED:
                    self.decided[decision.workload.name] = (decision, self.now)
                victims.extend(victim.workload.name for victim in decision.victims if not victim.evicted)
            if instant:
                for name in victims:
                    self.written(name)
                    evicted = lifecycle.evicted(self.known[name], "Preempted", "", self.now)
                    self.decided.pop(name, None)
                    self.put(lifecycle.released(evicted, self.now))

    @precondition(lambda self: self.known)
    @rule(draw=seeds)
    def explain(self, draw: Random) -> None:
        self.engine.explain(key(draw.choice(sorted(self.known))), self.now)

    def compare_what_was_left_out(self, full: Cycle) -> None:
        """A cycle that leaves out unchanged trees decides as one over all; what it leaves out, it decided so before.

        The head of a strict queue that has tried all flavors tries them again in a cycle over all, and may be at
        another flavor when something changes: from then on the two are not compared.
        """
        some = self.frugal.cycle(self.now, repeat=False)
        decided = {decision.workload for decision in some.decisions}
        left_out = [decision for decision in full.decisions if decision.workload not in decided]
        self.compared = self.compared and not (full.scan_progress and left_out)
        if self.compared:
            assert all(decision in full.decisions for decision in some.decisions)
            assert [self.latest[decision.workload] for decision in left_out] == left_out
        self.latest.update((decision.workload, decision) for decision in some.decisions)

    def written(self, name: str) -> None:
        """The reservation of a workload is in the API, and comes back."""
        if name in self.decided and not self.known[name].reserved:
            self.put(lifecycle.reserved(self.known[name], *self.decided[name]))

    def forget(self, name: str) -> None:
        self.known.pop(name, None)
        self.decided.pop(name, None)

    @invariant()
    def what_waits_is_the_same(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.engine.has_heads(self.now)
        self.twin.has_heads(self.now)
        self.frugal.has_heads(self.now, repeat=False)
        self.model.catch_up(self.now)
        for name in QUEUES:
            mine = [(p.workload, p.inadmissible) for p in self.engine.pending(name)]
            theirs = [(item.value.key, item.inadmissible) for item in self.model.waiting(name)]
            assert mine == theirs, name
            if self.compared:
                assert mine == [(p.workload, p.inadmissible) for p in self.frugal.pending(name)], name

    @invariant()
    def usage_is_the_sum_of_what_is_reserved(self) -> None:
        if not hasattr(self, "engine"):
            return
        fresh = self.model.tree()
        check_usage(self.engine, fresh)

    @invariant()
    def nothing_is_lost_or_in_two_places(self) -> None:
        if not hasattr(self, "engine"):
            return
        waiting = set(self.engine.waiting.pending)
        holding = set(self.engine.reservations.records)
        assert not waiting & holding
        for name, value in self.known.items():
            stopped = self.engine.waiting.local_queues[key(value.queue_name)].stop_policy == HOLD
            assert key(name) in waiting | holding or stopped, name
        for name in QUEUES:
            assert self.engine.waiting.counts.get(key(name), 0) == len(self.engine.pending(name))
        for cached in self.engine.cluster_queues.values():
            places = [p for p in cached.queue.entries.values() if cached.queue.inflight is p]
            assert not places, "nothing is in flight between cycles"


def comparable(decision: Decision) -> Verdict:
    """A decision as the model has it."""
    assert decision.reason is not None
    return Verdict(
        decision.workload,
        decision.cluster_queue,
        decision.outcome,
        decision.reason,
        decision.message,
        decision.borrowing_level,
        tuple((p.name, p.count, tuple(sorted(p.flavors.items()))) for p in decision.pod_sets),
        tuple(tuple(sorted(tried.items())) for tried in decision.last_tried_flavor_index),
        tuple((victim.workload, victim.reason) for victim in decision.victims),
    )


def check_usage(engine: Engine, fresh: Tree) -> None:
    """Usage and quota of every node are those of a tree built from nothing."""
    for kind, name in fresh.parents:
        node = (engine.forest.queues if kind == "q" else engine.forest.cohorts)[name]
        assert node.cut_off == fresh.cyclic((kind, name)), name
        if node.cut_off and kind == "c":
            continue
        for cell in node.cells.values():
            here = (kind, name)
            assert cell.usage == fresh.used(here, cell.key), (name, cell.key)
            if cell.declared:
                assert cell.quota == fresh.subtree(here, cell.key), (name, cell.key)
                assert cell.potential == fresh.potential(here, cell.key), (name, cell.key)


class FairEngineMachine(EngineMachine):
    """The same under fair sharing."""

    fair = True


BUDGET = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
TestEngineAgainstModel = EngineMachine.TestCase
TestEngineAgainstModel.settings = BUDGET
TestFairEngineAgainstModel = FairEngineMachine.TestCase
TestFairEngineAgainstModel.settings = BUDGET
