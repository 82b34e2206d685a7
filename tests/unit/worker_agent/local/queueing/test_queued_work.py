# SPDX-License-Identifier: Apache-2.0
"""The preemption gate of a clone as the agent sees it, and what it says of it to the hub."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from multikueue.api.constants import GatePosition
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.core.errors import BadInput
from multikueue.dispatch.protocol.wire import gate_of, status_of, status_wire
from multikueue.dispatch.worker.assignment_state import AssignmentFacts, Obstacle, ReportedStatus, step
from worker_agent.local.queueing.queued_work import gate_blocked_since, gate_is_closed, gate_is_to_open, opened_gate

OURS = {"name": "kueue.x-k8s.io/multikueue"}
OTHER = {"name": "example.com/hold"}
NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
NOON = "2026-01-01T12:00:00Z"
BLOCKED = {"type": "BlockedOnPreemptionGates", "status": "True", "lastTransitionTime": NOON}


def clone(
    *gates: JsonObject, states: tuple[tuple[JsonObject, str], ...] = (), conditions: tuple[JsonObject, ...] = ()
) -> JsonObject:
    return {
        "metadata": {"name": "wl", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
        "spec": {"preemptionGates": list(gates)},
        "status": {
            "preemptionGates": [{**gate, "position": position} for gate, position in states],
            "conditions": list(conditions),
        },
    }


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(clone(OURS), True, id="nothing was said of it"),
        pytest.param(clone(OURS, OTHER, states=((OTHER, "Open"),)), True, id="another one is open"),
        pytest.param(clone(OURS, states=((OURS, "Closed"),)), True, id="it was closed again"),
        pytest.param(clone(OURS, states=((OURS, "Open"),)), False, id="it is open"),
        pytest.param(clone(OTHER), False, id="the clone was made without it"),
    ],
)
def test_whether_the_gate_is_closed(given: JsonObject, want: bool) -> None:
    assert gate_is_closed(given) is want


@pytest.mark.parametrize(
    ("gate", "spec", "want"),
    [
        pytest.param(GatePosition.OPEN, {"preemptionGates": [OURS]}, True, id="the hub opens it"),
        pytest.param(GatePosition.CLOSED, {"preemptionGates": [OURS]}, False, id="it is not its turn"),
        pytest.param(None, {}, True, id="the hub sends no gates any more"),
        pytest.param(None, {"preemptionGates": [OURS]}, False, id="the gates were read back from the clone"),
    ],
)
def test_whether_it_is_to_open(gate: GatePosition | None, spec: JsonObject, want: bool) -> None:
    assert gate_is_to_open(clone(OURS), gate=gate, spec=spec) is want
    assert not gate_is_to_open(clone(OURS, states=((OURS, "Open"),)), gate=gate, spec=spec), "it is open already"


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(clone(OURS, conditions=(BLOCKED,)), NOON, id="it would have to preempt"),
        pytest.param(clone(OURS), "", id="it has not been looked at"),
        pytest.param(clone(OURS, conditions=({**BLOCKED, "status": "False"},)), "", id="it has quota by now"),
        pytest.param(clone(OURS, states=((OURS, "Open"),), conditions=(BLOCKED,)), "", id="it may preempt by now"),
        pytest.param(clone(OTHER, conditions=(BLOCKED,)), "", id="another gate blocks it, which is not the hub's"),
    ],
)
def test_what_is_a_signal(given: JsonObject, want: str) -> None:
    found = gate_blocked_since(given)
    assert ("" if found is None else found.strftime("%Y-%m-%dT%H:%M:%SZ")) == want


def test_the_apply_is_about_that_very_clone_and_lists_nothing_else() -> None:
    body = opened_gate(clone(OURS, OTHER, states=((OTHER, "Closed"),)), now=NOW)
    assert body["metadata"] == {"name": "wl", "namespace": "ns", "uid": "u"}
    assert body["status"] == {
        "preemptionGates": [{**OURS, "position": "Open", "lastTransitionTime": "2026-01-01T12:30:00Z"}]
    }


def asked(**more: Any) -> ReportedStatus:
    desired = AssignmentFacts(name="a", epoch=2, intent=Intent.RESERVE)
    return step(desired, None, reported=ReportedStatus(), blocked_since=NOW, **more).status


def test_the_signal_is_reported_as_long_as_the_clone_waits() -> None:
    assert asked(shortage="full").blocked_since == NOW
    assert asked().blocked_since is None, "it has quota"
    assert asked(obstacle=Obstacle("NamespaceNotFound", "ns")).blocked_since is None, "it waits for something else"


def test_a_signal_passes_through_the_mailbox() -> None:
    reported = ReportedStatus(
        epoch=2, phase=AssignmentPhase.PENDING, reason="NoCapacity", message="full", blocked_since=NOW
    )
    status = status_wire(reported, sequence=1, boot_id="b", now=NOW)
    (entry,) = status["conditions"]
    assert (entry["type"], entry["status"], entry["reason"]) == ("BlockedOnPreemptionGates", "True", "PreemptionGated")
    assert status_of({"metadata": {}, "spec": {}, "status": status}) == reported


def test_an_unknown_gate_position_is_an_error() -> None:
    assert gate_of({"metadata": {}, "spec": {"preemptionGate": "Open"}}) is GatePosition.OPEN
    assert gate_of({"metadata": {}, "spec": {}}) is None
    with pytest.raises(BadInput, match="'Ajar' is not a position"):
        gate_of({"metadata": {}, "spec": {"preemptionGate": "Ajar"}})
