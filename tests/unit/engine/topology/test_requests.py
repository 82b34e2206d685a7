# SPDX-License-Identifier: Apache-2.0
"""What pod sets ask of a topology (`docs/spec/engine.md §6.2` and §6.3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.core.quantity import Quantity
from multikueue.engine.topology.requests import placed_together, placement_request, single_pod
from multikueue.engine.topology.values import PlacementMode, PlacementRequest
from multikueue.engine.workloads import ContainerRequests, PodSet, PodShape, TopologyRequest
from tests.support.engine_builders import pods, shape
from tests.support.topology_builders import asking

LEVELS = ("block", "rack", "host")
REQUIRED, PREFERRED, UNCONSTRAINED = PlacementMode.REQUIRED, PlacementMode.PREFERRED, PlacementMode.UNCONSTRAINED


def together(*pod_sets: PodSet) -> list[tuple[str, str | None]]:
    """The workers and the leader of all that are placed together, in order."""
    found = list(placed_together(pod_sets))
    assert [len(each.pod_sets) for each in found] == [1 if each.leader is None else 2 for each in found]
    return [(each.workers.name, None if each.leader is None else each.leader.name) for each in found]


def of_group(name: str, count: int, group: str = "g") -> PodSet:
    return asking(pods(count, name), group=group, required="rack")


def request(count: int = 4, *, leader: bool = False, **fields: object) -> PlacementRequest:
    asked = TopologyRequest(**fields)  # type: ignore[arg-type]
    found = placement_request(asked, count=count, levels=LEVELS, leader=leader)
    assert isinstance(found, PlacementRequest), found
    return found


def problem(count: int = 4, **fields: object) -> str:
    found = placement_request(
        TopologyRequest(**fields),  # type: ignore[arg-type]
        count=count,
        levels=LEVELS,
        leader=False,
    )
    assert isinstance(found, str), found
    return found


def test_pod_sets_are_placed_one_by_one_in_their_order() -> None:
    assert together(pods(name="b"), asking(pods(name="a"), required="rack")) == [("b", None), ("a", None)]
    assert together() == []


def test_the_smaller_pod_set_of_a_group_leads() -> None:
    assert together(of_group("few", 1), of_group("many", 3)) == [("many", "few")]
    assert together(of_group("many", 3), of_group("few", 1)) == [("many", "few")]


def test_the_second_of_two_equals_leads() -> None:
    assert together(of_group("a", 1), of_group("b", 1)) == [("a", "b")]


def test_a_group_is_placed_when_its_first_pod_set_is() -> None:
    assert together(of_group("w", 2), pods(name="x"), of_group("l", 1)) == [("w", "l"), ("x", None)]


def test_groups_are_apart() -> None:
    assert together(of_group("a", 2, "g"), of_group("b", 2, "h"), of_group("c", 1, "h"), of_group("d", 1, "g")) == [
        ("a", "d"),
        ("b", "c"),
    ]


@pytest.mark.parametrize("size", [1, 3])
def test_a_group_that_is_no_pair_is_placed_one_by_one(size: int) -> None:
    names = ["a", "b", "c"][:size]
    assert together(*(of_group(name, 2) for name in names)) == [(name, None) for name in names]


def test_a_pod_takes_what_it_requests_and_one_of_the_pods() -> None:
    assert single_pod(shape(cpu="1500m", memory="1Ki", gpu="2")) == {"cpu": 1500, "memory": 1024, "gpu": 2, "pods": 1}
    assert single_pod(PodShape()) == {"pods": 1}


def test_amounts_of_a_pod_are_rounded_up() -> None:
    assert single_pod(shape(cpu="0.1m", memory="100m")) == {"cpu": 1, "memory": 1, "pods": 1}


def test_what_a_pod_requests_none_of_does_not_limit_it() -> None:
    assert single_pod(shape(cpu="0")) == {"pods": 1}


def test_a_pod_takes_its_overhead_and_its_limits_where_it_has_no_requests() -> None:
    pod = PodShape(
        containers=(ContainerRequests(limits={"cpu": Quantity.parse("2")}),),
        overhead={"cpu": Quantity.parse("250m")},
        has_overhead=True,
    )
    assert single_pod(pod) == {"cpu": 2250, "pods": 1}


def test_without_a_request_any_hosts_will_do() -> None:
    want = PlacementRequest(count=4, level=2, mode=UNCONSTRAINED, slice_level=2)
    assert placement_request(None, count=4, levels=LEVELS, leader=False) == want
    assert request(unconstrained=True) == want
    assert request(group="g") == want


@pytest.mark.parametrize(("kind", "mode"), [("required", REQUIRED), ("preferred", PREFERRED)])
def test_a_level_that_is_required_or_preferred(kind: str, mode: PlacementMode) -> None:
    for level, key in enumerate(LEVELS):
        assert request(4, leader=False, **{kind: key}) == PlacementRequest(
            count=4, level=level, mode=mode, slice_level=2
        )


def test_a_leader_is_passed_on() -> None:
    assert request(required="rack", leader=True).leader


def test_slices_of_a_level() -> None:
    assert request(required="block", slice_required="rack", slice_size=2) == PlacementRequest(
        count=4, level=0, mode=REQUIRED, slice_size=2, slice_level=1
    )


def test_slices_alone_may_be_anywhere_below_the_highest_level() -> None:
    assert request(slice_required="rack", slice_size=2) == PlacementRequest(
        count=4, level=0, mode=UNCONSTRAINED, slice_size=2, slice_level=1
    )


def test_slices_of_several_levels() -> None:
    assert request(preferred="block", slices=(("rack", 4), ("host", 2))) == PlacementRequest(
        count=4, level=0, mode=PREFERRED, slice_size=4, slice_level=1, inner=((2, 2),)
    )


def test_the_list_of_slices_comes_before_the_single_one() -> None:
    found = request(required="block", slice_required="host", slice_size=1, slices=(("rack", 2),))
    assert (found.slice_level, found.slice_size) == (1, 2)


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"required": "zone"}, "no requested topology level: zone", id="a level that there is not"),
        pytest.param({"preferred": "zone"}, "no requested topology level: zone", id="neither for a preference"),
        pytest.param(
            {"required": "rack", "slice_required": "zone", "slice_size": 2},
            "no requested topology level: zone",
            id="nor for slices",
        ),
        pytest.param(
            {"required": "rack", "slices": (("host", 2), ("zone", 1))},
            "no requested topology level: zone",
            id="nor for inner slices",
        ),
        pytest.param(
            {"required": "host", "slice_required": "rack", "slice_size": 2},
            'slices of level "rack" are above the requested level "host"',
            id="slices are not above the requested level",
        ),
        pytest.param(
            {"required": "block", "slice_required": "rack", "slice_size": 3},
            "4 pods cannot be divided into slices of 3",
            id="slices are whole",
        ),
        pytest.param(
            {"required": "block", "slice_required": "rack"},
            "4 pods cannot be divided into slices of 0",
            id="slices have a size",
        ),
        pytest.param(
            {"required": "block", "slice_required": "rack", "slice_size": -2},
            "4 pods cannot be divided into slices of -2",
            id="that is positive",
        ),
    ],
)
def test_requests_that_cannot_be(fields: dict[str, object], want: str) -> None:
    assert problem(4, **fields) == want


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(("host", 3), id="a size that does not divide the one before"),
        pytest.param(("host", 0), id="a size of none"),
        pytest.param(("rack", 2), id="a level that is not lower"),
        pytest.param(("block", 2), id="a level that is higher"),
    ],
)
def test_inner_slices_that_cannot_be(inner: tuple[str, int]) -> None:
    assert problem(required="block", slices=(("rack", 4), inner))


def test_a_group_alone_is_no_request_for_places() -> None:
    assert not asking(pods(), group="g").topology.explicit  # type: ignore[union-attr]
    assert replace(TopologyRequest(), slice_required="rack").explicit
