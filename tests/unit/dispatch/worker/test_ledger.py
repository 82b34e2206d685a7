# SPDX-License-Identifier: Apache-2.0
"""Room on a worker's nodes."""

from __future__ import annotations

from random import Random

import pytest

from multikueue.core.selectors import NodeSelectorTerm, Requirement
from multikueue.core.taints import Taint, Toleration
from multikueue.dispatch.worker.ledger import PODS, Demand, Ledger, NodeFacts, PodFacts
from multikueue.dispatch.worker.node_groups import grouped, total

CPU = 1000


def node(name: str, cpu: int = 4, **changes: object) -> NodeFacts:
    facts: dict[str, object] = {"allocatable": {"cpu": cpu * CPU, "memory": 8, PODS: 110}}
    return NodeFacts(name=name, **(facts | changes))  # type: ignore[arg-type]


def wants(count: int = 1, cpu: int = 1, **changes: object) -> Demand:
    return Demand(count=count, requests={"cpu": cpu * CPU}, **changes)  # type: ignore[arg-type]


def ledger(*nodes: NodeFacts) -> Ledger:
    made = Ledger()
    for facts in nodes:
        made.set_node(facts)
    return made


def free(of: Ledger, resource: str = "cpu") -> int:
    return total(grouped(of.capacities())[0])[resource].free


def test_a_reservation_is_held_and_given_back() -> None:
    it = ledger(node("n1"), node("n2"))
    assert it.reserve("a", (wants(3),)) is None
    assert it.holds("a")
    assert free(it) == 5 * CPU
    it.release("a")
    assert free(it) == 8 * CPU
    assert not it.holds("a")


def test_a_reservation_made_twice_is_held_once() -> None:
    it = ledger(node("n1"))
    assert it.reserve("a", (wants(2),)) is None
    assert it.reserve("a", (wants(2),)) is None
    assert free(it) == 2 * CPU


def test_what_no_single_node_can_hold_does_not_fit_though_the_sum_would() -> None:
    it = ledger(node("n1"), node("n2"))
    short = it.reserve("a", (wants(1, cpu=5),))
    assert short is not None
    assert short.reason == "cpu: 5 requested, at most 4 free"
    assert free(it) == 8 * CPU


def test_all_or_nothing() -> None:
    it = ledger(node("n1"), node("n2"))
    short = it.reserve("a", (wants(3, cpu=3),))
    assert short is not None
    assert (short.fitting, short.wanted) == (2, 3)
    assert free(it) == 8 * CPU


@pytest.mark.parametrize(
    ("facts", "demand", "fits"),
    [
        pytest.param(node("n", labels={"a": "b"}), wants(node_selector={"a": "b"}), True, id="the label is there"),
        pytest.param(node("n"), wants(node_selector={"a": "b"}), False, id="the label is not there"),
        pytest.param(node("n", taints=(Taint("k"),)), wants(), False, id="a taint repels"),
        pytest.param(
            node("n", taints=(Taint("k"),)),
            wants(tolerations=(Toleration("k", "Exists"),)),
            True,
            id="a taint is tolerated",
        ),
        pytest.param(
            node("n", taints=(Taint("k", "", "PreferNoSchedule"),)), wants(), True, id="a soft taint does not repel"
        ),
        pytest.param(
            node("n", labels={"z": "1"}),
            wants(affinity=(NodeSelectorTerm((Requirement("z", "In", ("1", "2")),)),)),
            True,
            id="required affinity holds",
        ),
        pytest.param(node("n"), wants(affinity=()), False, id="affinity without terms matches no node"),
        pytest.param(node("n", ready=False), wants(), False, id="a node that is not ready takes nothing"),
        pytest.param(node("n", allocatable={PODS: 1}), wants(2, cpu=0), False, id="a node takes so many pods only"),
        pytest.param(node("n", allocatable={}), wants(1), False, id="a resource that the node does not have"),
    ],
)
def test_where_pods_may_go(facts: NodeFacts, demand: Demand, fits: bool) -> None:
    assert (ledger(facts).reserve("a", (demand,)) is None) is fits


def test_bound_pods_use_up_the_reservation_they_were_made_for() -> None:
    it = ledger(node("n1"), node("n2"))
    assert it.reserve("a", (wants(2),)) is None
    it.set_pod("p1", PodFacts(node="n1", requests={"cpu": CPU}, owner="a"))
    assert free(it) == 6 * CPU
    it.set_pod("p2", PodFacts(node="n1", requests={"cpu": CPU}, owner="a"))
    assert free(it) == 6 * CPU
    assert it.holds("a")
    it.release("a")
    assert free(it) == 6 * CPU


def test_pods_of_others_take_capacity() -> None:
    it = ledger(node("n1", cpu=2))
    it.set_pod("x", PodFacts(node="n1", requests={"cpu": 1500}))
    assert it.reserve("a", (wants(1),)) is not None
    it.remove_pod("x")
    assert it.reserve("a", (wants(1),)) is None


def test_after_a_restart_running_pods_count_for_the_reservation() -> None:
    it = ledger(node("n1", cpu=2))
    it.set_pod("p1", PodFacts(node="n1", requests={"cpu": CPU}, owner="a"))
    it.set_pod("p2", PodFacts(node="n1", requests={"cpu": CPU}, owner="a"))
    assert it.reserve("a", (wants(2),)) is None
    assert free(it) == 0


def test_a_node_that_goes_takes_its_reservations_along() -> None:
    it = ledger(node("n1", cpu=1))
    assert it.reserve("a", (wants(1),)) is None
    it.remove_node("n1")
    assert not it.holds("a")
    it.set_node(node("n2", cpu=1))
    assert it.reserve("a", (wants(1),)) is None
    assert free(it) == 0


def test_the_summary_reports_the_emptiest_node() -> None:
    it = ledger(node("n1", cpu=4), node("n2", cpu=2), node("off", cpu=64, ready=False))
    it.set_pod("x", PodFacts(node="n1", requests={"cpu": 3000}))
    cpu = total(grouped(it.capacities())[0])["cpu"]
    assert (cpu.allocatable, cpu.free, cpu.largest_free) == (6 * CPU, 3 * CPU, 2 * CPU)
    assert (it.ready_nodes, it.total_nodes) == (2, 3)


def test_whatever_happens_in_whatever_order_the_sums_come_out_even() -> None:
    """Releasing everything gives everything back, and no node is ever promised beyond what it has."""
    for seed in range(200):
        random = Random(seed)
        it = ledger(*(node(f"n{i}", cpu=random.randint(1, 8)) for i in range(4)))
        pods: dict[str, str] = {}
        for number in range(60):
            match random.randrange(5):
                case 0 | 1:
                    it.reserve(f"o{random.randrange(6)}", (wants(random.randint(1, 3), random.randint(1, 2)),))
                case 2:
                    it.release(f"o{random.randrange(6)}")
                case 3:
                    pods[f"p{number}"] = owner = f"o{random.randrange(6)}"
                    it.set_pod(f"p{number}", PodFacts(node=f"n{random.randrange(4)}", requests={"cpu": 1}, owner=owner))
                case _:
                    if pods:
                        it.remove_pod(pods.popitem()[0])
            assert all(0 <= s.free <= s.allocatable for s in total(grouped(it.capacities())[0]).values())
        for owner in list(it.owners):
            it.release(owner)
        for pod in pods:
            it.remove_pod(pod)
        assert all(s.free == s.allocatable for s in total(grouped(it.capacities())[0]).values()), seed
