# SPDX-License-Identifier: Apache-2.0
"""What a manager's pod says of its process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from devcluster.federation.installed.pod_report import ProcessEnd, ProcessReport, pod_status

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def status(report: ProcessReport, *, before: Any = None, now: datetime = NOW) -> Any:
    pod = {"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "manager", "image": "i"}]}, "status": before}
    return pod_status(pod, report, address="10.248.0.1", now=now)


def condition(found: Any, kind: str) -> Any:
    return next(each for each in found["conditions"] if each["type"] == kind)


def test_a_process_that_is_not_ready_runs_in_a_pod_that_is_not() -> None:
    found = status(ProcessReport(started=NOW))
    assert (found["phase"], condition(found, "Ready")["status"]) == ("Running", "False")
    assert found["containerStatuses"][0]["state"] == {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def test_a_ready_process_makes_its_pod_ready() -> None:
    found = status(ProcessReport(started=NOW, ready=True))
    assert condition(found, "Ready")["status"] == condition(found, "ContainersReady")["status"] == "True"
    assert found["podIPs"] == [{"ip": "10.248.0.1"}]


def test_a_process_that_ended_shows_why_and_is_waited_for() -> None:
    end = ProcessEnd(exit_code=2, message="bad value", started=NOW, finished=NOW)
    found = status(ProcessReport(restarts=1, waiting="CrashLoopBackOff", message="back-off", last=end))
    (container,) = found["containerStatuses"]
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert (container["restartCount"], container["lastState"]["terminated"]["exitCode"]) == (1, 2)
    assert container["lastState"]["terminated"]["message"] == "bad value"


def test_conditions_keep_their_time_and_those_of_others_stay() -> None:
    before = status(ProcessReport(started=NOW, ready=True))
    before["conditions"].append({"type": "PodScheduled", "status": "True"})
    found = status(ProcessReport(started=NOW, ready=True), before=before, now=NOW + timedelta(seconds=9))
    assert condition(found, "Ready")["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert condition(found, "PodScheduled")["status"] == "True"
    assert found["startTime"] == "2026-01-01T00:00:00Z"
