# SPDX-License-Identifier: Apache-2.0
"""What an event on a job says of its pending admission checks, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from manager.controllers.check_messages import CheckMessages, pending_checks

Object = dict[str, Any]
TIME = "2026-01-01T00:00:00Z"


def workload(*checks: tuple[str, str, str], uid: str = "u", conditions: Mapping[str, bool] | None = None) -> Object:
    """A Workload with checks of these names, states and messages."""
    shown = [{"name": n, "state": s, "message": m, "lastTransitionTime": TIME} for n, s, m in checks]
    truths = {"QuotaReserved": True, **(conditions or {})}
    found = [
        {"type": kind, "status": str(holds), "reason": "R", "message": "", "lastTransitionTime": TIME}
        for kind, holds in truths.items()
    ]
    return {
        "metadata": {"name": "w", "namespace": "ns", "uid": uid},
        "spec": {},
        "status": {"conditions": found, "admissionChecks": shown},
    }


def test_pending_checks_that_say_something_are_listed() -> None:
    found = workload(("a", "Pending", "one"), ("b", "Ready", "two"), ("c", "Pending", ""), ("d", "Pending", "four"))
    assert pending_checks(found) == "a: one; d: four"


def test_what_the_event_of_multikueue_has_is_left_out() -> None:
    found = workload(("mk", "Pending", "Waiting for a worker cluster: w: no free capacity"), ("a", "Pending", "one"))
    assert pending_checks(found) == "a: one"


@pytest.mark.parametrize(
    "conditions", [{"QuotaReserved": False}, {"Admitted": True}, {"Evicted": True}, {"Finished": True}]
)
def test_nothing_is_said_of_one_that_waits_for_no_check(conditions: dict[str, bool]) -> None:
    assert pending_checks(workload(("a", "Pending", "one"), conditions=conditions)) == ""


def test_each_text_is_new_once() -> None:
    messages = CheckMessages()
    texts = ("one", "one", "two", "two", "one")
    assert [messages.new(workload(("a", "Pending", text))) for text in texts] == ["a: one", "", "a: two", "", "a: one"]
    assert messages.new(workload(("a", "Ready", ""))) == ""
    assert messages.new(workload(("a", "Pending", "one"))) == "a: one", "it waits anew"


def test_slices_of_one_job_are_told_apart() -> None:
    messages = CheckMessages()
    old, new = workload(("a", "Ready", "")), workload(("a", "Pending", "one"), uid="v")
    assert [messages.new(each) for each in (old, new, old, new)] == ["", "a: one", "", ""]
