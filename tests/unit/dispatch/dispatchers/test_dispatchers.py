# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from multikueue.api import configuration_file
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.selectors import parse_selector
from multikueue.dispatch.dispatchers.capacity import capacity
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity, Report
from multikueue.dispatch.dispatchers.protocol import Nomination
from multikueue.dispatch.dispatchers.registry import all_at_once, dispatcher, external, incremental
from multikueue.dispatch.hub.facts import (
    ClusterFacts,
    DispatchedWorkload,
    DispatchSettings,
    Placement,
    Preferences,
    Round,
)
from multikueue.dispatch.protocol.annotations import (
    avoided_of,
    avoided_text,
    preferences_of,
    round_of,
    round_text,
    weight_of,
)
from multikueue.dispatch.worker.ledger import Demand
from multikueue.dispatch.worker.node_groups import AggregateCapacity, CapacityGroup
from tests.unit.dispatch.builders import NOW, cluster, minutes_ago, workload

SETTINGS = DispatchSettings()


def test_a_builtin_is_found_by_name_and_any_other_name_is_a_program_of_the_users() -> None:
    assert dispatcher("kueue.x-k8s.io/multikueue-dispatcher-all-at-once") is all_at_once
    assert dispatcher("kueue.x-k8s.io/multikueue-dispatcher-incremental") is incremental
    assert dispatcher("multikueue.io/dispatcher-capacity") is capacity
    assert dispatcher("example.com/cheapest-first") is external


def test_a_configuration_that_names_none_gets_the_one_that_knows_of_capacity() -> None:
    named = "{apiVersion: config.kueue.x-k8s.io/v1beta2, kind: Configuration, multiKueue: {dispatcherName: a.b/c}}"
    assert configuration_file.load("").multikueue.dispatcher_name == "multikueue.io/dispatcher-capacity"
    assert configuration_file.load(named).multikueue.dispatcher_name == "a.b/c"


def test_a_builtin_that_is_not_there_is_refused_as_no_program_would_nominate() -> None:
    with pytest.raises(BadInput, match="is not built in: use"):
        dispatcher("multikueue.io/dispatcher-cheapest")


def names(*numbers: int) -> tuple[str, ...]:
    return tuple(f"w{number}" for number in numbers)


def step(of: DispatchedWorkload, *, clusters: int = 5, size: int = 2, later: float = 0.0) -> Nomination:
    candidates = tuple(cluster(f"w{number}") for number in range(1, clusters + 1))
    return incremental(of, candidates, settings=DispatchSettings(step_size=size), now=NOW + timedelta(minutes=later))


class TestIncremental:
    def test_the_first_round_takes_the_first_clusters_of_the_config(self) -> None:
        found = step(workload(waits_since=NOW))
        assert (found.clusters, found.requeue_after, found.round) == (names(1, 2), 300.0, None)

    @pytest.mark.parametrize("clusters", [1, 2, 3])
    def test_a_round_that_takes_all_waits_for_none(self, clusters: int) -> None:
        found = step(workload(waits_since=NOW), clusters=clusters, size=3)
        assert (found.clusters, found.requeue_after) == (names(*range(1, clusters + 1)), None)

    def test_during_a_round_nothing_is_added(self) -> None:
        of = workload(waits_since=NOW, nominated=names(1, 2))
        found = step(of, later=4)
        assert (found.clusters, found.requeue_after, found.round) == (names(1, 2), 60.0, None)

    def test_after_a_round_the_next_step_is_added_and_the_round_is_kept(self) -> None:
        of = workload(waits_since=NOW, nominated=names(1, 2))
        found = step(of, later=5)
        assert found.clusters == names(1, 2, 3, 4)
        assert found.round == Round(1, 4, NOW + timedelta(minutes=5))

    def test_a_new_leader_after_long_adds_one_step_and_not_all_that_it_missed(self) -> None:
        of = workload(waits_since=minutes_ago(60), nominated=names(1, 2))
        found = step(of)
        assert (found.clusters, found.requeue_after) == (names(1, 2, 3, 4), 300.0)
        resumed = step(replace(of, nominated=found.clusters, round=found.round), later=1)
        assert resumed.clusters == names(1, 2, 3, 4)

    def test_a_round_that_was_written_and_not_carried_out_is_carried_out(self) -> None:
        of = workload(waits_since=minutes_ago(6), nominated=names(1, 2), round=Round(1, 4, NOW))
        found = step(of, later=1)
        assert (found.clusters, found.requeue_after, found.round) == (names(1, 2, 3, 4), 240.0, None)

    def test_the_round_of_an_older_epoch_is_ignored(self) -> None:
        of = workload(epoch=2, waits_since=NOW, round=Round(1, 4, minutes_ago(1)))
        assert step(of).clusters == names(1, 2)

    def test_a_first_round_that_begins_late_is_kept_so_that_it_is_not_over_at_once(self) -> None:
        found = step(workload(waits_since=minutes_ago(30)))
        assert (found.clusters, found.round) == (names(1, 2), Round(1, 2, NOW))

    def test_when_all_are_nominated_it_waits_without_an_error(self) -> None:
        of = workload(waits_since=minutes_ago(30), nominated=names(1, 2, 3))
        found = step(of, clusters=3)
        assert (found.clusters, found.requeue_after, found.round) == (names(1, 2, 3), None, None)

    def test_a_cluster_that_is_away_stays_nominated(self) -> None:
        of = workload(waits_since=NOW, nominated=("gone", "w1"))
        assert step(of, later=1).clusters == ("gone", "w1")

    def test_never_more_than_the_api_takes(self) -> None:
        of = workload(waits_since=minutes_ago(30), nominated=names(*range(1, 20)))
        assert len(step(of, clusters=40, size=5).clusters) == 20


def offering(name: str, cpu: int, *, of: int = 10, **more: Any) -> ClusterFacts:
    """A cluster with `cpu` free of `of`."""
    capacity = ClusterCapacity()
    report: dict[str, Any] = more.pop("report", {})
    amounts = AggregateCapacity(allocatable=of * 1000, free=cpu * 1000, largest_free=cpu * 1000, largest=of * 1000)
    capacity.replace(Report(groups=(CapacityGroup(capacities={"cpu": amounts}),), **report))
    return cluster(name, capacity=capacity, reported_at=NOW, **more)


def wanting(cpu: int = 1, **changes: Any) -> DispatchedWorkload:
    return workload(demands=(Demand(count=1, requests={"cpu": cpu * 1000}),), waits_since=NOW, **changes)


def choose(of: DispatchedWorkload, *clusters: ClusterFacts, later: float = 0.0) -> Nomination:
    return capacity(of, clusters, settings=SETTINGS, now=NOW + timedelta(seconds=later))


def says(nomination: Nomination) -> dict[str, str]:
    return {verdict.cluster: verdict.reason for verdict in nomination.verdicts}


class TestCapacity:
    def test_the_one_with_most_capacity_left_is_granted_without_being_asked(self) -> None:
        found = choose(wanting(), offering("w1", 3), offering("w2", 8))
        assert (found.clusters, found.grant) == (("w2",), "w2")

    def test_a_cluster_that_looks_for_the_objects_of_the_pods_is_asked_and_the_next_once_one_is_missing(self) -> None:
        looks = {"dependency_kinds": frozenset({"Secret", "ConfigMap"})}
        w1, w2, w3 = (offering(f"w{n}", 9 - n, report=looks) for n in (1, 2, 3))
        of = wanting(dependency_kinds=frozenset({"Secret"}))
        found = choose(of, w1, w2, w3)
        assert (found.clusters, found.grant) == (("w1",), "")
        missing = replace(of, nominated=("w1",), lacking=frozenset({"w1"}))
        found = choose(missing, w1, w2, w3)
        assert (set(found.clusters), found.grant) == ({"w1", "w2"}, "")
        # It stays nominated, so that its reason is shown and it can still win.
        everywhere = replace(of, nominated=names(1, 2, 3), lacking=frozenset(names(1, 2, 3)))
        assert set(choose(everywhere, w1, w2, w3).clusters) == {"w1", "w2", "w3"}

    def test_a_cluster_that_does_not_look_for_them_is_granted_at_once(self) -> None:
        looks = {"dependency_kinds": frozenset({"Secret"})}
        of = wanting(dependency_kinds=frozenset({"ConfigMap"}))
        assert choose(of, offering("w1", 8, report=looks), offering("w2", 3)).grant == "w1"
        assert choose(wanting(), offering("w1", 8, report=looks)).grant == "w1"
        lacking = wanting(dependency_kinds=frozenset({"Secret"}), lacking=frozenset({"w1"}))
        assert choose(lacking, offering("w1", 8, report=looks), offering("w2", 3)).grant == "w2"

    def test_what_is_in_flight_is_counted_before_any_report_includes_it(self) -> None:
        w1, w2 = offering("w1", 8), offering("w2", 4)
        assert w1.capacity is not None
        w1.capacity.hold(Key("ns", "other"), wanting(6).demands)
        assert choose(wanting(3), w1, w2).grant == "w2"

    def test_packing_takes_the_fullest_that_has_capacity(self) -> None:
        of = wanting(preferences=Preferences(placement=Placement.PACK))
        assert choose(of, offering("w1", 3), offering("w2", 8)).grant == "w1"

    def test_a_weight_outdoes_capacity(self) -> None:
        assert choose(wanting(), offering("w1", 4, weight=3.0), offering("w2", 8)).grant == "w1"

    def test_a_preferred_cluster_comes_first_as_long_as_it_has_capacity(self) -> None:
        of = wanting(2, preferences=Preferences(preferred=parse_selector("zone=a")))
        assert choose(of, offering("w1", 3, labels={"zone": "a"}), offering("w2", 9)).grant == "w1"
        assert choose(of, offering("w1", 1, labels={"zone": "a"}), offering("w2", 9)).grant == "w2"

    def test_a_long_queue_there_counts_against_a_cluster(self) -> None:
        found = choose(wanting(), offering("w1", 8, report={"pending": 9}), offering("w2", 8))
        assert found.grant == "w2"

    def test_equal_clusters_share_the_work(self) -> None:
        won = {choose(wanting(uid=f"u{n}"), offering("w1", 8), offering("w2", 8)).grant for n in range(20)}
        assert won == {"w1", "w2"}

    def test_each_filter_names_its_reason(self) -> None:
        of = wanting(preferences=Preferences(selector=parse_selector("gpu")), queue=Key("ns", "q"))
        labels = {"gpu": "a100"}
        found = choose(
            of,
            offering("plain", 9),
            offering("old", 9, labels=labels, report={"kinds": frozenset({("batch/v1", "CronJob")})}),
            offering("bare", 9, labels=labels, report={"namespaces": frozenset({"default"})}),
            offering("kueue", 9, labels=labels, report={"engine": "kueue"}),
            offering("small", 0, labels=labels, of=0),
            offering("good", 2, labels=labels),
        )
        assert found.grant == "good"
        assert says(found) == {
            "plain": "its labels do not match gpu",
            "old": "kind Job is not served by the cluster's agent",
            "bare": 'no namespace "ns"',
            "kueue": "LocalQueue ns/q does not exist on kueue",
            "small": "insufficient capacity even when it is empty: short 1 cpu on one node",
            "good": "score 1.10 (freeCapacity 0.10, preferred 0.00, shortQueue 1.00, weight 1)",
        }

    def test_a_pinned_workload_goes_nowhere_else(self) -> None:
        of = wanting(5, preferences=Preferences(pinned=frozenset({"w1"})), flavors={"cpu": "spot"})
        found = choose(of, offering("w1", 1), offering("w2", 9))
        assert (found.clusters, found.held_back) == ((), True)
        assert [str(each) for each in found.waiting] == [
            "w1: insufficient free capacity: short 4 cpu",
            "w2: pinned to w1",
        ]

    def test_a_preference_that_cannot_be_read_is_reported_and_sent_nowhere(self) -> None:
        of = wanting(preferences=preferences_of({"multikueue.io/cluster-selector": "a=("}))
        found = choose(of, offering("w1", 9))
        assert (found.clusters, found.held_back) == ((), False)
        assert "cannot read" in str(found.waiting[0])

    def test_old_reports_lead_to_a_race(self) -> None:
        found = choose(wanting(), offering("w1", 0), offering("w2", 0), later=60)
        assert (found.clusters, found.grant) == (("w1", "w2"), "")

    def test_no_report_at_all_leads_to_a_race(self) -> None:
        assert choose(wanting(), cluster("w1"), cluster("w2")).clusters == ("w1", "w2")

    def test_who_has_capacity_now_for_sure_is_not_raced_for(self) -> None:
        assert choose(wanting(), cluster("w1"), offering("w2", 5)).grant == "w2"

    def test_without_capacity_anywhere_it_waits_on_the_hub(self) -> None:
        found = choose(wanting(2), offering("w1", 1), offering("w2", 1))
        assert (found.clusters, found.held_back, found.requeue_after) == ((), True, 15.0)

    def test_after_a_while_it_also_waits_at_one_cluster_after_another(self) -> None:
        clusters = (offering("w1", 1), offering("w2", 1), offering("never", 0, of=1))
        first = choose(wanting(2), *clusters, later=16)
        assert len(first.clusters) == 1
        later = [choose(wanting(2, nominated=first.clusters), *clusters, later=each).clusters for each in (20, 31, 44)]
        assert [len(found) for found in later] == [1, 2, 2]
        fresh = tuple(replace(each, reported_at=NOW + timedelta(seconds=46)) for each in clusters)
        assert choose(wanting(2, nominated=later[2]), *fresh, later=46).clusters[2] == "never"

    def test_while_work_ends_somewhere_it_keeps_waiting_here(self) -> None:
        w1 = offering("w1", 1)
        assert w1.capacity is not None
        w1.capacity.freed_at = NOW + timedelta(seconds=20)
        found = choose(wanting(2), w1, offering("w2", 1), later=34)
        assert (found.clusters, found.held_back, found.requeue_after) == ((), True, 1.0)

    def test_after_long_it_claims_capacity_at_one_whatever_ends(self) -> None:
        w1, w2 = (replace(offering(name, 1), reported_at=NOW + timedelta(seconds=300)) for name in ("w1", "w2"))
        assert w1.capacity is not None
        w1.capacity.freed_at = NOW + timedelta(seconds=299)
        assert len(choose(wanting(2), w1, w2, later=300).clusters) == 1

    def test_a_workload_that_waits_at_a_cluster_keeps_waiting_there(self) -> None:
        found = choose(wanting(2, nominated=("w2",)), offering("w1", 1), offering("w2", 1))
        assert found.clusters == ("w2",)


def test_preferences_are_read_from_annotations() -> None:
    desired = preferences_of(
        {
            "multikueue.io/clusters": "w1, w2",
            "multikueue.io/cluster-selector": "zone in (a,b)",
            "multikueue.io/preferred-clusters": "cheap",
            "multikueue.io/placement": "pack",
        }
    )
    assert (desired.pinned, desired.placement, desired.problem) == (frozenset({"w1", "w2"}), Placement.PACK, "")
    assert desired.selector.matches({"zone": "b"})
    assert "is not a placement" in preferences_of({"multikueue.io/placement": "random"}).problem


@pytest.mark.parametrize(("text", "weight"), [("", 1), ("2.5", 2.5), ("-1", 0), ("much", 1), ("nan", 1), ("inf", 1000)])
def test_a_weight_that_is_none_counts_as_one(text: str, weight: float) -> None:
    assert weight_of({"multikueue.io/weight": text}) == weight


def test_what_is_kept_in_annotations_comes_back_as_it_was() -> None:
    kept = Round(2, 4, NOW)
    assert round_of({"multikueue.io/dispatch-round": round_text(kept)}) == kept
    assert round_of({"multikueue.io/dispatch-round": "2 4 yesterday"}) is None
    avoided = {"w1": NOW + timedelta(minutes=1), "w2": NOW + timedelta(minutes=2)}
    assert avoided_of({"multikueue.io/avoided-clusters": avoided_text(avoided)}, NOW) == avoided
    assert set(avoided_of({"multikueue.io/avoided-clusters": avoided_text(avoided)}, avoided["w1"])) == {"w2"}
    assert avoided_of({"multikueue.io/avoided-clusters": "w1=soon w2"}, NOW) == {}
