# SPDX-License-Identifier: Apache-2.0
"""Slices of elastic jobs, of which a newer one takes the quota of an older over (`docs/spec/engine.md §3.7`, §3.11)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations

import pytest

from multikueue.api.constants import AdmissionMode
from multikueue.engine import Gates, Outcome, Settings, lifecycle
from multikueue.engine.settings import AdmissionFairSharing
from multikueue.engine.values import AdmissionCheck
from multikueue.engine.workloads import Admission, Workload
from tests.support.engine_builders import Bench, checks, group, holding, key, pods, preemption, queue, workload

ELASTIC = Settings(pods_ready=None, gates=Gates(elastic_jobs=True))
BY_TIME = replace(ELASTIC, gates=Gates(elastic_jobs=True, priority_sorting_within_cohort=False))


def slice_of(
    job: str, name: str, count: int, *, after: str = "", at_queue: str = "q", priority: int = 0, created: float = 0
) -> Workload:
    """A slice of so many pods of one CPU; `after` is the one that it replaces."""
    replaces = f"default/{after}" if after else ""
    pod_set = pods(count, cpu="1")
    return workload(
        name, at_queue, pod_set, job_uid=job, replaces=replaces, priority=priority, created=created, generation=1
    )


def lending(settings: Settings) -> Bench:
    """Queue `loose` uses four of the cohort's six CPUs with one slice; `strict` may reclaim by priority."""
    policy = preemption(reclaim="LowerPriority", borrow="LowerPriority")
    bench = Bench(
        queue("loose", group(default="2"), cohort="c"),
        queue("strict", group(default="2"), cohort="c", preemption=policy),
        queue("idle", group(default="2"), cohort="c"),
        settings=settings,
    )
    return bench.add(holding(slice_of("j", "old", 4, at_queue="loose"), "loose"))


@pytest.mark.parametrize(
    ("settings", "priority"),
    [
        pytest.param(ELASTIC, 10, id="first by its priority"),
        pytest.param(BY_TIME, 0, id="first by its time"),
    ],
)
def test_a_slice_that_was_replaced_in_a_cycle_is_no_victim_of_a_later_head(settings: Settings, priority: int) -> None:
    bench = lending(settings)
    bench.add(
        slice_of("j", "new", 5, after="old", at_queue="loose", priority=priority),
        workload("preemptor", "strict", pods(3, cpu="1"), priority=5, created=5),
    )
    new, preemptor = bench.cycle().decisions
    assert (new.outcome, new.replaced_slice) == (Outcome.RESERVED, key("old"))
    assert (preemptor.outcome, preemptor.victims) == (Outcome.PENDING, ())
    assert "2 more needed" in preemptor.message, "what the old slice held is not free"
    assert list(bench.engine.cluster_queue_state("loose").reservation.values()) == [5000]


def test_a_preemptor_takes_another_victim_than_a_slice_that_was_replaced_in_its_cycle() -> None:
    bench = lending(ELASTIC)
    bench.add(holding(workload("other", "loose", pods(2, cpu="1"), priority=1), "loose"))
    bench.engine.upsert_cluster_queue(queue("idle", group(default="4"), cohort="c"), bench.now)
    bench.add(
        slice_of("j", "new", 5, after="old", at_queue="loose", priority=10),
        workload("preemptor", "strict", pods(3, cpu="1"), priority=5, created=5),
    )
    decisions = {decision.workload.name: decision for decision in bench.cycle().decisions}
    assert decisions["new"].outcome is Outcome.RESERVED
    assert [victim.workload.name for victim in decisions["preemptor"].victims] == ["other"]


def test_a_preemptor_that_comes_first_keeps_a_slice_from_being_replaced() -> None:
    bench = lending(ELASTIC)
    bench.add(
        slice_of("j", "new", 5, after="old", at_queue="loose"),
        workload("preemptor", "strict", pods(3, cpu="1"), priority=5, created=5),
    )
    decisions = {decision.workload.name: decision for decision in bench.cycle().decisions}
    assert [victim.workload.name for victim in decisions["preemptor"].victims] == ["old"]
    assert decisions["new"].outcome is Outcome.PENDING
    assert decisions["new"].replaced_slice is None


def test_the_preemptor_of_a_slice_that_was_replaced_may_preempt_the_new_one_after_the_flush() -> None:
    bench = lending(BY_TIME)
    bench.add(
        slice_of("j", "new", 5, after="old", at_queue="loose"),
        workload("preemptor", "strict", pods(3, cpu="1"), priority=5, created=5),
    )
    bench.settle()
    assert bench.waits("strict") == ["[preemptor]"]
    bench.pass_time(1)
    assert [victim.workload.name for victim in bench.decide("preemptor").victims] == ["new"]


def test_what_a_new_slice_uses_less_is_offered_to_others() -> None:
    bench = Bench(queue("q", group(default="6")), settings=ELASTIC)
    workers = pods(2, "workers", cpu="1"), pods(1, "others", cpu="1")
    old = workload("old", "q", pods(1, "workers", cpu="1"), pods(4, "others", cpu="1"), job_uid="j")
    bench.add(holding(old, "q"), workload("waiting", "q", pods(3, cpu="1"), created=1))
    bench.settle()
    assert bench.waits("q") == ["[waiting]"]
    bench.add(workload("new", "q", *workers, job_uid="j", replaces="default/old", created=2))
    bench.settle()
    assert bench.has_quota("new")
    bench.settle_after(1)
    assert bench.has_quota("waiting")


def test_a_slice_takes_over_what_is_not_evicted_after_all() -> None:
    bench = Bench(
        queue("loose", group(default="0"), cohort="c"),
        queue("strict", group(default="4"), cohort="c", preemption=preemption(reclaim="Any")),
        settings=ELASTIC,
    )
    bench.add(holding(slice_of("j", "old", 2, at_queue="loose"), "loose"))
    bench.add(workload("preemptor", "strict", pods(3, cpu="1")))
    assert bench.decide("preemptor").outcome is Outcome.PREEMPTING
    bench.add(slice_of("j", "new", 3, after="old", at_queue="loose"))
    bench.settle()
    assert bench.waits("loose") == ["[new]"]
    bench.engine.delete_workload(key("preemptor"), bench.now)
    bench.engine.eviction_failed(key("old"), bench.now)
    bench.settle_after(1)
    assert bench.has_quota("new")


def test_a_slice_is_evaluated_though_a_job_of_its_size_found_no_quota() -> None:
    bench = Bench(queue("q", group(default="4")), settings=ELASTIC)
    bench.add(holding(slice_of("j", "old", 2), "q"), holding(workload("x", "q", pods(1, cpu="1")), "q"))
    bench.add(slice_of("other", "fresh", 3, created=1))
    bench.settle()
    assert bench.waits("q") == ["[fresh]"]
    bench.add(slice_of("j", "new", 3, after="old", created=2))
    assert bench.waits("q") == ["[fresh]", "new"]
    bench.settle()
    assert bench.has_quota("new"), "it needs one more"


def test_a_job_is_evaluated_though_a_slice_of_its_size_found_no_quota() -> None:
    bench = Bench(queue("q", group(a="2", b="4")), settings=ELASTIC)
    bench.add(holding(slice_of("j", "old", 2), "q", flavor="a"))
    bench.add(slice_of("j", "new", 3, after="old", created=2))
    bench.settle()
    bench.add(slice_of("other", "fresh", 3, created=3))
    bench.settle()
    assert bench.has_quota("fresh"), "it may have another flavor"
    assert bench.waits("q") == ["[new]"]
    bench.add(slice_of("j", "new", 3, created=2))
    assert bench.waits("q") == ["new"], "it is evaluated anew once it replaces none"


def chain() -> dict[str, Workload]:
    """Four slices of a job that the API shows with a reservation, since the former three are not finished yet."""
    names = ["", *"abcd"]
    return {
        name: holding(slice_of("j", name, count, after=after), "q")
        for count, (after, name) in enumerate(pairwise(names), 1)
    }


def counted(bench: Bench) -> list[str]:
    return sorted(key.name for key in bench.engine.reservations.records)


@pytest.mark.parametrize("order", ["".join(order) for order in permutations("abcd")])
def test_only_the_newest_slice_counts_whatever_the_order_in_which_they_are_seen(order: str) -> None:
    bench = Bench(queue("q", group(default="10")), settings=ELASTIC)
    slices = chain()
    bench.add(*(slices[name] for name in order))
    assert counted(bench) == ["d"]
    bench.add(*(replace(slices[name], generation=2) for name in order))
    assert counted(bench) == ["d"]
    assert list(bench.engine.cluster_queue_state("q").reservation.values()) == [4000]


@pytest.mark.parametrize("order", ["".join(order) for order in permutations("abcd")])
def test_former_slices_finish_in_any_order_and_count_for_nothing(order: str) -> None:
    bench = Bench(queue("q", group(default="10")), settings=ELASTIC)
    slices = chain()
    bench.add(*slices.values())
    left = dict(slices)
    for name in order.replace("d", ""):
        bench.add(lifecycle.replaced(left.pop(name), slices["d"], bench.now))
        bench.add(*(replace(value, generation=3) for value in left.values()))
        assert counted(bench) == ["d"], f"{name} is finished"
    bench.finish("d")
    assert counted(bench) == []


def test_a_slice_counts_again_when_the_one_that_replaced_it_loses_its_quota() -> None:
    bench = Bench(queue("q", group(default="10")), settings=ELASTIC)
    slices = chain()
    bench.add(*slices.values())
    bench.engine.delete_workload(key("d"), bench.now)
    assert counted(bench) == ["c"]
    bench.add(lifecycle.released(lifecycle.evicted(slices["c"], "Preempted", "", bench.now), bench.now))
    assert counted(bench) == ["b"]


def test_a_slice_of_another_job_replaces_nothing_and_brings_nothing_back() -> None:
    bench = Bench(queue("q", group(default="10")), settings=ELASTIC)
    bench.add(holding(slice_of("j", "a", 1), "q"), holding(slice_of("other", "b", 2, after="a"), "q"))
    assert counted(bench) == ["a", "b"]
    bench.engine.delete_workload(key("b"), bench.now)
    assert list(bench.engine.cluster_queue_state("q").reservation.values()) == [1000]


def test_a_slice_that_names_itself_counts_once() -> None:
    bench = Bench(queue("q", group(default="10")), settings=ELASTIC)
    for generation in (1, 2):
        bench.add(replace(holding(slice_of("j", "a", 1, after="a"), "q"), generation=generation))
        assert counted(bench) == ["a"]
    bench.finish("a")
    assert counted(bench) == []


def test_slices_that_name_each_other_count_one_at_a_time() -> None:
    bench = Bench(queue("q", group(default="10")), settings=ELASTIC)
    a, b = (holding(slice_of("j", name, 1, after=after), "q") for name, after in ("ab", "ba"))
    for value in (a, b, a, b):
        bench.add(value)
        assert counted(bench) == [value.key.name]


def test_a_slice_that_is_seen_in_another_queue_does_not_bring_the_former_back() -> None:
    bench = Bench(queue("q", group(default="10")), queue("r", group(default="10")), settings=ELASTIC)
    slices = chain()
    bench.add(slices["a"], slices["b"])
    bench.add(replace(slices["b"], admission=replace(reserved_in(slices["b"]), cluster_queue="r")))
    assert counted(bench) == ["b"]


def reserved_in(value: Workload) -> Admission:
    assert value.admission is not None
    return value.admission


def test_a_slice_that_is_replaced_before_it_is_admitted_is_charged_to_its_local_queue_no_more() -> None:
    sharing = AdmissionFairSharing(half_life_seconds=300, sampling_seconds=300)
    bench = Bench(
        queue("q", group(default="6"), admission_mode=AdmissionMode.USAGE_BASED, checks=checks("c")),
        settings=replace(ELASTIC, admission_fair_sharing=sharing),
    )
    bench.engine.upsert_admission_check(AdmissionCheck(name="c", controller="x", active=True), bench.now)
    order = bench.engine.usage_order
    assert order is not None
    bench.add(slice_of("j", "old", 2))
    bench.settle()
    assert list(order.of(key("q")).penalties) == [key("old")]
    bench.add(slice_of("j", "new", 3, after="old", created=1))
    bench.settle()
    assert list(order.of(key("q")).penalties) == [key("new")]
