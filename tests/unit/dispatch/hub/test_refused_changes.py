# SPDX-License-Identifier: Apache-2.0
"""How the hub shows that a change of a running job was not made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.core.conditions import FALSE, Condition
from multikueue.dispatch.hub.actions import Assign, ChangeUpdate, DispatchPlan
from multikueue.dispatch.hub.facts import Observation
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.protocol.job_problems import StartProblem
from tests.unit.dispatch.builders import NOW, ended, facts, granted, running

REFUSAL = StartProblem("ForbiddenByPolicy", "no privileged pods")
TEXT = 'A change of the job is not forwarded to worker cluster "w1": no privileged pods'
SHOWN = Condition(
    type="ChangeForwarded", status=FALSE, reason="ForbiddenByPolicy", message=TEXT, last_transition_time=NOW
)


def planned(observation: Observation, *, shown: Condition | None = None, withheld: str = "") -> DispatchPlan:
    of = replace(running("w1"), not_forwarded=shown, withheld=withheld)
    return plan(facts(of, observation), NOW)


def test_what_the_cluster_refuses_is_shown_once_and_nothing_else_changes() -> None:
    found = planned(granted(refused_change=REFUSAL))
    assert found.change_forwarded == ChangeUpdate("ForbiddenByPolicy", TEXT)
    assert found.writes_status
    assert (found.check, found.evict, found.finish) == (None, "", None)
    assert planned(granted(refused_change=REFUSAL), shown=SHOWN).change_forwarded is None


def test_another_reason_replaces_the_one_that_is_shown() -> None:
    other = StartProblem("ForbiddenByPolicy", "no host paths")
    found = planned(granted(refused_change=other), shown=SHOWN).change_forwarded
    assert found is not None
    assert found.message.endswith("no host paths")


def test_it_is_no_longer_shown_once_the_change_is_made_or_taken_back() -> None:
    assert planned(granted(), shown=SHOWN).change_forwarded == ChangeUpdate()
    assert planned(granted()).change_forwarded is None


def test_what_the_hub_itself_does_not_forward_comes_first() -> None:
    found = planned(granted(refused_change=REFUSAL), withheld="the hub forbids it").change_forwarded
    assert found is not None
    assert found.message.endswith('"w1": the hub forbids it')


@pytest.mark.parametrize(
    "observation",
    [
        pytest.param(ended(refused_change=REFUSAL), id="of a job that has ended"),
        pytest.param(granted(refused_change=REFUSAL, status_epoch=0), id="of the dispatch before"),
        pytest.param(granted(phase=AssignmentPhase.PENDING, refused_change=REFUSAL), id="of a job that does not run"),
    ],
)
def test_nothing_is_shown(observation: Observation) -> None:
    assert planned(observation).change_forwarded is None


def test_a_newer_change_is_sent_all_the_same() -> None:
    of = replace(running("w1", fingerprint="new"), not_forwarded=SHOWN)
    found = plan(facts(of, granted(refused_change=REFUSAL)), NOW)
    assert Assign("w1", Intent.RUN) in found.actions
