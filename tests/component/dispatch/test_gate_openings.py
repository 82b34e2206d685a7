# SPDX-License-Identifier: Apache-2.0
"""Who has not read the last opening of a preemption gate writes none: a leader of before, for one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import orjson
import pytest

from manager.context import ManagerContext
from manager.dispatch.execution import Executor
from manager.dispatch.gather import Gathered
from manager.dispatch.transport.mailbox_transport import Transport
from multikueue.api.constants import GATE_OPENING_ANNOTATION
from multikueue.api.resource import WORKLOADS
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import DispatchPlan, Rule, SetGate
from multikueue.dispatch.hub.facts import DispatchedWorkload, DispatchFacts, GateOpening
from multikueue.kube.errors import Conflict
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import Object, job_manifest, make_namespace

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

NAMESPACE = "openings"
KEY = Key(NAMESPACE, "w")


async def made(client: KubeClient) -> Object:
    await make_namespace(client, NAMESPACE)
    template = job_manifest("j", namespace=NAMESPACE, queue=None)["spec"]["template"]
    body = {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {"name": KEY.name, "namespace": NAMESPACE},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    stored: Object = orjson.loads(await client.create(WORKLOADS, body, namespace=NAMESPACE))
    return stored


async def test_an_opening_that_was_decided_without_the_last_one_is_not_written(client: KubeClient) -> None:
    read = await made(client)
    by_another = {"metadata": {"annotations": {GATE_OPENING_ANNOTATION: "1 w1 2026-01-01T12:00:00.000000Z"}}}
    await client.patch(WORKLOADS, KEY.name, by_another, namespace=NAMESPACE)
    clock = SystemClock()
    plan = DispatchPlan(rule=Rule.NOMINATE, actions=(SetGate("w2"),), gate_opening=GateOpening(1, "w2", clock.now()))
    workload = DispatchedWorkload(key=KEY, uid=read["metadata"]["uid"], epoch=1, check=None)
    # It gives up before it tells a cluster, so that there need be none to be told.
    executor = Executor(cast(ManagerContext, SimpleNamespace(client=client, clock=clock)), cast(Transport, None))
    with pytest.raises(Conflict):
        await executor.execute(KEY, plan, Gathered(facts=DispatchFacts(workload=workload), workload=read))
    found = await client.get_object(WORKLOADS, KEY.name, namespace=NAMESPACE)
    assert found["metadata"]["annotations"] == by_another["metadata"]["annotations"]
