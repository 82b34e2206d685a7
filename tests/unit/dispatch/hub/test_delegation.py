# SPDX-License-Identifier: Apache-2.0
"""Workloads whose provisioning checks are delegated to a worker cluster (ADR 0018)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE, DISPATCHER_CAPACITY, CheckState
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.core.selectors import parse_selector
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity, Report, report_of
from multikueue.dispatch.hub.actions import (
    Assign,
    CheckUpdate,
    DelegatedUpdate,
    DispatchPlan,
    RemoveAssignment,
    Rule,
    SetIntent,
)
from multikueue.dispatch.hub.facts import (
    Adoption,
    ClusterFacts,
    Delegation,
    DispatchFacts,
    DispatchSettings,
    Observation,
    Preferences,
)
from multikueue.dispatch.hub.health import judge_ability
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.worker.assignment_state import CAPACITY_REVOKED, PROVISIONING_FAILED
from tests.unit.dispatch.builders import NOW, cluster, facts, granted, running, seen, workload

PHASES = AssignmentPhase
DELEGATED = Delegation(checks=("prov",), retry_seconds=60)


def able(name: str, *, problem: str | None = "", **changes: Any) -> ClusterFacts:
    """A cluster whose agent reported whether it can provision."""
    report = Report(provisioning=problem)
    return cluster(name, capacity=ClusterCapacity(report=report), reported_at=NOW, **changes)


def roomy(name: str) -> ClusterFacts:
    """A cluster with free capacity by its report."""
    amounts = {"allocatable": "8", "free": "8", "largestFree": "8", "largest": "8"}
    capacity = [{"name": name, **amounts} for name in ("cpu", "pods")]
    status = {"groups": [{"nodes": 1, "capacity": capacity}], "nodes": {"ready": 1, "total": 1}}
    return cluster(name, capacity=ClusterCapacity(report=report_of(status)), reported_at=NOW)


def asked(name: str, phase: AssignmentPhase = PHASES.PROVISIONING, **changes: Any) -> Observation:
    return seen(name, phase, **({"intent": Intent.PROVISION, "provisions": True} | changes))


def failed(name: str, message: str = "no machines") -> Observation:
    return asked(name, PHASES.REFUSED, reason=PROVISIONING_FAILED, message=message)


def given(
    *observations: Observation,
    clusters: tuple[ClusterFacts, ...] = (able("w1", weight=2.0), able("w2")),
    dispatcher: str = DISPATCHER_CAPACITY,
    count: int = 1,
    delegation: Delegation = DELEGATED,
    **changes: Any,
) -> DispatchFacts:
    settings = DispatchSettings(dispatcher=dispatcher, provisioning_clusters=count)
    return facts(workload(delegation=delegation, **changes), *observations, clusters=clusters, settings=settings)


def planned(*observations: Observation, **changes: Any) -> DispatchPlan:
    return plan(given(*observations, **changes), NOW)


def test_one_cluster_is_asked_the_one_of_the_greatest_weight() -> None:
    found = planned()
    assert (found.rule, found.actions, found.nominated) == (
        Rule.PROVISION,
        (Assign("w1", Intent.PROVISION),),
        ("w1",),
    )
    assert found.delegated == (DelegatedUpdate("prov", CheckState.PENDING, "w1: was asked to provision capacity"),)


def test_several_are_asked_if_that_is_configured_and_all_by_all_at_once() -> None:
    both = (Assign("w1", Intent.PROVISION), Assign("w2", Intent.PROVISION))
    assert planned(count=2).actions == both
    assert planned(dispatcher=DISPATCHER_ALL_AT_ONCE).actions == both


def test_preferred_clusters_are_asked_first() -> None:
    clusters = (able("w1", weight=2.0), able("w2", labels={"price": "low"}))
    liked = Preferences(preferred=parse_selector("price=low"))
    assert planned(clusters=clusters, preferences=liked).actions == (Assign("w2", Intent.PROVISION),)


def test_a_cluster_that_provisions_stays_asked_and_its_message_is_shown_once() -> None:
    found = planned(asked("w2", message="ETA 12:05"), nominated=("w2",))
    assert (found.actions, found.nominated) == ((), None)
    assert found.delegated == (DelegatedUpdate("prov", CheckState.PENDING, "w2: ETA 12:05"),)
    shown = replace(DELEGATED, message="w2: ETA 12:05")
    assert planned(asked("w2", message="ETA 12:05"), nominated=("w2",), delegation=shown).delegated == ()


def test_what_a_worker_reports_is_cut_and_cannot_move_the_cursor() -> None:
    (update,) = planned(asked("w1", message="\x1b[2J" + "x" * 5000)).delegated
    assert "\x1b" not in update.message
    assert len(update.message) < 500


def test_the_first_that_has_provisioned_is_granted_and_the_others_are_withdrawn() -> None:
    found = planned(asked("w1"), asked("w2", PHASES.PROVISIONED, message="3 nodes"), count=2)
    assert (found.rule, found.cluster_name) == (Rule.GRANT, "w2")
    assert found.actions == (SetIntent("w2", Intent.RUN), RemoveAssignment("w1"))
    assert found.delegated == (DelegatedUpdate("prov", CheckState.READY, "Provisioned on w2: 3 nodes"),)
    assert found.check == CheckUpdate(CheckState.READY, 'The workload was admitted on "w2"')


def test_a_cluster_with_free_capacity_is_granted_without_a_request() -> None:
    found = planned(asked("w1"), clusters=(able("w1"), roomy("w2")))
    assert (found.rule, found.cluster_name) == (Rule.GRANT_AT_ONCE, "w2")
    assert found.actions == (Assign("w2", Intent.RUN), RemoveAssignment("w1"))
    assert found.delegated == (DelegatedUpdate("prov", CheckState.READY, "Not needed: w2 has free capacity"),)


def test_free_capacity_of_a_cluster_that_was_asked_may_be_what_it_provisions() -> None:
    free = roomy("w1")
    assert free.capacity is not None
    assert free.capacity.report is not None
    free.capacity.replace(replace(free.capacity.report, provisioning=""))
    found = planned(asked("w1", message="ETA"), clusters=(free,), nominated=("w1",))
    assert (found.rule, found.actions) == (Rule.PROVISION, ())


def test_after_a_failure_the_next_cluster_is_asked_and_the_failure_is_remembered() -> None:
    found = planned(failed("w1"))
    assert found.actions == (Assign("w2", Intent.PROVISION),)
    (update,) = found.delegated
    assert update.message == "w2: was asked to provision capacity; w1: no machines"


def test_a_failure_of_an_older_dispatch_does_not_count() -> None:
    found = planned(replace(failed("w1"), epoch=1, status_epoch=1), epoch=2, nominated=())
    assert found.actions == (Assign("w1", Intent.PROVISION),)


def test_when_each_cluster_has_failed_the_check_is_tried_again_after_its_delay() -> None:
    found = planned(failed("w1"), failed("w2", "no quota"))
    (update,) = found.delegated
    assert (found.rule, update.state, update.requeue_after_seconds) == (Rule.PROVISIONING_FAILED, CheckState.RETRY, 60)
    assert update.message == (
        "No cluster could provision capacity in attempt 1, attempt 2 follows in 60 s: w1: no machines; w2: no quota"
    )


def test_without_an_attempt_left_the_check_is_rejected() -> None:
    last = replace(DELEGATED, attempt=4, retry_seconds=None)
    (update,) = planned(failed("w1"), failed("w2"), delegation=last).delegated
    assert update.state is CheckState.REJECTED
    assert "in attempt 4, no attempt is left" in update.message


@pytest.mark.parametrize(
    ("w2", "why"),
    [
        pytest.param(able("w2", problem="its API is not installed"), "w2: its API is not installed", id="cannot"),
        pytest.param(able("w2", problem=None), "w2: its agent has not reported", id="an old agent"),
        pytest.param(able("w2", lost_minutes=1), "w2: not connected since", id="lost"),
        pytest.param(able("w2", takes_new_work=False), "w2: is cordoned", id="cordoned"),
    ],
)
def test_a_cluster_that_cannot_be_asked_is_not_waited_for_once_the_others_have_failed(
    w2: ClusterFacts, why: str
) -> None:
    clusters = (able("w1"), w2)
    assert planned(failed("w1"), clusters=clusters).rule is Rule.PROVISIONING_FAILED
    waiting = planned(clusters=(w2,))
    assert (waiting.rule, waiting.actions) == (Rule.PROVISION, ())
    assert waiting.check is not None
    assert why in waiting.check.message


def test_a_cluster_lost_while_it_provisions_is_withdrawn_and_the_next_is_asked() -> None:
    clusters = (able("w1", lost_minutes=1), able("w2"))
    found = planned(asked("w1"), clusters=clusters, nominated=("w1",))
    assert found.actions == (Assign("w2", Intent.PROVISION), RemoveAssignment("w1"))
    late = planned(asked("w1", PHASES.PROVISIONED), clusters=clusters, nominated=("w1",))
    assert late.rule is Rule.PROVISION


def test_other_checks_come_first_and_nothing_is_provisioned_meanwhile() -> None:
    found = planned(asked("w1"), others_ready=False)
    assert (found.rule, found.actions) == (Rule.NOT_YET, (RemoveAssignment("w1"),))


def test_an_eviction_withdraws_the_request_at_once_since_nothing_runs() -> None:
    found = planned(asked("w1"), stopping=True)
    assert RemoveAssignment("w1") in found.actions


def test_a_cluster_that_was_nominated_is_asked_again_after_a_restart_that_lost_its_assignment() -> None:
    assert planned(nominated=("w2",)).actions == (Assign("w2", Intent.PROVISION),)


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(able("w2", lost_minutes=0.5), id="is not connected again"),
        pytest.param(cluster("w2"), id="has not reported"),
        pytest.param(able("w2", problem=None), id="has not reported whether it can provision"),
    ],
)
def test_after_a_restart_no_other_is_asked_while_the_cluster_that_was(known: ClusterFacts) -> None:
    found = planned(clusters=(able("w1"), known), nominated=("w2",))
    assert (found.rule, found.actions, found.nominated) == (Rule.PROVISION, (), None)
    assert found.requeue_after is not None
    refused = planned(failed("w1"), clusters=(able("w1"), known), nominated=("w2",))
    assert refused.rule is Rule.PROVISION, "it may still have provisioned"


def test_after_a_restart_a_cluster_that_stays_away_for_a_lease_is_replaced() -> None:
    found = planned(clusters=(able("w1"), able("w2", lost_minutes=1)), nominated=("w2",))
    assert found.actions == (Assign("w1", Intent.PROVISION),)


def test_a_changed_workload_is_sent_again_with_the_same_intent() -> None:
    assert planned(asked("w1", fingerprint="older")).actions == (Assign("w1", Intent.PROVISION),)


def test_the_grant_is_delivered_to_a_cluster_that_has_provisioned() -> None:
    found = plan(facts(running("w1"), asked("w1", PHASES.PROVISIONED)), NOW)
    assert found.actions == (SetIntent("w1", Intent.RUN),)


def test_revoked_capacity_sends_the_work_elsewhere_and_the_cluster_is_avoided() -> None:
    evicted = granted("w1", PHASES.EVICTED, reason=CAPACITY_REVOKED, message="spot")
    found = plan(facts(running("w1"), evicted), NOW)
    assert (found.rule, found.avoid, found.avoid_for) == (Rule.REMOTE_EVICTED, "w1", timedelta(minutes=10))


def test_work_that_runs_already_is_adopted_without_a_request() -> None:
    adoption = Adoption(cluster="w1", manager_uid="m", job_uid="j", epoch=1)
    found = planned(seen("w1", PHASES.RESERVED), adopts=adoption)
    assert (found.rule, [update.state for update in found.delegated]) == (Rule.GRANT, [CheckState.READY])


def test_capacity_that_is_not_provisioned_yet_takes_nothing_of_what_is_there() -> None:
    assert given(asked("w1")).occupied_clusters() == frozenset()
    assert given(asked("w1", PHASES.PENDING)).occupied_clusters() == frozenset()
    assert given(asked("w1", PHASES.PROVISIONED)).occupied_clusters() == {"w1"}


@pytest.mark.parametrize(
    ("clusters", "able", "message"),
    [
        pytest.param((able("w1"), able("w2")), True, "can provision", id="all can"),
        pytest.param((able("w1"), able("w2", problem="no API")), False, "w2: no API", id="one cannot"),
        pytest.param((able("w1"), able("w2", problem=None)), False, "w2: its agent has not", id="an old agent"),
        pytest.param(
            (able("w1"), able("w2", problem="no", lost_minutes=1)), True, "can provision", id="a lost one is not asked"
        ),
        pytest.param((able("w1"), cluster("w2")), True, "can provision", id="nor one that has not reported"),
    ],
)
def test_the_clusters_of_a_check_can_provision_if_each_that_is_known_can(
    clusters: tuple[ClusterFacts, ...], able: bool, message: str
) -> None:
    found = judge_ability(clusters)
    assert found is not None
    assert found.active is able
    assert message in found.message


def test_nothing_is_judged_while_no_cluster_is_known() -> None:
    assert judge_ability((cluster("w1"), able("w2", lost_minutes=1))) is None
