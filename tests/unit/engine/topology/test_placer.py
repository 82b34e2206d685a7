# SPDX-License-Identifier: Apache-2.0
"""Placing pod sets on nodes, and the texts of failures (`docs/spec/engine.md §6.2`, §6.4 and §6.9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.core.keys import Key
from multikueue.core.selectors import NodeSelectorTerm, Requirement
from multikueue.core.taints import Taint, Toleration
from multikueue.engine.topology.capacity import LeafKey, Node, Place, TopologyCapacity
from multikueue.engine.topology.placer import NO_INFORMATION, Asked, Placed, TopologyPlacer
from multikueue.engine.values import Flavor
from multikueue.engine.workloads import PodSet, PodShape
from tests.support.engine_builders import pods, shape
from tests.support.topology_builders import RACK, TAS, amounts, asking, node, spread

LOCKED = Taint("locked", "yes", "NoSchedule")
TOPOLOGIES = {"hosts": (RACK, HOSTNAME_LABEL), "racks": (RACK,), "zones": ("zone", RACK, HOSTNAME_LABEL)}
ON_RACKS = Flavor(name="racked", topology="racks")


class Known:
    """The topologies that there are."""

    def levels(self, topology: str) -> tuple[str, ...] | None:
        return TOPOLOGIES.get(topology)


class Site:
    """Nodes, flavors, and what others use."""

    def __init__(self, *nodes: Node, flavors: tuple[Flavor, ...] = (TAS, ON_RACKS), mixed: bool = True) -> None:
        self.capacity = TopologyCapacity()
        for each in nodes:
            self.capacity.set_node(each.name, each)
        self._placer = TopologyPlacer(
            self.capacity,
            flavors={flavor.name: flavor for flavor in flavors},
            topologies=Known(),
            mixed_profile=mixed,
        )

    def use(self, host: str, count: int, **single: str) -> None:
        """A workload has places on a host."""
        self.capacity.add((Place(LeafKey("", (host,)), count, amounts(pods="1", **single)),))

    def place(self, *pod_sets: PodSet, flavors: Mapping[str, str] | str = "tas", empty: bool = False) -> Placed:
        chosen = {each.name: flavors if isinstance(flavors, str) else flavors[each.name] for each in pod_sets}
        asked = [Asked(each, each.count, frozenset(chosen[each.name].split())) for each in pod_sets]
        return self._placer.place(asked, empty=empty)

    def domains(self, *pod_sets: PodSet, flavors: Mapping[str, str] | str = "tas") -> dict[str, dict[str, int]]:
        found = self.place(*pod_sets, flavors=flavors)
        assert found.complete, (found.failures, found.errors)
        return {
            name: {",".join(values): count for values, count in each.domains} for name, each in found.placements.items()
        }

    def failure(self, pod_set: PodSet, flavors: str = "tas", *, empty: bool = False) -> str:
        found = self.place(pod_set, flavors=flavors, empty=empty)
        assert not found.complete
        assert not found.errors
        return found.failures[pod_set.name]


def shaped(count: int, pod: PodShape) -> PodSet:
    return replace(spread(count), shape=pod)


TWO_RACKS = (node("r1/a", cpu="4"), node("r1/b", cpu="4"), node("r2/c", cpu="2"))


def test_pods_are_written_by_their_hosts_alone() -> None:
    found = Site(*TWO_RACKS).place(asking(pods(6, cpu="1"), required=RACK)).placements["main"]
    assert (found.levels, found.domains) == ((HOSTNAME_LABEL,), ((("a",), 4), (("b",), 2)))
    single = amounts(cpu="1", pods="1")
    assert found.places == (Place(LeafKey("", ("a",)), 4, single), Place(LeafKey("", ("b",)), 2, single))


def test_on_other_leaves_all_levels_are_written() -> None:
    found = Site(*TWO_RACKS).place(asking(pods(6, cpu="1"), required=RACK), flavors="racked").placements["main"]
    assert (found.levels, found.domains) == ((RACK,), ((("r1",), 6),))
    assert [place.leaf for place in found.places] == [LeafKey("racked", ("r1",))]


def test_without_a_request_any_hosts_will_do() -> None:
    assert Site(*TWO_RACKS).domains(pods(2, cpu="1")) == {"main": {"c": 2}}


def test_what_others_use_is_not_free() -> None:
    site = Site(*TWO_RACKS)
    site.use("c", 1, cpu="1")
    site.capacity.set_pod(Key("o", "p"), "a", amounts(cpu="3", pods="1"))
    assert site.domains(spread(2, cpu="1")) == {"main": {"b": 2}}


def test_a_leaf_may_run_out_of_pods() -> None:
    site = Site(replace(TWO_RACKS[0], allocatable=amounts(cpu="4", pods="2")))
    assert site.failure(spread(3, cpu="1")) == 'topology "hosts" allows to fit only 2 out of 3 pod(s)'
    assert 'resource "pods": 1' in Site(replace(TWO_RACKS[0], allocatable=amounts(cpu="4"))).failure(spread(cpu="1"))


def test_on_empty_leaves_only_pods_of_others_count() -> None:
    site = Site(node("r1/a", cpu="4"))
    site.use("a", 4, cpu="1")
    assert site.place(spread(4, cpu="1"), empty=True).complete
    site.capacity.set_pod(Key("o", "p"), "a", amounts(cpu="1", pods="1"))
    assert site.failure(spread(4, cpu="1"), empty=True) == 'topology "hosts" allows to fit only 3 out of 4 pod(s)'


def test_placing_changes_nothing() -> None:
    site = Site(node("r1/a", cpu="4"))
    assert site.domains(spread(4, cpu="1")) == site.domains(spread(4, cpu="1"))


def test_what_is_used_beyond_what_there_is_counts_as_nothing_left() -> None:
    site = Site(node("r1/a", cpu="1"), node("r1/b", cpu="1"))
    site.use("a", 5, cpu="1")
    assert site.domains(spread(cpu="1")) == {"main": {"b": 1}}


def test_pod_sets_of_one_workload_do_not_get_the_same_capacity() -> None:
    site = Site(node("r1/a", cpu="3"), node("r1/b", cpu="2"))
    assert site.domains(spread(2, "x", cpu="1"), spread(2, "y", cpu="1")) == {"x": {"b": 2}, "y": {"a": 2}}


def test_on_a_host_the_pod_sets_of_all_flavors_share_the_capacity() -> None:
    site = Site(node("r1/a", cpu="3"), flavors=(TAS, Flavor(name="second", topology="zones"), ON_RACKS))
    found = site.place(spread(2, "x", cpu="1"), spread(2, "y", cpu="1"), flavors={"x": "tas", "y": "tas"})
    assert found.failures == {"y": 'topology "hosts" allows to fit only 1 out of 2 pod(s)'}
    apart = site.place(spread(2, "x", cpu="1"), spread(2, "y", cpu="1"), flavors={"x": "tas", "y": "racked"})
    assert apart.complete


def test_flavors_are_placed_by_name() -> None:
    flavors = (Flavor(name="a", topology="hosts"), Flavor(name="b", topology="hosts"))
    site = Site(node("r1/a", cpu="2"), flavors=flavors)
    found = site.place(spread(2, "x", cpu="1"), spread(2, "y", cpu="1"), flavors={"x": "b", "y": "a"})
    assert set(found.placements) == {"y"}
    assert set(found.failures) == {"x"}


@pytest.mark.parametrize(
    ("flavors", "want"),
    [
        pytest.param("", "no TAS flavor assigned", id="there is no flavor"),
        pytest.param("plain gone", "no TAS flavor assigned", id="no flavor has a topology"),
        pytest.param("tas racked plain", "more than one TAS flavor assigned: racked, tas", id="two have one"),
        pytest.param("lost", NO_INFORMATION, id="the topology is not known"),
    ],
)
def test_errors_of_flavors(flavors: str, want: str) -> None:
    site = Site(*TWO_RACKS, flavors=(TAS, ON_RACKS, Flavor(name="plain"), Flavor(name="lost", topology="lost")))
    found = site.place(spread(cpu="1"), flavors=flavors)
    assert (found.errors, found.failures, found.complete) == ({"main": want}, {}, False)


def test_other_flavors_beside_the_one_with_a_topology_do_not_matter() -> None:
    site = Site(*TWO_RACKS, flavors=(TAS, Flavor(name="plain")))
    assert site.domains(spread(2, cpu="1"), flavors="plain tas") == {"main": {"c": 2}}


# Which hosts take the pods.


@pytest.mark.parametrize(
    ("pod", "hosts"),
    [
        pytest.param(shape(cpu="1"), {"b": 1}, id="a taint keeps pods away"),
        pytest.param(shape((Toleration("locked", "Exists"),), cpu="1"), {"a": 1}, id="a toleration lets them in"),
        pytest.param(shape((), {"disk": "ssd"}, cpu="1"), {"c": 1}, id="a selector"),
        pytest.param(
            replace(shape(cpu="1"), affinity=(NodeSelectorTerm((Requirement("disk", "In", ("ssd", "nvme")),)),)),
            {"c": 1},
            id="an affinity",
        ),
        pytest.param(
            replace(
                shape(cpu="1"),
                affinity=(NodeSelectorTerm((), (Requirement("metadata.name", "In", ("d",)),)),),
            ),
            {"d": 1},
            id="an affinity by the name of the node",
        ),
        pytest.param(
            replace(
                shape(cpu="1"),
                affinity=(
                    NodeSelectorTerm((Requirement("disk", "In", ("none",)),)),
                    NodeSelectorTerm((Requirement("disk", "Exists"),)),
                ),
            ),
            {"c": 1},
            id="an affinity of alternatives",
        ),
    ],
)
def test_which_hosts_take_the_pods(pod: PodShape, hosts: dict[str, int]) -> None:
    site = Site(
        node("r1/a", cpu="1", taints=(LOCKED,)),
        node("r1/b", cpu="2", taints=(Taint("soft", "", "PreferNoSchedule"),)),
        node("r2/c", cpu="3", labels={"disk": "ssd"}),
        node("r2/d", cpu="4"),
    )
    assert site.domains(shaped(1, pod)) == {"main": hosts}


def test_tolerations_of_the_flavor_count_too() -> None:
    site = Site(
        node("r1/a", cpu="1", taints=(LOCKED, Taint("out", "", "NoExecute"))),
        flavors=(replace(TAS, tolerations=(Toleration("locked", "Exists"), Toleration("out", "Exists"))),),
    )
    assert site.domains(spread(cpu="1")) == {"main": {"a": 1}}


def test_leaves_that_are_no_hosts_take_all_pods() -> None:
    site = Site(node("r1/a", cpu="1", taints=(LOCKED,)))
    pod = shape((), {"disk": "ssd"}, cpu="1")
    assert site.domains(shaped(1, pod), flavors="racked") == {"main": {"r1": 1}}


# Leaders and workers.


def pair(workers: int, *, leader_cpu: str = "1", leader: PodShape | None = None) -> tuple[PodSet, PodSet]:
    lead = asking(pods(name="leader", cpu=leader_cpu), group="g", required=RACK)
    return (
        replace(lead, shape=leader) if leader is not None else lead,
        asking(pods(workers, "workers", cpu="1"), group="g", required=RACK),
    )


def test_a_leader_is_in_the_rack_of_its_workers() -> None:
    site = Site(node("r1/a", cpu="4"), node("r2/b", cpu="3"), node("r2/c", cpu="2"))
    assert site.domains(*pair(4)) == {"workers": {"b": 2, "c": 2}, "leader": {"b": 1}}


def test_a_leader_may_need_other_resources() -> None:
    site = Site(node("r1/a", cpu="9"), node("r2/b", cpu="4"), node("r2/c", cpu="1", gpu="1"))
    # A leaf that takes the leader is filled first.
    assert site.domains(*pair(4, leader=shape(gpu="1"))) == {"workers": {"b": 3, "c": 1}, "leader": {"c": 1}}


def test_a_leader_goes_where_its_own_pod_may_run() -> None:
    site = Site(node("r1/a", cpu="3"), node("r1/b", cpu="3", labels={"disk": "ssd"}))
    assert site.domains(*pair(4, leader=shape((), {"disk": "ssd"}, cpu="1")))["leader"] == {"b": 1}


def test_a_leader_and_its_workers_fail_together() -> None:
    found = Site(node("r1/a", cpu="4"), node("r2/b", cpu="4")).place(*pair(4))
    # docs/spec/engine.md §6.6: as many as fit without a leader.
    text = 'topology "hosts" allows to fit only 4 out of 4 pod(s)'
    assert found.failures == {"leader": text, "workers": text}
    assert found.placements == {}


# Texts of failures.


def test_no_pods_fit() -> None:
    assert Site(*TWO_RACKS).failure(spread(2, cpu="5")) == (
        'topology "hosts" doesn\'t allow to fit any of 2 pod(s). Total nodes: 3; excluded: resource "cpu": 3'
    )


def test_some_pods_fit() -> None:
    assert Site(*TWO_RACKS).failure(asking(pods(9, cpu="1"), required=RACK)) == (
        'topology "hosts" allows to fit only 8 out of 9 pod(s)'
    )


def test_some_slices_fit() -> None:
    sliced = asking(pods(12, cpu="1"), required=RACK, slice_required=HOSTNAME_LABEL, slice_size=4)
    assert Site(*TWO_RACKS).failure(sliced) == 'topology "hosts" allows to fit only 2 out of 3 slice(s)'
    large = asking(pods(12, cpu="1"), required=RACK, slice_required=HOSTNAME_LABEL, slice_size=6)
    assert Site(*TWO_RACKS).failure(large) == 'topology "hosts" doesn\'t allow to fit any of 2 slice(s)'


def test_each_node_is_excluded_for_its_first_reason() -> None:
    site = Site(
        node("r1/a", cpu="4", taints=(LOCKED,)),
        node("r1/b", cpu="4", taints=(Taint("out", "", "NoExecute"), LOCKED), labels={"disk": "ssd"}),
        node("r1/c", cpu="4"),
        node("r1/d", cpu="4"),
        node("r1/e", cpu="1", labels={"disk": "ssd"}),
        node("r1/f", cpu="2", labels={"disk": "ssd", "zone": "z"}),
    )
    pod = replace(shape((), {"disk": "ssd"}, cpu="2"), affinity=(NodeSelectorTerm((Requirement("zone", "Exists"),)),))
    assert site.failure(shaped(2, pod)) == (
        'topology "hosts" allows to fit only 1 out of 2 pod(s). Total nodes: 6; excluded: affinity: 1, nodeSelector: 2,'
        ' taint "locked=yes:NoSchedule": 1, taint "out:NoExecute": 1'
    )


def test_the_resource_that_limits_is_named() -> None:
    site = Site(node("r1/a", cpu="4", memory="1Gi"), node("r1/b", cpu="1", memory="4Gi"))
    assert site.failure(spread(cpu="2", memory="2Gi")) == (
        'topology "hosts" doesn\'t allow to fit any of 1 pod(s). Total nodes: 2; excluded: resource "cpu": 1,'
        ' resource "memory": 1'
    )


def test_several_layers_of_slices() -> None:
    layered = asking(pods(8, cpu="1"), required=RACK, slices=((RACK, 8), (HOSTNAME_LABEL, 4)))
    site = Site(node("r1/a", cpu="3"), node("r1/b", cpu="5"))
    text = site.failure(layered)
    assert text.startswith('topology "hosts" doesn\'t allow to fit; ')
    assert f"slice(s) fit on level {HOSTNAME_LABEL}" in text


def test_a_level_that_the_topology_does_not_have() -> None:
    assert Site(*TWO_RACKS).failure(asking(pods(cpu="1"), required="zone")) == "no requested topology level: zone"


def test_a_topology_without_nodes() -> None:
    assert Site().failure(spread(cpu="1")) == f"no topology domains at level: {HOSTNAME_LABEL}"
    assert Site().failure(asking(pods(cpu="1"), required=RACK)) == f"no topology domains at level: {RACK}"


@pytest.mark.parametrize("size", [0, 3])
def test_inner_slices_that_cannot_be_fail(size: int) -> None:
    layered = asking(pods(4, cpu="1"), required=RACK, slices=((RACK, 4), (HOSTNAME_LABEL, size)))
    assert not Site(*TWO_RACKS).place(layered).complete


# The profile.


def test_pods_that_may_be_anywhere_fill_up_nodes_by_the_mixed_profile() -> None:
    nodes = (node("r1/a", cpu="1"), node("r1/b", cpu="2"), node("r1/c", cpu="4"))
    assert Site(*nodes).domains(spread(5, cpu="1")) == {"main": {"a": 1, "b": 2, "c": 2}}
    assert Site(*nodes, mixed=False).domains(spread(5, cpu="1")) == {"main": {"a": 1, "c": 4}}
