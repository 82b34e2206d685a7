# SPDX-License-Identifier: Apache-2.0
"""The plan for a slice of an elastic job whose job runs already, by the slice that it has replaced."""

from __future__ import annotations

from multikueue.api.constants import CheckState
from multikueue.api.remoteassignment import Intent
from multikueue.dispatch.hub.actions import Assign, RemoveAssignment, Rule
from multikueue.dispatch.hub.facts import Delegation
from multikueue.dispatch.hub.plan import plan
from tests.unit.dispatch.builders import NOW, cluster, facts, granted, running, seen, workload


def test_it_gets_the_cluster_without_a_nomination_and_nothing_is_sent_yet() -> None:
    found = plan(facts(workload(runs_on="w1"), granted("w1")), NOW)
    assert (found.rule, found.cluster_name, found.actions) == (Rule.TAKE_OVER, "w1", ())
    assert found.check is not None
    assert found.check.state is CheckState.READY


def test_other_checks_do_not_hold_it_back_and_none_asks_for_capacity() -> None:
    waits = workload(runs_on="w1", others_ready=False, delegation=Delegation(checks=("provision",)))
    found = plan(facts(waits, granted("w1")), NOW)
    assert found.cluster_name == "w1"
    assert [(each.check, each.state) for each in found.delegated] == [("provision", CheckState.READY)]


def test_a_cluster_that_is_lost_or_cordoned_is_chosen_all_the_same() -> None:
    for away in (cluster("w1", lost_minutes=5), cluster("w1", takes_new_work=False)):
        found = plan(facts(workload(runs_on="w1"), granted("w1"), clusters=(away, cluster("w2"))), NOW)
        assert found.cluster_name == "w1"


def test_an_assignment_of_another_cluster_is_removed() -> None:
    found = plan(facts(workload(runs_on="w1"), granted("w1"), seen("w2")), NOW)
    assert found.actions == (RemoveAssignment("w2"),)


def test_then_the_new_size_is_sent_as_any_change_of_what_runs() -> None:
    found = plan(facts(running("w1", fingerprint="larger"), granted("w1")), NOW)
    assert Assign("w1", Intent.RUN) in found.actions


def test_a_slice_that_has_to_stop_does_not_take_over() -> None:
    found = plan(facts(workload(runs_on="w1", stopping=True), granted("w1")), NOW)
    assert found.rule is Rule.STOPPING
