# SPDX-License-Identifier: Apache-2.0
"""More scenarios of docs/spec/multikueue.md §2.1, on a real management cluster with workers that the test plays.

Ids are their letter-number and sentence. F, X and the kinds in N wait for integrations that are not there yet.
"""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.constants import ADMISSION_FIELD_MANAGER
from multikueue.api.resource import CLUSTER_QUEUES, EVENTS, JOBS, WORKLOAD_PRIORITY_CLASSES, WORKLOADS
from multikueue.core.keys import Key
from multikueue.kube.client import KubeClient, PatchKind
from tests.component.dispatch.test_dispatch import Scene, cluster_says, managed, scene
from tests.support.managers import condition, eventually, finish_pods, get, make_job, make_queue, wait_condition
from tests.support.workers import KUEUE, SCALED_DOWN, check_of, running_status

__all__ = ["scene"]

pytestmark = [pytest.mark.anyio, pytest.mark.binaries, pytest.mark.xdist_group("binaries")]


def dispatched_by(name: str, **more: Any) -> str:
    """A Configuration with that dispatcher."""
    fields = {"workerLostTimeout": "3s", "gcInterval": "2s", "dispatcherName": name, **more}
    text = ", ".join(f"{key}: {value}" for key, value in fields.items())
    return SCALED_DOWN.partition("multiKueue:")[0] + f"multiKueue: {{{text}}}\n"


async def nominated(scene: Scene) -> list[str]:
    """As the status says."""
    found = await scene.workload()
    return list(((found or {}).get("status") or {}).get("nominatedClusterNames") or ())


async def say(scene: Scene, key: Key, **status: Any) -> None:
    """Change the Workload's status as a program of the user's does that shares the manager's field manager."""
    found = await scene.workload()
    assert found is not None
    metadata = {"name": key.name, "namespace": key.namespace, "resourceVersion": found["metadata"]["resourceVersion"]}
    body = {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": metadata,
        "status": {**found["status"], **status},
    }
    await scene.client.apply(
        WORKLOADS, key.name, body, namespace=key.namespace, manager=ADMISSION_FIELD_MANAGER, subresource="status"
    )


async def test_j2_a_copy_that_is_out_of_sync_is_retried_and_never_finishes_the_workload(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.granted(scene.w1)
        finished = {"reason": "OutOfSync", "message": "edited", "time": "2026-01-01T00:00:00Z"}
        await scene.w1.say(key, "Finished", finished=finished, jobStatus={"active": 0}, jobUID="r")
        await scene.w2.assigned(key, epoch=2)
        workload = await scene.workload()
        assert not condition(workload, "Finished")
        assert check_of(workload, scene.name)["retryCount"] == 1

        async def told() -> list[str]:
            page = await scene.client.list_all(EVENTS, namespace=scene.namespace)
            return [raw.decode() for raw in page.items if b"is out of sync with its user job" in raw]

        found = await eventually(told, what="it is told")
        assert any('"type":"Warning"' in event for event in found)


async def test_j5_a_copy_on_a_worker_that_was_away_at_the_end_is_cleaned(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.submit()
        await scene.w1.assigned(key)
        await scene.w2.assigned(key)
        await scene.w2.disconnect()
        await cluster_says(scene, scene.w2, "False", "ClientConnectionFailed")
        await scene.w1.say(key, "Reserved")
        await scene.w1.assigned(key, intent="Run")
        await scene.w1.say_finished(key)
        await wait_condition(scene.client, "j", "Finished", namespace=scene.namespace)
        await scene.w1.relieved(key)
        # Its mailbox is empty before it is back: that is what it finds then.
        await scene.w2.relieved(key)


async def test_j10_the_check_is_listed_before_the_workload_is_admitted(scene: Scene) -> None:
    async with managed(scene):
        await make_job(scene.client, "big", namespace=scene.namespace, queue=scene.name, cpu="1000")
        workload = await scene.check("Pending", job="big")
        assert condition(workload, "QuotaReserved").get("status") != "True"


async def test_d1_incremental_adds_clusters_by_rounds_and_starts_over_after_an_eviction(scene: Scene) -> None:
    settings = dispatched_by(
        "kueue.x-k8s.io/multikueue-dispatcher-incremental", incrementalDispatcherConfig="{stepSize: 1}"
    )
    async with managed(scene, settings=settings):
        key = await scene.submit()
        await scene.w1.assigned(key)
        assert await scene.w2.assignment(key) is None
        assert await nominated(scene) == [scene.w1.name]
        await scene.w1.say(key, "Reserved")
        await scene.w1.assigned(key, intent="Run")
        workload = await scene.check("Ready")
        assert workload["status"]["clusterName"] == scene.w1.name
        await scene.w1.say(key, "Running", jobStatus=running_status(), jobUID="r")
        await scene.w1.say(key, "Evicted", message="preempted", jobStatus={"active": 0}, jobUID="r")
        await scene.w1.assigned(key, epoch=2)
        assert await nominated(scene) == [scene.w1.name]
        await scene.w1.say(key, "Reserved", epoch=2)
        await scene.w1.assigned(key, intent="Run", epoch=2)
        await scene.w1.say_finished(key, epoch=2)
        await wait_condition(scene.client, "j", "Finished", namespace=scene.namespace)


async def test_d1_a_round_survives_a_change_of_leader(scene: Scene) -> None:
    settings = dispatched_by(
        "kueue.x-k8s.io/multikueue-dispatcher-incremental", incrementalDispatcherConfig="{stepSize: 1}"
    )
    async with managed(scene, settings=settings):
        key = await scene.submit()
        await scene.w1.assigned(key)
    async with managed(scene, connected=False, settings=settings):
        await scene.w1.say(key, "Reserved")
        await scene.w1.assigned(key, intent="Run")
        assert await scene.w2.assignment(key) is None


async def test_d2_nothing_is_sent_before_a_program_of_the_users_nominates(scene: Scene) -> None:
    async with managed(scene, settings=dispatched_by("example.com/own")):
        key = await scene.submit()
        await scene.check("Pending")
        assert (await scene.w1.assignment(key), await scene.w2.assignment(key)) == (None, None)
        await say(scene, key, nominatedClusterNames=[scene.w2.name])
        await scene.w2.assigned(key)
        assert await scene.w1.assignment(key) is None
        await say(scene, key, nominatedClusterNames=[scene.w1.name, scene.w2.name])
        await scene.w1.assigned(key)
        await scene.w2.say(key, "Reserved")
        await scene.w2.assigned(key, intent="Run")
        await scene.w1.relieved(key)
        workload = await scene.check("Ready")
        assert workload["status"]["clusterName"] == scene.w2.name
        await scene.w2.say(key, "Evicted", message="gone", jobStatus={"active": 0}, jobUID="r")
        workload = await wait_condition(scene.client, "j", "Evicted", namespace=scene.namespace)
        assert not workload["status"].get("clusterName")
        assert not workload["status"].get("nominatedClusterNames")


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
        nomination = {"status": {"nominatedClusterNames": [scene.w2.name]}}
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


async def test_d7_all_at_once_sends_to_every_cluster_when_it_is_named(scene: Scene) -> None:
    async with managed(scene, settings=dispatched_by("kueue.x-k8s.io/multikueue-dispatcher-all-at-once")):
        key = await scene.submit()
        await scene.w1.assigned(key)
        await scene.w2.assigned(key)
        assert await nominated(scene) == [scene.w1.name, scene.w2.name]


async def test_g2_a_rejected_check_takes_the_copies_away(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.submit()
        await scene.w1.assigned(key)
        found = await scene.check("Pending")
        rejected = {**check_of(found, scene.name), "state": "Rejected", "message": "no"}
        await say(scene, key, admissionChecks=[rejected])
        await scene.w1.relieved(key)
        await scene.w2.relieved(key)
        await eventually(
            scene.workload,
            what="it is deactivated",
            until=lambda seen: seen is not None and seen["spec"]["active"] is False,
        )


async def test_r2_the_hub_runs_plain_jobs_of_its_own_beside(scene: Scene, client: KubeClient) -> None:
    async with managed(scene):
        plain = f"{scene.name}-plain"
        await make_queue(client, plain, namespace=scene.namespace)
        await make_job(client, "local", namespace=scene.namespace, queue=plain)
        await eventually(
            lambda: finish_pods(client, "local", namespace=scene.namespace), what="it runs here", until=lambda n: n > 0
        )
        await wait_condition(client, "local", "Finished", namespace=scene.namespace, reason="Succeeded")
        job = await get(client, JOBS, "local", namespace=scene.namespace)
        assert job is not None
        assert "managedBy" not in job["spec"]
        key = await scene.submit()
        await scene.w1.assigned(key)


async def test_n1_a_job_of_an_enabled_kind_is_sent(scene: Scene) -> None:
    text = SCALED_DOWN + "integrations: {frameworks: [batch/job]}\n"
    async with managed(scene, settings=text):
        await scene.granted(scene.w1)


async def test_n2_a_workload_of_a_kind_that_is_not_enabled_is_rejected_and_sent_nowhere(scene: Scene) -> None:
    async with managed(scene):
        owner = {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "name": "mpi",
            "uid": "u-mpi",
            "controller": True,
        }
        body = {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "metadata": {"name": "mpi", "namespace": scene.namespace, "ownerReferences": [owner]},
            "spec": {
                "queueName": scene.name,
                "podSets": [
                    {
                        "name": "main",
                        "count": 1,
                        "template": {
                            "spec": {
                                "restartPolicy": "Never",
                                "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
                            }
                        },
                    }
                ],
            },
        }
        await scene.client.create(WORKLOADS, body, namespace=scene.namespace)
        found = await eventually(
            lambda: get(scene.client, WORKLOADS, "mpi", namespace=scene.namespace),
            what="the check is Rejected, or the owner is found gone",
            until=lambda seen: "No multikueue adapter found" in str(seen) or seen is None,
        )
        if found is not None:
            assert 'owner kind "MPIJob"' in str(found)
        assert await scene.w1.assignment(Key(scene.namespace, "mpi")) is None
        assert await get(scene.client, CLUSTER_QUEUES, scene.name) is not None


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
