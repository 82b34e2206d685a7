# SPDX-License-Identifier: Apache-2.0
"""A cluster that is being drained, as the plan sees it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from multikueue.api.constants import CheckState
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.hub.actions import CheckUpdate, RemoveAssignment, Rule, SyncStatus
from multikueue.dispatch.hub.facts import ClusterFacts
from multikueue.dispatch.hub.plan import plan
from tests.unit.dispatch.builders import NOW, cluster, facts, granted, running, seen, workload

MESSAGE = 'Worker cluster "w1" is being drained, resetting for re-dispatch'


def draining(minutes: float | None = None) -> ClusterFacts:
    deadline = None if minutes is None else NOW + timedelta(minutes=minutes)
    return cluster("w1", takes_new_work=False, draining=True, drain_deadline=deadline)


def test_an_assignment_that_waits_there_moves_at_once() -> None:
    found = plan(facts(workload(), seen("w1", AssignmentPhase.RESERVED), clusters=(draining(), cluster("w2"))), NOW)
    assert RemoveAssignment("w1") in found.actions
    assert found.cluster_name != "w1"


@pytest.mark.parametrize("phase", [AssignmentPhase.PENDING, AssignmentPhase.RESERVED])
def test_what_was_granted_and_has_not_begun_moves_at_once(phase: AssignmentPhase) -> None:
    found = plan(facts(running(), granted(phase=phase), clusters=(draining(60), cluster("w2"))), NOW)
    assert found.rule is Rule.DRAINED
    assert found.check == CheckUpdate(CheckState.RETRY, MESSAGE)


def test_what_runs_continues_until_the_deadline() -> None:
    found = plan(facts(running(), granted(), clusters=(draining(10),)), NOW)
    assert found.rule is Rule.GRANTED
    assert found.actions == (SyncStatus("w1"),)
    assert found.requeue_after == 600


def test_what_runs_at_the_deadline_goes_elsewhere() -> None:
    found = plan(facts(running(), granted(), clusters=(draining(0), cluster("w2"))), NOW)
    assert found.rule is Rule.DRAINED
    assert found.check == CheckUpdate(CheckState.RETRY, MESSAGE)


def test_without_a_deadline_it_is_waited_for() -> None:
    found = plan(facts(running(), granted(), clusters=(draining(),)), NOW)
    assert found.rule is Rule.GRANTED
    assert found.requeue_after is None


def test_what_is_asked_to_stop_is_not_asked_again() -> None:
    found = plan(facts(running(), granted(intent=Intent.EVICT), clusters=(draining(10),)), NOW)
    assert found.rule is Rule.GRANTED
