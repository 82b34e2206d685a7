# SPDX-License-Identifier: Apache-2.0
"""Placement of pods in a topology (`docs/spec/engine.md §6.5` to §6.7)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from multikueue.engine.topology.placement import place
from multikueue.engine.topology.values import (
    DomainValues,
    LeafCapacity,
    PlacedDomains,
    PlacementFailure,
    PlacementMode,
    PlacementRequest,
)

REQUIRED, PREFERRED, UNCONSTRAINED = PlacementMode.REQUIRED, PlacementMode.PREFERRED, PlacementMode.UNCONSTRAINED


def leaf(path: str, pods: int, beside: int | None = None) -> LeafCapacity:
    """A leaf `rack/host` that holds so many pods; with `beside`, the leader fits, and so many beside it."""
    values = tuple(path.split("/"))
    return LeafCapacity(values, pods, pods if beside is None else beside, beside is not None)


def leaves(**pods: int) -> list[LeafCapacity]:
    """Leaves by name: `r1_a` is host `a` in rack `r1`."""
    return [leaf(name.replace("_", "/"), count) for name, count in pods.items()]


def request(
    count: int,
    mode: PlacementMode = REQUIRED,
    *,
    level: int = 0,
    leader: bool = False,
    size: int = 1,
    slice_level: int = 1,
    inner: tuple[tuple[int, int], ...] = (),
) -> PlacementRequest:
    return PlacementRequest(
        count=count, level=level, mode=mode, leader=leader, slice_size=size, slice_level=slice_level, inner=inner
    )


def workers(result: PlacedDomains | PlacementFailure) -> dict[str, int]:
    assert isinstance(result, PlacedDomains), result
    return {"_".join(values): pods for values, pods in result.workers}


def leader(result: PlacedDomains | PlacementFailure) -> str | None:
    assert isinstance(result, PlacedDomains), result
    return None if result.leader is None else "_".join(result.leader)


def test_no_leaves_hold_nothing() -> None:
    assert place(2, [], request(6, size=2)) == PlacementFailure(0, 3)


def test_a_single_leaf_holds_what_fits() -> None:
    only = [leaf("a", 3)]
    assert place(1, only, request(3, slice_level=0)) == PlacedDomains(((("a",), 3),))
    assert place(1, only, request(4, slice_level=0)) == PlacementFailure(3, 4)


def test_leaves_without_capacity_hold_nothing() -> None:
    assert place(2, leaves(r1_a=0, r2_b=0), request(1)) == PlacementFailure(0, 1)
    assert place(2, leaves(r1_a=0, r2_b=0), request(1, UNCONSTRAINED, level=1)) == PlacementFailure(0, 1)


def test_best_fit_takes_the_smallest_domain_that_is_enough() -> None:
    offered = leaves(r1_a=4, r1_b=4, r2_c=2, r2_d=2, r3_e=3)
    assert workers(place(2, offered, request(4))) == {"r2_c": 2, "r2_d": 2}
    assert workers(place(2, offered, request(3))) == {"r3_e": 3}


def test_the_last_leaf_is_the_smallest_that_holds_the_rest() -> None:
    assert workers(place(2, leaves(r1_a=5, r1_b=4, r1_c=2), request(7))) == {"r1_a": 5, "r1_c": 2}


def test_required_pods_are_refused_with_what_fits_in_the_best_domain() -> None:
    assert place(2, leaves(r1_a=2, r1_b=2, r2_c=3), request(6)) == PlacementFailure(4, 6)
    assert place(2, leaves(r1_a=3, r1_b=2, r2_c=3), request(6, size=2)) == PlacementFailure(1 + 1, 3)


def test_preferred_pods_go_a_level_up() -> None:
    offered = leaves(r1_a=3, r1_b=3, r2_c=4, r2_d=4)
    assert workers(place(2, offered, request(4, PREFERRED, level=1))) == {"r2_c": 4}
    assert workers(place(2, offered, request(6, PREFERRED, level=1))) == {"r1_a": 3, "r1_b": 3}


def test_preferred_pods_spread_at_the_top() -> None:
    offered = leaves(r1_a=3, r1_b=3, r2_c=4, r2_d=4, r3_e=2)
    assert workers(place(2, offered, request(10, PREFERRED, level=1))) == {"r2_c": 4, "r2_d": 4, "r3_e": 2}
    assert place(2, offered, request(17, PREFERRED, level=1)) == PlacementFailure(16, 17)


def test_chosen_racks_share_their_leaves_without_regard_to_their_shares() -> None:
    # r1 is chosen for 9 pods and r3 for one; of the leaves of both, a and d are enough.
    offered = leaves(r1_a=8, r1_b=1, r2_c=6, r3_d=5)
    assert workers(place(2, offered, request(10, PREFERRED))) == {"r1_a": 8, "r3_d": 2}


def test_unconstrained_pods_fill_the_fullest_leaves_first() -> None:
    offered = leaves(r1_a=1, r1_b=2, r2_c=5, r2_d=4)
    spread = request(6, UNCONSTRAINED, level=1)
    assert workers(place(2, offered, spread)) == {"r1_a": 1, "r1_b": 2, "r2_d": 3}
    assert place(2, offered, request(13, UNCONSTRAINED, level=1)) == PlacementFailure(12, 13)


def test_unconstrained_pods_take_few_leaves_without_the_mixed_profile() -> None:
    offered = leaves(r1_a=1, r1_b=2, r2_c=5, r2_d=4)
    spread = request(6, UNCONSTRAINED, level=1)
    assert workers(place(2, offered, spread, mixed_profile=False)) == {"r1_a": 1, "r2_c": 5}


def test_unconstrained_pods_are_together_where_a_leaf_holds_all() -> None:
    offered = leaves(r1_a=1, r1_b=9, r2_c=5)
    for mixed in (True, False):
        assert workers(place(2, offered, request(4, UNCONSTRAINED, level=1), mixed_profile=mixed)) == {"r2_c": 4}


def test_slices_are_whole_within_racks() -> None:
    offered = leaves(z1_r1_a=3, z1_r1_b=2, z1_r2_c=3, z2_r3_d=3, z2_r3_e=1)
    placed = place(3, offered, request(8, PREFERRED, size=4, slice_level=1))
    # z1 has two racks of 5 and of 3: one slice, as z2.
    assert workers(placed) == {"z1_r1_a": 2, "z1_r1_b": 2, "z2_r3_d": 3, "z2_r3_e": 1}
    assert place(3, offered, request(8, size=4, slice_level=1)) == PlacementFailure(1, 2)


def test_below_slices_the_leaves_with_few_pods_come_first() -> None:
    assert workers(place(2, leaves(r1_a=4, r1_b=1, r1_c=3), request(4, size=4, slice_level=0))) == {
        "r1_b": 1,
        "r1_c": 3,
    }


def test_inner_slices_are_whole_within_leaves() -> None:
    offered = leaves(r1_a=3, r1_b=3, r1_c=3, r2_d=2, r2_e=2)
    layered = request(4, size=4, slice_level=0, inner=((1, 2),))
    assert workers(place(2, offered[:3], layered)) == {"r1_a": 2, "r1_b": 2}
    # Both racks hold one slice; the one with fewer pods in pairs comes first.
    assert workers(place(2, offered, layered)) == {"r2_d": 2, "r2_e": 2}


def test_an_inner_size_counts_on_all_levels_down_to_its_own() -> None:
    # z1/r1 has 5 pods in pairs of 2 + 2, which is one slice of 4; so has z1/r2, and both are needed.
    offered = leaves(z1_r1_a=3, z1_r1_b=2, z1_r2_c=4, z1_r2_d=1, z2_r3_e=7)
    layered = request(8, size=8, slice_level=0, inner=((1, 4), (2, 2)))
    assert workers(place(3, offered, layered)) == {"z1_r1_a": 2, "z1_r1_b": 2, "z1_r2_c": 4}
    down = request(8, size=8, slice_level=0, inner=((2, 4),))
    assert place(3, offered, down) == PlacementFailure(0, 1, ((0, 0, 1), (2, 1, 2)))


def test_a_refusal_of_inner_slices_names_what_fits_on_each_level() -> None:
    offered = leaves(r1_a=2, r1_b=3, r1_c=1, r2_d=4)
    layered = request(12, size=6, slice_level=0, inner=((1, 2),))
    assert place(2, offered, layered) == PlacementFailure(0, 2, ((0, 0, 2), (1, 2, 6)))
    assert place(2, leaves(r1_a=0), layered) == PlacementFailure(0, 2, ((0, 0, 2), (1, 0, 6)))


def test_the_leader_takes_capacity_beside_its_workers() -> None:
    offered = [leaf("r1/a", 4, 3), leaf("r1/b", 1, 0), leaf("r2/c", 4, 3)]
    placed = place(2, offered, request(4, leader=True))
    assert workers(placed) == {"r1_a": 3, "r1_b": 1}
    assert leader(placed) == "r1_a"
    assert workers(place(2, offered, request(3, leader=True))) == {"r2_c": 3}
    assert leader(place(2, offered, request(3, leader=True))) == "r2_c"


def test_the_leader_is_on_a_leaf_with_capacity_for_it() -> None:
    offered = [leaf("r1/a", 8), leaf("r2/b", 3), leaf("r2/c", 2, 0)]
    placed = place(2, offered, request(3, leader=True))
    assert workers(placed) == {"r2_b": 3}
    assert leader(placed) == "r2_c"


def test_a_leader_that_fits_nowhere_refuses_the_workers() -> None:
    offered = leaves(r1_a=8, r2_b=8)
    assert place(2, offered, request(9, leader=True)) == PlacementFailure(8, 9)
    assert place(2, offered, request(3, PREFERRED, leader=True)) == PlacementFailure(0, 3)
    assert place(2, offered, request(3, UNCONSTRAINED, level=1, leader=True)) == PlacementFailure(0, 3)


def test_the_leader_goes_where_it_costs_no_worker_that_is_needed() -> None:
    # On a the leader costs 4 pods, which are needed.
    offered = [leaf("r1/a", 6, 2), leaf("r1/b", 5, 4)]
    placed = place(2, offered, request(10, leader=True))
    assert leader(placed) == "r1_b"
    assert workers(placed) == {"r1_a": 6, "r1_b": 4}


def test_leaders_and_workers_spread_over_domains() -> None:
    offered = [leaf("r1/a", 6), leaf("r2/b", 3, 2), leaf("r3/c", 2)]
    for mode, expected in ((PREFERRED, {"r1_a": 6, "r2_b": 2}), (UNCONSTRAINED, {"r1_a": 4, "r2_b": 2, "r3_c": 2})):
        placed = place(2, offered, request(8, mode, level=1, leader=True))
        assert workers(placed) == expected
        assert leader(placed) == "r2_b"
    assert place(2, offered, request(11, PREFERRED, level=1, leader=True)) == PlacementFailure(10, 11)


def test_equal_domains_are_taken_by_their_values() -> None:
    offered = leaves(r2_d=2, r2_c=2, r1_b=2, r1_a=2)
    assert workers(place(2, offered, request(2))) == {"r1_a": 2}
    assert workers(place(2, offered, request(3))) == {"r1_a": 2, "r1_b": 1}


def test_equal_names_in_other_racks_are_other_leaves() -> None:
    assert workers(place(2, leaves(r1_a=2, r2_a=3), request(3))) == {"r2_a": 3}


def test_a_level_in_the_middle_of_three_can_be_required() -> None:
    offered = leaves(z1_r1_a=2, z1_r1_b=2, z1_r2_c=3, z2_r3_d=9)
    middle = request(4, level=1, slice_level=2)
    assert workers(place(3, offered, middle)) == {"z1_r1_a": 2, "z1_r1_b": 2}
    assert workers(place(3, offered, request(7, PREFERRED, level=1, slice_level=2))) == {"z2_r3_d": 7}
    assert workers(place(3, offered[:3], request(7, PREFERRED, level=1, slice_level=2))) == {
        "z1_r1_a": 2,
        "z1_r1_b": 2,
        "z1_r2_c": 3,
    }
    assert place(3, offered[:3], request(7, level=1, slice_level=2)) == PlacementFailure(4, 7)


class Case(NamedTuple):
    levels: int
    leaves: list[LeafCapacity]
    request: PlacementRequest
    mixed_profile: bool


@st.composite
def cases(draw: st.DrawFn, *, leaders: bool = True) -> Case:
    levels = draw(st.integers(1, 4))
    paths = st.tuples(*([st.sampled_from("abc")] * levels))
    offered = []
    for values in draw(st.lists(paths, min_size=1, max_size=12, unique=True)):
        pods = draw(st.integers(0, 9))
        hosts = leaders and draw(st.booleans())
        offered.append(LeafCapacity(values, pods, draw(st.integers(0, pods)) if hosts else pods, hosts))
    level = draw(st.integers(0, levels - 1))
    slice_level = draw(st.integers(level, levels - 1))
    size = outer = draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
    inner = []
    above = slice_level
    while above < levels - 1 and draw(st.booleans()):
        above = draw(st.integers(above + 1, levels - 1))
        outer = draw(st.sampled_from([divisor for divisor in range(1, outer + 1) if outer % divisor == 0]))
        inner.append((above, outer))
    asked = PlacementRequest(
        count=size * draw(st.integers(1, 6)),
        level=level,
        mode=draw(st.sampled_from(PlacementMode)),
        leader=leaders and draw(st.booleans()),
        slice_size=size,
        slice_level=slice_level,
        inner=tuple(inner),
    )
    return Case(levels, offered, asked, draw(st.booleans()))


def placed(case: Case) -> PlacedDomains | PlacementFailure:
    return place(case.levels, case.leaves, case.request, mixed_profile=case.mixed_profile)


def by_domain(result: PlacedDomains, level: int) -> Counter[DomainValues]:
    pods: Counter[DomainValues] = Counter()
    for values, count in result.workers:
        pods[values[: level + 1]] += count
    return pods


def slices_within(offered: Sequence[LeafCapacity], asked: PlacementRequest, levels: int) -> Counter[DomainValues]:
    """The whole slices of each domain of the requested level, without a leader."""
    sizes = {asked.slice_level: asked.slice_size}
    previous = asked.slice_level
    for level, size in asked.inner:
        sizes |= dict.fromkeys(range(previous + 1, level + 1), size)
        previous = level
    held: Counter[DomainValues] = Counter({leaf.values: leaf.pods for leaf in offered})
    for level in range(levels - 1, asked.level - 1, -1):
        totals: Counter[DomainValues] = Counter()
        for values, count in held.items():
            # Below the slice level pods are counted, from there up slices.
            if level == asked.slice_level:
                count //= asked.slice_size
            elif level > asked.slice_level:
                count -= count % sizes.get(level, 1)
            totals[values[:level] if level > asked.level else values] += count
        held = totals
    return held


@settings(max_examples=300, deadline=None)
@given(cases())
def test_all_pods_are_placed_where_they_fit(case: Case) -> None:
    result = placed(case)
    if isinstance(result, PlacementFailure):
        assert result.wanted == case.request.count // case.request.slice_size
        return
    capacities = {leaf.values: leaf for leaf in case.leaves}
    assert sum(pods for _, pods in result.workers) == case.request.count
    assert [values for values, _ in result.workers] == sorted({values for values, _ in result.workers})
    assert (result.leader is not None) == case.request.leader
    assert result.leader is None or capacities[result.leader].leader
    for values, pods in result.workers:
        capacity = capacities[values]
        assert 0 < pods <= (capacity.pods_with_leader if values == result.leader else capacity.pods)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_slices_of_each_size_are_whole_within_domains(case: Case) -> None:
    result = placed(case)
    if isinstance(result, PlacedDomains):
        for level, size in ((case.request.slice_level, case.request.slice_size), *case.request.inner):
            assert all(pods % size == 0 for pods in by_domain(result, level).values())


@settings(max_examples=300, deadline=None)
@given(cases())
def test_required_pods_and_their_leader_are_in_one_domain(case: Case) -> None:
    result = placed(case)
    if isinstance(result, PlacedDomains) and case.request.mode is REQUIRED:
        domains = set(by_domain(result, case.request.level))
        if result.leader is not None:
            domains.add(result.leader[: case.request.level + 1])
        assert len(domains) == 1


@settings(max_examples=300, deadline=None)
@given(cases(leaders=False))
def test_pods_are_refused_only_where_no_domain_holds_them(case: Case) -> None:
    result = placed(case)
    wanted = case.request.count // case.request.slice_size
    held = slices_within(case.leaves, case.request, case.levels)
    most, total = max(held.values()), sum(held.values())
    fits = most if case.request.mode is REQUIRED else total
    assert isinstance(result, PlacedDomains) == (fits >= wanted)
    if isinstance(result, PlacementFailure):
        assert (result.fits, result.wanted) == (fits, wanted)


@settings(max_examples=200, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_leaves_changes_nothing(case: Case, order: random.Random) -> None:
    shuffled = list(case.leaves)
    order.shuffle(shuffled)
    assert placed(case) == placed(case._replace(leaves=shuffled))
