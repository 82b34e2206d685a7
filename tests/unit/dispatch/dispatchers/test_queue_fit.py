# SPDX-License-Identifier: Apache-2.0
"""Clusters whose own queues decide: free quota before nodes, and what is asked at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from multikueue.api.constants import DISPATCHER_CAPACITY
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.selectors import NodeSelectorTerm, Requirement
from multikueue.core.taints import Taint, Toleration
from multikueue.dispatch.dispatchers.capacity import capacity, queue_served
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity, Report, report_of
from multikueue.dispatch.dispatchers.protocol import Nomination
from multikueue.dispatch.dispatchers.registry import DISPATCHERS
from multikueue.dispatch.explanation import DispatchState, explain_dispatch
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchedWorkload, DispatchSettings, Preferences
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.protocol.queue_quota import (
    ClusterQueueReport,
    FlavorQuotaReport,
    FlavorReport,
    LocalQueueReport,
    flavor_wire,
)
from multikueue.dispatch.worker.ledger import AskedPlacement, Demand
from multikueue.dispatch.worker.node_groups import AggregateCapacity, CapacityGroup
from tests.unit.dispatch.builders import NOW, cluster, facts, workload

LOCAL = Key("ns", "q")
GPU = "example.com/gpu"
SETTINGS = DispatchSettings(dispatcher=DISPATCHER_CAPACITY)


def quota(free: int, *, of: int = 10, reserved: int = 0, **more: int) -> FlavorQuotaReport:
    """Quota without units; `of` is nominal and all that there ever is."""
    found = FlavorQuotaReport(nominal=of, used=of - free, free=free, reserved=reserved, capacity=of)
    return replace(found, **more)


def queue(free: int = 0, *, of: int = 10, resource: str = GPU, name: str = "cq", **more: Any) -> ClusterQueueReport:
    flavors = more.pop("flavors", {"default": {resource: quota(free, of=of, reserved=more.pop("reserved", 0))}})
    return ClusterQueueReport(name=name, flavors=flavors, **more)


def worker(name: str, *queues: ClusterQueueReport, nodes: int | None = None, **more: Any) -> ClusterFacts:
    """A cluster with the LocalQueue; it has one node with so much free, and by default it shows none."""
    groups = (
        ()
        if nodes is None
        else (
            CapacityGroup(
                capacities={GPU: AggregateCapacity(allocatable=9, free=nodes, largest_free=nodes, largest=9)}
            ),
        )
    )
    capacity = ClusterCapacity()
    local = more.pop("local", {LOCAL: LocalQueueReport(cluster_queue="cq")})
    report = Report(
        groups=groups,
        engine=more.pop("engine", "kueue"),
        local_queues=local,
        cluster_queues={each.name: each for each in queues},
        flavors=more.pop("flavors", {}),
        pending=more.pop("pending", 0),
    )
    capacity.replace(report)
    return cluster(name, capacity=capacity, reported_at=NOW, **more)


def ledger(name: str, *, nodes: int | None = None, total: int = 0) -> ClusterFacts:
    """A cluster without queues of its own."""
    made = worker(name, nodes=nodes, local={}, engine="")
    assert made.capacity is not None
    assert made.capacity.report is not None
    made.capacity.replace(replace(made.capacity.report, nodes=total))
    return made


def wanting(amount: int = 2, *, pods: int = 1, **changes: Any) -> DispatchedWorkload:
    demands = (Demand(count=pods, requests={GPU: amount}),)
    given: dict[str, Any] = {"demands": demands, "queue": LOCAL, "waits_since": NOW, "flavors": {GPU: "f"}}
    return workload(**(given | changes))


def choose(of: DispatchedWorkload, *clusters: ClusterFacts, later: float = 0.0) -> Nomination:
    return capacity(of, clusters, settings=SETTINGS, now=NOW + timedelta(seconds=later))


def says(found: Nomination) -> dict[str, str]:
    return {verdict.cluster: verdict.reason for verdict in found.verdicts}


class TestQuotaDecides:
    def test_free_quota_without_any_node_is_granted_at_once(self) -> None:
        found = choose(wanting(), worker("w1", queue(3)))
        assert found.grant == "w1"
        assert says(found)["w1"].startswith("LocalQueue ns/q of ClusterQueue cq: free 3 of 10 example.com/gpu; score ")

    def test_free_quota_whose_nodes_are_full_is_granted_at_once(self) -> None:
        assert choose(wanting(), worker("w1", queue(3), nodes=0)).grant == "w1"

    def test_nodes_with_capacity_are_preferred_among_those_with_free_quota(self) -> None:
        assert choose(wanting(), worker("w1", queue(10)), worker("w2", queue(3), nodes=9)).grant == "w2"

    def test_of_equal_nodes_the_one_with_more_quota_left_is_preferred(self) -> None:
        assert choose(wanting(), worker("w1", queue(5), nodes=9), worker("w2", queue(9), nodes=9)).grant == "w2"

    def test_nodes_with_capacity_do_not_replace_quota(self) -> None:
        found = choose(wanting(), worker("w1", queue(1), nodes=9))
        assert (found.grant, found.clusters, found.held_back, found.requeue_after) == ("", (), True, 15.0)
        assert [str(each) for each in found.waiting] == [
            "w1: insufficient free quota: LocalQueue ns/q of ClusterQueue cq: free 1 of 10 example.com/gpu,"
            " short 1 example.com/gpu"
        ]

    def test_free_quota_comes_before_none(self) -> None:
        assert choose(wanting(), worker("w1", queue(0, preempts=True)), worker("w2", queue(2))).grant == "w2"

    def test_a_queue_without_free_quota_is_asked_after_a_while_and_then_the_next(self) -> None:
        clusters = worker("w1", queue(0)), worker("w2", queue(0))
        first = choose(wanting(), *clusters, later=15)
        assert (len(first.clusters), first.grant) == (1, "")
        assert len(choose(wanting(nominated=first.clusters), *clusters, later=30).clusters) == 2

    def test_a_queue_that_may_preempt_is_asked_at_once_before_those_that_may_not(self) -> None:
        found = choose(wanting(), worker("w1", queue(1)), worker("w2", queue(0, preempts=True)))
        assert (found.clusters, found.grant, found.requeue_after) == (("w2",), "", 15.0)

    def test_a_queue_too_small_for_it_is_asked_last(self) -> None:
        clusters = worker("w1", queue(1, of=1, preempts=True)), worker("w2", queue(0))
        assert choose(wanting(), *clusters).clusters == ()
        assert choose(wanting(), *clusters, later=15).clusters == ("w2",)
        assert choose(wanting(), *clusters, later=30).clusters == ("w2", "w1")
        assert says(choose(wanting(), *clusters))["w1"].startswith("insufficient quota even when it is empty: ")

    def test_with_admission_checks_there_it_is_asked_and_not_granted(self) -> None:
        found = choose(wanting(), worker("w1", queue(9, admission_checks=True)), worker("w2", queue(0)))
        assert (found.clusters, found.grant) == (("w1",), "")
        assert choose(wanting(), worker("w1", queue(9, admission_checks=True)), worker("w2", queue(2))).grant == "w2"

    def test_a_cluster_that_failed_it_before_is_asked_after_those_that_did_not_are_granted(self) -> None:
        before = wanting(failed_on=frozenset({"w1"}))
        found = choose(before, worker("w1", queue(9)))
        assert (found.clusters, found.grant) == (("w1",), "")
        assert choose(before, worker("w1", queue(9)), worker("w2", queue(3))).grant == "w2"
        assert choose(before, ledger("w1", nodes=9), ledger("w2", nodes=3)).grant == "w2"

    def test_a_preference_for_labels_still_counts(self) -> None:
        found = choose(wanting(preferences=Preferences(pinned=frozenset({"w2"}))), worker("w1", queue(9)))
        assert (found.clusters, found.grant) == ((), "")


class TestUnknownCapacity:
    @pytest.mark.parametrize(
        "unknown",
        [
            pytest.param(ledger("w1"), id="no node is seen"),
            pytest.param(worker("w1"), id="its quota was not told"),
            pytest.param(worker("w1", nodes=0), id="its quota was not told, and its nodes are full"),
            pytest.param(cluster("w1"), id="there is no report yet"),
        ],
    )
    def test_it_is_asked_at_once(self, unknown: ClusterFacts) -> None:
        found = choose(wanting(), unknown, ledger("full", nodes=0, total=1))
        assert "w1" in found.clusters
        assert found.grant == ""

    def test_who_has_capacity_for_sure_is_granted_before_it(self) -> None:
        assert choose(wanting(), ledger("w1"), worker("w2", queue(5))).grant == "w2"

    def test_it_is_planned_again_when_capacity_comes_free_elsewhere(self) -> None:
        found = choose(wanting(), ledger("w1"), ledger("w2", nodes=0, total=1))
        assert found.held_back

    def test_nodes_that_are_not_ready_are_no_unknown_capacity(self) -> None:
        assert choose(wanting(), ledger("w1", total=3)).clusters == ()

    def test_nodes_with_capacity_are_enough_where_a_former_agent_reports_no_quota(self) -> None:
        assert choose(wanting(), worker("w1", nodes=9)).grant == "w1"

    def test_it_is_explained(self) -> None:
        given = facts(wanting(), clusters=(ledger("w1"), worker("w2")), settings=SETTINGS)
        found = explain_dispatch(given, NOW)
        assert found is not None
        assert [(each.state, each.reason) for each in found.clusters] == [
            (
                DispatchState.UNKNOWN_CAPACITY,
                "its report has no nodes: it is asked unless another cluster is known to have capacity",
            ),
            (
                DispatchState.UNKNOWN_CAPACITY,
                "LocalQueue ns/q: its quota is unknown: it is asked unless another cluster is known to have capacity",
            ),
        ]


class TestTheLocalQueue:
    def test_one_that_does_not_exist_is_named_with_its_cluster(self) -> None:
        assert queue_served(wanting(), worker("w1", local={})) == "LocalQueue ns/q does not exist on w1"

    def test_one_that_is_not_active_is_named_with_its_reason(self) -> None:
        local = {LOCAL: LocalQueueReport(active=False, reason="ClusterQueue cq: stopped", cluster_queue="cq")}
        assert queue_served(wanting(), worker("w1", queue(9), local=local)) == (
            "LocalQueue ns/q is not active on w1: ClusterQueue cq: stopped"
        )
        assert choose(wanting(), worker("w1", queue(9), local=local)).clusters == ()

    def test_a_full_report_may_have_left_it_out(self) -> None:
        others = {Key("ns", f"q{number}"): LocalQueueReport() for number in range(4096)}
        assert queue_served(wanting(), worker("w1", local=others)) == ""

    @pytest.mark.parametrize(
        ("what", "named"),
        [
            pytest.param({"members_follow": True}, "pods that are created one after another", id="pods that follow"),
            pytest.param({"elastic": True}, "an elastic job", id="an elastic job"),
        ],
    )
    def test_a_cluster_with_queues_of_its_own_is_not_chosen_for(self, what: dict[str, bool], named: str) -> None:
        given, with_queue = wanting(**what), worker("w1", queue(9))
        reason = f"has queues of its own, which cannot admit {named}"
        for dispatcher in DISPATCHERS:
            settings = DispatchSettings(dispatcher=dispatcher)
            found = plan(facts(given, clusters=(with_queue,), settings=settings), NOW)
            assert found.actions == ()
            assert [str(each) for each in found.waiting] == [f"w1: {reason}"]
        with_ledger = ledger("w2", nodes=9)
        assert plan(facts(given, clusters=(with_queue, with_ledger), settings=SETTINGS), NOW).cluster_name == "w2"
        assert plan(facts(wanting(), clusters=(with_queue,), settings=SETTINGS), NOW).cluster_name == "w1"


class TestWhatIsOnItsWay:
    OTHER = Key("ns", "other")

    def held(self, made: ClusterFacts, amount: int, *, local: Key = LOCAL) -> ClusterFacts:
        assert made.capacity is not None
        made.capacity.hold(self.OTHER, wanting(amount).demands, queue=local)
        return made

    def test_what_was_sent_since_the_report_is_not_free(self) -> None:
        found = choose(wanting(3), self.held(worker("w1", queue(5)), 3))
        assert found.grant == ""
        assert "free 2 of 10" in says(found)["w1"]

    def test_what_the_report_counts_already_is_not_counted_twice(self) -> None:
        assert choose(wanting(3), self.held(worker("w1", queue(3, reserved=3)), 3)).grant == "w1"

    def test_what_ended_since_the_report_is_free(self) -> None:
        assert choose(wanting(3), worker("w1", queue(0, reserved=3))).grant == "w1"

    def test_what_goes_to_a_queue_of_the_same_cohort_may_take_what_this_one_would_borrow(self) -> None:
        local = {LOCAL: LocalQueueReport(cluster_queue="cq"), Key("ns", "p"): LocalQueueReport(cluster_queue="mate")}

        def pair(cohort: str) -> ClusterFacts:
            mate = queue(5, name="mate", cohort=cohort)
            return self.held(worker("w1", queue(5, cohort=cohort), mate, local=local), 3, local=Key("ns", "p"))

        assert choose(wanting(3), pair("all")).grant == ""
        assert choose(wanting(3), pair("")).grant == "w1"

    def test_the_workload_itself_is_not_counted_against_it(self) -> None:
        made = worker("w1", queue(3))
        assert made.capacity is not None
        of = wanting(3)
        made.capacity.hold(of.key, of.demands, queue=LOCAL)
        assert choose(of, made).grant == "w1"
        made.capacity.release(of.key)
        assert made.capacity.held_by_cluster_queue(apart_from=self.OTHER) == {}


class TestFlavors:
    def test_a_pod_set_wants_its_quota_in_one_flavor(self) -> None:
        flavors = {"a": {GPU: quota(3)}, "b": {GPU: quota(2)}}
        assert choose(wanting(4), worker("w1", queue(flavors=flavors))).grant == ""
        assert choose(wanting(3), worker("w1", queue(flavors=flavors))).grant == "w1"
        two = wanting(0, demands=(Demand(count=1, requests={GPU: 3}), Demand(count=1, requests={GPU: 2})))
        assert choose(two, worker("w1", queue(flavors=flavors))).grant == "w1"

    def test_resources_of_one_group_come_from_one_flavor_and_others_from_their_own(self) -> None:
        of = wanting(demands=(Demand(count=2, requests={"cpu": 2000, "memory": 1, GPU: 1}),))
        grouped = {
            "a": {"cpu": quota(4000, of=4000), "memory": quota(0)},
            "b": {"cpu": quota(0), "memory": quota(4)},
            "g": {GPU: quota(2)},
        }
        assert choose(of, worker("w1", queue(flavors=grouped))).grant == ""
        grouped["b"] = {"cpu": quota(4000, of=4000), "memory": quota(4)}
        assert choose(of, worker("w1", queue(flavors=grouped))).grant == "w1"

    def test_pods_are_a_resource_where_the_queue_counts_them(self) -> None:
        flavors = {"a": {GPU: quota(9), "pods": quota(1)}}
        assert choose(wanting(1, pods=2), worker("w1", queue(flavors=flavors))).grant == ""
        assert choose(wanting(2, pods=1), worker("w1", queue(flavors=flavors))).grant == "w1"

    def test_what_the_hub_counts_and_the_queue_has_none_of_keeps_it_from_ever_admitting(self) -> None:
        found = choose(wanting(), worker("w1", queue(9, resource="cpu")))
        assert (found.grant, found.clusters) == ("", ())
        assert "no quota for example.com/gpu" in says(found)["w1"]

    def test_what_neither_counts_is_left_to_the_nodes(self) -> None:
        assert choose(wanting(flavors={"cpu": "f"}), worker("w1", queue(9, resource="cpu"))).grant == "w1"

    def test_devices_count_where_the_queue_has_quota_for_them_and_never_on_nodes(self) -> None:
        of = wanting(demands=(Demand(count=2, requests={"cpu": 1000}, quota={"devices": 2}),), flavors={"devices": "f"})
        cpus = {"cpu": quota(9000, of=9000)}
        full, free = (queue(flavors={"a": cpus | {"devices": quota(number)}}) for number in (3, 4))
        assert choose(of, worker("w1", full), worker("w2", free)).grant == "w2"
        assert "short 1 devices" in str(choose(of, worker("w1", full)).waiting[0])
        assert choose(of, worker("w1", queue(flavors={"a": cpus}))).grant == "w1", "it counts them by another name"

    def test_devices_that_were_sent_since_the_report_are_not_free(self) -> None:
        demands = (Demand(count=1, requests={"cpu": 1000}, quota={"devices": 3}),)
        made = worker("w1", queue(flavors={"a": {"cpu": quota(9000, of=9000), "devices": quota(5)}}))
        assert made.capacity is not None
        made.capacity.hold(Key("ns", "other"), demands, queue=LOCAL)
        assert choose(wanting(demands=demands), made).grant == ""
        made.capacity.release(Key("ns", "other"))
        assert choose(wanting(demands=demands), made).grant == "w1"
        assert made.capacity.held_by_cluster_queue(apart_from=Key("ns", "other")) == {}

    def test_what_may_be_borrowed_is_shown_apart(self) -> None:
        flavors = {"a": {GPU: quota(7, borrowable=4, capacity=20)}}
        found = choose(wanting(), worker("w1", queue(flavors=flavors)))
        assert "free 3 of 10 example.com/gpu and 4 to borrow; score" in says(found)["w1"]


SPOT = FlavorReport(labels={"pool": "spot"}, taints=(Taint("spot", "true"),))
RESERVED = FlavorReport(labels={"pool": "reserved"})
TOLERATES_SPOT = (Toleration("spot", "Exists"),)


def pooled(reserved: int, spot: int, name: str = "w1") -> ClusterFacts:
    """A cluster with quota on nodes that any pod may use, and on nodes with a taint."""
    flavors = {"reserved": {GPU: quota(reserved)}, "spot": {GPU: quota(spot)}}
    return worker(name, queue(flavors=flavors), flavors={"reserved": RESERVED, "spot": SPOT})


def pods(**where: Any) -> DispatchedWorkload:
    """One pod that wants two devices."""
    return wanting(demands=(Demand(count=1, requests={GPU: 2}, **where),))


def in_pool(operator: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm((Requirement("pool", operator, values),))


class TestWhichFlavorsMatch:
    def test_a_taint_keeps_pods_without_a_toleration_from_its_flavor(self) -> None:
        found = choose(pods(), pooled(1, 9))
        assert (found.grant, found.clusters) == ("", ())
        assert says(found)["w1"].endswith("of ClusterQueue cq: free 1 of 10 example.com/gpu, short 1 example.com/gpu")
        assert choose(pods(), pooled(1, 9), pooled(2, 0, name="w2")).grant == "w2"

    def test_pods_that_tolerate_the_taint_may_use_it(self) -> None:
        assert choose(pods(tolerations=TOLERATES_SPOT), pooled(1, 9)).grant == "w1"

    def test_the_flavor_may_tolerate_its_taint_for_all_pods(self) -> None:
        open_to_all = replace(SPOT, tolerations=TOLERATES_SPOT)
        made = worker("w1", queue(flavors={"spot": {GPU: quota(9)}}), flavors={"spot": open_to_all})
        assert choose(pods(), made).grant == "w1"

    def test_a_taint_that_nodes_only_prefer_to_keep_counts_for_nothing(self) -> None:
        preferred = FlavorReport(taints=(Taint("spot", "true", "PreferNoSchedule"),))
        made = worker("w1", queue(flavors={"spot": {GPU: quota(9)}}), flavors={"spot": preferred})
        assert choose(pods(), made).grant == "w1"

    def test_a_node_selector_chooses_the_flavor(self) -> None:
        on_reserved = pods(node_selector={"pool": "reserved"}, tolerations=TOLERATES_SPOT)
        assert choose(on_reserved, pooled(1, 9)).grant == ""
        assert choose(on_reserved, pooled(2, 0)).grant == "w1"

    def test_so_does_a_required_affinity_of_which_any_term_is_enough(self) -> None:
        def wanting_pool(*terms: NodeSelectorTerm) -> DispatchedWorkload:
            return pods(affinity=terms, tolerations=TOLERATES_SPOT)

        assert choose(wanting_pool(in_pool("NotIn", "spot")), pooled(1, 9)).grant == ""
        assert choose(wanting_pool(in_pool("In", "other"), in_pool("In", "spot")), pooled(1, 9)).grant == "w1"
        elsewhere = NodeSelectorTerm((Requirement("zone", "In", ("a",)),))
        assert choose(wanting_pool(in_pool("In", "other"), elsewhere), pooled(1, 9)).grant == "w1"

    def test_a_label_of_one_flavor_is_missing_in_the_others_of_its_group(self) -> None:
        flavors = {"any": {GPU: quota(9)}, "spot": {GPU: quota(0)}}
        reported = {"any": FlavorReport(), "spot": replace(SPOT, taints=())}
        made = worker("w1", queue(flavors=flavors), flavors=reported)
        assert choose(pods(node_selector={"pool": "spot"}), made).grant == ""
        assert choose(pods(), made).grant == "w1"

    def test_a_label_of_another_resource_group_counts_for_nothing(self) -> None:
        flavors = {"cpus": {"cpu": quota(9000, of=9000)}, "spot": {GPU: quota(9)}}
        made = worker("w1", queue(flavors=flavors), flavors={"spot": replace(SPOT, taints=())})
        demands = (Demand(count=1, requests={"cpu": 1000, GPU: 2}, node_selector={"pool": "spot"}),)
        assert choose(wanting(demands=demands), made).grant == "w1"

    def test_a_label_that_no_flavor_has_is_left_to_the_nodes(self) -> None:
        assert choose(pods(node_selector={"zone": "a"}), pooled(2, 0)).grant == "w1"

    def test_what_flavors_of_the_hub_add_counts_for_nothing(self) -> None:
        sent = pods(node_selector={"pool": "of-the-hub"}, tolerations=TOLERATES_SPOT, asked=AskedPlacement())
        assert choose(sent, pooled(2, 0)).grant == "w1"
        assert choose(sent, pooled(0, 9)).grant == ""

    def test_flavors_that_the_agent_may_not_read_are_for_all_pods(self) -> None:
        unread = worker("w1", queue(flavors={"spot": {GPU: quota(9)}}))
        assert choose(pods(node_selector={"pool": "other"}), unread).grant == "w1"

    def test_a_queue_of_which_no_flavor_matches_comes_after_those_that_are_full(self) -> None:
        never = worker("w1", queue(preempts=True, flavors={"spot": {GPU: quota(9)}}), flavors={"spot": SPOT})
        full = pooled(0, 9, name="w2")
        assert choose(pods(), never, full).clusters == (), "it is not asked to preempt either"
        assert choose(pods(), never, full, later=15).clusters == ("w2",)
        assert says(choose(pods(), never, full))["w1"] == (
            "insufficient quota even when it is empty: LocalQueue ns/q of ClusterQueue cq,"
            " no flavor of it matches the node selector, affinity, tolerations and topology of the pods"
        )

    def test_pods_that_request_a_topology_are_asked_for_and_not_granted(self) -> None:
        """Whether there is a place for them is known to the worker's queue alone."""
        racks = worker("w1", queue(9), flavors={"default": FlavorReport(topology=True)})
        found = choose(pods(topology=True), racks, pooled(9, 9, name="w2"))
        assert (found.grant, found.clusters) == ("", ("w1",))
        assert says(found)["w2"].endswith(
            "ClusterQueue cq, no flavor of it matches the node selector, affinity, tolerations and topology of the pods"
        )
        unread = worker("w1", queue(9))
        assert choose(pods(topology=True), unread).clusters == ("w1",)
        assert choose(pods(topology=True), unread).grant == ""

    def test_so_are_all_pods_where_each_flavor_of_the_queue_has_a_topology(self) -> None:
        racks = worker("w1", queue(9), flavors={"default": FlavorReport(topology=True)})
        found = choose(pods(), racks)
        assert (found.grant, found.clusters) == ("", ("w1",))
        assert choose(pods(), racks, worker("w2", queue(2), flavors={"default": FlavorReport()})).grant == "w2"

    def test_other_pods_do_not_count_flavors_with_a_topology_beside_those_without(self) -> None:
        flavors = {"racks": {GPU: quota(9)}, "plain": {GPU: quota(1)}}
        reported = {"racks": FlavorReport(topology=True), "plain": FlavorReport()}
        assert choose(pods(), worker("w1", queue(flavors=flavors), flavors=reported)).clusters == ()
        flavors["plain"] = {GPU: quota(2)}
        assert choose(pods(), worker("w1", queue(flavors=flavors), flavors=reported)).grant == "w1"

    def test_pod_sets_may_need_different_flavors(self) -> None:
        two = wanting(
            demands=(
                Demand(count=1, requests={GPU: 2}, node_selector={"pool": "reserved"}),
                Demand(count=1, requests={GPU: 2}, node_selector={"pool": "spot"}, tolerations=TOLERATES_SPOT),
            )
        )
        assert choose(two, pooled(2, 2)).grant == "w1"
        assert choose(two, pooled(9, 1)).grant == ""

    def test_a_pod_set_larger_than_each_flavor_never_fits(self) -> None:
        flavors = {"a": {GPU: quota(3, of=3)}, "b": {GPU: quota(3, of=3)}}
        found = choose(wanting(4), worker("w1", queue(preempts=True, flavors=flavors)))
        assert (found.grant, found.clusters) == ("", ())
        assert says(found)["w1"].startswith("insufficient quota even when it is empty: ")


class TestReports:
    def test_flavors_are_read_as_they_were_reported(self) -> None:
        tolerant = replace(SPOT, tolerations=(Toleration("a", "Equal", "b", "NoExecute"),), topology=True)
        flavors = [flavor_wire("spot", tolerant), flavor_wire("reserved", RESERVED)]
        found = report_of({"groups": [], "flavors": flavors})
        assert found is not None
        assert found.flavors == {"spot": tolerant, "reserved": RESERVED}
        assert flavors[1] == {"name": "reserved", "nodeLabels": {"pool": "reserved"}}

    def test_a_report_of_a_former_agent_is_read_as_before(self) -> None:
        former = {"groups": [], "engine": "kueue", "localQueues": [{"namespace": "ns", "name": "q", "active": False}]}
        found = report_of(former)
        assert found is not None
        assert found.local_queues == {LOCAL: LocalQueueReport(active=False)}
        assert found.cluster_queues == {}

    def test_a_report_without_nodes_has_all_else(self) -> None:
        found = report_of({"kinds": [{"apiVersion": "batch/v1", "kind": "Job"}], "namespaces": ["ns"]})
        assert found is not None
        assert (found.shows_nodes, found.namespaces) == (False, frozenset({"ns"}))
        assert report_of({}) is None

    def test_an_amount_that_is_none_is_refused_with_its_queue(self) -> None:
        bad = {"name": "default", "resources": [{"name": "cpu", "free": "1e999"}]}
        with pytest.raises(BadInput, match=r"clusterQueues\[\"?cq\"?\]"):
            report_of({"groups": [], "clusterQueues": [{"name": "cq", "flavors": [bad]}]})
