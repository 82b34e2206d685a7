# SPDX-License-Identifier: Apache-2.0
"""The preemption gate of a clone: an agent opens it when it is told to, with the rights that it has."""

from __future__ import annotations

import pytest

from multikueue.api.constants import MULTIKUEUE_PREEMPTION_GATE
from multikueue.api.resource import CLUSTER_ROLES, WORKLOADS
from multikueue.cli.cluster import joining_instructions
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from tests.component.worker_agent.test_quotas import TEAM, Scene, rights, scene
from tests.support.assignment_specs import reservation, workload_spec
from tests.support.managers import Object, eventually, get, make_queue
from tests.support.sites import gates_of
from worker_agent.local.queueing.queued_work import GATE_FIELD_MANAGER

pytestmark = pytest.mark.anyio

ENGINE_GATE = "example.com/of-the-worker"


def desired(gate: str | None) -> Object:
    """What the hub wants, with the gate at that position, or of a hub that knows of no gates."""
    if gate is None:
        return reservation(TEAM, workload=workload_spec(TEAM))
    gated = workload_spec(TEAM, preemptionGates=[{"name": MULTIKUEUE_PREEMPTION_GATE}])
    return reservation(TEAM, workload=gated, preemptionGate=gate)


async def clone(made: Scene) -> Object | None:
    return await get(made.client, WORKLOADS, "wl", namespace=TEAM)


async def opened(made: Scene) -> Object:
    found = await eventually(
        lambda: clone(made),
        what="the gate is open",
        until=lambda seen: gates_of(seen).get(MULTIKUEUE_PREEMPTION_GATE) == "Open",
    )
    assert found is not None
    return found


async def said(made: Scene) -> Object:
    """The status of the assignment."""
    found: Object = (made.mailbox.get("a") or {}).get("status") or {}
    return found


async def says(made: Scene, part: str) -> Object:
    """That, once it has this in its message."""
    return await eventually(
        lambda: said(made), what=f"the agent says {part}", until=lambda seen: part in seen.get("message", "")
    )


async def blocked(made: Scene) -> None:
    """A clone with the gate closed, which the worker's engine would have to preempt for."""
    await make_queue(made.client, "batch", namespace=TEAM)
    made.mailbox.put(desired("Closed"))
    await eventually(lambda: clone(made), what="there is a clone")
    now = format_time(SystemClock().now())
    condition = {"status": "True", "reason": "PreemptionGated", "message": "full", "lastTransitionTime": now}
    status = {
        "conditions": [
            {**condition, "type": "BlockedOnPreemptionGates"},
            {**condition, "type": "QuotaReserved", "status": "False"},
        ],
        "preemptionGates": [{"name": ENGINE_GATE, "position": "Closed", "lastTransitionTime": now}],
    }
    await made.client.patch(WORKLOADS, "wl", {"status": status}, namespace=TEAM, subresource="status")
    heard = await says(made, "full")
    assert [(each["type"], each["lastTransitionTime"]) for each in heard["conditions"]] == [
        ("BlockedOnPreemptionGates", now)
    ]


async def test_the_agent_opens_the_requested_gate_and_no_other() -> None:
    async with scene() as made:
        await blocked(made)
        made.mailbox.put(desired("Open"))
        found = await opened(made)
        assert gates_of(found) == {MULTIKUEUE_PREEMPTION_GATE: "Open", ENGINE_GATE: "Closed"}
        owners = [entry for entry in found["metadata"]["managedFields"] if entry["manager"] == GATE_FIELD_MANAGER]
        assert [(entry["operation"], entry["subresource"]) for entry in owners] == [("Apply", "status")]

        await eventually(lambda: said(made), what="it asks no more", until=lambda seen: "conditions" not in seen)


async def test_an_agent_that_may_not_open_it_reports_that_and_opens_it_once_it_may() -> None:
    async with scene() as made:
        role, _ = rights()
        fewer = [rule for rule in role["rules"] if "workloads/status" not in rule["resources"]]
        assert len(fewer) == len(role["rules"]) - 1
        await made.client.patch(CLUSTER_ROLES, joining_instructions.AGENT, {"rules": fewer})
        await blocked(made)
        made.mailbox.put(desired("Open"))
        await says(made, "its preemption gate cannot be opened: ")
        assert gates_of(await clone(made))[MULTIKUEUE_PREEMPTION_GATE] == "Closed"
        await made.client.patch(CLUSTER_ROLES, joining_instructions.AGENT, {"rules": role["rules"]})
        # It would look again after a minute by itself, and does with any change.
        await made.client.patch(WORKLOADS, "wl", {"metadata": {"labels": {"looked": "at"}}}, namespace=TEAM)
        await opened(made)


async def test_a_gate_that_no_hub_would_open_any_more_is_opened() -> None:
    async with scene() as made:
        await blocked(made)
        made.mailbox.put(desired(None))
        await opened(made)
