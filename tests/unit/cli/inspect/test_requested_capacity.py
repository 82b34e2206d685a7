# SPDX-License-Identifier: Apache-2.0
"""What `mkctl explain` shows of ProvisioningRequests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from multikueue.api.constants import PROVISIONING_CONTROLLER
from multikueue.cli.inspect.requested_capacity import request_document, request_lines, text_lines

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CHECKS = [
    {"metadata": {"name": "grow"}, "spec": {"controllerName": PROVISIONING_CONTROLLER}},
    {"metadata": {"name": "other"}, "spec": {"controllerName": "example.com/other"}},
]


def workload(**more: Any) -> dict[str, Any]:
    """A Workload whose first attempt has failed."""
    entries = [{"name": "other", "state": "Pending"}, {"name": "grow", "state": "Pending", "retryCount": 1}]
    return {"metadata": {"name": "w", "namespace": "team", "uid": "u"}, "status": {"admissionChecks": entries, **more}}


def request(*conditions: Any) -> dict[str, Any]:
    """The request of its second attempt."""
    owner = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "w", "uid": "u", "controller": True}
    return {
        "metadata": {
            "name": "w-grow-2",
            "labels": {"kueue.x-k8s.io/managed": "true"},
            "ownerReferences": [owner],
            "creationTimestamp": "2026-01-01T11:58:00Z",
        },
        "spec": {"provisioningClassName": "queued-provisioning.gke.io"},
        "status": {"conditions": list(conditions)},
    }


def test_a_request_is_shown_with_its_class_its_time_and_the_answers() -> None:
    accepted = {"type": "Accepted", "status": "True", "lastTransitionTime": "2026-01-01T11:59:00Z"}
    waiting = {
        "type": "Provisioned",
        "status": "False",
        "lastTransitionTime": "2026-01-01T11:59:00Z",
        "message": "ETA 12:05 \x1b[2J",
    }
    (found,) = request_lines(workload(), CHECKS, [request(accepted, waiting, "odd", {"type": "Odd"})], now=NOW)
    assert list(text_lines(found)) == [
        "ProvisioningRequest w-grow-2 of class queued-provisioning.gke.io, attempt 2, since 2026-01-01T11:58:00Z",
        "  Accepted since 2026-01-01T11:59:00Z",
        "  not Provisioned since 2026-01-01T11:59:00Z: ETA 12:05 \\x1b[2J",
        "  not Odd since an unknown time",
    ]
    assert request_document(found)["since"] == "2026-01-01T11:58:00Z"


def test_between_two_attempts_what_failed_and_the_time_of_the_next_are_shown() -> None:
    evicted = {"type": "Evicted", "status": "True", "reason": "AdmissionCheck", "message": "Retrying: none left"}
    waiting = workload(requeueState={"requeueAt": "2026-01-01T12:01:00Z"}, conditions=[evicted])
    (found,) = request_lines(waiting, CHECKS, [], now=NOW)
    assert list(text_lines(found)) == [
        "Retrying: none left",
        "Attempt 2 begins when it has quota again, not before 2026-01-01T12:01:00Z",
    ]
    assert request_document(found)["nextAttempt"] == "2026-01-01T12:01:00Z"


def test_a_request_of_another_owner_is_not_shown() -> None:
    foreign = request()
    foreign["metadata"]["ownerReferences"][0]["uid"] = "another"
    (found,) = request_lines(workload(), CHECKS, [foreign], now=NOW)
    assert list(text_lines(found)) == []
