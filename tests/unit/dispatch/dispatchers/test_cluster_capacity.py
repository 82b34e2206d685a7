# SPDX-License-Identifier: Apache-2.0
"""The hub's view of the capacity of a cluster, against the ledger that the cluster keeps."""

from __future__ import annotations

from random import Random
from typing import Any

from multikueue.core.keys import Key
from multikueue.core.taints import Taint, Toleration
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity, Fit, Lack, Level, report_of
from multikueue.dispatch.worker.ledger import Demand, Ledger, NodeFacts, PodFacts
from multikueue.dispatch.worker.node_groups import MAX_GROUPS, group_of, group_wire, grouped, total

CPU = 1000
ONE, OTHER = Key("ns", "one"), Key("ns", "other")


def ledger(*nodes: NodeFacts) -> Ledger:
    made = Ledger()
    for node in nodes:
        made.set_node(node)
    return made


def node(name: str, cpu: int = 4, **more: Any) -> NodeFacts:
    more["labels"] = {"kubernetes.io/hostname": name, **more.get("labels", {})}
    return NodeFacts(name=name, allocatable={"cpu": cpu * CPU, "pods": 110}, **more)


def wants(cpu: float, count: int = 1, **more: Any) -> tuple[Demand, ...]:
    return (Demand(count=count, requests={"cpu": int(cpu * CPU)}, **more),)


def reported(of: Ledger) -> dict[str, Any]:
    groups, varying = grouped(of.capacities())
    return {"groups": [group_wire(group) for group in groups], "varying": list(varying)}


def capacity(of: Ledger) -> ClusterCapacity:
    made = ClusterCapacity()
    made.replace(report_of(reported(of)))
    return made


def levels(of: ClusterCapacity, *demands: tuple[Demand, ...]) -> list[Level]:
    return [of.fit(ONE, each).level for each in demands]


def test_equal_nodes_are_one_group_whatever_their_names() -> None:
    groups, varying = grouped(ledger(node("a"), node("b"), node("c", labels={"gpu": "yes"})).capacities())
    assert [(group.nodes, dict(group.labels)) for group in groups] == [(2, {}), (1, {"gpu": "yes"})]
    assert varying == ("kubernetes.io/hostname",)


def test_a_label_of_too_many_values_is_left_out_and_counts_as_possible() -> None:
    many = ledger(*(node(f"n{n}", labels={"rack": str(n), "zone": str(n % 2)}) for n in range(MAX_GROUPS + 1)))
    groups, varying = grouped(many.capacities())
    assert (len(groups), varying) == (2, ("kubernetes.io/hostname", "rack"))
    assert levels(capacity(many), wants(1, node_selector={"rack": "7"}), wants(1, node_selector={"zone": "3"})) == [
        Level.NOW,
        Level.NEVER,
    ]


def test_a_group_comes_back_from_its_report_as_it_was() -> None:
    of = ledger(node("a", labels={"zone": "x"}, taints=(Taint("gpu", "", "NoSchedule"),)))
    of.reserve("p", wants(1.5, tolerations=(Toleration(operator="Exists"),)))
    groups, _ = grouped(of.capacities())
    assert tuple(group_of(group_wire(group)) for group in groups) == groups
    assert total(groups)["cpu"].reserved == 1500


def test_an_agent_too_old_to_report_groups_has_reported_nothing() -> None:
    assert report_of({"capacity": [{"name": "cpu", "free": "4"}]}) is None


def test_a_pod_needs_one_node_and_not_the_sum_of_several() -> None:
    it = capacity(ledger(node("a"), node("b")))
    assert levels(it, wants(4, 2), wants(4, 3), wants(5)) == [Level.NOW, Level.NEVER, Level.NEVER]
    assert it.fit(ONE, wants(5)) == Fit(Level.NEVER, (Lack("cpu", 1 * CPU, on_one_node=True),))


def test_taints_and_selectors_of_flavors_choose_the_nodes() -> None:
    spot = Taint("spot", "", "NoSchedule")
    it = capacity(ledger(node("a", 2), node("b", 8, labels={"class": "spot"}, taints=(spot,))))
    there: dict[str, Any] = {"node_selector": {"class": "spot"}}
    assert levels(it, wants(4), wants(4, **there), wants(4, tolerations=(Toleration("spot", "Exists"),), **there)) == [
        Level.NEVER,
        Level.NEVER,
        Level.NOW,
    ]


def test_what_is_held_counts_from_the_decision_on_and_not_twice_when_it_is_reported() -> None:
    of = ledger(node("a"))
    it = capacity(of)
    it.hold(OTHER, wants(3))
    assert levels(it, wants(1), wants(2)) == [Level.NOW, Level.LATER]
    of.reserve("other", wants(3))
    it.replace(report_of(reported(of)))
    assert levels(it, wants(1), wants(2)) == [Level.NOW, Level.LATER]
    of.set_pod("p", PodFacts(node="a", requests={"cpu": 3 * CPU}, owner="other"))
    it.replace(report_of(reported(of)))
    assert levels(it, wants(1), wants(2)) == [Level.NOW, Level.LATER]


def test_what_ended_since_the_report_is_free_before_the_next_one() -> None:
    of = ledger(node("a"))
    of.reserve("other", wants(4))
    it = capacity(of)
    it.hold(OTHER, wants(4))
    assert it.fit(ONE, wants(1)) == Fit(Level.LATER, (Lack("cpu", 1 * CPU),))
    it.release(OTHER)
    assert levels(it, wants(4)) == [Level.NOW]


def test_pods_of_others_are_never_free() -> None:
    of = ledger(node("a"))
    of.set_pod("theirs", PodFacts(node="a", requests={"cpu": 3 * CPU}))
    assert levels(capacity(of), wants(1), wants(2)) == [Level.NOW, Level.LATER]


def test_its_own_assignment_is_not_counted_against_a_workload() -> None:
    it = capacity(ledger(node("a")))
    it.hold(ONE, wants(4))
    assert levels(it, wants(4)) == [Level.NOW]


def test_a_node_that_is_not_ready_has_no_capacity() -> None:
    assert levels(capacity(ledger(node("a", ready=False))), wants(1)) == [Level.NEVER]


def test_what_fits_by_the_hub_can_be_reserved_on_a_cluster_of_equal_nodes() -> None:
    """Of single pods on an otherwise empty cluster: of many at once only the cluster can tell how they pack."""
    for seed in range(200):
        random = Random(seed)
        of = ledger(*(node(f"n{n}", 4) for n in range(random.randint(1, 3))))
        it = capacity(of)
        observed: list[Key] = []
        for number in range(40):
            key, demand = Key("ns", str(number)), wants(random.choice([1, 2, 4]))
            if random.random() < 0.3 and observed:
                gone = observed.pop(random.randrange(len(observed)))
                it.release(gone)
                of.release(str(gone))
            if random.random() < 0.2:
                it.replace(report_of(reported(of)))
            if it.fit(key, demand).level is Level.NOW:
                it.hold(key, demand)
                if of.reserve(str(key), demand) is not None:
                    assert demand[0].requests["cpu"] > CPU, "one cpu fits wherever one is free"
                    it.release(key)
                else:
                    observed.append(key)
        for key in observed:
            it.release(key)
            of.release(str(key))
        assert all(amount == 0 for amounts in it._sums.values() for amount in amounts.values()), seed


def test_two_workloads_that_ask_for_nothing_are_counted_in_one_queue_and_released() -> None:
    made = ClusterCapacity()
    for workload in (ONE, OTHER):
        made.hold(workload, wants(0), queue=Key("ns", "jobs"))
    assert [made.release(OTHER), made.release(ONE)] == [True, True]
    assert not tuple(made.held)
