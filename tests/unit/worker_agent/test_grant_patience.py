# SPDX-License-Identifier: Apache-2.0
"""How long an assignment that was granted waits for capacity."""

from __future__ import annotations

from multikueue.api.remoteassignment import Intent
from multikueue.core.clock import ManualClock
from multikueue.dispatch.worker.assignment_state import AssignmentFacts
from worker_agent.grant_patience import GRANT_PATIENCE_SECONDS, GrantPatience


def assignment(intent: Intent, epoch: int = 1) -> AssignmentFacts:
    return AssignmentFacts(name="a", epoch=epoch, intent=intent, may_run=True)


def test_it_waits_from_its_grant_however_long_it_has_asked_for_a_reservation() -> None:
    clock = ManualClock()
    patience = GrantPatience(clock)
    assert patience.left(assignment(Intent.RESERVE)) == GRANT_PATIENCE_SECONDS
    clock.advance(60)
    assert patience.left(assignment(Intent.RESERVE)) == GRANT_PATIENCE_SECONDS
    assert patience.left(assignment(Intent.RUN)) == GRANT_PATIENCE_SECONDS
    clock.advance(GRANT_PATIENCE_SECONDS)
    assert patience.left(assignment(Intent.RUN)) == 0


def test_another_dispatch_waits_anew() -> None:
    clock = ManualClock()
    patience = GrantPatience(clock)
    patience.left(assignment(Intent.RUN))
    clock.advance(4)
    assert patience.left(assignment(Intent.RUN)) == GRANT_PATIENCE_SECONDS - 4
    assert patience.left(assignment(Intent.RUN, epoch=2)) == GRANT_PATIENCE_SECONDS
    clock.advance(4)
    patience.forget("a")
    assert patience.left(assignment(Intent.RUN, epoch=2)) == GRANT_PATIENCE_SECONDS
