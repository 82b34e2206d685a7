# SPDX-License-Identifier: Apache-2.0
"""Orchestrated preemption: one copy at a time may preempt (docs/spec/multikueue.md §1.5 rule 7)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from multikueue.api.constants import GATE_OPENING_ANNOTATION, CheckState, GatePosition
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.hub.actions import Assign, DispatchPlan, Rule, SetGate, SetIntent
from multikueue.dispatch.hub.facts import DispatchFacts, DispatchSettings, GateOpening, Observation
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.hub.preemption_gates import position
from multikueue.dispatch.protocol.annotations import gate_opening_of, gate_opening_text
from tests.unit.dispatch.builders import NOW, cluster, facts, granted, minutes_ago, seen, workload

CLOSED, OPEN = GatePosition.CLOSED, GatePosition.OPEN
ON = DispatchSettings(orchestrated_preemption=True)
BOTH = ("w1", "w2")


def blocked(name: str, *, minutes: float, gate: GatePosition = CLOSED, **changes: Any) -> Observation:
    """A copy that could be admitted by preempting only, since so many minutes."""
    return seen(name, gate=gate, blocked_since=minutes_ago(minutes), **changes)


def opened(name: str, *, minutes: float, epoch: int = 1) -> GateOpening:
    return GateOpening(epoch, name, minutes_ago(minutes))


def situation(
    *observations: Observation, settings: DispatchSettings = ON, last: GateOpening | None = None, **more: Any
) -> DispatchFacts:
    waiting = workload(nominated=BOTH, gate_opening=last)
    return facts(waiting, *observations, settings=settings, **more)


def opens(found: DispatchPlan) -> str:
    return "" if found.gate_opening is None else found.gate_opening.cluster


def test_the_oldest_signal_is_first_and_the_others_wait() -> None:
    found = plan(situation(blocked("w1", minutes=1), blocked("w2", minutes=2)), NOW)
    assert found.gate_opening == GateOpening(1, "w2", NOW)
    assert found.actions == (SetGate("w2"),)
    assert [event.message for event in found.events] == ['Opened the preemption gate on worker cluster "w2"']
    assert not found.writes_status


def test_of_equal_signals_the_choice_is_the_same_whenever_it_is_repeated() -> None:
    given = [blocked(name, minutes=1) for name in ("w2", "w1")]
    assert {opens(plan(situation(*order), NOW)) for order in (given, given[::-1])} == {"w1"}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(situation(seen("w1", gate=CLOSED), seen("w2", gate=CLOSED)), "", id="nobody asked"),
        pytest.param(
            situation(blocked("w1", minutes=1), blocked("w2", minutes=2), last=opened("w1", minutes=4.99)),
            "",
            id="another one may preempt",
        ),
        pytest.param(
            situation(blocked("w1", minutes=9, gate=OPEN), blocked("w2", minutes=2), last=opened("w1", minutes=5)),
            "w2",
            id="the window of the other one is over",
        ),
        pytest.param(
            situation(blocked("w2", minutes=2), last=opened("w1", minutes=4), clusters=(cluster("w2"),)),
            "",
            id="the one that may preempt was lost, and may go on there",
        ),
        pytest.param(
            situation(blocked("w1", minutes=9, gate=OPEN), last=opened("w1", minutes=9)),
            "",
            id="it may preempt already",
        ),
        pytest.param(
            situation(blocked("w1", minutes=9, gate=OPEN), last=opened("w2", minutes=9)),
            "",
            id="it was allowed to before the other one was",
        ),
        pytest.param(
            situation(
                blocked("w1", minutes=2),
                blocked("w2", minutes=9),
                clusters=(cluster("w1"), cluster("w2", lost_minutes=1)),
            ),
            "w1",
            id="the oldest one cannot be reached",
        ),
        pytest.param(
            situation(blocked("w1", minutes=2, status_epoch=0), seen("w2", gate=CLOSED)),
            "",
            id="the signal is about the epoch before",
        ),
        pytest.param(
            situation(blocked("w1", minutes=2), blocked("w2", minutes=9, phase=AssignmentPhase.REFUSED)),
            "w1",
            id="the oldest one cannot take it at all",
        ),
        pytest.param(situation(blocked("w1", minutes=2), settings=DispatchSettings()), "", id="the feature is off"),
    ],
)
def test_whose_gate_is_opened(given: DispatchFacts, want: str) -> None:
    assert opens(plan(given, NOW)) == want


def test_it_looks_again_when_the_window_is_over() -> None:
    given = situation(blocked("w1", minutes=1), blocked("w2", minutes=2), last=opened("w1", minutes=4))
    assert plan(given, NOW).requeue_after == pytest.approx(60)


def test_no_cluster_preempts_when_one_has_quota_without() -> None:
    found = plan(situation(blocked("w1", minutes=9), seen("w2", AssignmentPhase.RESERVED, gate=CLOSED)), NOW)
    assert found.rule is Rule.GRANT
    assert found.gate_opening is None
    assert found.actions[0] == SetIntent("w2", Intent.RUN)


def test_nothing_is_opened_once_a_cluster_is_chosen() -> None:
    chosen = workload(CheckState.READY, cluster_name="w1")
    copies = (granted("w1", gate=CLOSED), blocked("w2", minutes=9))
    found = plan(facts(chosen, *copies, settings=ON), NOW)
    assert found.rule is Rule.GRANTED
    assert found.gate_opening is None


def test_an_opening_that_was_written_and_not_sent_is_sent() -> None:
    given = situation(blocked("w1", minutes=2), blocked("w2", minutes=1), last=opened("w1", minutes=1))
    found = plan(given, NOW)
    assert found.actions == (SetGate("w1"),)
    assert found.gate_opening is None, "it is no new one"


def test_an_assignment_that_is_brought_up_to_date_keeps_its_turn() -> None:
    given = situation(blocked("w1", minutes=9, gate=OPEN, fingerprint="before"), last=opened("w2", minutes=1))
    assert given.workload is not None
    assert Assign("w1") in plan(given, NOW).actions
    assert position(given, given.workload, "w1", now=NOW) is OPEN


def test_an_assignment_that_is_made_anew_after_its_turn_begins_closed() -> None:
    given = situation(blocked("w2", minutes=9, gate=OPEN), last=opened("w2", minutes=1))
    assert given.workload is not None
    assert position(given, given.workload, "w1", now=NOW) is CLOSED


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(situation(), OPEN, id="nobody else has a copy"),
        pytest.param(situation(last=opened("w2", minutes=4)), CLOSED, id="another one may have begun to preempt"),
        pytest.param(situation(last=opened("w2", minutes=5)), OPEN, id="the turn of the other one is over"),
        pytest.param(situation(seen("w1", gate=CLOSED)), CLOSED, id="it got quota without preempting, and was granted"),
        pytest.param(situation(settings=DispatchSettings()), None, id="the feature is off"),
    ],
)
def test_the_gate_of_an_assignment_that_is_granted(given: DispatchFacts, want: GatePosition | None) -> None:
    assert given.workload is not None
    assert position(given, given.workload, "w1", now=NOW, chosen="w1") is want


def test_a_new_epoch_begins_with_all_gates_closed() -> None:
    copies = [blocked(name, minutes=9, gate=OPEN, epoch=1) for name in BOTH]
    before = opened("w1", minutes=1, epoch=1)
    given = facts(workload(epoch=2, nominated=BOTH, gate_opening=before), *copies, settings=ON)
    assert given.workload is not None
    assert {position(given, given.workload, name, now=NOW) for name in BOTH} == {CLOSED}
    assert plan(given, NOW).actions == (Assign("w1"), Assign("w2"))


def test_and_another_one_may_be_the_first_in_it() -> None:
    copies = (seen("w1", gate=CLOSED, epoch=2, status_epoch=2), blocked("w2", minutes=1, epoch=2, status_epoch=2))
    waiting = workload(epoch=2, nominated=BOTH, gate_opening=opened("w1", minutes=1, epoch=1))
    assert opens(plan(facts(waiting, *copies, settings=ON), NOW)) == "w2"


def test_when_the_feature_is_turned_off_assignments_lose_their_gates() -> None:
    found = plan(situation(blocked("w1", minutes=9), seen("w2"), settings=DispatchSettings()), NOW)
    assert found.actions == (SetGate("w1"),)


def test_what_is_kept_of_an_opening_is_read_back_to_the_fraction_of_a_second() -> None:
    opening = GateOpening(3, "w1", NOW + timedelta(microseconds=999_999))
    assert gate_opening_of({GATE_OPENING_ANNOTATION: gate_opening_text(opening)}) == opening


@pytest.mark.parametrize("text", ["", "1", "1 w1", "1 w1 yesterday", "x w1 2026-01-01T12:00:00Z"])
def test_what_cannot_be_read_is_no_opening(text: str) -> None:
    assert gate_opening_of({GATE_OPENING_ANNOTATION: text}) is None
