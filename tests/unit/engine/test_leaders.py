# SPDX-License-Identifier: Apache-2.0
"""Leaders that are placed with their workers, also if they request nothing (`docs/spec/engine.md §3.3` and §6.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.api.constants import HOSTNAME_LABEL, PROVISIONING_CONTROLLER, CheckState
from multikueue.engine import Outcome, Settings, lifecycle
from multikueue.engine.settings import QuotaCheck
from multikueue.engine.topology.capacity import Node
from multikueue.engine.values import AdmissionCheck, Flavor
from multikueue.engine.workloads import AssignedDomains, CheckStatus, PodSet, Workload
from tests.support.engine_builders import Bench, checks, group, key, pods, preemption, queue, workload
from tests.support.topology_builders import (
    RACK,
    RACKS,
    A,
    B,
    amounts,
    asking,
    bench,
    domains,
    left,
    node,
    placed,
    running,
    spread,
    topology_bench,
)

LOWER = preemption("LowerPriority")
COVERED = Settings(pods_ready=None, quota_check=QuotaCheck.IGNORE_UNDECLARED)


def grouped(count: int, name: str, **requests: str) -> PodSet:
    return asking(pods(count, name, None, **requests), group="g", required=RACK)


def test_a_leader_is_placed_with_its_workers() -> None:
    decision = bench(A, B).add(workload("w", "q", grouped(1, "l", cpu="1"), grouped(6, "w", cpu="1"))).decide("w")
    assert decision.outcome is Outcome.RESERVED
    assert sum(domains(decision, "w").values()) == 6
    assert sum(domains(decision, "l").values()) == 1


def test_pod_sets_of_a_group_may_have_another_between_them() -> None:
    table = bench(A, B, node("r1/c", cpu="4"))
    between = workload("w", "q", grouped(4, "w", cpu="1"), spread(2, "x", cpu="2"), grouped(1, "l", cpu="1"))
    decision = table.add(between).decide("w")
    assert {name: sum(domains(decision, name).values()) for name in "wxl"} == {"w": 4, "x": 2, "l": 1}
    assert sum(left(table).values()) == 12000 - 4000 - 4000 - 1000


def test_a_leader_that_requests_nothing_gets_the_flavor_of_its_group() -> None:
    decision = bench(A, B).add(workload("w", "q", grouped(1, "l"), grouped(2, "w", cpu="1"))).decide("w")
    assert decision.outcome is Outcome.RESERVED, decision.message
    leader, workers = decision.pod_sets
    assert (leader.flavors, leader.resource_usage) == ({"cpu": "tas"}, {})
    assert (workers.flavors, workers.resource_usage) == ({"cpu": "tas"}, {"cpu": 2000})


def test_without_a_group_a_pod_set_that_requests_nothing_has_no_flavor() -> None:
    decision = bench(A).add(workload("w", "q", spread(1, "l"), spread(2, "w", cpu="1"))).decide("w")
    assert decision.pod_sets[0].flavors == {}
    assert "no TAS flavor assigned" in decision.message


@pytest.mark.parametrize("quota", ["4", "100"])
def test_a_group_whose_leader_requests_nothing_preempts_for_quota_and_for_places(quota: str) -> None:
    table = bench(A if quota == "100" else node("r1/a", cpu="9"), groups=group(tas=quota), preemption=LOWER)
    table.add(running("low", "4", "a"), workload("w", "q", grouped(1, "l"), grouped(2, "w", cpu="1"), priority=1))
    decision = table.decide("w")
    assert decision.outcome is Outcome.PREEMPTING
    assert [victim.workload.name for victim in decision.victims] == ["low"]


# Leaders and workers of whose pods some were on a node that has failed.


def moved(value: Workload, at: dict[str, dict[str, int]], *nodes: Node) -> dict[str, dict[str, int]]:
    """Where the pods of a leader `l` and of workers `w` are once the host `a` has failed; empty if that is evicted."""
    held = placed(value, "q")
    assert held.admission is not None
    hosts = {
        name: AssignedDomains((HOSTNAME_LABEL,), tuple(((host,), count) for host, count in places.items()))
        for name, places in at.items()
    }
    pod_sets = tuple(replace(each, topology=hosts[each.name]) for each in held.admission.pod_sets)
    table = bench(*nodes)
    table.add(replace(held, admission=replace(held.admission, pod_sets=pod_sets), unhealthy_nodes=("a",)))
    table.pass_time(1)
    (decision,) = table.engine.assign_topologies(table.now)
    assert bool(decision.evict) != bool(decision.topologies)
    return at | {name: {values[-1]: count for values, count in found.domains} for name, found in decision.topologies}


GROUP = workload("w", "q", grouped(1, "l", cpu="1"), grouped(2, "w", cpu="1"))
AWAY = node("r2/away", cpu="9")


@pytest.mark.parametrize(
    ("at", "want"),
    [
        pytest.param({"l": {"a": 1}, "w": {"b": 2}}, {"l": {"c": 1}, "w": {"b": 2}}, id="the leader"),
        pytest.param({"l": {"b": 1}, "w": {"a": 2}}, {"l": {"b": 1}, "w": {"c": 2}}, id="all workers"),
        pytest.param({"l": {"a": 1}, "w": {"a": 1, "b": 1}}, {"l": {"c": 1}, "w": {"b": 1, "c": 1}}, id="both"),
    ],
)
def test_a_leader_stays_in_the_rack_of_its_workers_when_a_node_of_them_fails(
    at: dict[str, dict[str, int]], want: dict[str, dict[str, int]]
) -> None:
    full = node("r1/b", cpu=str(sum(places.get("b", 0) for places in at.values())))
    assert moved(GROUP, at, full, node("r1/c", cpu="2"), AWAY) == want
    assert moved(GROUP, at, full, AWAY) == at, "it is evicted, since there is no place in that rack"


def test_a_leader_and_workers_that_have_lost_all_their_nodes_move_to_one_rack() -> None:
    found = moved(GROUP, {"l": {"a": 1}, "w": {"a": 2}}, node("r1/b", cpu="2"), node("r2/c", cpu="3"))
    assert found == {"l": {"c": 1}, "w": {"c": 2}}


def test_a_leader_may_leave_a_rack_that_is_only_preferred() -> None:
    pod_sets = (asking(each, group="g", preferred=RACK) for each in (pods(1, "l", cpu="1"), pods(2, "w", cpu="1")))
    at = {"l": {"a": 1}, "w": {"b": 2}}
    value = workload("w", "q", *pod_sets)
    assert moved(value, at, node("r1/b", cpu="3"), AWAY)["l"] == {"b": 1}
    assert moved(value, at, node("r1/b", cpu="2"), AWAY)["l"] == {"away": 1}


# Leaders that request only what their queue has no quota of, where that is ignored.


def uncovered(name: str, **changes: object) -> Workload:
    return workload(name, "q", grouped(1, "l", memory="1Gi"), grouped(2, "w", cpu="1"), **changes)  # type: ignore[arg-type]


def racks(**changes: object) -> Bench:
    """One rack with memory for one leader."""
    flavors = (Flavor(name="tas", topology="racks"),)
    made = Bench(queue("q", group(tas="100"), **changes), flavors=flavors, settings=COVERED)  # type: ignore[arg-type]
    rack = Node(name="n", labels={"block": "b", RACK: "r"}, allocatable=amounts(cpu="8", memory="1Gi", pods="9"))
    return topology_bench(made, rack, levels=RACKS)


def test_the_place_of_such_a_leader_is_the_same_once_its_reservation_is_written() -> None:
    table = racks()
    table.add(uncovered("w"))
    decision = table.decide("w")
    value = table.engine.workload(key("w"))
    assert value is not None
    table.engine.admission_written(key("w"), table.now)
    table.add(lifecycle.reserved(value, decision, table.now))
    assert left(table, resource="memory") == {"r": 0}
    assert table.add(uncovered("other", created=1)).decide("other").outcome is not Outcome.RESERVED


def test_such_a_leader_gets_a_place_after_capacity_was_provisioned() -> None:
    table = racks(checks=checks("c"))
    table.engine.upsert_admission_check(
        AdmissionCheck(name="c", controller=PROVISIONING_CONTROLLER, active=True), table.now
    )
    decision = table.add(uncovered("w")).decide("w")
    value = table.engine.workload(key("w"))
    assert value is not None
    table.engine.admission_written(key("w"), table.now)
    ready = (CheckStatus(name="c", state=CheckState.READY),)
    table.add(replace(lifecycle.reserved(value, decision, table.now), checks=ready))
    table.pass_time(1)
    (found,) = table.engine.assign_topologies(table.now)
    assert (found.problem, sorted(name for name, _ in found.topologies)) == ("", ["l", "w"])
