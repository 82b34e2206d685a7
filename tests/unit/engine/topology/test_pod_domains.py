# SPDX-License-Identifier: Apache-2.0
"""Which domain each pod gets."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multikueue.engine.topology.pod_domains import PlacedPod, RankLabels, chosen_domains
from multikueue.engine.workloads import AssignedDomains

HOSTS = AssignedDomains(("host",), ((("a",), 2), (("b",), 1)))
BY_INDEX = RankLabels(index="index")


def waiting(name: str, **labels: str) -> PlacedPod:
    return PlacedPod(name=name, waits=True, labels=labels)


def started(name: str, host: str, **labels: str) -> PlacedPod:
    return PlacedPod(name=name, waits=False, labels=labels, node_selector={"host": host})


def chosen(*pods: PlacedPod, assigned: AssignedDomains = HOSTS, ranks: RankLabels | None = None) -> dict[str, str]:
    return {pod.name: ",".join(values) for pod, values in chosen_domains(pods, assigned, ranks=ranks)}


def test_pods_fill_the_domains_in_the_order_of_their_names() -> None:
    assert chosen(waiting("z"), waiting("x"), waiting("y")) == {"x": "a", "y": "a", "z": "b"}


def test_pods_for_which_there_is_no_domain_wait() -> None:
    assert chosen(*map(waiting, "stuvw")) == {"s": "a", "t": "a", "u": "b"}
    assert chosen(waiting("x"), assigned=AssignedDomains(("host",), ())) == {}


def test_there_may_be_fewer_pods_than_places() -> None:
    assert chosen(waiting("x")) == {"x": "a"}
    assert chosen() == {}


def test_what_started_pods_have_is_taken() -> None:
    assert chosen(started("x", "a"), waiting("y"), waiting("z")) == {"y": "a", "z": "b"}
    assert chosen(started("x", "b"), waiting("y"), waiting("z")) == {"y": "a", "z": "a"}


def test_too_many_pods_of_a_domain_take_no_other() -> None:
    pods = (started("u", "a"), started("v", "a"), started("w", "a"))
    assert chosen(*pods, waiting("x"), waiting("y")) == {"x": "b"}


def test_pods_that_were_started_elsewhere_take_nothing() -> None:
    assert chosen(started("x", "gone"), PlacedPod(name="y", waits=False), waiting("z")) == {"z": "a"}


def test_a_domain_is_of_all_its_levels() -> None:
    assigned = AssignedDomains(("rack", "row"), ((("r1", "1"), 1), (("r1", "2"), 1)))
    pod = PlacedPod(name="x", waits=False, node_selector={"rack": "r1", "row": "1", "other": "o"})
    half = PlacedPod(name="h", waits=False, node_selector={"rack": "r1"})
    assert chosen(pod, half, waiting("y"), assigned=assigned) == {"y": "r1,2"}


def test_ranks_say_which_domain_is_whose() -> None:
    pods = (waiting("x", index="2"), waiting("y", index="0"), waiting("z", index="1"))
    assert chosen(*pods, ranks=BY_INDEX) == {"x": "b", "y": "a", "z": "a"}


def test_by_rank_a_place_is_left_to_the_pod_that_is_missing() -> None:
    assert chosen(waiting("x", index="2"), ranks=BY_INDEX) == {"x": "b"}
    assert chosen(started("y", "a", index="0"), waiting("x", index="2"), ranks=BY_INDEX) == {"x": "b"}


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param((waiting("x", index="2"), waiting("y")), id="a pod has none"),
        pytest.param((waiting("x", index="2"), waiting("y", index="2")), id="two have the same"),
        pytest.param((waiting("x", index="3"), waiting("y", index="0")), id="one is too high"),
        pytest.param((waiting("x", index="-1"), waiting("y", index="0")), id="one is below zero"),
        pytest.param((waiting("x", index="two"), waiting("y", index="0")), id="one is no number"),
        pytest.param((waiting("x", index="²"), waiting("y", index="0")), id="one is not written in plain digits"),
        pytest.param((waiting("x", index="9" * 5000), waiting("y", index="0")), id="one is very long"),
    ],
)
def test_without_usable_ranks_pods_come_in_their_order(pods: tuple[PlacedPod, ...]) -> None:
    assert chosen(*pods, ranks=BY_INDEX) == {"x": "a", "y": "a"}


def test_a_started_pod_keeps_its_domain_whatever_its_rank() -> None:
    pods = (started("x", "b", index="0"), waiting("y", index="2"), waiting("z", index="1"))
    assert chosen(*pods, ranks=BY_INDEX) == {"y": "a", "z": "a"}


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param({"index": "1", "group": "0"}, 1, id="the first subgroup"),
        pytest.param({"index": "1", "group": "2"}, 5, id="a later one"),
        pytest.param({"index": "2", "group": "0"}, None, id="beyond its subgroup"),
        pytest.param({"index": "1"}, None, id="of no subgroup"),
        pytest.param({"group": "1"}, None, id="without an index"),
        pytest.param({"index": "1", "group": "x"}, None, id="of a subgroup without a number"),
    ],
)
def test_ranks_within_subgroups(labels: dict[str, str], want: int | None) -> None:
    ranks = RankLabels(index="index", subgroup="group", subgroups=3)
    assert ranks.rank(waiting("x", **labels), total=6) == want


def test_subgroups_are_on_neighbouring_places() -> None:
    assigned = AssignedDomains(("host",), ((("a",), 2), (("b",), 2)))
    ranks = RankLabels(index="index", subgroup="group", subgroups=2)
    pods = [waiting(f"p{g}{i}", group=str(g), index=str(i)) for i in (0, 1) for g in (0, 1)]
    assert chosen(*pods, assigned=assigned, ranks=ranks) == {"p00": "a", "p01": "a", "p10": "b", "p11": "b"}


def test_no_subgroups_are_as_one() -> None:
    ranks = RankLabels(index="index", subgroup="group", subgroups=0)
    assert ranks.rank(waiting("x", index="2", group="0"), total=3) == 2


HOST = st.sampled_from("abc")
INDEX = st.none() | st.integers(0, 6).map(str)


@given(
    counts=st.dictionaries(HOST, st.integers(1, 3)),
    pods=st.lists(st.tuples(st.none() | HOST, INDEX), max_size=8),
    ranked=st.booleans(),
)
def test_no_domain_gets_more_pods_than_it_has_places(
    counts: dict[str, int], pods: list[tuple[str | None, str | None]], ranked: bool
) -> None:
    assigned = AssignedDomains(("host",), tuple(((host,), count) for host, count in sorted(counts.items())))
    known = []
    for number, (host, index) in enumerate(pods):
        labels = {} if index is None else {"index": index}
        known.append(waiting(f"p{number}", **labels) if host is None else started(f"p{number}", host, **labels))
    before = Counter(host for host, _ in pods if host is not None)
    found = chosen(*known, assigned=assigned, ranks=BY_INDEX if ranked else None)
    after = before + Counter(found.values())
    assert set(found) <= {pod.name for pod in known if pod.waits}
    assert all(after[host] <= max(counts.get(host, 0), before[host]) for host in after)
