# SPDX-License-Identifier: Apache-2.0
"""What of docs/spec/multikueue.md §2.1 needs an agent that the test plays word for word, and a real hub.

The other scenarios are in tests/component/scenarios, on both transports.
"""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.resource import WORKLOAD_PRIORITY_CLASSES, WORKLOADS
from multikueue.core.keys import Key
from multikueue.kube.rest.client import PatchKind
from tests.component.dispatch.test_dispatch import Scene, managed, scene
from tests.support.jobs import running_status
from tests.support.managers import eventually, make_job, wait_condition
from tests.support.workers import KUEUE, SCALED_DOWN

__all__ = ["scene"]

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]


def dispatched_by(name: str, **more: Any) -> str:
    """A Configuration with that dispatcher."""
    fields = {"workerLostTimeout": "3s", "gcInterval": "2s", "dispatcherName": name, **more}
    text = ", ".join(f"{key}: {value}" for key, value in fields.items())
    return SCALED_DOWN.partition("multiKueue:")[0] + f"multiKueue: {{{text}}}\n"


async def nominated(scene: Scene) -> list[str]:
    """As the status says."""
    found = await scene.workload()
    return list(((found or {}).get("status") or {}).get("nominatedClusterNames") or ())


@pytest.mark.parametrize(
    "own",
    [
        pytest.param({"kind": PatchKind.MERGE}, id="by a merge patch"),
        pytest.param({"manager": "example.com"}, id="by an apply of its own field manager"),
    ],
)
async def test_d2_who_nominates_may_own_the_field(scene: Scene, own: dict[str, Any]) -> None:
    async with managed(scene, settings=dispatched_by("example.com/own")):
        key = await scene.submit()
        await scene.check("Pending")
        nomination: dict[str, Any] = {"status": {"nominatedClusterNames": [scene.w2.name]}}
        write = scene.client.patch
        if "manager" in own:
            write = scene.client.apply  # type: ignore[assignment]
            nomination |= {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind}
            nomination["metadata"] = {"name": key.name, "namespace": key.namespace}
        await write(WORKLOADS, key.name, nomination, namespace=key.namespace, subresource="status", **own)
        await scene.w2.assigned(key)
        await scene.w2.say(key, "Reserved")
        await scene.w2.assigned(key, intent="Run")
        workload = await scene.check("Ready")
        assert workload["status"]["clusterName"] == scene.w2.name
        assert not workload["status"].get("nominatedClusterNames")


async def test_h3_a_new_value_of_the_priority_class_reaches_the_copy_that_runs(scene: Scene) -> None:
    async with managed(scene):
        kind = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass"}
        await scene.client.create(
            WORKLOAD_PRIORITY_CLASSES, {**kind, "metadata": {"name": scene.name}, "value": 10, "description": "test"}
        )
        labels = {"kueue.x-k8s.io/priority-class": scene.name}
        await make_job(scene.client, "j", namespace=scene.namespace, queue=scene.name, labels=labels)
        workload = await wait_condition(scene.client, "j", "QuotaReserved", namespace=scene.namespace)
        key = Key(scene.namespace, workload["metadata"]["name"])
        assert (await scene.w1.assigned(key))["spec"]["priority"] == 10
        await scene.w1.say(key, "Reserved")
        await scene.w1.assigned(key, intent="Run")
        await scene.w1.say(key, "Running", jobStatus=running_status(), jobUID="r")
        await scene.client.patch(WORKLOAD_PRIORITY_CLASSES, scene.name, {"value": 20})
        found = await eventually(
            lambda: scene.w1.assignment(key),
            what="the copy has the new priority",
            until=lambda seen: seen is not None and seen["spec"]["priority"] == 20,
        )
        assert found is not None
        assert found["spec"]["intent"] == "Run"


async def test_a_new_leader_remembers_which_cluster_refused(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.submit()
        await scene.w1.assigned(key)
        await scene.w1.say(key, "Reserved")
        await scene.w1.assigned(key, intent="Run")
        await scene.w1.say(key, "Refused", reason="NameConflict", message="a job is there")
        await scene.w2.assigned(key, epoch=2)
    async with managed(scene, connected=False):
        await scene.w2.say(key, "Refused", epoch=2, reason="NamespaceNotFound", message="no such namespace")
        await scene.check("Pending", message=f"{scene.w1.name}: failed this workload, is avoided until")
        assert await scene.w1.assignment(key) is None
        assert await nominated(scene) == [scene.w2.name]
