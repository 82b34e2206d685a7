# SPDX-License-Identifier: Apache-2.0
"""Going on with a copy that runs since before the management cluster was recovered (ADR 0010)."""

from __future__ import annotations

import pytest

from multikueue.api.constants import ADOPTS_ANNOTATION, DISPATCHER_CAPACITY
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.dispatch.hub import messages
from multikueue.dispatch.hub.actions import Assign, RemoveAssignment, Rule
from multikueue.dispatch.hub.facts import Adoption, DispatchSettings
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.protocol.annotations import adoption_of, adoption_text
from multikueue.dispatch.worker.assignment_state import NAME_CONFLICT
from tests.unit.dispatch.builders import NOW, cluster, facts, seen, workload

RUNS_ON_W2 = workload(adopts=Adoption("w2", "old-hub", "j1", 1))
BOTH = (cluster("w1"), cluster("w2"))
SETTINGS = DispatchSettings(dispatcher=DISPATCHER_CAPACITY)


def test_only_the_cluster_that_runs_it_is_asked() -> None:
    decision = plan(facts(RUNS_ON_W2, clusters=BOTH, settings=SETTINGS), NOW)
    assert (decision.rule, decision.actions, decision.nominated) == (Rule.NOMINATE, (Assign("w2"),), ("w2",))


def test_a_cluster_that_held_capacity_before_the_recovery_loses_it() -> None:
    decision = plan(facts(RUNS_ON_W2, seen("w1", AssignmentPhase.RESERVED), clusters=BOTH, settings=SETTINGS), NOW)
    assert not decision.cluster_name
    assert decision.actions == (Assign("w2"), RemoveAssignment("w1"))


def test_the_grant_goes_to_the_cluster_that_runs_it() -> None:
    decision = plan(
        facts(
            RUNS_ON_W2,
            seen("w1", AssignmentPhase.RESERVED),
            seen("w2", AssignmentPhase.RESERVED),
            clusters=BOTH,
            settings=SETTINGS,
        ),
        NOW,
    )
    assert (decision.rule, decision.cluster_name) == (Rule.GRANT, "w2")


def test_while_that_cluster_is_away_no_cluster_runs_it() -> None:
    away = (cluster("w1"), cluster("w2", lost_minutes=1))
    decision = plan(facts(RUNS_ON_W2, clusters=away, settings=SETTINGS), NOW)
    assert (decision.actions, decision.cluster_name) == ((), None)
    assert decision.check is not None
    assert messages.RUNS_THERE in decision.check.message


def test_a_remote_job_that_is_another_by_now_is_not_waited_for() -> None:
    refusal = seen("w2", AssignmentPhase.REFUSED, reason=NAME_CONFLICT)
    decision = plan(facts(RUNS_ON_W2, refusal, clusters=BOTH), NOW)
    assert Assign("w1") in decision.actions
    assert RemoveAssignment("w2") not in decision.actions, "else it would be asked again"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(adoption_text(Adoption("w", "m", "j", 3)), Adoption("w", "m", "j", 3), id="as it was written"),
        pytest.param("", None, id="none"),
        pytest.param("w m j", None, id="a part is missing"),
        pytest.param("w m j soon", None, id="the epoch is no number"),
    ],
)
def test_the_note_on_a_job_is_read(text: str, want: Adoption | None) -> None:
    assert adoption_of({ADOPTS_ANNOTATION: text}) == want
