# SPDX-License-Identifier: Apache-2.0
"""Whatever happens: no host has more than it holds, and only admissions use places (`docs/spec/engine.md §6.1`)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.engine import Decision, Outcome, Settings
from tests.support.engine_builders import (
    Bench,
    group,
    key,
    pods,
    preemption,
    workload,
)
from tests.support.topology_builders import (
    RACK,
    asking,
    bench,
    domains,
    left,
    node,
)

POLICIES = st.sampled_from(["Never", "LowerPriority", "Any"])
NODES = st.lists(st.tuples(st.sampled_from(["r1", "r2"]), st.integers(1, 4)), min_size=1, max_size=4)
ASKS = st.sampled_from([{"required": RACK}, {"preferred": RACK}, {"unconstrained": True}, {"required": HOSTNAME_LABEL}])
ARRIVALS = st.lists(
    st.tuples(st.sampled_from("pq"), st.integers(1, 4), st.integers(1, 3), ASKS, st.integers(0, 2), st.booleans()),
    min_size=1,
    max_size=8,
)


def site(nodes: list[tuple[str, int]], policy: str, *, fair: bool) -> Bench:
    made = [node(f"{rack}/{host}", cpu=str(cpu)) for host, (rack, cpu) in zip("abcd", nodes, strict=False)]
    return bench(
        *made,
        queues=("p", "q"),
        groups=group(tas="12"),
        preemption=preemption(policy),
        settings=Settings(pods_ready=None, fair_sharing=fair),
    )


Arrival = tuple[str, int, int, dict[str, object], int, bool]


def arrive(table: Bench, number: int, arrival: Arrival) -> None:
    at_queue, count, cpu, ask, priority, _ = arrival
    pod_set = asking(pods(count, cpu=str(cpu)), **ask)
    table.add(workload(f"w{number}", at_queue, pod_set, priority=priority, created=number))


@given(nodes=NODES, arrivals=ARRIVALS, fair=st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_host_has_more_than_it_holds(nodes: list[tuple[str, int]], arrivals: list[Arrival], fair: bool) -> None:
    table = site(nodes, "Never", fair=fair)
    empty = left(table)
    admitted: dict[str, Decision] = {}
    for number, arrival in enumerate(arrivals):
        arrive(table, number, arrival)
        if arrival[-1]:
            for decision in table.cycle().decisions:
                if decision.outcome is Outcome.RESERVED:
                    admitted[decision.workload.name] = decision
            assert all(amount >= 0 for amount in left(table).values())
    for name, decision in admitted.items():
        assert sum(domains(decision).values()) == arrivals[int(name[1:])][1]
        table.engine.delete_workload(key(name), table.now)
    assert left(table) == empty


@given(nodes=NODES, arrivals=ARRIVALS, policy=POLICIES, fair=st.booleans())
@settings(max_examples=60, deadline=None)
def test_only_admissions_use_places(
    nodes: list[tuple[str, int]], arrivals: list[Arrival], policy: str, fair: bool
) -> None:
    table = site(nodes, policy, fair=fair)
    expected = left(table)
    for number, arrival in enumerate(arrivals):
        arrive(table, number, arrival)
        for decision in table.cycle().decisions:
            if decision.outcome is Outcome.RESERVED:
                cpu = arrivals[int(decision.workload.name[1:])][2]
                for host, count in domains(decision).items():
                    expected[host] -= 1000 * cpu * count
        assert left(table) == expected
