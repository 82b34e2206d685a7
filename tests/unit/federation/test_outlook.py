# SPDX-License-Identifier: Apache-2.0
"""What is said of each cluster, from the facts that the plan is made of."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from multikueue.api.constants import DISPATCHER_CAPACITY, DISPATCHER_INCREMENTAL, CheckState, PartitionPolicy
from multikueue.api.remoteassignment import Intent, Phase
from multikueue.federation import messages
from multikueue.federation.actions import Rule, Waiting
from multikueue.federation.facts import ClusterFacts, Facts, Preferences, Settings, WorkloadFacts
from multikueue.federation.ledger import Demand
from multikueue.federation.node_groups import NodeGroup, Room
from multikueue.federation.outlook import ClusterOutlook, Outlook, Standing, Unseen, outlook
from multikueue.federation.plan import plan
from multikueue.federation.standing_room import Report, StandingRoom
from tests.unit.federation.builders import NOW, cluster, facts, granted, running, seen, workload

CAPACITY = Settings(dispatcher=DISPATCHER_CAPACITY)
LATER = NOW + timedelta(minutes=3)


def with_room(name: str, free: int, **changes: Any) -> ClusterFacts:
    """A cluster of one node with 8 cpu, `free` of them free."""
    room = Room(allocatable=8000, free=free * 1000, largest_free=free * 1000, largest=8000)
    report = Report(groups=(NodeGroup(nodes=1, rooms={"cpu": room}),))
    return cluster(name, room=StandingRoom(report), reported_at=NOW, **changes)


def wanting(cpu: int, **changes: Any) -> WorkloadFacts:
    demands = (Demand(count=1, requests={"cpu": cpu * 1000}),)
    return workload(demands=demands, flavors={"cpu": "spot"}, waits_since=NOW, **changes)


def look(given: Facts, **more: Any) -> Outlook:
    found = outlook(given, NOW, **more)
    assert found is not None
    return found


def each(found: Outlook) -> dict[str, tuple[Standing, str]]:
    return {entry.cluster: (entry.standing, entry.reason) for entry in found.clusters}


def only(given: Facts, **more: Any) -> ClusterOutlook:
    (found,) = look(given, **more).clusters
    return found


def test_every_cluster_has_a_reason_of_its_own_and_it_is_the_one_of_the_check() -> None:
    clusters = (
        with_room("lost", 8, lost_since=NOW - timedelta(minutes=5), reason="ClientConnectionFailed"),
        with_room("cordoned", 8, takes_new_work=False),
        with_room("avoided", 8),
        with_room("elsewhere", 8, labels={"zone": "b"}),
        with_room("full", 1),
    )
    from multikueue.core.selectors import parse_selector

    of = wanting(4, preferences=Preferences(selector=parse_selector("zone!=b")))
    given = facts(of, clusters=clusters, avoided={"avoided": LATER}, settings=CAPACITY)
    found = look(given)
    assert each(found) == {
        "lost": (Standing.UNAVAILABLE, "not connected since 2026-01-01T11:55:00Z"),
        "cordoned": (Standing.CLOSED, "is cordoned and takes no new work"),
        "avoided": (Standing.AVOIDED, "failed this workload, is avoided until 2026-01-01T12:03:00Z"),
        "elsewhere": (Standing.UNSUITABLE, "its labels do not match zone!=b"),
        "full": (Standing.NO_ROOM, "no free quota: short 3 cpu in flavor spot"),
    }
    check = plan(given, NOW).check
    assert check is not None
    assert messages.told(check.message, [entry.name for entry in clusters]) == {
        name: reason for name, (_, reason) in each(found).items()
    }
    assert found.rule is Rule.NOMINATE


def test_a_score_has_its_parts_by_name_and_is_the_one_that_wins() -> None:
    found = look(facts(wanting(2), clusters=(with_room("w1", 4, weight=2.0), with_room("w2", 8)), settings=CAPACITY))
    scores = {entry.cluster: entry.score for entry in found.clusters}
    assert found.rule is Rule.GRANT_AT_ONCE
    assert scores["w1"] is not None
    assert scores["w2"] is not None
    assert scores["w1"].parts == {"room": 0.25, "preferred": 0.0, "shortQueue": 1.0}
    assert (scores["w1"].total, scores["w2"].total) == (2.5, 1.75)
    assert each(found)["w1"][0] is Standing.HAS_ROOM


@pytest.mark.parametrize(
    ("observation", "want"),
    [
        pytest.param(seen("w1", status_epoch=0), (Standing.ASKED, "was asked, has not answered yet"), id="no answer"),
        pytest.param(seen("w1"), (Standing.ASKED, "looks for room"), id="looking"),
        pytest.param(
            seen("w1", reason="NoRoom", message="cpu: 5 wanted, at most 4 free"),
            (Standing.WAITS_THERE, "waits there: cpu: 5 wanted, at most 4 free"),
            id="no room",
        ),
        pytest.param(
            seen("w1", Phase.RESERVED), (Standing.RESERVED, "has reserved, waits to be granted"), id="reserved"
        ),
        pytest.param(
            seen("w1", Phase.REFUSED, reason="NameConflict"), (Standing.REFUSED, "NameConflict"), id="refused"
        ),
    ],
)
def test_a_nominated_cluster_stands_as_it_answered(observation: Any, want: tuple[Standing, str]) -> None:
    found = only(facts(workload(nominated=("w1",)), observation, clusters=(cluster("w1"),)))
    assert (found.standing, found.reason) == want
    assert found.nominated


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param(Settings(dispatcher=DISPATCHER_INCREMENTAL), "is not nominated yet", id="a round to come"),
        pytest.param(Settings(dispatcher="ours/chooser"), "is not nominated by ours/chooser yet", id="a program"),
        pytest.param(CAPACITY, "no fresh report: it is asked unless another is known to have room", id="no report"),
    ],
)
def test_a_cluster_that_was_not_asked_says_whose_turn_it_is(settings: Settings, want: str) -> None:
    assert only(facts(workload(), clusters=(cluster("w1"),), settings=settings)).reason == want


@pytest.mark.parametrize(
    ("phase", "standing"),
    [(Phase.RUNNING, Standing.RUNS), (Phase.RESERVED, Standing.CHOSEN), (Phase.EVICTED, Standing.EVICTED)],
)
def test_the_chosen_cluster_stands_as_it_says_and_the_others_are_not_needed(phase: Phase, standing: Standing) -> None:
    found = look(facts(running(), granted(phase=phase), seen("w2")))
    assert [entry.standing for entry in found.clusters] == [standing, Standing.LEAVING]


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        (PartitionPolicy.FAILOVER, "its work goes elsewhere at 2026-01-01T12:10:00Z (policy failover)"),
        (PartitionPolicy.KEEP, "its work stays there (policy keep)"),
    ],
)
def test_of_a_lost_cluster_it_is_said_what_becomes_of_its_work(policy: PartitionPolicy, want: str) -> None:
    given = facts(running(partition_policy=policy), granted(), clusters=(cluster("w1", lost_minutes=5),))
    assert only(given).reason == f"not connected since 2026-01-01T11:55:00Z; {want}"


def test_a_mass_loss_is_the_reason_where_work_is_held() -> None:
    clusters = tuple(cluster(name, lost_minutes=30) for name in ("w1", "w2", "w3"))
    found = look(facts(running(), granted(), clusters=clusters))
    assert found.rule is Rule.HELD
    assert "3 of 3 clusters were lost at once" in each(found)["w1"][1]


def test_without_quota_no_cluster_is_judged_by_room() -> None:
    of = replace(wanting(2), quota_reserved=False, demands=())
    found = only(facts(of, clusters=(with_room("w1", 8),), settings=CAPACITY))
    assert (found.standing, found.score) == (Standing.NOT_NEEDED, None)


def test_of_a_cluster_whose_mailbox_cannot_be_seen_the_managers_word_is_passed_on() -> None:
    given = facts(workload(nominated=("w1",)), clusters=(cluster("w1"),))
    told = messages.told(messages.waiting([Waiting("w1", "cpu: 5 wanted; memory: 1Gi wanted")]), ["w1"])
    found = only(given, unseen=Unseen(clusters=["w1"], told=told))
    assert found.reason == "cpu: 5 wanted; memory: 1Gi wanted"
    assert "keeps what it says in memory" in only(given, unseen=Unseen(clusters=["w1"])).reason
    chosen = facts(running(), clusters=(cluster("w1"),), delivered=False)
    assert only(chosen, unseen=Unseen(clusters=["w1"])).standing is Standing.CHOSEN


def test_a_workload_without_the_check_has_no_outlook() -> None:
    assert outlook(facts(workload(None)), NOW) is None
    assert outlook(facts(None), NOW) is None


def test_a_retry_asks_nobody() -> None:
    found = look(facts(workload(CheckState.RETRY), seen("w1", intent=Intent.EVICT)))
    assert each(found) == {"w1": (Standing.LEAVING, "was told to stop"), "w2": (Standing.NOT_NEEDED, "")}
