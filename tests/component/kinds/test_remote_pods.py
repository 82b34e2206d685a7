# SPDX-License-Identifier: Apache-2.0
"""Pods and pod groups that run on a worker: gated and shown on the hub, followed, preempted, fenced, removed."""

from __future__ import annotations

import pytest

from multikueue.api.constants import PARTITION_POLICY_ANNOTATION
from multikueue.api.resource import CLUSTER_QUEUES, DEPLOYMENTS, NAMESPACES, PODS, WORKLOADS
from multikueue.core.conditions import find_in, is_true_in
from tests.component.kinds.conftest import Clusters
from tests.support.app_sets import Apps, app
from tests.support.both_providers import push_apart
from tests.support.check_controllers import apply_check, entry, make_foreign_check, set_active
from tests.support.managers import Object, condition, eventually, get, is_true
from tests.support.pod_scenes import QUICK, is_gated, phase, pod_scene, ready
from tests.support.sites import Transport

pytestmark = pytest.mark.anyio

both_transports = pytest.mark.parametrize("transport", list(Transport), ids=str)
apart = pytest.mark.conformance


@push_apart
async def test_f14_b1_b2_a_pod_runs_on_the_worker_and_is_shown_on_the_hub_where_it_stays_gated(
    clusters: Clusters, transport: Transport
) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "one", transport=transport) as scene:
        await scene.submit(scene.manifest("one", run_for="2s"))
        remote = await scene.runs("one")
        # On the hub it is gated still, and would be SchedulingGated.
        running = await scene.shown("one", "scheduled", lambda seen: is_true_in(seen["status"], "PodScheduled"))
        assert "reason" not in (find_in(running["status"], "PodScheduled") or {})
        assert not is_gated(remote)
        metadata = remote["metadata"]
        assert "ownerReferences" not in metadata
        assert "finalizers" not in metadata
        shown = await scene.shown("one", "succeeded", phase("Succeeded"))
        assert is_gated(shown)
        assert "podIP" not in shown["status"]
        assert shown["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
        await scene.finished("one")
        await scene.gone(scene.worker, "one")


@push_apart
async def test_f15_b5_a_group_runs_on_the_worker_as_one_workload(clusters: Clusters, transport: Transport) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "group", transport=transport) as scene:
        await scene.group("g", pods=3, run_for="2s")
        for index in range(3):
            await scene.runs(f"g-{index}")
        for index in range(3):
            await scene.shown(f"g-{index}", "succeeded", phase("Succeeded"))
        workload = await scene.finished("g")
        assert condition(workload, "Finished")["message"] == "Pods succeeded: 3/3."
        await eventually(lambda: scene.names(scene.worker), what="nothing is left", until=lambda seen: not seen)


@apart
@both_transports
async def test_f16_a_group_is_not_sent_before_all_other_checks_are_ready(
    clusters: Clusters, transport: Transport
) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "checked", transport=transport) as scene:
        queue = scene.scene.name
        other = f"{queue}-other"
        await make_foreign_check(scene.hub, other, active=False)
        checks = {"admissionChecks": [{"name": queue}, {"name": other}]}
        await scene.hub.patch(CLUSTER_QUEUES, queue, {"spec": {"admissionChecksStrategy": checks}})

        async def queue_is_active(status: str) -> None:
            await eventually(
                lambda: get(scene.hub, CLUSTER_QUEUES, queue),
                what=f"the queue is active: {status}",
                until=lambda seen: condition(seen, "Active").get("status") == status,
            )

        await queue_is_active("False")
        await set_active(scene.hub, other)
        await queue_is_active("True")
        await scene.group("g", pods=2)
        waits = await scene.workload("g", "waiting", lambda seen: len(checks_of(seen)) == 2)
        assert not waits["status"].get("clusterName")
        assert not await scene.names(scene.worker)
        await apply_check(scene.hub, waits, entry(other, "Ready"))
        for index in range(2):
            await scene.runs(f"g-{index}")


@apart
@both_transports
async def test_b3_a_deployment_is_created_scaled_up_and_down_and_deleted(
    clusters: Clusters, transport: Transport
) -> None:
    frameworks = ("batch/job", "pod", "deployment")
    async with pod_scene(
        clusters.hub, clusters.worker, "deployment", transport=transport, frameworks=frameworks
    ) as scene:
        apps = Apps(scene.hub, scene.namespace)

        async def runs_there(count: int) -> None:
            def holds(names: list[str]) -> bool:
                return len(names) == count

            await eventually(lambda: scene.names(scene.worker), what=f"{count} pods on the worker", until=holds)
            pods = await apps.pods(
                lambda pods: len(pods) == count and all(map(ready, pods)), what=f"{count} pods are shown ready"
            )
            assert all(map(is_gated, pods))
            assert sorted(each["metadata"]["name"] for each in pods) == await scene.names(scene.worker)

        await apps.create(app(DEPLOYMENTS, "web", scene.scene.name, replicas=2))
        await runs_there(2)
        await eventually(
            lambda: apps.get(DEPLOYMENTS, "web"),
            what="the Deployment has its replicas",
            until=lambda seen: (seen or {}).get("status", {}).get("readyReplicas") == 2,
        )
        await apps.scale(DEPLOYMENTS, "web", 3)
        await runs_there(3)
        await apps.scale(DEPLOYMENTS, "web", 1)
        await runs_there(1)
        await scene.hub.delete(DEPLOYMENTS, "web", namespace=scene.namespace)
        await runs_there(0)


@apart
@both_transports
async def test_a_preempted_group_leaves_the_worker_and_waits_gated_on_the_hub(
    clusters: Clusters, transport: Transport
) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "preempted", transport=transport, cpu="200m") as scene:
        await scene.group("low", pods=2)
        before = [await scene.runs(f"low-{index}") for index in range(2)]
        await scene.submit(scene.manifest("high", cpu="200m", priority="high"))
        await scene.runs("high")
        for index in range(2):
            await scene.gone(scene.worker, f"low-{index}")
            waits = await scene.shown(
                f"low-{index}", "as it was", lambda seen: phase("Pending")(seen) and not ready(seen)
            )
            assert is_gated(waits)
            scheduled = find_in(waits["status"], "PodScheduled")
            assert scheduled is not None
            assert scheduled["reason"] == "SchedulingGated"
            assert "containerStatuses" not in waits["status"]
        await scene.hub.delete(PODS, "high", namespace=scene.namespace)
        again = [await scene.runs(f"low-{index}", epoch=2) for index in range(2)]
        assert {each["metadata"]["uid"] for each in before}.isdisjoint(each["metadata"]["uid"] for each in again)


@apart
@both_transports
async def test_a_pod_that_fails_on_the_worker_has_failed(clusters: Clusters, transport: Transport) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "failed", transport=transport) as scene:
        await scene.submit(scene.manifest("one", run_for=QUICK, exit_code=3))
        shown = await scene.shown("one", "failed", phase("Failed"))
        assert shown["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        assert condition(await scene.finished("one"), "Finished")["reason"] == "Failed"


@apart
@both_transports
async def test_a_failed_pod_of_a_group_is_replaced_while_the_others_run(
    clusters: Clusters, transport: Transport
) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "replaced", transport=transport) as scene:
        await scene.submit(
            scene.manifest("g-0", group="g", total=2),
            scene.manifest("g-1", group="g", total=2, run_for="2s", exit_code=1),
        )
        stays = await scene.runs("g-0")
        await scene.shown("g-1", "failed", phase("Failed"))
        await scene.workload("g", "waiting for a pod", lambda seen: is_true(seen, "WaitingForReplacementPods"))
        await scene.submit(scene.manifest("g-2", group="g", total=2))
        await scene.runs("g-2")
        remote = await scene.remote("g-0", "running", ready)
        assert remote["metadata"]["uid"] == stays["metadata"]["uid"]
        assert not is_true(await scene.workload("g", "there", lambda seen: True), "Evicted")


@apart
@both_transports
async def test_one_pod_of_a_group_that_is_deleted_on_the_hub_is_removed_from_the_worker(
    clusters: Clusters, transport: Transport
) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "member", transport=transport) as scene:
        await scene.group("g", pods=2)
        stays = await scene.runs("g-0")
        await scene.runs("g-1")
        await scene.hub.delete(PODS, "g-1", namespace=scene.namespace)
        await scene.gone(scene.worker, "g-1")
        await scene.submit(scene.manifest("g-2", group="g", total=2))
        await scene.runs("g-2")
        await scene.gone(scene.hub, "g-1")
        assert (await scene.runs("g-0"))["metadata"]["uid"] == stays["metadata"]["uid"]


@apart
@both_transports
async def test_a_deleted_group_is_removed_from_the_worker(clusters: Clusters, transport: Transport) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "deleted", transport=transport) as scene:
        await scene.group("g", pods=2)
        for index in range(2):
            await scene.runs(f"g-{index}")
        for index in range(2):
            await scene.hub.delete(PODS, f"g-{index}", namespace=scene.namespace)
        await eventually(lambda: scene.names(scene.worker), what="nothing is left", until=lambda seen: not seen)
        for index in range(2):
            await scene.gone(scene.hub, f"g-{index}")  # no finalizer keeps them, nor the Workload
        await eventually(
            lambda: get(scene.hub, WORKLOADS, "g", namespace=scene.namespace),
            what="its Workload is gone",
            until=lambda seen: seen is None,
        )


@apart
@both_transports
async def test_a_deleted_pod_is_removed_from_the_worker(clusters: Clusters, transport: Transport) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "gone", transport=transport) as scene:
        await scene.submit(scene.manifest("one"))
        await scene.runs("one")
        await scene.hub.delete(PODS, "one", namespace=scene.namespace)
        await scene.gone(scene.worker, "one")


@apart
@both_transports
async def test_a_pod_that_is_deleted_on_the_worker_runs_again(clusters: Clusters, transport: Transport) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "killed", transport=transport) as scene:
        await scene.submit(scene.manifest("one"))
        await scene.runs("one")
        await scene.worker.delete(PODS, "one", namespace=scene.namespace)
        await scene.runs("one", epoch=2)


@apart
@both_transports
async def test_a_pod_of_a_group_that_is_deleted_on_the_worker_has_failed(
    clusters: Clusters, transport: Transport
) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "lost", transport=transport) as scene:
        for index in range(2):
            pod = scene.manifest(f"g-{index}", group="g", total=2)
            pod["spec"]["terminationGracePeriodSeconds"] = 1  # so that the agent sees it while it is being deleted
            await scene.submit(pod)
        for index in range(2):
            await scene.runs(f"g-{index}")
        await scene.worker.delete(PODS, "g-1", namespace=scene.namespace)
        shown = await scene.shown("g-1", "failed", phase("Failed"))
        assert shown["status"]["reason"] == "PodDeleted"
        await scene.runs("g-0")


@apart
@both_transports
async def test_a_group_continues_after_a_restart_of_the_agent(clusters: Clusters, transport: Transport) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "restart", transport=transport) as scene:
        await scene.submit(
            scene.manifest("g-0", group="g", total=2, run_for="20s"),
            scene.manifest("g-1", group="g", total=2, run_for=QUICK),
        )
        await scene.shown("g-1", "succeeded", phase("Succeeded"))
        await scene.scene.restart()
        workload = await scene.finished("g")
        assert condition(workload, "Finished")["message"] == "Pods succeeded: 2/2."
        assert "Evicted" not in {each["type"] for each in workload["status"]["conditions"]}
        await eventually(lambda: scene.names(scene.worker), what="nothing is left", until=lambda seen: not seen)


@apart
@both_transports
async def test_a_foreign_pod_of_a_name_is_kept_and_the_group_is_refused_whole(
    clusters: Clusters, transport: Transport
) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "conflict", transport=transport) as scene:
        foreign = scene.manifest("g-1")
        foreign["metadata"]["labels"] = {}
        await scene.worker.create(PODS, foreign, namespace=scene.namespace)
        await scene.group("g", pods=2)
        workload = await scene.workload("g", "refused", lambda seen: "is there already" in check_message(seen))
        assert f'Pod "{scene.namespace}/g-1"' in check_message(workload)
        await eventually(
            lambda: scene.names(scene.worker), what="only the foreign pod", until=lambda seen: seen == ["g-1"]
        )
        waits = await scene.shown("g-0", "gated", is_gated)
        assert waits["status"]["phase"] == "Pending"


@apart
async def test_a_fenced_group_is_stopped_when_the_lease_expires(clusters: Clusters) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "fenced", transport=Transport.PULL, lease_seconds=5) as scene:
        fenced = {PARTITION_POLICY_ANNOTATION: "fenced"}
        await scene.submit(
            *(scene.manifest(f"g-{index}", group="g", total=2, annotations=fenced) for index in range(2))
        )
        for index in range(2):
            await scene.runs(f"g-{index}")
        await scene.scene.link.refuse()
        await eventually(lambda: scene.names(scene.worker), what="no pod runs", until=lambda seen: not seen)
        await scene.scene.link.start()
        for index in range(2):
            assert phase("Failed")(await scene.shown(f"g-{index}", "there", lambda seen: True)) is False


@apart
async def test_a_group_and_a_pod_of_one_name_run_beside_each_other(clusters: Clusters) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "names", transport=Transport.PULL) as scene:
        await scene.submit(scene.manifest("same"))
        await scene.group("same", pods=1)
        await scene.runs("same")
        await scene.runs("same-0")


@apart
async def test_a_namespace_with_pod_security_refuses_the_group_with_the_servers_message(clusters: Clusters) -> None:
    if clusters.is_embedded:
        pytest.skip("the embedded API server has no Pod Security admission")
    async with pod_scene(clusters.hub, clusters.worker, "security", transport=Transport.PULL) as scene:
        enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
        await scene.worker.patch(NAMESPACES, scene.namespace, enforced)
        body = scene.manifest("one")
        body["spec"]["hostNetwork"] = True
        await scene.submit(body)
        await scene.workload("one", "refused", lambda seen: "violates PodSecurity" in check_message(seen))
        assert not await scene.names(scene.worker)


def checks_of(workload: Object) -> list[Object]:
    """Its checks; none before its first status."""
    return (workload.get("status") or {}).get("admissionChecks") or []


def check_message(workload: Object) -> str:
    """The messages of its checks now, and of those before."""
    checks = checks_of(workload)
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return "\n".join(str(each.get("message")) for each in (*checks, *conditions))
