# SPDX-License-Identifier: Apache-2.0
"""The reasons of earlier releases of Kueue: which are written, and what they are read as."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from manager.workload.former_reasons import current, former
from manager.workload.status import Check, Status
from multikueue.api.constants import CheckState
from multikueue.core.conditions import Condition
from multikueue.engine import messages

T0 = datetime(2026, 1, 1, tzinfo=UTC)
HELD = "ClusterQueue q is stopped"
NEVER = "The workload has no reservation"
NEITHER = "The workload has no reservation and not all checks ready"
PENDING = Check(name="c", state=CheckState.PENDING, last_transition_time=T0)


def status(
    kind: str, reason: str, message: str = "", *, value: str = "False", checks: tuple[Check, ...] = ()
) -> Status:
    return also(Status(checks=checks), kind, reason, message, value=value)


def also(given: Status, kind: str, reason: str, message: str = "", *, value: str = "False") -> Status:
    made = Condition(type=kind, status=value, reason=reason, message=message, last_transition_time=T0)
    return Status(conditions=(*given.conditions, made), checks=given.checks)


def shown(of: Status) -> list[tuple[str, str]]:
    return [(each.reason, each.message) for each in of.conditions]


@pytest.mark.parametrize(
    ("reason", "message", "written"),
    [
        ("Suspended", HELD, "Inadmissible"),
        ("Suspended", "LocalQueue lq is inactive", "Inadmissible"),
        ("Misconfigured", "LocalQueue lq doesn't exist", "Inadmissible"),
        ("Misconfigured", "ClusterQueue q is terminating or missing", "Inadmissible"),
        ("Misconfigured", 'podSet main: resourceClaim "x": ResourceClaimTemplate "t" not found', "Inadmissible"),
        ("Misconfigured", messages.devices_unmapped("main"), "Inadmissible"),
        ("PendingEvaluation", "Workload is pending evaluation in the scheduling queue", "Pending"),
        ("Deactivated", "The workload is deactivated", "Pending"),
        ("AdmissionGated", "gated", "AdmissionGated"),
        ("OnHold", "held", "OnHold"),
        ("Waiting", "waiting for all admitted workloads to be in PodsReady condition", "Waiting"),
        ("Pending", "couldn't assign flavors", "Pending"),
    ],
)
def test_why_there_is_no_reservation_is_written_as_before_and_read_as_today(
    reason: str, message: str, written: str
) -> None:
    today = status("QuotaReserved", reason, message)
    then = former(today, before=Status())
    assert shown(then) == [(written, message)]
    assert current(then) == today
    assert former(then, before=today) == then


def test_what_nothing_of_a_queue_prevents_is_pending() -> None:
    for message in ("the Workload cannot be read", "podSet main: container c: resources.cpu: invalid quantity"):
        today = status("QuotaReserved", "Misconfigured", message)
        assert shown(former(today, before=Status())) == [("Pending", message)]


def test_the_message_of_an_eviction_is_known_by_that_of_its_condition() -> None:
    today = also(
        status("QuotaReserved", "PendingEvaluation", "preempted"), "Evicted", "Preempted", "preempted", value="True"
    )
    then = former(today, before=Status())
    assert shown(then) == [("Pending", "preempted"), ("Preempted", "preempted")]
    assert current(then) == today


@pytest.mark.parametrize(
    ("reason", "message", "checks", "written"),
    [
        ("NoReservation", NEVER, (), ("NoReservation", NEVER)),
        ("NoReservation", NEVER, (PENDING,), ("NoReservationUnsatisfiedChecks", NEITHER)),
        ("UnsatisfiedAdmissionChecks", "not all", (PENDING,), ("UnsatisfiedChecks", "not all")),
    ],
)
def test_why_it_is_not_admitted_any_more(
    reason: str, message: str, checks: tuple[Check, ...], written: tuple[str, str]
) -> None:
    today = status("Admitted", reason, message, checks=checks)
    admitted = status("Admitted", "Admitted", value="True")
    then = former(today, before=admitted)
    assert shown(then) == [written]
    assert current(then) == today


def test_why_it_is_not_admitted_stays_as_it_was() -> None:
    before = status("Admitted", "NoReservationUnsatisfiedChecks", NEITHER)
    assert former(status("Admitted", "UnsatisfiedAdmissionChecks", "not all"), before=before) == before


def test_a_deactivated_one_keeps_why_it_had_no_quota() -> None:
    before = status("QuotaReserved", "Pending", "couldn't assign flavors")
    today = status("QuotaReserved", "Deactivated", "The workload is deactivated")
    assert former(today, before=before) == before


def test_what_was_never_admitted_has_no_such_condition() -> None:
    today = also(status("QuotaReserved", "Suspended", HELD), "Admitted", "NoReservation", NEVER)
    assert shown(former(today, before=Status())) == [("Inadmissible", HELD)]


def test_what_holds_is_written_as_it_is() -> None:
    held = also(status("QuotaReserved", "QuotaReserved", value="True"), "Admitted", "Admitted", value="True")
    assert former(held, before=Status()) == held
    assert current(held) == held
