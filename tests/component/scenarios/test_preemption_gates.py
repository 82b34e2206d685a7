# SPDX-License-Identifier: Apache-2.0
"""H4, H5 and Q5: orchestrated preemption, with the feature gate on and off."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from multikueue.api.constants import GATE_OPENING_ANNOTATION, MULTIKUEUE_PREEMPTION_GATE
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, WORKLOAD_PRIORITY_CLASSES, WORKLOADS
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.dispatch.hub.facts import GateOpening
from multikueue.dispatch.protocol.annotations import gate_opening_text
from multikueue.kube.errors import NotFound
from tests.support.managers import Object, eventually, make_job, wait_condition
from tests.support.scenes import Scene, Stage, scene, settings
from tests.support.sites import Site, gates_of
from tests.support.workers import KUEUE, check_of

pytestmark = pytest.mark.anyio

ON = f"{settings()}featureGates: {{MultiKueueOrchestratedPreemption: true}}\n"
HOLD = "example.com/hold"
PRIORITY = "kueue.x-k8s.io/priority-class"


async def test_h5_q5_no_two_workers_preempt_at_once_for_one_workload(stage: Stage) -> None:
    async with scene(stage, "h5", configuration=ON) as made:
        workload = await made.submit()
        for worker in (made.w1, made.w2):
            assert gates_of(await worker.asked(workload)) == {MULTIKUEUE_PREEMPTION_GATE: "Closed"}
        await made.w1.must_preempt(workload, message="w1 is full")
        await made.w1.may_preempt(workload)
        await made.w2.must_preempt(workload, message="w2 is full")
        await told(made, "w2 is full")
        assert await turn_of(made) == made.w1.name
        await stage.restart(ON)
        await told_again(made, made.w2, workload, "w2 is still full")
        assert await turn_of(made) == made.w1.name
        assert gates_of(await made.w2.asked(workload)) == {MULTIKUEUE_PREEMPTION_GATE: "Closed"}

        await its_turn_is_over(made, made.w1.name)
        await made.w2.may_preempt(workload)
        assert await turn_of(made) == made.w2.name
        await made.w2.admits(workload)
        await made.w2.starts("j")
        await made.w1.relieved(workload)
        await made.job_says("ready", 1)

        await made.w2.evicts(workload, "j")
        await made.w2.cleaned("j")
        for worker in (made.w1, made.w2):
            again = await worker.asked(workload, epoch=2)
            assert gates_of(again) == {MULTIKUEUE_PREEMPTION_GATE: "Closed"}
        await made.w2.must_preempt(workload, message="w2 is full again")
        await made.w2.may_preempt(workload)


async def test_h4_gates_of_the_hub_and_of_a_worker_are_independent(stage: Stage) -> None:
    async with scene(stage, "h4", configuration=ON) as made:
        low, high = await high_is_held_back_by_a_gate_of_the_hub(made)
        assert await made.evictions("low") == 0
        assert await made.w1.clone(high) is None
        await open_on_the_hub(made, high)
        await made.w1.told_to_evict(low)
        await made.w1.stops("low")
        await wait_condition(made.client, "high", "QuotaReserved", namespace=made.namespace)

        copy = await made.w1.asked(high)
        assert gates_of(copy) == {MULTIKUEUE_PREEMPTION_GATE: "Closed"}, "what is open here is not open there"
        await made.w1.must_preempt(high, message="w1 is full")
        opened = await made.w1.may_preempt(high)
        assert gates_of(opened) == {MULTIKUEUE_PREEMPTION_GATE: "Open"}
        assert gates_of(await made.workload("high")) == {HOLD: "Open"}, "and what is open there is nothing of the hub"
        await made.w1.admits(high)
        await made.w1.starts("high")
        await made.w1.ends("high")
        await made.finished("high")


async def test_without_the_feature_copies_have_no_gate_and_none_is_opened(stage: Stage) -> None:
    async with scene(stage, "ungated") as made:
        workload = await made.submit()
        for worker in (made.w1, made.w2):
            await worker.asked(workload)
            await worker.must_preempt(workload, message=f"{worker.name} is full")
        await told(made, f"{made.w2.name} is full")
        await told(made, f"{made.w1.name} is full")
        for worker in (made.w1, made.w2):
            copy = await worker.clone(workload)
            assert copy is not None
            assert "preemptionGates" not in copy["spec"]
            assert "preemptionGates" not in copy["status"]
        assert await turn_of(made) == ""


async def told(made: Scene, message: str) -> None:
    """The hub has heard that from a worker, and planned with it: what a plan opens is written before what it says."""
    await made.check("Pending", message=message)


async def told_again(made: Scene, worker: Site, workload: str, message: str) -> None:
    """The same after a restart, with which a manager that hosts the agents makes anew the copies that only wait."""

    async def probe() -> Object:
        with suppress(NotFound):
            await worker.must_preempt(workload, message=message)
        return check_of(await made.workload(), made.name)

    await eventually(probe, what=f"the hub has heard that {message}", until=lambda check: message in check["message"])


async def turn_of(made: Scene) -> str:
    """The cluster that may preempt, as the hub keeps it."""
    found = await made.workload()
    assert found is not None
    text = (found["metadata"].get("annotations") or {}).get(GATE_OPENING_ANNOTATION, "")
    return str(text.split(" ")[1]) if text else ""


async def its_turn_is_over(made: Scene, cluster: str) -> None:
    """The turn began longer ago than a turn is long."""
    found = await made.workload()
    assert found is not None
    ago = GateOpening(1, cluster, SystemClock().now() - timedelta(minutes=6))
    change = {"metadata": {"annotations": {GATE_OPENING_ANNOTATION: gate_opening_text(ago)}}}
    await made.client.patch(WORKLOADS, found["metadata"]["name"], change, namespace=made.namespace)


async def high_is_held_back_by_a_gate_of_the_hub(made: Scene) -> tuple[str, str]:
    """`low` has all quota of the hub, and `high` could preempt it, were it not for a gate that its user has set."""
    preempting = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
    await made.client.patch(CLUSTER_QUEUES, made.name, preempting)
    kind = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "value": 10, "description": "test"}
    await made.client.create(WORKLOAD_PRIORITY_CLASSES, {**kind, "metadata": {"name": f"{made.name}-high"}})
    low = await made.submit("low", cpu="8")
    await made.w1.admits(low)
    await made.w1.starts("low")
    await made.job_says("ready", 1, job="low")
    await make_job(made.client, "high", namespace=made.namespace, queue=made.name, cpu="8")
    found = await wait_condition(made.client, "high", "QuotaReserved", namespace=made.namespace, status="False")
    high = str(found["metadata"]["name"])
    gate = {"spec": {"preemptionGates": [{"name": HOLD}]}}
    await made.client.patch(WORKLOADS, high, gate, namespace=made.namespace)
    label = {"metadata": {"labels": {PRIORITY: f"{made.name}-high"}}}
    await made.client.patch(JOBS, "high", label, namespace=made.namespace)
    await wait_condition(made.client, "high", "BlockedOnPreemptionGates", namespace=made.namespace)
    return low, high


async def open_on_the_hub(made: Scene, workload: str) -> None:
    """The user lets it preempt, by the same kind of write as an agent does on a worker."""
    entry: Object = {
        "name": HOLD,
        "position": "Open",
        "lastTransitionTime": format_time(SystemClock().now()),
    }
    body = {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {"name": workload, "namespace": made.namespace},
        "status": {"preemptionGates": [entry]},
    }
    await made.client.apply(WORKLOADS, workload, body, namespace=made.namespace, manager="a-user", subresource="status")
    await eventually(
        lambda: made.workload("high"), what="the gate is open", until=lambda seen: gates_of(seen) == {HOLD: "Open"}
    )
