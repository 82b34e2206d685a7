# SPDX-License-Identifier: Apache-2.0
"""Heads are decided again only if something has changed in their tree; `test_model` compares with cycles over all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest

from multikueue.core.keys import Key
from multikueue.engine import Settings
from multikueue.engine.cache.cache import Cache
from multikueue.engine.cache.counted_objects import CountedObjects
from multikueue.engine.decisions import Cycle
from multikueue.engine.devices.claims import ClaimTemplate, DeviceClass, DeviceRequest
from multikueue.engine.engine import Engine
from multikueue.engine.topology.capacity import Node
from multikueue.engine.values import (
    AdmissionCheck,
    Cohort,
    Flavor,
    LimitRange,
    LocalQueue,
    Namespace,
    RuntimeClass,
    TopologyLevels,
)
from multikueue.engine.workloads import Workload
from tests.support.engine_builders import (
    HOLD,
    NAMESPACE,
    START,
    STRICT,
    Bench,
    fungibility,
    group,
    holding,
    key,
    pods,
    preemption,
    queue,
    workload,
)

Event = Callable[[Engine, datetime], object]
TWO = pods(cpu="2")


def preempting() -> Bench:
    """The preemptor of a queue waits for its victim, and so does another tree's."""
    bench = Bench(
        *(queue(name, group(default="2"), preemption=preemption("LowerPriority"), cohort=f"c-{name}") for name in "ab")
    )
    for name in "ab":
        bench.add(held(f"low-{name}", name, "2"), workload(f"high-{name}", name, TWO, priority=1))
    while cycle(bench).decisions:
        pass
    return bench


def held(name: str, cluster_queue: str, cpu: str, flavor: str = "default") -> Workload:
    return holding(workload(name, cluster_queue, pods(cpu=cpu)), cluster_queue, flavor=flavor)


def cycle(bench: Bench) -> Cycle:
    return bench.engine.cycle(bench.now, repeat=False)


def decided(bench: Bench) -> list[str]:
    return [str(decision.workload.name) for decision in cycle(bench).decisions]


def test_a_preemptor_costs_no_cycle_while_its_victim_ends() -> None:
    bench = preempting()
    assert not bench.engine.has_heads(bench.now, repeat=False)
    assert decided(bench) == []


def test_the_end_of_a_victim_has_only_the_heads_of_its_tree_decided() -> None:
    bench = preempting()
    bench.evict("low-a")
    assert decided(bench) == ["high-a"]
    assert decided(bench) == ["low-a"], "it waits again, and nothing of queue b is decided"
    assert not bench.engine.has_heads(bench.now, repeat=False)


def test_a_victim_whose_eviction_failed_is_chosen_again() -> None:
    bench = preempting()
    bench.engine.eviction_failed(key("low-b"), bench.now)
    (decision,) = cycle(bench).decisions
    assert [(victim.workload.name, victim.evicted) for victim in decision.victims] == [("low-b", False)]


def test_a_workload_that_becomes_the_head_has_its_tree_decided() -> None:
    bench = preempting()
    bench.add(workload("higher-b", "b", TWO, priority=2))
    assert decided(bench) == [], "the workload that preempted others stays the head"
    bench.engine.delete_workload(key("high-b"), bench.now)
    assert decided(bench) == ["higher-b"]


def test_a_head_that_leaves_has_the_others_of_its_tree_decided() -> None:
    settings = preemption("LowerPriority")
    bench = Bench(*(queue(name, group(default="2/0"), preemption=settings, cohort="c") for name in "ab"))
    for name in "ab":
        bench.add(held(f"low-{name}", name, "2"), workload(f"high-{name}", name, TWO, priority=1))
    while cycle(bench).decisions:
        pass
    bench.engine.delete_workload(key("high-a"), bench.now)
    assert decided(bench) == ["high-b"]


def test_a_cycle_with_repeat_decides_about_all_heads() -> None:
    bench = preempting()
    assert bench.engine.has_heads(bench.now)
    assert [str(decision.workload.name) for decision in bench.cycle().decisions] == ["high-a", "high-b"]


def test_a_strict_head_that_has_tried_all_flavors_is_not_tried_again() -> None:
    strict = queue("q", group(a="2", b="2"), fungibility=fungibility("TryNextFlavor", "TryNextFlavor"), strategy=STRICT)
    bench = Bench(strict, settings=Settings(pods_ready=None))
    bench.add(held("a", "q", "2", flavor="a"), held("b", "q", "2", flavor="b"), workload("w", "q", TWO))
    for _ in range(4):
        if not bench.engine.has_heads(bench.now, repeat=False):
            break
        cycle(bench)
    else:
        pytest.fail("the head is tried again and again")
    bench.finish("b")
    assert decided(bench) == ["w"]


def test_what_waits_in_a_held_queue_does_not_have_its_tree_decided_again_and_again() -> None:
    resumed = queue("b", group(default="2"), cohort="c")
    bench = Bench(queue("a", group(default="2"), cohort="c", strategy=STRICT), resumed)
    bench.add(held("x", "a", "3"), workload("head", "a", TWO))
    bench.engine.upsert_cluster_queue(replace(resumed, stop_policy=HOLD), bench.now)
    bench.add(workload("waits", "b", pods(cpu="1")))
    assert decided(bench) == ["head"]
    assert not bench.engine.has_heads(bench.now, repeat=False)
    bench.add(workload("waits too", "b", pods(cpu="1"), priority=1))
    assert not bench.engine.has_heads(bench.now, repeat=False)
    bench.engine.upsert_cluster_queue(resumed, bench.now)
    assert decided(bench) == ["waits too", "head"], "its head is evaluated once it is not held any more"


CLASS = DeviceClass("known", None, "x/known")
TEMPLATE = ClaimTemplate(key("known"), (DeviceRequest(name="r", device_class="known"),))
EVENTS: dict[str, Event] = {
    "upsert_cluster_queue": lambda engine, now: engine.upsert_cluster_queue(queue("new", group(default="1")), now),
    "delete_cluster_queue": lambda engine, now: engine.delete_cluster_queue("a", now),
    "upsert_cohort": lambda engine, now: engine.upsert_cohort(Cohort(name="c-a", parent="top"), now),
    "delete_cohort": lambda engine, now: engine.delete_cohort("known", now),
    "upsert_local_queue": lambda engine, now: engine.upsert_local_queue(
        LocalQueue(key=key("new"), cluster_queue="a"), now
    ),
    "delete_local_queue": lambda engine, now: engine.delete_local_queue(key("a"), now),
    "upsert_flavor": lambda engine, now: engine.upsert_flavor(Flavor(name="new"), now),
    "delete_flavor": lambda engine, now: engine.delete_flavor("unused", now),
    "upsert_topology": lambda engine, now: engine.upsert_topology(TopologyLevels(name="t", levels=("rack",)), now),
    "set_node": lambda engine, now: engine.set_node("n", Node(name="n"), now),
    "delete_topology": lambda engine, now: engine.delete_topology("t", now),
    "upsert_admission_check": lambda engine, now: engine.upsert_admission_check(
        AdmissionCheck(name="c", controller="x", active=True), now
    ),
    "delete_admission_check": lambda engine, now: engine.delete_admission_check("c", now),
    "upsert_namespace": lambda engine, now: engine.upsert_namespace(Namespace("new"), now),
    "delete_namespace": lambda engine, now: engine.delete_namespace(NAMESPACE, now),
    "upsert_limit_range": lambda engine, now: engine.upsert_limit_range(LimitRange(key=key("limits"), items=()), now),
    "delete_limit_range": lambda engine, now: engine.delete_limit_range(key("limits"), now),
    "upsert_runtime_class": lambda engine, now: engine.upsert_runtime_class(RuntimeClass(name="r", overhead={}), now),
    "delete_runtime_class": lambda engine, now: engine.delete_runtime_class("r", now),
    "upsert_device_class": lambda engine, now: engine.upsert_device_class(DeviceClass("new", None, "x/gpu"), now),
    "delete_device_class": lambda engine, now: engine.delete_device_class(CLASS.name, now),
    "upsert_claim_template": lambda engine, now: engine.upsert_claim_template(ClaimTemplate(key("new"), ()), now),
    "delete_claim_template": lambda engine, now: engine.delete_claim_template(TEMPLATE.key, now),
}
UNCHANGED: dict[str, Event] = {
    "a class of devices that backs no resource": lambda engine, now: engine.upsert_device_class(
        DeviceClass("plain"), now
    ),
    "its end": lambda engine, now: engine.delete_device_class("plain", now),
    "a class of which only the time is another": lambda engine, now: engine.upsert_device_class(
        DeviceClass("known", START, "x/known"), now
    ),
    "a class that is unknown": lambda engine, now: engine.delete_device_class("unknown", now),
    "a claim template as it was": lambda engine, now: engine.upsert_claim_template(TEMPLATE, now),
    "a claim template that is unknown": lambda engine, now: engine.delete_claim_template(key("unknown"), now),
}


OF_TENANTS = ("upsert_claim_template", "delete_claim_template")
"""What every tenant may write: only what names it is decided again."""


@pytest.mark.parametrize("event", [event for event in EVENTS if event not in OF_TENANTS])
def test_every_change_of_configuration_has_all_heads_decided_again(event: str) -> None:
    bench = preempting()
    bench.engine.upsert_cohort(Cohort(name="known"), bench.now)
    bench.engine.upsert_device_class(CLASS, bench.now)
    bench.engine.upsert_claim_template(TEMPLATE, bench.now)
    while cycle(bench).decisions:
        pass
    EVENTS[event](bench.engine, bench.now)
    found = bench.engine._queues_to_evaluate(repeat=False)
    assert "b" in found, "which is in another tree than what the event names"


@pytest.mark.parametrize("event", ["upsert_local_queue", "upsert_flavor", "upsert_admission_check", "upsert_namespace"])
def test_an_object_whose_status_alone_has_changed_has_nothing_decided_again(event: str) -> None:
    bench = preempting()
    EVENTS[event](bench.engine, bench.now)
    while cycle(bench).decisions:
        pass
    EVENTS[event](bench.engine, bench.now)
    assert not bench.engine.has_heads(bench.now, repeat=False)


@pytest.mark.parametrize("event", [*UNCHANGED, *OF_TENANTS])
def test_what_changes_no_request_of_a_workload_has_nothing_decided_again(
    event: str,
) -> None:
    bench = preempting()
    bench.engine.upsert_device_class(CLASS, bench.now)
    bench.engine.upsert_claim_template(TEMPLATE, bench.now)
    while cycle(bench).decisions:
        pass
    (EVENTS | UNCHANGED)[event](bench.engine, bench.now)
    assert not bench.engine.has_heads(bench.now, repeat=False)


def test_every_event_of_the_cache_is_tried_here() -> None:
    events = {
        name
        for each in (Cache, CountedObjects)
        for name in vars(each)
        if name.startswith(("upsert_", "delete_", "set_"))
    }
    assert events - {"upsert_workload", "delete_workload"} == EVENTS.keys()


def test_an_event_of_an_unknown_workload_has_nothing_decided_again() -> None:
    bench = preempting()
    bench.engine.delete_workload(Key(NAMESPACE, "unknown"), START)
    assert not bench.engine.has_heads(bench.now, repeat=False)
