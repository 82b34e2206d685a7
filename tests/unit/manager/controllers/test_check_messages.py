# SPDX-License-Identifier: Apache-2.0
"""What an event on a job says of its pending admission checks, and how often."""

from __future__ import annotations

from typing import Any, cast

import pytest

from manager.controllers.check_messages import CheckMessages, pending_checks
from manager.workload.status import Status
from multikueue.kube.runtime.events import EventRecorder

Object = dict[str, Any]
JOB: Object = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns", "uid": "u"}}
TIME = "2026-01-01T00:00:00Z"


def workload(*checks: tuple[str, str, str], **conditions: bool) -> Object:
    """A Workload with checks of these names, states and messages."""
    shown = [{"name": n, "state": s, "message": m, "lastTransitionTime": TIME} for n, s, m in checks]
    truths = {"QuotaReserved": True, **conditions}
    found = [
        {"type": kind, "status": str(holds), "reason": "R", "message": "", "lastTransitionTime": TIME}
        for kind, holds in truths.items()
    ]
    return {
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {},
        "status": {"conditions": found, "admissionChecks": shown},
    }


def test_pending_checks_that_say_something_are_listed() -> None:
    found = workload(("a", "Pending", "one"), ("b", "Ready", "two"), ("c", "Pending", ""), ("d", "Pending", "four"))
    assert pending_checks(Status.of(found)) == "a: one; d: four"


@pytest.mark.parametrize(
    "conditions", [{"QuotaReserved": False}, {"Admitted": True}, {"Evicted": True}, {"Finished": True}]
)
def test_nothing_is_said_of_one_that_waits_for_no_check(conditions: dict[str, bool]) -> None:
    assert pending_checks(Status.of(workload(("a", "Pending", "one"), **conditions))) == ""


def test_each_text_is_reported_once() -> None:
    events: list[tuple[str, str]] = []

    class Recorder:
        def event(self, about: object, kind: str, reason: str, message: str) -> None:
            events.append((reason, message))

    messages = CheckMessages(cast(EventRecorder, Recorder()))
    for text in ("one", "one", "two", "two", "one"):
        messages.report(JOB, workload(("a", "Pending", text)))
    assert events == [("UpdatedAdmissionCheck", f"a: {text}") for text in ("one", "two", "one")]
    messages.report(JOB, workload(("a", "Ready", "")))
    messages.report(JOB, workload(("a", "Pending", "one")))
    assert len(events) == 4, "it waits anew"
