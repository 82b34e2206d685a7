# SPDX-License-Identifier: Apache-2.0
"""How fast a worker may change what is shown of changes that it refuses."""

from __future__ import annotations

from manager.dispatch.reported.report_limits import CHANGES_AT_ONCE, SECONDS_PER_CHANGE, RefusedChanges
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import ChangeUpdate, DispatchPlan, Rule

KEY = Key("ns", "w")


def planned(message: str, after: float | None = None) -> DispatchPlan:
    return DispatchPlan(
        rule=Rule.GRANTED, change_forwarded=ChangeUpdate("ForbiddenByPolicy", message), requeue_after=after
    )


def test_a_plan_without_such_a_change_is_not_touched() -> None:
    plan = DispatchPlan(rule=Rule.GRANTED)
    assert RefusedChanges().admit(KEY, plan, now=0.0) is plan


def test_a_worker_whose_reason_changes_each_second_causes_few_writes() -> None:
    reports = RefusedChanges()
    written = sum(
        reports.admit(KEY, planned(str(second)), now=float(second)).change_forwarded is not None
        for second in range(600)
    )
    assert written == CHANGES_AT_ONCE + 600 // SECONDS_PER_CHANGE - 1


def test_what_has_to_wait_is_planned_again_then_and_other_workloads_do_not_wait() -> None:
    reports = RefusedChanges()
    for number in range(CHANGES_AT_ONCE):
        assert reports.admit(KEY, planned(str(number)), now=0.0).change_forwarded is not None
    held = reports.admit(KEY, planned("one more"), now=0.0)
    assert (held.change_forwarded, held.requeue_after) == (None, SECONDS_PER_CHANGE)
    assert reports.admit(KEY, planned("one more", after=3.0), now=0.0).requeue_after == 3.0
    assert reports.admit(Key("ns", "other"), planned("x"), now=0.0).change_forwarded is not None
    assert reports.admit(KEY, planned("one more"), now=SECONDS_PER_CHANGE).change_forwarded is not None
    reports.forget(KEY)
    assert reports.admit(KEY, planned("x"), now=SECONDS_PER_CHANGE).change_forwarded is not None
