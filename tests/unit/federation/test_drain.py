# SPDX-License-Identifier: Apache-2.0
"""A cluster that is being drained, as the plan sees it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from multikueue.api.constants import CheckState
from multikueue.api.remoteassignment import Intent, Phase
from multikueue.federation.actions import CheckUpdate, MirrorStatus, Remove, Rule
from multikueue.federation.facts import ClusterFacts
from multikueue.federation.plan import plan
from tests.unit.federation.builders import NOW, cluster, facts, granted, running, seen, workload

MESSAGE = 'Worker cluster "w1" is being drained, resetting for re-dispatch'


def draining(minutes: float | None = None) -> ClusterFacts:
    deadline = None if minutes is None else NOW + timedelta(minutes=minutes)
    return cluster("w1", takes_new_work=False, draining=True, drain_deadline=deadline)


def test_a_copy_that_waits_there_moves_at_once() -> None:
    found = plan(facts(workload(), seen("w1", Phase.RESERVED), clusters=(draining(), cluster("w2"))), NOW)
    assert Remove("w1") in found.actions
    assert found.cluster_name != "w1"


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RESERVED])
def test_what_was_granted_and_has_not_begun_moves_at_once(phase: Phase) -> None:
    found = plan(facts(running(), granted(phase=phase), clusters=(draining(60), cluster("w2"))), NOW)
    assert found.rule is Rule.DRAINED
    assert found.check == CheckUpdate(CheckState.RETRY, MESSAGE)


def test_what_runs_goes_on_until_the_deadline() -> None:
    found = plan(facts(running(), granted(), clusters=(draining(10),)), NOW)
    assert found.rule is Rule.GRANTED
    assert found.actions == (MirrorStatus("w1"),)
    assert found.requeue_after == 600


def test_what_runs_at_the_deadline_goes_elsewhere() -> None:
    found = plan(facts(running(), granted(), clusters=(draining(0), cluster("w2"))), NOW)
    assert found.rule is Rule.DRAINED
    assert found.check == CheckUpdate(CheckState.RETRY, MESSAGE)


def test_without_a_deadline_it_is_waited_for() -> None:
    found = plan(facts(running(), granted(), clusters=(draining(),)), NOW)
    assert found.rule is Rule.GRANTED
    assert found.requeue_after is None


def test_what_is_told_to_stop_is_not_told_again() -> None:
    found = plan(facts(running(), granted(intent=Intent.EVICT), clusters=(draining(10),)), NOW)
    assert found.rule is Rule.GRANTED
