# SPDX-License-Identifier: Apache-2.0
"""When a run ends, over cycles that a test decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle, islice
from types import SimpleNamespace
from typing import Any, cast

from multikueue.api.reasons import PreemptedReason
from multikueue.core.keys import Key
from multikueue.engine.decisions import Cycle, Decision, Outcome, PodSetFlavors, RequeueReason, Victim
from multikueue.engine.workloads import Workload
from multikueue.simulation.run import Evict, run
from multikueue.simulation.simulated_cluster import SimulatedCluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEFT, RIGHT = Key("ns", "left"), Key("ns", "right")


@dataclass
class Script:
    """An engine with given decisions."""

    cycles: Iterable[Cycle]
    waiting: Any = field(default_factory=lambda: SimpleNamespace(pending={}, local_queues={}))
    cluster_queues: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._left = iter(self.cycles)

    def has_heads(self, now: datetime) -> bool:
        return True

    def cycle(self, now: datetime) -> Cycle:
        return next(self._left)

    def __getattr__(self, name: str) -> Any:
        assert name in ("admission_written", "upsert_workload", "flush"), name
        return lambda *_: None


def workload(key: Key) -> Workload:
    return Workload(key=key, uid=str(key), created=NOW, queue_name="q", pod_sets=())


def cluster(cycles: Iterable[Cycle]) -> SimulatedCluster:
    workloads = {key: workload(key) for key in (LEFT, RIGHT)}
    return SimulatedCluster(cast(Any, Script(cycles)), workloads=workloads)


def decided(key: Key, *, victim: Key | None = None, progress: bool = False, tried: int = -1) -> Cycle:
    outcome = Outcome.PENDING if progress else (Outcome.PREEMPTING if victim else Outcome.RESERVED)
    decision = Decision(
        workload=key,
        uid=str(key),
        cluster_queue="cq",
        outcome=outcome,
        reason=None,
        message="",
        requeue_reason=None if outcome is Outcome.RESERVED else RequeueReason.PENDING_PREEMPTION,
        pod_sets=(PodSetFlavors(name="main", count=1, flavors={"cpu": "f"}, resource_usage={"cpu": 1}),),
        last_tried_flavor_index=({"cpu": tried},),
        victims=()
        if victim is None
        else (
            Victim(
                workload=victim,
                uid=str(victim),
                cluster_queue="cq",
                reason=PreemptedReason.IN_CLUSTER_QUEUE,
                message="",
                evicted=False,
                priority=0,
                rule="",
            ),
        ),
    )
    return Cycle(number=1, decisions=(decision,), success=False, scan_progress=progress)


def test_workloads_that_evict_each_other_without_end_are_named() -> None:
    cycles_to_run = cycle([decided(LEFT, victim=RIGHT), decided(LEFT), decided(RIGHT, victim=LEFT), decided(RIGHT)])
    found = run(cluster(cycles_to_run), now=NOW)
    assert found.endless == (LEFT, RIGHT)
    assert len(found.cycles) < 20


def test_an_eviction_that_comes_back_once_is_no_circle() -> None:
    cycles_to_run = [decided(LEFT, victim=RIGHT), decided(LEFT), decided(RIGHT, victim=LEFT), decided(RIGHT)]
    quiet = Cycle(number=9, decisions=(), success=False)
    found = run(cluster([*cycles_to_run, quiet]), now=NOW)
    assert (found.endless, len(found.cycles)) == ((), 5)


def test_a_scan_of_flavors_that_continues_counts_as_a_change_until_it_repeats() -> None:
    cycles_to_run = cycle([decided(LEFT, progress=True, tried=0), decided(LEFT, progress=True, tried=1)])
    assert len(run(cluster(cycles_to_run), now=NOW).cycles) == 3


def test_the_requested_number_of_cycles_is_run() -> None:
    cycles_to_run = islice(cycle([decided(LEFT, victim=RIGHT), decided(RIGHT, victim=LEFT)]), 40)
    found = run(cluster(cycles_to_run), now=NOW, cycles=40, evict=Evict.NEVER)
    assert (len(found.cycles), found.endless) == (40, ())
