# SPDX-License-Identifier: Apache-2.0
"""Places of pods as they are created: with overhead and defaults (`docs/spec/engine.md §2.2` and §6.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from multikueue.core.quantity import Quantity
from multikueue.engine import Outcome
from multikueue.engine.decisions import TopologyDecision
from multikueue.engine.values import LimitRange, LimitRangeItem, RuntimeClass
from multikueue.engine.workloads import AssignedDomains, PodSet, Workload
from tests.support.engine_builders import Bench, key, workload
from tests.support.topology_builders import A, B, bench, domains, left, node, placed, spread


def overhead(table: Bench, cpu: str) -> None:
    """The RuntimeClass `kata` with this overhead."""
    table.engine.upsert_runtime_class(RuntimeClass("kata", {"cpu": Quantity.parse(cpu)}), table.now)


def default(table: Bench, cpu: str) -> None:
    """A LimitRange with this request for containers without one."""
    item = LimitRangeItem(type="Container", default_request={"cpu": Quantity.parse(cpu)})
    table.engine.upsert_limit_range(LimitRange(key("limits"), (item,)), table.now)


def in_class(count: int, **requests: str) -> PodSet:
    pod_set = spread(count, **requests)
    return replace(pod_set, shape=replace(pod_set.shape, runtime_class="kata"))


# Each pod has a cpu of its own and one of overhead, or a cpu by default.
KINDS = pytest.mark.parametrize(
    ("change", "pods_of", "fit"),
    [
        pytest.param(overhead, lambda count: in_class(count, cpu="1"), 2, id="overhead"),
        pytest.param(default, lambda count: spread(count, memory="0"), 4, id="defaults"),
    ],
)
Change = Callable[[Bench, str], None]
Pods = Callable[[int], PodSet]


def table_of(change: Change, value: Workload) -> Bench:
    table = bench(A)
    change(table, "1")
    return table.add(value)


@KINDS
def test_no_more_pods_are_placed_on_a_node_than_it_can_run(change: Change, pods_of: Pods, fit: int) -> None:
    decision = table_of(change, workload("w", "q", pods_of(fit + 1))).decide("w")
    assert decision.outcome is Outcome.PENDING
    assert f"allows to fit only {fit} out of {fit + 1} pod(s)" in decision.message
    table = table_of(change, workload("w", "q", pods_of(fit)))
    assert domains(table.decide("w")) == {"a": fit}
    assert left(table) == {"a": 0}


@KINDS
def test_places_that_the_api_shows_count_alike(change: Change, pods_of: Pods, fit: int) -> None:
    table = table_of(change, placed(workload("w", "q", pods_of(fit)), "q", a=fit))
    assert left(table) == {"a": 0}


@KINDS
def test_what_a_place_takes_stays_when_pods_would_be_created_with_more_or_less(
    change: Change, pods_of: Pods, fit: int
) -> None:
    value = workload("w", "q", pods_of(fit))
    table = table_of(change, value)
    table.cycle()
    table.engine.admission_written(key("w"), table.now)
    for cpu in ("500m", "2"):
        change(table, cpu)
        assert left(table) == {"a": 0}
        table.add(replace(placed(value, "q", a=fit), priority=int(cpu == "2")))
        assert left(table) == {"a": 0}, "the API shows nothing else"
    table.add(replace(placed(value, "q", a=fit), pod_sets=()))
    assert left(table) == {"a": 0}, "nor if it cannot be read"
    table.finish("w")
    assert left(table) == {"a": 4000}, "as much is released"


def test_other_templates_are_counted_as_they_are() -> None:
    value = workload("w", "q", in_class(2, cpu="1"))
    table = table_of(overhead, placed(value, "q", a=2))
    table.add(placed(replace(value, pod_sets=(in_class(2, cpu="500m"),)), "q", a=2))
    assert left(table) == {"a": 1000}


def test_only_pods_that_are_created_anew_get_what_a_class_has_now() -> None:
    def passes() -> TopologyDecision:
        (decision,) = table.engine.assign_topologies(table.now)
        return decision

    table = bench(A, B, node("r1/c", cpu="4"))
    overhead(table, "1")
    value = workload("w", "q", in_class(2, cpu="1"))
    table.add(placed(value, "q", a=1, b=1))
    assert left(table) == {"a": 2000, "b": 2000, "c": 4000}
    overhead(table, "3")
    table.engine.set_node("a", None, table.now)
    table.add(replace(placed(value, "q", a=1, b=1), unhealthy_nodes=("a",)))
    table.pass_time(1)
    ((_, found),) = passes().topologies
    assert found == AssignedDomains(("kubernetes.io/hostname",), ((("b",), 1), (("c",), 1)))
    assert left(table) == {"b": 2000, "c": 0}
    table.add(replace(placed(value, "q", a=1, b=1), unhealthy_nodes=("a",), priority=1))
    assert left(table) == {"b": 2000, "c": 0}, "this is older"
    table.add(placed(value, "q", b=1, c=1))
    assert left(table) == {"b": 2000, "c": 0}
    table.finish("w")
    assert left(table) == {"b": 4000, "c": 4000}
