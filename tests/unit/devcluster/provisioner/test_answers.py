# SPDX-License-Identifier: Apache-2.0
"""What the provisioner answers to a request next."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from devcluster.provisioner.answers import ATOMIC_SCALE_UP, CHECK_CAPACITY, QUEUED, ProvisionerAnswer, answer
from devcluster.provisioner.settings import ProvisionerSettings

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SETTINGS = ProvisionerSettings(delay_seconds=5, queue_seconds=60)


def request(*kinds: str, of: str = ATOMIC_SCALE_UP, seconds_ago: int = 0) -> dict[str, Any]:
    """A request with these conditions, which became True so many seconds ago."""
    since = (NOW - timedelta(seconds=seconds_ago)).isoformat()
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": since} for kind in kinds]
    return {
        "metadata": {"namespace": "team", "name": "r", "uid": "u"},
        "spec": {"provisioningClassName": of},
        "status": {"conditions": conditions},
    }


def given(answered: ProvisionerAnswer) -> dict[str, str]:
    """The status of each condition that is set."""
    return {each["type"]: each["status"] for each in answered.conditions}


@pytest.mark.parametrize(("of", "seconds"), [(CHECK_CAPACITY, 5), (ATOMIC_SCALE_UP, 5), (QUEUED, 60)])
def test_a_request_is_accepted_with_the_time_at_which_capacity_is_expected(of: str, seconds: int) -> None:
    found = answer(request(of=of), SETTINGS, lack="", now=NOW)
    assert given(found) == {"Accepted": "True", "Provisioned": "False"}
    assert (
        found.conditions[1]["message"] == f"Capacity is expected at 2026-01-01T12:{seconds // 60:02}:{seconds % 60:02}Z"
    )
    assert (found.nodes, found.after) == (False, seconds)


def test_an_accepted_request_is_provisioned_after_the_delay() -> None:
    assert answer(request("Accepted", seconds_ago=3), SETTINGS, lack="", now=NOW) == ProvisionerAnswer(after=2)
    found = answer(request("Accepted", seconds_ago=5), SETTINGS, lack="", now=NOW)
    assert (given(found), found.nodes) == ({"Provisioned": "True"}, True)


def test_without_a_delay_it_is_provisioned_at_once() -> None:
    found = answer(request(), replace(SETTINGS, delay_seconds=0), lack="", now=NOW)
    assert given(found) == {"Accepted": "True", "Provisioned": "True"}


@pytest.mark.parametrize(
    ("settings", "lack"),
    [
        pytest.param(SETTINGS, "no node fits", id="it does not fit"),
        pytest.param(replace(SETTINGS, fail="on strike"), "", id="it was told to"),
    ],
)
def test_a_request_fails_with_the_reason(settings: ProvisionerSettings, lack: str) -> None:
    found = answer(request("Accepted"), settings, lack=lack, now=NOW)
    assert given(found) == {"Failed": "True"}
    assert found.conditions[0]["message"] == (lack or "on strike")


def test_a_booking_expires_and_leaves_the_nodes() -> None:
    booked = replace(SETTINGS, booking_seconds=10)
    early = answer(request("Accepted", "Provisioned", seconds_ago=4), booked, lack="", now=NOW)
    assert early == ProvisionerAnswer(nodes=True, after=6)
    late = answer(request("Accepted", "Provisioned", seconds_ago=10), booked, lack="", now=NOW)
    assert (given(late), late.nodes) == ({"BookingExpired": "True"}, True)
    again = answer(request("Provisioned", "BookingExpired", seconds_ago=10), booked, lack="", now=NOW)
    assert again == ProvisionerAnswer(nodes=True)


@pytest.mark.parametrize("names", ["team/r", "*"])
def test_revoked_capacity_takes_the_nodes(names: str) -> None:
    revoking = replace(SETTINGS, revoke=frozenset({names}))
    found = answer(request("Provisioned"), revoking, lack="", now=NOW)
    assert (given(found), found.nodes) == ({"CapacityRevoked": "True"}, False)


def test_a_request_that_does_not_fit_any_more_once_it_is_provisioned_is_kept() -> None:
    assert answer(request("Provisioned"), SETTINGS, lack="no node fits", now=NOW) == ProvisionerAnswer(nodes=True)


@pytest.mark.parametrize("over", [request("Failed"), request("CapacityRevoked"), request(of="other.example.com")])
def test_what_is_over_or_of_another_autoscaler_gets_no_answer(over: dict[str, Any]) -> None:
    assert answer(over, SETTINGS, lack="", now=NOW) == ProvisionerAnswer()
