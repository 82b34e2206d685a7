# SPDX-License-Identifier: Apache-2.0
"""Places for workloads that hold quota already (`docs/spec/engine.md §1.12` and §6.10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.api.constants import HOSTNAME_LABEL, CheckState, DelayedTopology
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.taints import Taint, Toleration
from multikueue.engine.decisions import TopologyDecision
from multikueue.engine.topology.capacity import Node
from multikueue.engine.workloads import AssignedDomains, CheckStatus, NodeUpdate, Workload
from tests.support.engine_builders import Bench, holding, key, pods, workload
from tests.support.topology_builders import (
    RACK,
    A,
    B,
    asking,
    bench,
    cpus,
    domains,
    left,
    node,
    placed,
    running,
    spread,
)

SMALL = node("r1/b", cpu="2")
C, FAR = node("r1/c", cpu="4"), node("r2/far", cpu="4")


def two(**domains: int) -> Workload:
    """Two pods of two cpu in one rack, on these hosts, of which `a` has failed."""
    asked = workload("w", "q", asking(pods(2, cpu="2"), required=RACK))
    return replace(placed(asked, "q", **domains), unhealthy_nodes=("a",))


def failed(*nodes: Node, **domains: int) -> Bench:
    """A bench without the host `a`, with that workload."""
    table = bench(A, *nodes)
    table.engine.set_node("a", None, table.now)
    return table.add(two(**(domains or {"a": 1, "b": 1})))


def passes(table: Bench, seconds: float = 1) -> tuple[TopologyDecision, ...]:
    """What is decided after so long."""
    table.pass_time(seconds)
    return table.engine.assign_topologies(table.now)


def hosts(decision: TopologyDecision) -> dict[str, int]:
    """Of its only pod set."""
    ((_, found),) = decision.topologies
    return {values[-1]: count for values, count in found.domains}


def test_the_pods_of_a_failed_node_move_within_the_domain_that_is_required() -> None:
    table = failed(SMALL, C, FAR)
    assert passes(table, 0) == (), "only after a second"
    (decision,) = passes(table)
    assert (hosts(decision), decision.unhealthy_nodes, decision.evict) == ({"b": 1, "c": 1}, ("a",), "")
    assert left(table) == {"b": 0, "c": 2000, "far": 4000}


def test_without_a_place_there_the_workload_is_evicted() -> None:
    table = failed(FAR, SMALL)
    (decision,) = passes(table)
    assert decision.topologies == ()
    assert decision.evict == "Workload was evicted as there was no replacement for unhealthy node(s): a"
    assert "topologyDomain: 1" in decision.problem
    assert left(table) == {"b": 0, "far": 4000}, "it holds its places until it has stopped"


def test_a_workload_that_was_on_the_failed_node_alone_is_placed_as_at_first() -> None:
    table = failed(FAR, a=2)
    (decision,) = passes(table)
    assert hosts(decision) == {"far": 2}


@pytest.mark.parametrize(
    ("asks", "want"),
    [
        pytest.param({"preferred": RACK}, {"b": 2, "c": 2}, id="beside the others in the rack that is preferred"),
        pytest.param({"unconstrained": True}, {"b": 2, "d": 2}, id="anywhere, on the host that fits best"),
        pytest.param(
            {"unconstrained": True, "slice_required": RACK, "slice_size": 2},
            {"b": 2, "e": 2},
            id="as a whole slice, in the rack that fits best",
        ),
        pytest.param(
            {"unconstrained": True, "slice_required": RACK, "slice_size": 4},
            {"b": 2, "c": 2},
            id="in the rack of the slice that has lost them",
        ),
        pytest.param(
            {"unconstrained": True, "slice_required": RACK},
            {"b": 2, "d": 2},
            id="anywhere, if its slices have no size",
        ),
    ],
)
def test_the_pods_of_a_failed_node_move(asks: dict[str, object], want: dict[str, int]) -> None:
    others = (node("r1/c", cpu="8"), node("r2/d", cpu="2"), node("r2/f", cpu="8"), node("r3/e", cpu="3"))
    table = bench(A, node("r1/b", cpu="2"), *others)
    table.engine.set_node("a", None, table.now)
    asked = workload("w", "q", asking(pods(4, cpu="1"), **asks))
    table.add(replace(placed(asked, "q", a=2, b=2), unhealthy_nodes=("a",)))
    (decision,) = passes(table)
    assert hosts(decision) == want


def test_two_workloads_do_not_get_the_same_place() -> None:
    table = failed(B, C)
    other = replace(placed(cpus("v", "4"), "q", a=1), unhealthy_nodes=("a",))
    first, second = passes(table.add(other))
    assert (hosts(first), second.workload.name) == ({"c": 1}, "w")
    assert hosts(second) == {"b": 2}
    assert left(table) == {"b": 0, "c": 0}


def test_places_that_are_being_written_count_although_the_api_shows_others() -> None:
    table = failed(SMALL, C)
    (decision,) = passes(table)
    moved = hosts(decision)
    before = left(table)
    table.add(replace(two(a=1, b=1), priority=7))  # an event from before the write
    assert left(table) == before
    table.add(replace(two(**moved), unhealthy_nodes=()))
    assert left(table) == before
    table.add(two(c=2))
    assert left(table) == {"b": 2000, "c": 0}, "once they are written the API is right"


def test_places_that_could_not_be_written_are_given_back_and_decided_again() -> None:
    table = failed(B, C)
    passes(table)
    table.engine.topologies_failed(key("w"))
    table.add(two(a=1, b=1))
    assert left(table) == {"b": 2000, "c": 4000}
    (decision,) = passes(table, 2)
    assert hosts(decision) in ({"b": 2}, {"b": 1, "c": 1})


@pytest.mark.parametrize("gone", ["finished", "deleted"])
def test_nothing_is_decided_about_a_workload_that_is(gone: str) -> None:
    table = failed(B, C)
    if gone == "finished":
        table.finish("w")
    else:
        table.engine.delete_workload(key("w"), table.now)
    assert passes(table) == ()
    assert left(table) == {"b": 4000, "c": 4000}


def two_pod_sets(at: dict[str, str]) -> Workload:
    """Pods of two cpu, each a pod set of its own, named in `at` with its host; `a` has failed."""
    asked = workload("w", "q", *(spread(name=name, cpu="2") for name in at))
    held = placed(asked, "q")
    assert held.admission is not None
    pod_sets = tuple(
        replace(each, topology=AssignedDomains((HOSTNAME_LABEL,), (((at[each.name],), 1),)))
        for each in held.admission.pod_sets
    )
    return replace(held, admission=replace(held.admission, pod_sets=pod_sets), unhealthy_nodes=("a",))


def test_pods_that_move_leave_their_places_to_those_of_other_pod_sets_that_stay() -> None:
    table = bench(A, SMALL)
    table.engine.set_node("a", None, table.now)
    table.add(two_pod_sets({"moves": "a", "stays": "b"}))
    (decision,) = passes(table)
    assert (decision.topologies, bool(decision.evict)) == ((), True), "two cpu are free on no host"
    assert left(table) == {"b": 0}
    table.engine.set_node("c", C, table.now)
    (decision,) = passes(table, 2)
    assert hosts(decision) == {"c": 1}
    assert left(table) == {"b": 0, "c": 2000}


def test_pods_of_two_pod_sets_that_move_do_not_get_the_same_place() -> None:
    table = bench(A, SMALL)
    table.engine.set_node("a", None, table.now)
    table.add(two_pod_sets({"one": "a", "other": "a"}))
    (decision,) = passes(table)
    assert (decision.topologies, bool(decision.evict)) == ((), True), "one of them would fit"
    table.engine.set_node("c", node("r1/c", cpu="2"), table.now)
    (decision,) = passes(table, 2)
    assert sorted(values[-1] for _, found in decision.topologies for values, _ in found.domains) == ["b", "c"]
    assert left(table) == {"b": 0, "c": 0}


def test_pods_beside_those_of_their_own_pod_set_and_of_another() -> None:
    table = failed(node("r1/b", cpu="6"), C)
    asked = workload("w", "q", asking(pods(2, cpu="2"), required=RACK), spread(2, name="stays", cpu="2"))
    held = placed(asked, "q", a=1, b=1)
    assert held.admission is not None
    moves, stays = held.admission.pod_sets
    stays = replace(stays, topology=AssignedDomains((HOSTNAME_LABEL,), ((("b",), 2),)))
    table.add(replace(held, admission=replace(held.admission, pod_sets=(moves, stays)), unhealthy_nodes=("a",)))
    (decision,) = passes(table)
    assert hosts(decision) == {"b": 1, "c": 1}
    assert left(table) == {"b": 0, "c": 2000}


def delayed(state: CheckState) -> Workload:
    """One that holds quota, and whose places are found once its check is ready."""
    held = holding(workload("w", "q", asking(pods(2, cpu="2"), required=RACK)), "q", flavor="tas")
    assert held.admission is not None
    pod_sets = tuple(replace(each, delayed_topology=DelayedTopology.PENDING) for each in held.admission.pod_sets)
    return replace(
        held,
        admission=replace(held.admission, pod_sets=pod_sets),
        checks=(CheckStatus(name="c", state=state),),
        conditions=tuple(each for each in held.conditions if each.type != WorkloadCondition.ADMITTED),
    )


def test_places_that_were_left_to_later_are_beside_those_that_the_workload_has() -> None:
    waiting = delayed(CheckState.READY)
    assert waiting.admission is not None
    (later,) = waiting.admission.pod_sets
    has = replace(later, name="has", delayed_topology=None, topology=AssignedDomains((HOSTNAME_LABEL,), ((("a",), 2),)))
    value = replace(
        waiting,
        pod_sets=(*waiting.pod_sets, replace(waiting.pod_sets[0], name="has")),
        admission=replace(waiting.admission, pod_sets=(later, has)),
    )
    (decision,) = passes(bench(A, node("r2/b", cpu="9")).add(value))
    assert hosts(decision) == {"b": 2}


@pytest.mark.parametrize("state", CheckState)
def test_places_that_were_left_to_later_are_found_once_the_checks_are_ready(state: CheckState) -> None:
    table = bench(A, B).add(delayed(state))
    decided = passes(table)
    assert [hosts(each) for each in decided] == ([{"a": 2}] if state is CheckState.READY else [])


def test_places_are_on_nodes_that_the_updates_of_its_checks_allow() -> None:
    taint = Taint(key="provisioned", value="yes", effect="NoSchedule")
    provisioned = node("r1/new", cpu="4", labels={"request": "w"}, taints=(taint,))
    update = NodeUpdate(
        name="main",
        node_selector={"request": "w"},
        tolerations=(Toleration(key="provisioned", operator="Exists"),),
    )
    others = NodeUpdate(name="other", node_selector={"request": "another"})
    waiting = delayed(CheckState.READY)
    (check,) = waiting.checks
    table = bench(A, B, provisioned).add(replace(waiting, checks=(replace(check, updates=(others, update)),)))
    (decision,) = passes(table)
    assert hosts(decision) == {"new": 2}


@pytest.mark.parametrize(("state", "want"), [(CheckState.READY, {"new": 1}), (CheckState.PENDING, {"a": 1})])
def test_updates_of_checks_that_are_ready_count_in_a_cycle_too(state: CheckState, want: dict[str, int]) -> None:
    provisioned = node("r1/new", cpu="4", labels={"request": "w"})
    update = NodeUpdate(name="main", node_selector={"request": "w"})
    check = CheckStatus(name="c", state=state, updates=(update,))
    table = bench(A, provisioned).add(workload("w", "q", asking(pods(cpu="4"), required=RACK), checks=(check,)))
    assert domains(table.decide("w")) == want


def test_without_places_it_keeps_its_quota_and_is_tried_again_after_longer_and_longer() -> None:
    table = bench(node("r1/small", cpu="2")).add(delayed(CheckState.READY))
    (first,) = passes(table)
    assert (first.evict, first.topologies) == ("", ())
    assert "allows to fit only 1 out of 2 pod(s)" in first.problem
    assert passes(table) == ()
    assert len(passes(table)) == 1, "two seconds after the first"
    table.engine.set_node("a", A, table.now)
    assert passes(table, 3) == ()
    assert hosts(passes(table)[0]) == {"a": 2}


def test_a_failure_of_the_engine_names_the_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    table = failed(B, C)
    table.add(running("other", "1", "b"))
    monkeypatch.setattr(table.engine._nominator.topologies, "decide_again", lambda record: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        passes(table)
    assert table.engine.deciding == key("w")


def test_domains_are_those_of_hosts() -> None:
    (decision,) = passes(failed(SMALL, C))
    assert decision.topologies == (("main", AssignedDomains((HOSTNAME_LABEL,), ((("b",), 1), (("c",), 1)))),)
