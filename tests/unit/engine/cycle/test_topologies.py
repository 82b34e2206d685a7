# SPDX-License-Identifier: Apache-2.0
"""Topology placement in cycles (`docs/spec/engine.md §3.7`, §3.9, §4.4 and §6.8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.api.constants import HOSTNAME_LABEL, MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER, FungibilityPolicy
from multikueue.api.reasons import QuotaReservedReason
from multikueue.engine import Gates, Outcome, RequeueReason, Settings, lifecycle
from multikueue.engine.devices.claims import DeviceClass
from multikueue.engine.values import AdmissionCheck, CheckRule, Flavor
from multikueue.engine.workloads import AssignedDomains, Workload
from tests.support.engine_builders import (
    Bench,
    checks,
    fungibility,
    group,
    holding,
    key,
    pods,
    preemption,
    queue,
    workload,
)
from tests.support.topology_builders import (
    PLENTY,
    RACK,
    RACKS,
    TAS,
    A,
    B,
    amounts,
    asking,
    bench,
    cpus,
    decisions,
    domains,
    left,
    node,
    placed,
    pod_key,
    running,
    spread,
    topology_bench,
)

SECOND = Flavor(name="second", topology="hosts")


# Places.


def test_a_decision_has_the_domains_of_the_pods() -> None:
    table = bench(A, B)
    decision = table.add(workload("w", "q", asking(pods(6, cpu="1"), required=RACK))).decide("w")
    assert decision.outcome is Outcome.RESERVED
    (pod_set,) = decision.pod_sets
    assert pod_set.topology == AssignedDomains((HOSTNAME_LABEL,), ((("a",), 4), (("b",), 2)))
    assert not pod_set.delayed_topology
    assert left(table) == {"a": 0, "b": 2000}


def test_pods_for_which_all_nodes_are_not_enough_say_what_is_free_now() -> None:
    table = bench(A, B)
    table.add(running("other", "4", "a"))
    decision = table.add(workload("w", "q", asking(pods(9, cpu="1"), required=RACK))).decide("w")
    assert decision.reason is QuotaReservedReason.TOPOLOGY_PLACEMENT_FAILED
    assert "allows to fit only 4 out of 9 pod(s)" in decision.message
    assert "only 8 out of 9" not in decision.message, "as Kueue 0.17.0 has it"


def test_pod_sets_that_do_not_ask_are_placed_where_all_flavors_have_a_topology() -> None:
    assert domains(bench(A).add(workload("w", "q", pods(cpu="1"))).decide("w")) == {"a": 1}


def test_elsewhere_they_get_a_flavor_without_one() -> None:
    table = bench(A, flavors=(TAS, Flavor(name="plain")), groups=group(tas="100", plain="100"))
    decision = table.add(workload("w", "q", pods(cpu="1"))).decide("w")
    assert decision.pod_sets[0].flavors == {"cpu": "plain"}
    assert domains(decision) == {}
    asked = table.add(cpus("v", "1")).decide("v")
    assert (asked.pod_sets[0].flavors, domains(asked)) == ({"cpu": "tas"}, {"a": 1})


def test_each_pod_set_has_its_own_domains() -> None:
    table = bench(A, B)
    decision = table.add(workload("w", "q", spread(3, "x", cpu="1"), spread(3, "y", cpu="1"))).decide("w")
    assert (domains(decision, "x"), domains(decision, "y")) == ({"a": 3}, {"b": 3})


def test_pod_sets_without_pods_are_not_placed() -> None:
    decision = bench(A).add(workload("w", "q", spread(1, "x", cpu="1"), spread(0, "y", cpu="1"))).decide("w")
    assert (domains(decision, "x"), domains(decision, "y")) == ({"a": 1}, {})


# Several heads in one cycle.


def test_the_second_of_two_heads_is_placed_elsewhere() -> None:
    table = bench(A, B, queues=("p", "q"))
    table.add(cpus("first", "3", "p", created=1), cpus("second", "3", "q", created=2))
    found = decisions(table)
    assert {name: domains(each) for name, each in found.items()} == {"first": {"a": 1}, "second": {"b": 1}}
    assert {each.outcome for each in found.values()} == {Outcome.RESERVED}
    assert left(table) == {"a": 1000, "b": 1000}


def test_without_another_place_the_second_waits() -> None:
    table = bench(A, queues=("p", "q"))
    table.add(cpus("first", "3", "p", created=1), cpus("second", "3", "q", created=2))
    found = decisions(table)
    assert found["first"].outcome is Outcome.RESERVED
    assert found["second"].outcome is Outcome.PENDING
    assert 'topology "hosts" doesn\'t allow to fit any of 1 pod(s)' in found["second"].message
    assert left(table) == {"a": 1000}


def test_two_pod_sets_on_one_host_are_summed_when_a_place_was_taken() -> None:
    """Kueue does not (`docs/spec/engine.md` §12 row 12), and gives places twice."""
    table = bench(A, queues=("p", "q"))
    table.add(cpus("first", "1", "p", created=1))
    table.add(workload("second", "q", spread(1, "x", cpu="2"), spread(1, "y", cpu="2"), created=2))
    found = decisions(table)
    assert (found["first"].outcome, found["second"].outcome) == (Outcome.RESERVED, Outcome.PENDING)
    assert left(table) == {"a": 3000}


def test_heads_of_two_flavors_do_not_get_the_same_host() -> None:
    table = topology_bench(Bench(queue("p", PLENTY), queue("q", group(second="100")), flavors=(TAS, SECOND)), A)
    table.add(cpus("first", "3", "p", created=1), cpus("second", "3", "q", created=2))
    found = decisions(table)
    assert (found["first"].outcome, found["second"].outcome) == (Outcome.RESERVED, Outcome.PENDING)


# Who uses the nodes.


def test_places_count_after_a_restart() -> None:
    table = bench(A, B)
    table.add(running("old", "4", "a"))
    assert left(table) == {"a": 0, "b": 4000}
    assert domains(table.add(cpus("w", "2")).decide("w")) == {"b": 1}


def test_places_are_the_same_before_and_after_they_are_written() -> None:
    table = bench(A, B)
    table.add(workload("w", "q", asking(pods(6, cpu="1"), required=RACK)))
    before = left(table)
    decision = table.decide("w")
    value = table.engine.workload(key("w"))
    assert value is not None
    taken = left(table)
    domain = decision.pod_sets[0].topology
    held = holding(value, "q", flavor="tas")
    assert held.admission is not None
    pod_sets = tuple(replace(each, topology=domain) for each in held.admission.pod_sets)
    table.engine.admission_written(key("w"), table.now)
    table.add(replace(held, admission=replace(held.admission, pod_sets=pod_sets)))
    assert left(table) == taken
    table.finish("w")
    assert left(table) == before


def test_a_reservation_of_a_decision_has_its_places() -> None:
    table = bench(A)
    value = cpus("w", "3")
    decision = table.add(value).decide("w")
    table.engine.admission_written(key("w"), table.now)
    table.add(lifecycle.reserved(value, decision, table.now))
    assert left(table) == {"a": 1000}


def test_a_reservation_that_could_not_be_written_gives_its_places_back() -> None:
    table = bench(A)
    table.add(cpus("w", "3")).decide("w")
    table.engine.admission_failed(key("w"), table.now)
    assert left(table) == {"a": 4000}
    assert domains(table.decide("w")) == {"a": 1}


def test_places_that_are_released_let_a_workload_of_another_tree_in() -> None:
    table = bench(A, queues=("p", "q"))
    table.add(cpus("first", "3", "p")).settle()
    table.add(cpus("waits", "3", "q")).settle()
    assert table.waits("q") == ["[waits]"]
    table.finish("first")
    table.settle_after(2)
    assert table.has_quota("waits")


def test_so_does_an_eviction() -> None:
    table = bench(A, queues=("p", "q"))
    table.add(cpus("first", "3", "p", created=5)).settle()
    table.add(cpus("waits", "3", "q")).settle()
    table.evict("first")
    table.settle_after(2)
    assert table.has_quota("waits")


def test_so_does_a_reservation_of_a_workload_that_is_gone() -> None:
    table = bench(A, queues=("p", "q"))
    table.add(cpus("first", "3", "p")).settle()
    table.add(cpus("waits", "3", "q")).settle()
    table.engine.admission_failed(key("first"), table.now)
    table.engine.delete_workload(key("first"), table.now)
    table.settle_after(2)
    assert table.has_quota("waits")


def test_so_do_places_that_move() -> None:
    table = bench(A, node("r1/b", cpu="3"), queues=("p", "q"))
    table.add(running("moves", "3", "a", "p"), cpus("waits", "4", "q")).settle()
    assert table.waits("q") == ["[waits]"]
    table.add(running("moves", "3", "b", "p"))
    table.settle_after(2)
    assert table.has_quota("waits")


def test_a_new_node_lets_workloads_in() -> None:
    table = bench(A)
    table.add(cpus("w", "5")).settle()
    assert table.waits("q") == ["[w]"]
    more = node("r2/c", cpu="8")
    table.engine.set_node(more.name, more, table.now)
    table.settle_after(2)
    assert table.has_quota("w")


def test_a_node_that_is_gone_takes_no_pods() -> None:
    table = bench(A, B)
    table.engine.set_node("a", None, table.now)
    assert domains(table.add(cpus("w", "1")).decide("w")) == {"b": 1}


def test_what_was_on_a_node_that_is_gone_is_given_back_once() -> None:
    table = bench(A, B)
    table.add(running("old", "3", "a"))
    table.engine.set_node("a", None, table.now)
    table.finish("old")
    table.engine.set_node(A.name, A, table.now)
    assert left(table) == {"a": 4000, "b": 4000}


def test_pods_of_others_take_capacity_and_give_it_back() -> None:
    table = bench(A)
    table.engine.pod_bound(pod_key("p"), "a", amounts(cpu="2", pods="1"), table.now)
    table.add(cpus("w", "3")).settle()
    assert table.waits("q") == ["[w]"]
    table.engine.pod_unbound(pod_key("p"), table.now)
    table.settle_after(2)
    assert table.has_quota("w")


def test_a_pod_that_becomes_smaller_gives_capacity_back_and_one_that_grows_does_not() -> None:
    table = bench(A)
    assert not table.engine.pod_bound(pod_key("p"), "a", amounts(cpu="2", pods="1"), table.now)
    table.add(cpus("w", "3")).settle()
    assert not table.engine.pod_bound(pod_key("p"), "a", amounts(cpu="3", pods="1"), table.now)
    assert not table.engine.has_heads(table.now, repeat=False)
    assert table.engine.pod_bound(pod_key("p"), "a", amounts(cpu="1", pods="1"), table.now)
    table.settle_after(2)
    assert table.has_quota("w")


def test_a_resource_of_a_device_class_needs_no_node_that_reports_it() -> None:
    table = bench(A, groups=group(tas={"cpu": "100", "devices": "9"}))
    table.add(workload("w", "q", spread(cpu="1", devices="1"))).settle()
    assert table.waits("q") == ["[w]"]
    table.engine.upsert_device_class(DeviceClass("class", extended_resource="devices"), table.now)
    table.settle_after(2)
    assert table.has_quota("w")


def test_a_pod_that_was_not_bound_changes_nothing() -> None:
    table = bench(A)
    table.settle()
    table.engine.pod_unbound(pod_key("p"), table.now)
    assert not table.engine.has_heads(table.now, repeat=False)
    assert left(table) == {"a": 4000}


# No places.


def test_pods_that_would_not_fit_on_empty_nodes_do_not_fit() -> None:
    decision = bench(A, B).add(cpus("w", "5")).decide("w")
    assert (decision.outcome, decision.reason, decision.requeue_reason) == (
        Outcome.PENDING,
        "TopologyPlacementFailed",
        RequeueReason.NO_FIT,
    )
    assert decision.message == (
        "couldn't assign flavors to pod set main: topology \"hosts\" doesn't allow to fit any of 1 pod(s). Total nodes:"
        ' 2; excluded: resource "cpu": 2'
    )


def test_what_pods_of_others_use_is_not_free_by_preemption() -> None:
    table = bench(A, preemption=preemption("LowerPriority"))
    table.engine.pod_bound(pod_key("p"), "a", amounts(cpu="2", pods="1"), table.now)
    decision = table.add(cpus("w", "3", priority=9)).decide("w")
    assert decision.reason == "TopologyPlacementFailed"


def test_the_next_flavor_is_tried_in_the_next_cycle() -> None:
    large = node("r2/large", cpu="8", labels={"pool": "large"})
    flavors = (replace(TAS, node_labels={"pool": "small"}), replace(SECOND, node_labels={"pool": "large"}))
    small = node("r1/small", cpu="2", labels={"pool": "small"})
    table = bench(small, large, flavors=flavors, groups=group(tas="100", second="100"))
    table.add(cpus("w", "4"))
    first = table.decide("w")
    assert (first.outcome, first.last_tried_flavor_index) == (Outcome.PENDING, ({"cpu": 0},))
    second = table.decide("w")
    assert (second.outcome, domains(second)) == (Outcome.RESERVED, {"large": 1})


@pytest.mark.parametrize("policy", FungibilityPolicy)
def test_a_workload_without_places_in_any_flavor_comes_to_rest(policy: FungibilityPolicy) -> None:
    table = bench(
        A,
        queues=("p", "q"),
        flavors=(TAS, SECOND),
        groups=group(tas="100", second="100"),
        preemption=preemption("LowerPriority"),
        fungibility=fungibility(preempt=policy),
    )
    table.add(running("old", "4", "a", "p"), cpus("w", "2", "q"))
    for _ in range(20):
        if not table.engine.has_heads(table.now, repeat=False):
            break
        table.engine.cycle(table.now, repeat=False)
    else:
        pytest.fail("cycles do not end")
    assert table.waits("q") == ["[w]"]


def test_a_level_that_is_not_there_is_no_flavor() -> None:
    decision = bench(A).add(workload("w", "q", asking(pods(cpu="1"), required="zone"))).decide("w")
    assert decision.reason == "NoMatchingFlavor"


def test_partial_admission_finds_the_pods_that_have_places() -> None:
    table = bench(A)
    some = replace(spread(8, cpu="1"), min_count=1)
    decision = table.add(workload("w", "q", some)).decide("w")
    assert (decision.outcome, decision.pod_sets[0].count, domains(decision)) == (Outcome.RESERVED, 4, {"a": 4})


@pytest.mark.parametrize(
    ("cpu", "count", "minimum", "size", "want"),
    [
        ("4", 8, 2, 4, 4),
        ("9", 12, 1, 3, 9),
        ("8", 12, 1, 3, 6),
        ("9", 9, 1, 4, 8),
        ("8", 9, 5, 4, 8),
        ("7", 9, 5, 4, None),
        ("9", 7, 5, 4, None),
        ("2", 7, 1, 3, None),
        ("3", 7, 1, 1, 3),
    ],
)
def test_partial_admission_finds_the_slices_that_have_places(
    cpu: str, count: int, minimum: int, size: int, want: int | None
) -> None:
    asked = asking(pods(count, minimum=minimum, cpu="1"), slice_required=RACK, slice_size=size)
    other = asking(pods(1, "other", cpu="100m"), required=RACK)
    table = bench(node("r1/a", cpu=cpu, pods="20"), node("r1/b", cpu="100m"))
    decision = table.add(workload("w", "q", other, asked)).decide("w")
    assert sum(domains(decision).values()) == (want or 0)
    assert (decision.outcome is Outcome.RESERVED) is (want is not None)


# Left to later.


@pytest.mark.parametrize("controller", [MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER])
def test_placement_is_left_to_workers_and_to_provisioned_nodes(controller: str) -> None:
    table = bench(checks=checks("c"))
    table.engine.upsert_admission_check(AdmissionCheck(name="c", controller=controller, active=True), table.now)
    decision = table.add(cpus("w", "50")).decide("w")
    assert decision.outcome is Outcome.RESERVED
    assert decision.pod_sets[0].delayed_topology
    assert domains(decision) == {}


def test_other_checks_delay_nothing() -> None:
    table = bench(A, checks=checks("c"))
    table.engine.upsert_admission_check(AdmissionCheck(name="c", controller="x", active=True), table.now)
    decision = table.add(cpus("w", "1")).decide("w")
    assert (domains(decision), decision.pod_sets[0].delayed_topology) == ({"a": 1}, False)


def test_nor_do_checks_of_other_flavors() -> None:
    flavors = (TAS, SECOND)
    rules = (CheckRule("c", frozenset({"second"})),)
    table = bench(A, flavors=flavors, groups=group(tas="3", second="100"), checks=rules)
    table.engine.upsert_admission_check(
        AdmissionCheck(name="c", controller=PROVISIONING_CONTROLLER, active=True), table.now
    )
    here = table.add(cpus("here", "3")).decide("here")
    assert (domains(here), here.pod_sets[0].delayed_topology) == ({"a": 1}, False)
    later = table.add(cpus("later", "50")).decide("later")
    assert (domains(later), later.pod_sets[0].delayed_topology) == ({}, True)


def test_only_pod_sets_that_are_to_be_placed_are_delayed() -> None:
    flavors = (TAS, Flavor(name="plain"))
    table = bench(flavors=flavors, groups=group(tas="100", plain="100"), checks=checks("c"))
    table.engine.upsert_admission_check(
        AdmissionCheck(name="c", controller=PROVISIONING_CONTROLLER, active=True), table.now
    )
    decision = table.add(workload("w", "q", spread(1, "x", cpu="1"), pods(1, "y", cpu="1"))).decide("w")
    assert [pod_set.delayed_topology for pod_set in decision.pod_sets] == [True, False]


def test_without_the_gate_nothing_is_placed() -> None:
    table = bench(settings=Settings(pods_ready=None, gates=Gates(topology=False)))
    decision = table.add(cpus("w", "50")).decide("w")
    assert decision.outcome is Outcome.RESERVED
    assert (domains(decision), decision.pod_sets[0].delayed_topology) == ({}, False)


ELASTIC = Settings(pods_ready=None, gates=Gates(elastic_jobs=True))


def slices(before: int, after: int) -> tuple[Workload, Workload]:
    """A slice of an elastic job that runs on host `a`, and the one that replaces it, with other numbers of pods."""
    old, new = (workload(name, "q", spread(n, cpu="1")) for name, n in (("old", before), ("new", after)))
    running_one = placed(replace(old, job_uid="j"), "q", a=before)
    return running_one, replace(new, job_uid="j", replaces="default/old")


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_elastic_workload_that_asks_for_places_keeps_its_size(after: int) -> None:
    table = bench(A, settings=ELASTIC)
    decision = table.add(*slices(2, after)).decide("new")
    assert decision.outcome is Outcome.PENDING
    assert decision.message == (
        "failed to assign flavors to pod set main: topology requests are not supported with"
        " ElasticJobsViaWorkloadSlices"
    )
    assert left(table) == {"a": 2000}


# Other topologies.


def test_racks_as_leaves() -> None:
    labels = {"block": "x"}
    table = bench(flavors=(replace(TAS, topology="racks"),))
    topology_bench(table, node("r1/a", cpu="2", labels=labels), node("r1/b", cpu="2", labels=labels), levels=RACKS)
    decision = table.add(workload("w", "q", asking(pods(4, cpu="1"), required=RACK))).decide("w")
    assert decision.pod_sets[0].topology == AssignedDomains(("block", RACK), ((("x", "r1"), 4),))
    assert left(table) == {"r1": 0}


def test_a_queue_whose_topology_is_not_there_is_not_active() -> None:
    table = Bench(queue("q", PLENTY), flavors=(TAS,))
    table.add(cpus("w", "1"))
    assert not table.engine.has_heads(table.now)
