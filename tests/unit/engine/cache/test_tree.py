# SPDX-License-Identifier: Apache-2.0
"""The quota tree (`docs/spec/engine.md §2.5` to §2.8) and the worked examples 1 to 3 and 5 of §13."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from multikueue.engine.cache import quota, shares
from multikueue.engine.cache.shares import Share
from multikueue.engine.cache.tree import MAX_LEVELS, Forest
from multikueue.engine.resources import MAX_INT64, UNLIMITED, FlavorResource
from multikueue.engine.values import ClusterQueue, Cohort, FlavorQuotas, Quota, ResourceGroup

CPU = FlavorResource("f", "cpu")


def own(nominal: int, borrow: int | None = None, lend: int | None = None) -> list[ResourceGroup]:
    return [ResourceGroup(("cpu",), (FlavorQuotas("f", {"cpu": Quota(nominal, borrow, lend)}),))]


def forest(
    queues: Mapping[str, tuple[str, list[ResourceGroup]]],
    cohorts: Mapping[str, tuple[str, list[ResourceGroup]]] | None = None,
    used: Mapping[str, int] | None = None,
    weights: Mapping[str, float] | None = None,
) -> Forest:
    made = Forest()
    weight = weights or {}
    for name, (parent, groups) in (cohorts or {}).items():
        made.set_cohort(name, parent=parent, groups=groups, weight=weight.get(name, 1.0))
    for name, (parent, groups) in queues.items():
        made.set_queue(name, cohort=parent, groups=groups, weight=weight.get(name, 1.0))
    for name, amount in (used or {}).items():
        quota.add_usage(made.queue(name).cell(CPU), amount)
    return made


def available(made: Forest, name: str) -> int:
    return quota.available(made.queue(name).cell(CPU))


def test_example_1_a_tree_with_borrowing_and_lending_limits() -> None:
    made = forest(
        {"cq1": ("co", own(10)), "cq2": ("co", own(10, borrow=2)), "cq3": ("co", own(10, lend=5))},
        {"co": ("", own(10))},
        {"cq1": 20, "cq2": 10, "cq3": 6},
    )
    root = made.cohorts["co"].cell(CPU)
    assert made.queue("cq3").cell(CPU).local == 5
    assert (root.quota, root.usage) == (35, 31)
    assert [available(made, name) for name in ("cq1", "cq2", "cq3")] == [4, 2, 4]
    assert [made.queue(name).cell(CPU).potential for name in ("cq1", "cq2", "cq3")] == [35, 12, 40]


def test_example_2_over_use_spills_everywhere() -> None:
    made = forest(
        {"cq1": ("co", own(10)), "cq2": ("co", own(10, borrow=0, lend=0))}, {"co": ("", own(10))}, {"cq1": 31}
    )
    assert quota.available(made.cohorts["co"].cell(CPU)) == -11
    assert available(made, "cq2") == -1


def test_the_example_of_the_tree_section() -> None:
    made = forest({"cq1": ("co", own(10000)), "cq2": ("co", own(10000, lend=9000))}, {"co": ("", own(10000))})
    quota.add_usage(made.queue("cq1").cell(CPU), 1000)
    quota.add_usage(made.queue("cq2").cell(CPU), 500)
    root = made.cohorts["co"].cell(CPU)
    assert (root.quota, root.usage) == (29000, 1000)
    assert (available(made, "cq1"), available(made, "cq2")) == (28000, 28500)
    assert [made.queue(name).cell(CPU).potential for name in ("cq1", "cq2")] == [29000, 30000]


def test_example_5_the_level_is_the_height_of_the_lowest_cohort_that_need_not_borrow() -> None:
    made = forest(
        {"cq": ("left", own(0)), "other": ("left", own(5))}, {"root": ("", own(10)), "left": ("root", own(0))}
    )
    cell = made.queue("cq").cell(CPU)
    assert quota.level(cell, 4) == (1, True)
    assert quota.level(cell, 8) == (2, False)


@pytest.mark.parametrize(
    ("amount", "want"),
    [
        pytest.param(3, (0, True), id="within nominal the level is nothing and the tree is larger"),
        pytest.param(4, (1, False), id="what the only cohort has is borrowed from the whole tree"),
        pytest.param(100, (1, False), id="what no cohort has is borrowed from the root"),
    ],
)
def test_level_under_one_cohort(amount: int, want: tuple[int, bool]) -> None:
    made = forest({"cq": ("co", own(3)), "other": ("co", own(5))})
    assert quota.level(made.queue("cq").cell(CPU), amount) == want


def test_a_queue_without_a_cohort_borrows_nothing() -> None:
    made = forest({"cq": ("", own(3))})
    assert quota.level(made.queue("cq").cell(CPU), 100) == (0, False)
    assert made.queue("cq").path() == "/cq"


def test_taking_and_giving_back_leaves_no_trace_at_any_depth() -> None:
    made = forest(
        {"cq": ("a", own(3, lend=1)), "other": ("b", own(5))},
        {"a": ("b", own(2, borrow=4, lend=1)), "b": ("c", own(1)), "c": ("", own(0))},
        {"cq": 2, "other": 6},
    )
    cells = [node.cell(CPU) for node in (*made.queues.values(), *made.cohorts.values())]
    before = [cell.usage for cell in cells]
    for amount in (1, 4, 40):
        quota.add_usage(made.queue("cq").cell(CPU), amount)
        quota.remove_usage(made.queue("cq").cell(CPU), amount)
        assert [cell.usage for cell in cells] == before


def test_a_cohort_may_lend_less_than_its_subtree_has() -> None:
    made = forest({"cq": ("a", own(10)), "far": ("root", own(0))}, {"a": ("root", own(0, lend=4)), "root": ("", [])})
    assert made.cohorts["a"].cell(CPU).local == 6
    assert available(made, "far") == 4
    assert available(made, "cq") == 10


def test_a_resource_without_quota_at_a_node_has_none_and_no_limits_there() -> None:
    made = forest({"cq": ("co", own(3)), "bare": ("co", [])})
    cell = made.queue("bare").cell(CPU)
    assert (cell.nominal, cell.potential, quota.available(cell)) == (0, 3, 3)


def test_unlimited_quota_stays_unlimited_whatever_is_taken() -> None:
    made = forest({"cq": ("co", own(1))}, {"co": ("", own(UNLIMITED))}, {"cq": 10**18})
    assert made.cohorts["co"].cell(CPU).quota == UNLIMITED
    assert available(made, "cq") > MAX_INT64


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param("leafless", 0, id="a cohort without children has no height"),
        pytest.param("low", 1, id="a cohort of queues is one high"),
        pytest.param("mid", 2, id="a cohort of cohorts is one higher than its highest"),
        pytest.param("top", 3, id="and so on"),
    ],
)
def test_height(name: str, want: int) -> None:
    made = forest(
        {"cq": ("low", own(1))},
        {"leafless": ("mid", []), "low": ("mid", []), "mid": ("top", []), "top": ("", [])},
    )
    assert made.cohorts[name].height == want


def test_a_cycle_of_cohorts_is_found_and_left_when_it_is_broken() -> None:
    made = forest({"cq": ("a", own(3)), "free": ("x", own(1))}, {"a": ("b", own(1)), "b": ("a", own(2))})
    assert made.queue("cq").cut_off
    assert made.cohorts["a"].cut_off
    assert not made.queue("free").cut_off
    quota.add_usage(made.queue("cq").cell(CPU), 5)
    assert available(made, "cq") == -2
    made.set_cohort("b", parent="", groups=own(2), weight=1.0)
    assert not made.queue("cq").cut_off
    assert made.cohorts["b"].cell(CPU).usage == 5
    assert available(made, "cq") == 1


def test_a_cohort_exists_while_something_names_it() -> None:
    made = forest({"cq": ("implicit", own(3))})
    assert "implicit" in made.cohorts
    made.set_queue("cq", cohort="", groups=own(3), weight=1.0)
    assert "implicit" not in made.cohorts


def test_every_queue_of_a_tree_gets_a_new_generation_with_an_edit_and_others_do_not() -> None:
    made = forest({"one": ("co", own(1)), "two": ("co", own(1)), "far": ("x", own(1))})
    before = {name: node.generation for name, node in made.queues.items()}
    made.set_queue("one", cohort="co", groups=own(2), weight=1.0)
    after = {name: node.generation - before[name] for name, node in made.queues.items()}
    assert after == {"one": 1, "two": 1, "far": 0}


def nine(used: Mapping[str, int], **weights: float) -> Forest:
    return forest({name: ("co", own(3)) for name in "abc"}, used=used, weights=weights)


@pytest.mark.parametrize(
    ("used", "weights", "want"),
    [
        pytest.param({"a": 3}, {}, Share(False, 0.0), id="nominal quota is no share"),
        pytest.param({"a": 4}, {}, Share(False, 1000 / 9), id="what is borrowed, per thousand of what could be lent"),
        pytest.param({"a": 4}, {"a": 2.0}, Share(False, 500 / 9), id="divided by the weight"),
        pytest.param({"a": 4}, {"a": 0.0}, Share(True, 1000 / 9), id="without end for a weight of nothing"),
        pytest.param({"a": 3}, {"a": 0.0}, Share(False, 0.0), id="but only while it borrows"),
    ],
)
def test_share(used: dict[str, int], weights: dict[str, float], want: Share) -> None:
    assert shares.share(nine(used, **weights).queue("a")) == want


def test_shares_without_end_are_above_all_and_compare_by_their_ratio() -> None:
    low, high, endless, more = Share(False, 0.0), Share(False, 900.0), Share(True, 1.0), Share(True, 2.0)
    assert sorted([more, high, endless, low]) == [low, high, endless, more]
    assert [share.status() for share in (Share(False, 111.1), Share(True, 1.0))] == [112, MAX_INT64]


def test_the_root_has_no_share() -> None:
    made = nine({"a": 30})
    assert shares.share(made.cohorts["co"]) == Share(False, 0.0)
    assert shares.borrows(made.queue("a"))
    assert shares.dominant(made.queue("a")) == "cpu"


def test_borrowing_counts_over_all_flavors_of_a_resource() -> None:
    two = [
        ResourceGroup(("cpu",), (FlavorQuotas("f", {"cpu": Quota(2)}), FlavorQuotas("g", {"cpu": Quota(2)}))),
    ]
    made = Forest()
    for name in "ab":
        made.set_queue(name, cohort="co", groups=two, weight=1.0)
    quota.add_usage(made.queue("a").cell(CPU), 3)
    quota.add_usage(made.queue("a").cell(FlavorResource("g", "cpu")), 4)
    assert shares.share(made.queue("a")) == Share(False, 1000 * 3 / 8)


def test_a_forest_made_in_one_go_is_the_one_that_is_made_queue_by_queue() -> None:
    deep = {f"c{number}": (f"c{number + 1}", own(1, lend=1)) for number in range(MAX_LEVELS + 3)}
    cohorts = {"a": ("b", own(2, borrow=4, lend=1)), "b": ("", own(1)), "x": ("y", own(1)), "y": ("x", own(1)), **deep}
    queues = {
        "one": ("a", own(3, lend=1)),
        "two": ("b", own(5, borrow=0)),
        "three": ("implicit", own(7)),
        "circle": ("x", own(2)),
        "deep": ("c0", own(2)),
        "high": (f"c{MAX_LEVELS}", own(2)),
        "alone": ("", own(4)),
    }
    step_by_step = forest(queues, cohorts)
    at_once = Forest.of(
        [
            ClusterQueue(name=name, cohort=cohort, resource_groups=tuple(groups))
            for name, (cohort, groups) in queues.items()
        ],
        [Cohort(name=name, parent=parent, resource_groups=tuple(groups)) for name, (parent, groups) in cohorts.items()],
    )

    def described(made: Forest) -> dict[str, object]:
        nodes = {**{f"cohort {name}": node for name, node in made.cohorts.items()}, **made.queues}
        return {
            name: [
                (node.cut_off, node.root().name, cell.quota, cell.local, cell.ceiling, quota.available(cell))
                for cell in node.cells.values()
            ]
            for name, node in nodes.items()
        }

    assert described(at_once) == described(step_by_step)
    for made in (at_once, step_by_step):
        quota.add_usage(made.queue("one").cell(CPU), 4)
    assert described(at_once) == described(step_by_step)
