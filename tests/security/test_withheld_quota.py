# SPDX-License-Identifier: Apache-2.0
"""A tenant whose Workloads end all the time, and one that never fits, delay others for a short time only.

In virtual time with the real engine. Quota of ended Workloads is withheld until the next flush where Workloads are
inadmissible, and those of higher priorities come first for a while then (ADR 0032). So a tenant can have it withheld
whenever it likes.
"""

from __future__ import annotations

import pytest

from tests.support.engine_builders import Bench, group, key, pods, queue, workload

SHARED, OWNED = 20, 2
STEP = 0.02
WINDOW = 1.0


class Cohort:
    """A hostile queue that has borrowed all, the owner of a part of it, and a queue outside the cohort."""

    def __init__(self) -> None:
        self.bench = Bench(
            queue("hostile", group(default=str(SHARED - OWNED)), cohort="c"),
            queue("owner", group(default=str(OWNED)), cohort="c"),
            queue("stranger", group(default="1")),
        )
        self.bench.engine.defer_admissions()
        self.bench.add(workload("never-fits", "hostile", pods(cpu=str(SHARED + 1)), priority=1_000_000))
        self._number = 0
        self._running: list[str] = []
        for _ in range(2 * SHARED):
            self._replace()

    def _replace(self) -> None:
        """The hostile tenant ends its oldest Workload that holds quota, and submits another one."""
        held = [name for name in self._running if not self._waits(name)]
        if len(held) >= SHARED - OWNED:
            self._running.remove(held[0])
            self.bench.finish(held[0])
        if len(self._running) < 2 * SHARED:
            self._number += 1
            name = f"short-{self._number}"
            self._running.append(name)
            self.bench.add(workload(name, "hostile", pods(cpu="1"), priority=1_000_000, created=self._number))
        self.bench.settle()

    def _waits(self, name: str) -> bool:
        return self.bench.engine.is_pending(key(name))

    def wait_of(self, queue: str, name: str) -> float:
        """How many seconds a Workload of one cpu waits in this queue, before the hostile ones of its ClusterQueue."""
        since = self.bench.now
        self.bench.add(workload(name, queue, pods(cpu="1"), priority=2_000_000))
        self.bench.settle()
        while self._waits(name):
            assert (self.bench.now - since).total_seconds() < 60, self.bench.waits(queue)
            self.bench.pass_time(STEP)
            self._replace()
        waited = (self.bench.now - since).total_seconds()
        self.bench.finish(name)
        self.bench.settle()
        return waited


def test_another_tenant_of_the_same_queue_waits_for_a_second_at_most() -> None:
    cohort = Cohort()
    waits = [cohort.wait_of("hostile", f"own-{number}") for number in range(20)]
    assert 0 < max(waits) <= WINDOW + STEP


@pytest.mark.parametrize("queue", ["owner", "stranger"])
def test_a_queue_within_its_own_quota_does_not_wait(queue: str) -> None:
    cohort = Cohort()
    assert [cohort.wait_of(queue, f"own-{number}") for number in range(20)] == [0.0] * 20


@pytest.mark.parametrize(("runs", "longest"), [(1.0, WINDOW + 0.5), (4.0, WINDOW + 2.0), (60.0, WINDOW + 15.0)])
def test_one_that_waits_for_all_of_a_cohort_keeps_its_quota_from_lower_priorities_for_half_a_run(
    runs: float, longest: float
) -> None:
    bench = Bench(queue("hostile", group(default="1"), cohort="c"), queue("owner", group(default="2"), cohort="c"))
    bench.engine.defer_admissions()
    for number in range(3):
        bench.add(workload(f"other-{number}", "owner", pods(cpu="1"), created=number))
        _run(bench, STEP)
    bench.add(workload("waits-for-all", "hostile", pods(cpu="3"), priority=1_000_000))
    waits = []
    for number in range(3, 10):
        bench.add(workload(f"other-{number}", "owner", pods(cpu="1"), created=number))
        _run(bench, runs)
        bench.finish(f"other-{number - 1}")
        since = bench.now
        while bench.engine.is_pending(key(f"other-{number}")):
            _run(bench, STEP)
        waits.append((bench.now - since).total_seconds())
    assert 0 < max(waits) <= longest + 2 * STEP


def _run(bench: Bench, seconds: float) -> None:
    for _ in range(round(seconds / STEP)):
        while bench.engine.has_heads(bench.now, repeat=False):
            bench.engine.cycle(bench.now, repeat=False)
        bench.pass_time(STEP)
