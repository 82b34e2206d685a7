# SPDX-License-Identifier: Apache-2.0
"""What nodes hold, and what is used of it (`docs/spec/engine.md §6.1`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.core.keys import Key
from multikueue.engine.devices.claims import CLASS_RESOURCES
from multikueue.engine.resources import MAX_INT64
from multikueue.engine.topology.capacity import Leaf, LeafKey, Node, Place, TopologyCapacity, leaf_key
from multikueue.engine.values import Flavor
from tests.support.topology_builders import RACK, TAS, amounts, node

LEVELS = (RACK, HOSTNAME_LABEL)
BY_RACK = (RACK,)
POD = Key("others", "p")
ONE = amounts(cpu="1", pods="1")


def capacity_of(*nodes: Node) -> TopologyCapacity:
    capacity = TopologyCapacity()
    for each in nodes:
        capacity.set_node(each.name, each)
    return capacity


def leaves(capacity: TopologyCapacity, flavor: Flavor = TAS, levels: tuple[str, ...] = LEVELS) -> dict[str, Leaf]:
    return {"/".join(leaf.values): leaf for leaf in capacity.leaves(flavor, levels)}


def left(capacity: TopologyCapacity, leaf: str, levels: tuple[str, ...] = LEVELS, *, empty: bool = False) -> int:
    found = leaves(capacity, levels=levels)[leaf]
    return capacity.remaining(found, ["cpu"], empty=empty)["cpu"]


def test_a_host_is_known_by_its_name_alone() -> None:
    assert leaf_key("f", LEVELS, ("r1", "a")) == LeafKey("", ("a",))
    assert leaf_key("g", (HOSTNAME_LABEL,), ("a",)) == LeafKey("", ("a",))


def test_any_other_leaf_is_of_its_flavor() -> None:
    assert leaf_key("f", BY_RACK, ("r1",)) == LeafKey("f", ("r1",))
    assert leaf_key("g", ("block", RACK), ("b1", "r1")) == LeafKey("g", ("b1", "r1"))


def test_a_leaf_is_a_node_that_is_usable() -> None:
    capacity = capacity_of(node("r1/a", cpu="1"), node("r1/b", cpu="1", usable=False))
    assert set(leaves(capacity)) == {"r1/a"}


def test_nodes_without_a_value_for_each_level_are_none() -> None:
    bare = Node(name="c", labels={HOSTNAME_LABEL: "c"}, allocatable=ONE)
    capacity = capacity_of(node("r1/a"), bare)
    assert set(leaves(capacity)) == {"r1/a"}
    assert set(leaves(capacity, levels=(HOSTNAME_LABEL,))) == {"a", "c"}


def test_nodes_have_all_labels_of_the_flavor() -> None:
    capacity = capacity_of(node("r1/a", labels={"pool": "x", "arch": "arm"}), node("r1/b", labels={"pool": "x"}))
    assert set(leaves(capacity, Flavor(name="x", node_labels={"pool": "x"}))) == {"r1/a", "r1/b"}
    assert set(leaves(capacity, Flavor(name="y", node_labels={"pool": "x", "arch": "arm"}))) == {"r1/a"}


def test_nodes_with_the_same_values_are_one_leaf() -> None:
    capacity = capacity_of(node("r1/a", cpu="1"), node("r1/b", cpu="2"), node("r2/c", cpu="4"))
    assert left(capacity, "r1", BY_RACK) == 3000
    assert left(capacity, "r2", BY_RACK) == 4000


def test_what_a_node_does_not_have_is_none() -> None:
    capacity = capacity_of(node("r1/a", cpu="1"))
    assert capacity.remaining(leaves(capacity)["r1/a"], ["cpu", "gpu", "pods"]) == {"cpu": 1000, "gpu": 0, "pods": 10}


def test_pods_of_others_take_capacity_and_give_it_back() -> None:
    capacity = capacity_of(node("r1/a", cpu="4"), node("r1/b", cpu="4"))
    assert not capacity.set_pod(POD, "a", ONE)
    assert (left(capacity, "r1/a"), left(capacity, "r1/b"), left(capacity, "r1", BY_RACK)) == (3000, 4000, 7000)
    assert capacity.set_pod(POD, "a", None)
    assert left(capacity, "r1/a") == 4000


def test_a_pod_counts_once_with_what_it_requests_now() -> None:
    capacity = capacity_of(node("r1/a", cpu="4"))
    for requests in (ONE, ONE, amounts(cpu="2", pods="1")):
        capacity.set_pod(POD, "a", requests)
    assert left(capacity, "r1/a") == 2000


def test_a_pod_that_was_never_bound_frees_nothing() -> None:
    assert not capacity_of(node("r1/a")).set_pod(POD, "", None)


def test_pods_count_on_a_node_that_comes_later() -> None:
    capacity = TopologyCapacity()
    capacity.set_pod(POD, "a", ONE)
    capacity.set_node("a", node("r1/a", cpu="4"))
    assert left(capacity, "r1/a") == 3000


def test_places_take_capacity_for_each_pod_and_give_it_back() -> None:
    capacity = capacity_of(node("r1/a", cpu="4"))
    places = (Place(LeafKey("", ("a",)), 3, ONE),)
    capacity.add(places)
    leaf = leaves(capacity)["r1/a"]
    assert capacity.remaining(leaf, ["cpu", "pods"]) == {"cpu": 1000, "pods": 7}
    assert left(capacity, "r1/a", empty=True) == 4000
    capacity.remove(places)
    assert capacity.remaining(leaf, ["cpu", "pods"]) == {"cpu": 4000, "pods": 10}


def test_pods_of_others_count_on_an_empty_leaf_too() -> None:
    capacity = capacity_of(node("r1/a", cpu="4"))
    capacity.set_pod(POD, "a", ONE)
    assert left(capacity, "r1/a", empty=True) == 3000


def test_on_a_host_the_places_of_all_flavors_count() -> None:
    capacity = capacity_of(node("r1/a", cpu="4"))
    for flavor in ("f", "g"):
        capacity.add((Place(leaf_key(flavor, LEVELS, ("r1", "a")), 1, ONE),))
    assert left(capacity, "r1/a") == 2000


def test_on_other_leaves_only_those_of_the_flavor_count() -> None:
    capacity = capacity_of(node("r1/a", cpu="4"))
    for flavor in ("tas", "other"):
        capacity.add((Place(leaf_key(flavor, BY_RACK, ("r1",)), 1, ONE),))
    assert left(capacity, "r1", BY_RACK) == 3000


def test_more_may_be_used_than_there_is() -> None:
    capacity = capacity_of(node("r1/a", cpu="1"))
    capacity.add((Place(LeafKey("", ("a",)), 3, ONE),))
    assert left(capacity, "r1/a") == -2000


@pytest.mark.parametrize(("pods", "want"), [(4, True), (5, False)])
def test_places_fit_where_there_is_capacity(pods: int, want: bool) -> None:
    capacity = capacity_of(node("r1/a", cpu="4"))
    leaves(capacity)
    assert capacity.fits((Place(LeafKey("", ("a",)), pods, ONE),)) is want


@pytest.mark.parametrize(("pods", "want"), [(2, True), (3, False)])
def test_places_on_one_leaf_fit_together(pods: int, want: bool) -> None:
    capacity = capacity_of(node("r1/a", cpu="4"))
    leaves(capacity)
    place = Place(LeafKey("", ("a",)), pods, ONE)
    assert capacity.fits((place, place)) is want


def test_places_on_a_leaf_that_is_gone_do_not_fit() -> None:
    capacity = capacity_of(node("r1/a", cpu="4"))
    leaves(capacity)
    capacity.set_node("a", None)
    leaves(capacity)
    assert not capacity.fits((Place(LeafKey("", ("a",)), 1, ONE),))
    assert capacity.fits(())


def test_leaves_follow_the_nodes() -> None:
    capacity = capacity_of(node("r1/a", cpu="1"))
    assert set(leaves(capacity)) == {"r1/a"}
    capacity.set_node("b", node("r2/b"))
    assert set(leaves(capacity)) == {"r1/a", "r2/b"}
    capacity.set_node("a", node("r1/a", cpu="8"))
    assert left(capacity, "r1/a") == 8000
    capacity.set_node("b", None)
    assert set(leaves(capacity)) == {"r1/a"}


def test_leaves_follow_the_flavor_once_they_are_forgotten() -> None:
    capacity = capacity_of(node("r1/a"))
    assert leaves(capacity)
    capacity.forget_leaves()
    assert not leaves(capacity, replace(TAS, node_labels={"pool": "x"}))


def test_only_what_matters_to_placement_is_a_change() -> None:
    capacity = TopologyCapacity()
    assert capacity.set_node("a", node("r1/a"))
    assert not capacity.set_node("a", node("r1/a"))
    assert not capacity.set_node("b", None)
    assert capacity.set_node("a", node("r1/a", usable=False))


def test_a_resource_that_devices_serve_is_limited_only_on_nodes_that_report_it() -> None:
    capacity = capacity_of(node("r1/plain", cpu="4"), node("r1/plugin", cpu="4", devices="1"))
    of_class = f"{CLASS_RESOURCES}gpu.example.com"

    def free(leaf: str) -> dict[str, int]:
        return capacity.remaining(leaves(capacity)[leaf], ["devices", of_class])

    assert free("r1/plain") == {"devices": 0, of_class: MAX_INT64}
    capacity.device_resources = {"devices"}
    assert free("r1/plain") == {"devices": MAX_INT64, of_class: MAX_INT64}
    assert free("r1/plugin")["devices"] == 1
