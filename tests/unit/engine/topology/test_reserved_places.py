# SPDX-License-Identifier: Apache-2.0
"""The places that workloads hold by their admission (`docs/spec/engine.md §2.4` and §6.1)."""

from __future__ import annotations

from dataclasses import replace

from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.engine.topology.capacity import LeafKey, Place
from multikueue.engine.topology.reserved_places import as_held, reserved_places, with_topologies, without_hosts
from multikueue.engine.values import Flavor
from multikueue.engine.workloads import Admission, AssignedDomains, PodSetAdmission, Workload
from tests.support.engine_builders import holding, pods, workload
from tests.support.topology_builders import RACK, TAS, amounts, placed

FLAVORS = {"tas": TAS, "plain": Flavor(name="plain"), "zzz": Flavor(name="zzz", topology="hosts")}
PAIR = workload("w", "q", pods(2, cpu="1"))


def admitted(value: Workload, *pod_sets: PodSetAdmission) -> Workload:
    return replace(value, admission=Admission("q", pod_sets))


def on_racks(flavors: dict[str, str], name: str = "main") -> PodSetAdmission:
    racks = AssignedDomains((RACK,), ((("r1",), 1), (("r2",), 1)))
    return PodSetAdmission(name=name, flavors=flavors, usage={}, topology=racks)


def test_each_pod_takes_what_its_template_requests() -> None:
    # Not what quota counts, and a pod more of the pods.
    assert reserved_places(placed(PAIR, "q", a=1, b=1), FLAVORS) == tuple(
        Place(LeafKey("", (host,)), 1, amounts(cpu="1", pods="1")) for host in "ab"
    )


def test_without_an_admission_or_a_topology_there_are_none() -> None:
    assert reserved_places(PAIR, FLAVORS) == ()
    assert reserved_places(holding(PAIR, "q"), FLAVORS) == ()


def test_a_host_is_known_by_its_name_among_several_levels() -> None:
    topology = AssignedDomains((RACK, HOSTNAME_LABEL), ((("r1", "a"), 2),))
    value = admitted(PAIR, PodSetAdmission(name="main", flavors={"cpu": "tas"}, usage={}, topology=topology))
    (place,) = reserved_places(value, FLAVORS)
    assert (place.leaf, place.pods) == (LeafKey("", ("a",)), 2)


def test_other_leaves_are_of_the_flavor_with_a_topology() -> None:
    value = admitted(PAIR, on_racks({"memory": "plain", "cpu": "tas"}))
    assert [place.leaf for place in reserved_places(value, FLAVORS)] == [
        LeafKey("tas", ("r1",)),
        LeafKey("tas", ("r2",)),
    ]


def test_a_flavor_that_is_not_known_yet_counts_as_one_with_a_topology() -> None:
    (first, _) = reserved_places(admitted(PAIR, on_racks({"cpu": "tas"})), {})
    assert first.leaf == LeafKey("tas", ("r1",))


def test_only_pod_sets_with_a_topology_have_places() -> None:
    value = workload("w", "q", pods(name="plain", cpu="1"), pods(2, name="main", cpu="2"))
    value = admitted(value, PodSetAdmission(name="plain", flavors={}, usage={}), on_racks({"cpu": "tas"}))
    assert [place.single["cpu"] for place in reserved_places(value, FLAVORS)] == [2000, 2000]


def test_a_pod_set_that_the_workload_does_not_have_takes_nothing() -> None:
    assert reserved_places(admitted(PAIR, on_racks({"cpu": "tas"}, name="other")), FLAVORS) == ()


def test_pods_of_a_pod_set_that_could_not_be_read_take_what_their_quota_is() -> None:
    read = placed(workload("w", "q", pods(2, cpu="1500m")), "q", a=1, b=1)
    unread = replace(read, pod_sets=())
    assert reserved_places(unread, FLAVORS) == reserved_places(read, FLAVORS)


def test_pods_on_hosts_that_are_left_out_take_nothing() -> None:
    (place,) = reserved_places(without_hosts(placed(PAIR, "q", a=1, b=1), ("a",)), FLAVORS)
    assert (place.leaf, place.pods) == (LeafKey("", ("b",)), 1)
    racks = admitted(PAIR, on_racks({"cpu": "tas"}))
    assert without_hosts(racks, ("r1",)) == racks, "the leaves of these are no hosts"
    assert without_hosts(PAIR, ("a",)) == PAIR
    assert without_hosts(holding(PAIR, "q"), ("a",)) == holding(PAIR, "q")


def place(host: str, pods: int, cpu: str) -> Place:
    return Place(LeafKey("", (host,)), pods, amounts(cpu=cpu, pods="1"))


def test_pods_that_stay_where_they_are_keep_what_they_were_counted() -> None:
    held = (place("a", 1, "1"), place("b", 2, "1"), place("b", 2, "2"))
    assert as_held(held, held) is held
    assert as_held((place("a", 1, "9"), place("b", 2, "9"), place("b", 2, "9")), held) == held
    assert as_held((place("b", 2, "9"), place("c", 1, "9")), held) == (place("b", 2, "1"), place("c", 1, "9"))
    assert as_held((place("a", 2, "9"),), held) == (place("a", 2, "9"),), "another pod is created there"
    assert as_held((place("a", 1, "9"), place("a", 1, "9")), held) == (place("a", 1, "1"), place("a", 1, "9"))


def test_other_domains_of_a_pod_set_take_the_place_of_its_own() -> None:
    moved = with_topologies(placed(PAIR, "q", a=1, b=1), {"main": AssignedDomains((HOSTNAME_LABEL,), ((("c",), 2),))})
    assert [(each.leaf, each.pods) for each in reserved_places(moved, FLAVORS)] == [(LeafKey("", ("c",)), 2)]
    assert with_topologies(PAIR, {}) == PAIR
