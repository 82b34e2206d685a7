# SPDX-License-Identifier: Apache-2.0
"""Queues (`docs/spec/engine.md §1.2` to §1.9) and the worked examples 15 and 16 of §13."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from multikueue.api.constants import CheckState, StopPolicy
from multikueue.core.conditions import Condition
from multikueue.core.keys import Key
from multikueue.engine import Gates, Outcome, RequeueReason, Settings
from multikueue.engine.queue.pending import Pending, PendingPlace, backoff_expired, is_queueable, queue_timestamp
from multikueue.engine.queue.queue import Queue
from multikueue.engine.settings import PodsReady, RequeueTimestamp
from multikueue.engine.values import LocalQueue
from multikueue.engine.workloads import CheckStatus
from tests.support.engine_builders import STRICT, Bench, at, group, key, pods, preemption, queue, workload


def condition(kind: str, status: str = "True", reason: str = "R", since: float = 0) -> Condition:
    return Condition(type=kind, status=status, reason=reason, last_transition_time=at(since))


def item(name: str, *, priority: int = 0, created: float = 0, hash: str = "", lq: str = "lq") -> Pending:
    value = workload(name, lq, priority=priority, created=created)
    return Pending(
        value,
        local_queue=key(lq),
        requests=(),
        hash=hash or name,
        priority=priority,
        since=value.created,
        number=len(name),
    )


def filled(*items: Pending) -> Queue:
    made = Queue("q")
    for one in items:
        made.add(one, backoff_expired=True)
    return made


def drain(made: Queue) -> list[str]:
    found = []
    while (pending := made.pop()) is not None:
        found.append(pending.workload.key.name)
        made.remove(pending)
    return found


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, True, id="a fresh workload may wait"),
        pytest.param({"active": False}, False, id="a deactivated one may not"),
        pytest.param({"deleting": True}, False, id="one that is being deleted may not"),
        pytest.param({"gated_by": ("example.com/gate",)}, False, id="a gated one may not"),
        pytest.param({"conditions": (condition("Finished"),)}, False, id="a finished one may not"),
        pytest.param({"conditions": (condition("QuotaReserved"),)}, False, id="one that holds quota may not"),
        pytest.param({"conditions": (condition("QuotaReserved", "False", "OnHold"),)}, False, id="one on hold may not"),
        pytest.param({"conditions": (condition("QuotaReserved", "False", "Pending"),)}, True, id="one that waited may"),
        pytest.param(
            {"conditions": (condition("WaitingForReplacementPods"),)},
            False,
            id="one waiting for replacement pods may not",
        ),
    ],
)
def test_who_may_wait(changes: dict[str, Any], want: bool) -> None:
    assert is_queueable(workload("w", "q", **changes), Settings()) is want


@pytest.mark.parametrize(
    ("conditions", "settings", "want"),
    [
        pytest.param((), Settings(), 0, id="by creation"),
        pytest.param(
            (condition("Evicted", reason="Preempted", since=9),), Settings(), 0, id="by creation though preempted"
        ),
        pytest.param(
            (condition("Evicted", reason="PodsReadyTimeout", since=9),), Settings(), 9, id="by a pods-ready eviction"
        ),
        pytest.param(
            (condition("Evicted", reason="PodsReadyTimeout", since=9),),
            Settings(pods_ready=PodsReady(timestamp=RequeueTimestamp.CREATION)),
            0,
            id="by creation if configured",
        ),
        pytest.param(
            (condition("Evicted", reason="AdmissionCheck", since=9),),
            Settings(pods_ready=PodsReady(timestamp=RequeueTimestamp.CREATION)),
            9,
            id="by the eviction of an admission check in any configuration",
        ),
        pytest.param(
            (condition("Evicted", "False", reason="AdmissionCheck", since=9),),
            Settings(),
            0,
            id="not by an eviction that is over",
        ),
        pytest.param(
            (condition("Preempted", reason="InCohortReclaimWhileBorrowing", since=9),),
            Settings(gates=Gates(priority_sorting_within_cohort=False)),
            9.001,
            id="a millisecond after a reclaim, without priorities across queues",
        ),
    ],
)
def test_by_which_time_a_workload_queues(conditions: tuple[Condition, ...], settings: Settings, want: float) -> None:
    assert queue_timestamp(workload("w", "q", conditions=conditions), settings) == at(want)


@pytest.mark.parametrize(
    ("changes", "seconds", "want"),
    [
        pytest.param({}, 0, True, id="nothing keeps a workload"),
        pytest.param({"requeue_at": at(10)}, 9, False, id="it waits for its time"),
        pytest.param({"requeue_at": at(10)}, 10, True, id="which comes at the second"),
        pytest.param(
            {"conditions": (condition("Requeued", "False"),)}, 99, False, id="Requeued=False keeps it for good"
        ),
    ],
)
def test_backoff(changes: dict[str, Any], seconds: float, want: bool) -> None:
    assert backoff_expired(workload("w", "q", **changes), at(seconds)) is want


def test_heap_order_is_priority_then_time_then_uid() -> None:
    made = filled(
        item("late", created=5), item("b", created=1), item("a", created=1), item("high", priority=3, created=9)
    )
    assert drain(made) == ["high", "a", "b", "late"]


def test_the_sticky_preemptor_goes_before_higher_priority() -> None:
    low, high = item("low"), item("high", priority=5)
    made = filled(low)
    assert made.pop() is low
    made.requeue(low, RequeueReason.PENDING_PREEMPTION, backoff_expired=True)
    made.add(high, backoff_expired=True)
    assert drain(made) == ["low", "high"]


def test_a_strict_queue_has_no_sticky_preemptor() -> None:
    low, high = item("low"), item("high", priority=5)
    made = filled(low)
    made.strategy = STRICT
    made.pop()
    made.requeue(low, RequeueReason.PENDING_PREEMPTION, backoff_expired=True)
    made.add(high, backoff_expired=True)
    assert drain(made) == ["high", "low"]


def test_a_preemptor_stays_sticky_after_a_later_no_fit_and_not_after_it_left() -> None:
    first, other = item("first"), item("other", priority=5)
    made = filled(first, other)
    made.remove(other)
    made.pop()
    made.requeue(first, RequeueReason.PENDING_PREEMPTION, backoff_expired=True)
    made.pop()
    made.requeue(first, RequeueReason.NO_FIT, backoff_expired=True)
    assert made.preemptor is not None
    assert made.preemptor.key == first.workload.key
    made.remove(first)
    assert made.preemptor is None


@pytest.mark.parametrize(
    ("reason", "strict", "best_effort"),
    [
        pytest.param(RequeueReason.FAILED_AFTER_NOMINATION, True, True, id="skipped or not written: at once"),
        pytest.param(RequeueReason.PENDING_PREEMPTION, True, True, id="waits for victims: at once"),
        pytest.param(RequeueReason.PENDING_MIGRATION, True, True, id="waits for migration: at once"),
        pytest.param(RequeueReason.PREEMPTION_FAILED, True, True, id="victims not evicted: at once"),
        pytest.param(RequeueReason.NO_FIT, True, False, id="nothing fits: at once where the order is strict"),
        pytest.param(RequeueReason.PREEMPTION_NO_CANDIDATES, True, False, id="no victims: at once where strict"),
        pytest.param(RequeueReason.PREEMPTION_GATED, True, False, id="gated: at once where strict"),
        pytest.param(RequeueReason.GENERIC, True, False, id="rejected: at once where strict"),
        pytest.param(RequeueReason.NAMESPACE_MISMATCH, False, False, id="wrong namespace: inadmissible everywhere"),
    ],
)
def test_where_a_head_is_requeued(reason: RequeueReason, strict: bool, best_effort: bool) -> None:
    for is_strict, want in ((True, strict), (False, best_effort)):
        made = filled(item("w"))
        if is_strict:
            made.strategy = STRICT
        head = made.pop()
        assert head is not None
        assert made.requeue(head, reason, backoff_expired=True) is want
        assert head.place is (PendingPlace.HEAP if want else PendingPlace.INADMISSIBLE)


def test_a_head_in_back_off_is_inadmissible_for_any_reason() -> None:
    made = filled(item("w"))
    head = made.pop()
    assert head is not None
    assert not made.requeue(head, RequeueReason.FAILED_AFTER_NOMINATION, backoff_expired=False)


def test_example_16_a_flush_during_evaluation_keeps_a_head_admissible() -> None:
    made = filled(item("w"))
    made.pop_cycle = 6
    head = made.pop()
    assert head is not None
    assert made.pop_cycle == 7
    made.flush(lambda _: True, lambda _: True)
    assert made.last_flush == 7
    assert made.requeue(head, RequeueReason.NO_FIT, backoff_expired=True)


def test_a_flush_before_the_pop_does_not() -> None:
    made = filled(item("w"))
    made.flush(lambda _: True, lambda _: True)
    head = made.pop()
    assert head is not None
    assert not made.requeue(head, RequeueReason.NO_FIT, backoff_expired=True)


def test_equals_become_inadmissible_with_a_head_and_are_notified_once() -> None:
    head, equal, other = (
        item("head", hash="h"),
        item("equal", created=1, hash="h", lq="another"),
        item("other", created=2),
    )
    made = filled(head, equal, other)
    made.pop()
    made.requeue(head, RequeueReason.NO_FIT, backoff_expired=True)
    assert made.set_equals_inadmissible(head, RequeueReason.NO_FIT, "WaitingForQuota") == [equal]  # type: ignore[arg-type]
    assert [made.is_inadmissible(one) for one in (head, equal, other)] == [True, True, False]
    late = item("later", created=3, hash="h")
    assert not made.add(late, backoff_expired=True)
    assert drain(made) == ["other"]


def test_a_flush_brings_back_those_whose_namespace_matches_and_whose_backoff_is_over() -> None:
    inadmissible = [item("fits", hash="a"), item("wrong", hash="b"), item("early", hash="c")]
    inadmissible[1].local_queue = Key("elsewhere", "lq")
    made = Queue("q")
    for one in inadmissible:
        made.add(one, backoff_expired=False)
    assert made.flush(lambda p: p.workload.key.name != "early", lambda namespace: namespace == "default")
    assert [made.is_inadmissible(one) for one in inadmissible] == [False, True, True]
    assert made.inadmissible_hashes == {}


def test_a_pending_workload_is_in_one_place_after_any_steps() -> None:
    one = item("w", hash="h")
    made = filled(one)
    for reason in (RequeueReason.NO_FIT, RequeueReason.FAILED_AFTER_NOMINATION, RequeueReason.PENDING_PREEMPTION):
        head = made.pop()
        assert head is one
        assert made.inflight is one
        made.requeue(one, reason, backoff_expired=True)
        places = [one in made.inadmissible.values(), made.inflight is one, one.place is PendingPlace.HEAP]
        assert sum(places) == 1
        made.flush(lambda _: True, lambda _: True)
    made.remove(one)
    assert not made.entries
    assert made.pop() is None


def test_a_preemptor_is_recognised_while_its_generation_is_the_same() -> None:
    one = item("w")
    made = filled(one)
    made.pop()
    made.requeue(one, RequeueReason.PENDING_PREEMPTION, backoff_expired=True)
    assert made.is_preemptor(one)
    one.workload = replace(one.workload, generation=2)
    assert not made.is_preemptor(one)


# Through the engine.

BIG, SMALL = pods(cpu="9"), pods(cpu="1")


def test_example_15_best_effort_makes_equals_inadmissible_and_continues() -> None:
    bench = Bench(queue("q", group(default="5")))
    bench.add(
        workload("held", "q", pods(cpu="3"), created=-1),
        workload("w1", "q", pods(cpu="4"), created=1),
        workload("w2", "q", pods(cpu="4"), created=2),
        workload("w3", "q", pods(cpu="2"), created=3),
    )
    bench.cycle()
    first = bench.cycle()
    assert [(d.workload.name, d.outcome) for d in first.decisions] == [("w1", Outcome.PENDING)]
    assert [(b.workload.name, b.reason) for b in first.bypassed] == [("w2", "WaitingForQuota")]
    assert bench.waits("q") == ["[w1]", "[w2]", "w3"]
    assert bench.decide("w3").outcome is Outcome.RESERVED
    bench.add(workload("w4", "q", pods(cpu="4"), created=4))
    assert bench.waits("q") == ["[w1]", "[w2]", "[w4]"]
    bench.finish("held")
    assert not bench.engine.has_heads(bench.now)
    assert bench.engine.next_wake(bench.now) == at(1)
    bench.pass_time(1)
    assert bench.engine.has_heads(bench.now)
    assert bench.waits("q") == ["w1", "w2", "w4"]
    assert bench.decide("w1").message.endswith("1 more needed")


def test_a_workload_created_after_its_equal_failed_has_the_reason() -> None:
    bench = Bench(queue("q", group(default="5")))
    bench.add(workload("first", "q", BIG))
    bench.cycle()
    bench.add(workload("second", "q", BIG, created=1))
    found = bench.engine.bypassed(key("second"))
    assert found is not None
    assert (found.reason, found.message) == (
        "ExceedsMaxQuota",
        "Bypassed scheduling evaluation because an equivalent workload recently failed",
    )
    assert bench.engine.bypassed(key("first")) is None
    assert bench.engine.cluster_queue_state("q").inadmissible == 2


def test_example_15_strict_tries_its_head_again_and_nothing_behind_it() -> None:
    bench = Bench(queue("q", group(default="5"), strategy=STRICT))
    bench.add(workload("w1", "q", BIG), workload("w3", "q", SMALL, created=3))
    for _ in range(3):
        assert [d.workload.name for d in bench.cycle().decisions] == ["w1"]
    assert bench.waits("q") == ["w1", "w3"]


def inadmissible(**changes: Any) -> Bench:
    bench = Bench(queue("q", group(default="5")))
    bench.add(workload("w", "q", BIG, generation=1, **changes))
    bench.cycle()
    assert bench.waits("q") == ["[w]"]
    return bench


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"conditions": (condition("QuotaReserved", "False", "Pending"),)}, "[w]", id="a status does not"),
        pytest.param({"checks": (CheckStatus(name="c", state=CheckState.READY),)}, "[w]", id="a check does not"),
        pytest.param({"priority": 3, "generation": 2}, "w", id="a spec does"),
        pytest.param({"reclaimable": {"main": 1}}, "w", id="reclaimable pods do"),
        pytest.param(
            {"conditions": (condition("Evicted"),)}, "[w]", id="an eviction does not while its equals are inadmissible"
        ),
        pytest.param({"preemption_gate_closed": True}, "[w]", id="nor does a preemption gate"),
    ],
)
def test_which_updates_make_a_workload_admissible(change: dict[str, object], want: str) -> None:
    bench = inadmissible()
    known = bench.engine.workload(key("w"))
    assert known is not None
    bench.add(replace(known, **change))  # type: ignore[arg-type]
    assert bench.waits("q") == [want]


def test_a_workload_whose_backoff_runs_out_comes_back_by_itself() -> None:
    bench = Bench(queue("q", group(default="5")))
    bench.add(workload("w", "q", SMALL, requeue_at=at(7)))
    assert not bench.engine.has_heads(bench.now)
    assert bench.engine.next_wake(bench.now) == at(7)
    bench.pass_time(7)
    assert bench.decide("w").outcome is Outcome.RESERVED


def test_stopping_a_local_queue_takes_its_workloads_out_and_resuming_brings_them_back() -> None:
    bench = Bench(queue("q", group(default="5")))
    bench.add(workload("w", "q", SMALL))
    stopped = LocalQueue(key=key("q"), cluster_queue="q", stop_policy=StopPolicy.HOLD)
    bench.engine.upsert_local_queue(stopped, bench.now)
    assert bench.waits("q") == []
    assert bench.engine.local_queue_state(key("q")).pending == 0
    bench.engine.upsert_local_queue(replace(stopped, stop_policy=StopPolicy.NONE), bench.now)
    assert bench.waits("q") == ["w"]


def test_a_workload_moves_with_its_queue_name() -> None:
    bench = Bench(queue("q", group(default="5")), queue("other", group(default="5")))
    bench.add(workload("w", "q", SMALL))
    bench.add(workload("w", "other", SMALL))
    assert (bench.waits("q"), bench.waits("other")) == ([], ["w"])


def test_a_workload_may_come_before_its_queues() -> None:
    bench = Bench()
    bench.add(workload("w", "q", SMALL))
    assert bench.engine.explain(key("w"), bench.now).message == "LocalQueue q doesn't exist"
    bench.engine.upsert_local_queue(LocalQueue(key=key("q"), cluster_queue="q"), bench.now)
    assert bench.waits("q") == ["w"]
    late = Bench(queue("q", group(default="5")))
    late.add(workload("w", "q", SMALL))
    assert late.decide("w").outcome is Outcome.RESERVED


def test_a_flush_is_for_the_whole_tree_and_for_no_other() -> None:
    bench = Bench(
        queue("a", group(default="2"), cohort="co"),
        queue("b", group(default="2"), cohort="co"),
        queue("far", group(default="2")),
    )
    bench.add(workload("held", "a", pods(cpu="2")))
    bench.cycle()
    bench.add(*(workload(f"w-{name}", name, pods(cpu="4")) for name in ("a", "b", "far")))
    bench.cycle()
    assert [bench.waits(name) for name in ("a", "b", "far")] == [["[w-a]"], ["[w-b]"], ["[w-far]"]]
    bench.finish("held")
    bench.pass_time(1)
    bench.engine.has_heads(bench.now)
    assert [bench.waits(name) for name in ("a", "b", "far")] == [["w-a"], ["w-b"], ["[w-far]"]]


def test_admitting_another_is_no_reason_to_look_again() -> None:
    bench = Bench(queue("a", group(default="2"), cohort="co"), queue("b", group(default="2"), cohort="co"))
    bench.add(workload("big", "a", pods(cpu="9")))
    bench.cycle()
    bench.add(workload("small", "b", SMALL))
    bench.cycle()
    bench.pass_time(5)
    assert not bench.engine.has_heads(bench.now)


def test_a_head_that_already_holds_quota_is_dropped() -> None:
    bench = Bench(queue("q", group(default="5")))
    bench.add(workload("w", "q", SMALL))
    assert bench.decide("w").outcome is Outcome.RESERVED
    # An object from before the reservation must not queue it again.
    bench.add(workload("w", "q", SMALL))
    assert bench.waits("q") == []
    assert bench.cycle().decisions == ()


def test_a_reservation_that_could_not_be_written_is_taken_back_and_tried_at_once() -> None:
    bench = Bench(queue("q", group(default="5")))
    bench.add(workload("w", "q", pods(cpu="5")), workload("next", "q", pods(cpu="5"), created=1))
    bench.cycle()
    bench.engine.admission_failed(key("w"), bench.now)
    assert bench.engine.cluster_queue_state("q").reserving == 0
    assert bench.waits("q") == ["w", "next"]
    assert bench.decide("w").outcome is Outcome.RESERVED


def test_example_13_the_later_of_two_borrowers_is_skipped_and_retried_at_once() -> None:
    bench = Bench(
        queue("x", group(default="0"), cohort="co"),
        queue("y", group(default="0"), cohort="co"),
        queue("lender", group(default="10"), cohort="co"),
    )
    bench.add(workload("wx", "x", pods(cpu="6"), priority=1), workload("wy", "y", pods(cpu="6")))
    first = bench.cycle()
    assert [(d.workload.name, d.outcome) for d in first.decisions] == [
        ("wx", Outcome.RESERVED),
        ("wy", Outcome.SKIPPED),
    ]
    assert first.decisions[1].message == "Workload no longer fits after processing another workload"
    assert first.decisions[1].requeue_reason is RequeueReason.FAILED_AFTER_NOMINATION
    second = bench.decide("wy")
    assert (second.outcome, second.requeue_reason) == (Outcome.PENDING, RequeueReason.NO_FIT)
    assert bench.waits("y") == ["[wy]"]


def test_a_preempted_workload_returns_to_its_original_place() -> None:
    bench = Bench(queue("q", group(default="2"), preemption=preemption("LowerPriority")))
    bench.add(workload("old", "q", pods(cpu="2"), created=1), workload("newer", "q", pods(cpu="2"), created=2))
    bench.cycle()
    bench.add(workload("high", "q", pods(cpu="2"), priority=5, created=9))
    bench.cycle()
    bench.evict("old")
    assert [name.strip("[]") for name in bench.waits("q")] == ["high", "old", "newer"]
