# SPDX-License-Identifier: Apache-2.0
"""StatefulSets in queues, on an embedded hub and on a real one with the real controllers."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from multikueue.api.resource import CLUSTER_QUEUES, NAMESPACES, PODS, RESOURCE_FLAVORS, STATEFUL_SETS, WORKLOADS
from multikueue.jobs.kinds.stateful_set import StatefulSetIntegration
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest.client import KubeClient
from tests.support.app_sets import QUEUE, Apps, K, Object, app, is_gated, runs
from tests.support.managers import (
    condition,
    ensure,
    eventually,
    is_true,
    make_queue,
)
from tests.support.sent_by_kueue import sent, workloads_of

pytestmark = pytest.mark.anyio

INTEGRATION = StatefulSetIntegration()


async def place(client: KubeClient, name: str, *, cpu: str = "1", flavor: str = "default") -> Apps:
    """A namespace with a queue of its name."""
    await make_queue(client, name, namespace=name, cpu=cpu, flavor=flavor)
    return Apps(client, name)


def stateful(name: str, queue: str | None, **given: Any) -> Object:
    return app(STATEFUL_SETS, name, queue, **given)


async def test_a_stateful_set_is_admitted_as_one_workload_and_its_pods_get_the_selectors_of_the_flavor(
    client: KubeClient,
) -> None:
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "spot"},
        "spec": {"nodeLabels": {"kubernetes.io/os": "linux"}},
    }
    await ensure(client, RESOURCE_FLAVORS, flavor)
    apps = await place(client, "one", flavor="spot")
    stored = await apps.create(stateful("web", "one", replicas=3))
    assert stored["spec"]["template"]["metadata"]["labels"][QUEUE] == "one"
    assert stored["spec"]["template"]["metadata"]["annotations"] == {K + "pod-suspending-parent": "statefulset"}
    pods = await apps.running(3)
    for pod in pods:
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert pod["metadata"]["labels"][K + "podset"] == "main"
        assert not pod["metadata"].get("finalizers"), "its controller makes it again, so nothing may keep it"
    [workload] = await apps.listed(WORKLOADS)
    assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [("main", 3)]
    assert [(each["kind"], each["name"]) for each in workload["metadata"]["ownerReferences"]] == [
        ("StatefulSet", "web")
    ]


async def test_an_ordered_stateful_set_is_admitted_as_a_whole_before_its_second_pod_exists(client: KubeClient) -> None:
    apps = await place(client, "ordered", cpu="200m")
    await apps.create(stateful("first", "ordered", replicas=2, podManagementPolicy="OrderedReady"))
    await apps.running(2)
    await apps.create(stateful("second", "ordered", replicas=2, podManagementPolicy="OrderedReady"))
    await apps.running(2, gated=1)
    await apps.client.delete(STATEFUL_SETS, "first", namespace="ordered")
    pods = await apps.running(2)
    assert [pod["metadata"]["name"] for pod in pods] == ["second-0", "second-1"]


async def test_scaled_to_zero_it_gives_its_quota_back_and_comes_back_with_another_size(client: KubeClient) -> None:
    apps = await place(client, "scaled", cpu="300m")
    await apps.create(stateful("web", "scaled", replicas=2))
    await apps.running(2)
    with pytest.raises(Forbidden, match="scale it to 0 first, and then to 3"):
        await apps.change(STATEFUL_SETS, "web", spec={"replicas": 3})
    with pytest.raises(Forbidden, match="scale it to 0 first, and then to 3"):
        await apps.scale(STATEFUL_SETS, "web", 3)
    await apps.scale(STATEFUL_SETS, "web", 0)
    await apps.running(0)
    await apps.workloads(lambda found: not found, what="no quota is held")
    await eventually(
        lambda: apps.get(STATEFUL_SETS, "web"),
        what="its pods are counted",
        until=lambda seen: seen is not None and not seen["status"].get("replicas"),
    )
    await apps.scale(STATEFUL_SETS, "web", 3)
    await apps.running(3)
    [workload] = await apps.listed(WORKLOADS)
    assert workload["spec"]["podSets"][0]["count"] == 3


async def test_a_rolling_update_keeps_the_quota_and_a_change_of_requests_is_refused(client: KubeClient) -> None:
    apps = await place(client, "rolling", cpu="200m")
    await apps.create(stateful("web", "rolling", replicas=2))
    old = {pod["metadata"]["uid"] for pod in await apps.running(2)}
    [before] = await apps.listed(WORKLOADS)
    container = {"name": "c", "image": "newer", "resources": {"requests": {"cpu": "100m"}}}
    await apps.change(STATEFUL_SETS, "web", spec={"template": {"spec": {"containers": [container]}}})
    await apps.pods(
        lambda pods: (
            len([pod for pod in pods if runs(pod) and pod["metadata"]["uid"] not in old]) == 2
            and all(pod["spec"]["containers"][0]["image"] == "newer" for pod in pods)
        ),
        what="both pods are replaced",
    )
    [after] = await apps.listed(WORKLOADS)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert is_true(after, "Admitted")
    bigger = {**container, "resources": {"requests": {"cpu": "200m"}}}
    with pytest.raises(Forbidden, match=r"can be changed only while spec\.replicas is 0"):
        await apps.change(STATEFUL_SETS, "web", spec={"template": {"spec": {"containers": [bigger]}}})


async def test_its_queue_changes_while_it_has_no_pods(client: KubeClient) -> None:
    apps = await place(client, "moved")
    await make_queue(client, "moved-2", namespace="moved")
    await apps.create(stateful("web", "moved", replicas=1))
    await eventually(
        lambda: apps.get(STATEFUL_SETS, "web"),
        what="a pod is ready",
        until=lambda seen: seen is not None and seen["status"].get("readyReplicas") == 1,
    )
    with pytest.raises(Forbidden, match="immutable while the job is not suspended"):
        await apps.change(STATEFUL_SETS, "web", metadata={"labels": {QUEUE: "moved-2"}})
    await apps.scale(STATEFUL_SETS, "web", 0)
    await apps.running(0)
    await eventually(
        lambda: apps.get(STATEFUL_SETS, "web"),
        what="its pods are counted",
        until=lambda seen: seen is not None and not seen["status"].get("replicas"),
    )
    stored = await apps.change(STATEFUL_SETS, "web", metadata={"labels": {QUEUE: "moved-2"}})
    assert stored["spec"]["template"]["metadata"]["labels"][QUEUE] == "moved-2"
    await apps.scale(STATEFUL_SETS, "web", 1)
    await apps.running(1)
    [workload] = await apps.listed(WORKLOADS)
    assert workload["status"]["admission"]["clusterQueue"] == "moved-2"


async def test_preempted_its_pods_are_gated_again_and_resume_with_the_same_workload(client: KubeClient) -> None:
    apps = await place(client, "stopped", cpu="200m")
    await apps.create(stateful("web", "stopped", replicas=2))
    await apps.running(2)
    [workload] = await apps.listed(WORKLOADS)
    name = workload["metadata"]["name"]
    await client.patch(WORKLOADS, name, {"spec": {"active": False}}, namespace="stopped")
    await apps.running(0, gated=2)
    [evicted] = await apps.workloads(lambda found: not is_true(found[0], "QuotaReserved"), what="its quota is free")
    assert evicted["metadata"]["uid"] == workload["metadata"]["uid"]
    assert condition(evicted, "Evicted")["reason"] == "Deactivated"
    await client.patch(WORKLOADS, name, {"spec": {"active": True}}, namespace="stopped")
    await apps.running(2)


async def test_a_deleted_stateful_set_leaves_no_pods_and_no_quota(client: KubeClient) -> None:
    apps = await place(client, "deleted")
    await apps.create(stateful("web", "deleted", replicas=2))
    await apps.running(2)
    await client.delete(STATEFUL_SETS, "web", namespace="deleted")
    await apps.workloads(lambda found: not found, what="the Workload goes")
    await apps.running(0)
    queue = await client.get_object(CLUSTER_QUEUES, "deleted")
    assert queue["status"].get("pendingWorkloads", 0) == 0


async def test_pods_that_outlive_their_stateful_set_are_stopped(client: KubeClient) -> None:
    apps = await place(client, "orphaned")
    await apps.create(stateful("web", "orphaned", replicas=2))
    await apps.running(2)
    await client.delete(STATEFUL_SETS, "web", namespace="orphaned", propagation="Orphan")
    await apps.running(0)


async def test_the_label_of_the_namespace_gives_a_stateful_set_its_queue(client: KubeClient) -> None:
    await place(client, "labelled")
    await client.patch(NAMESPACES, "labelled", {"metadata": {"labels": {K + "default-queue": "labelled"}}})

    async def queue() -> str | None:
        body = stateful("web", None)
        stored = orjson.loads(await client.create(STATEFUL_SETS, body, namespace="labelled", dry_run=True))
        found: str | None = stored["spec"]["template"]["metadata"]["labels"].get(QUEUE)
        return found

    assert await eventually(queue, what="the label is known") == "labelled"


async def test_one_without_a_queue_is_left_alone(client: KubeClient) -> None:
    apps = await place(client, "plain")
    await apps.create(stateful("web", None, replicas=1))
    [pod] = await apps.running(1)
    assert K + "managed" not in pod["metadata"]["labels"]
    await apps.scale(STATEFUL_SETS, "web", 2)
    await apps.running(2)


async def test_a_group_in_the_template_is_refused(client: KubeClient) -> None:
    apps = await place(client, "grouped")
    with pytest.raises(Forbidden, match="the pods of a StatefulSet have the Workload of the StatefulSet"):
        await apps.create(stateful("web", "grouped", template={"labels": {K + "pod-group-name": "g"}}))


async def test_a_pod_that_is_deleted_by_hand_is_made_again_and_started(client: KubeClient) -> None:
    apps = await place(client, "again")
    await apps.create(stateful("web", "again", replicas=2))
    [first, _] = await apps.running(2)
    await client.delete(PODS, first["metadata"]["name"], namespace="again")
    await apps.pods(
        lambda pods: (
            len([pod for pod in pods if runs(pod) and pod["metadata"]["uid"] != first["metadata"]["uid"]]) == 2
            and not any(map(is_gated, pods))
        ),
        what="both run",
    )


async def admitted(apps: Apps) -> None:
    """Wait until its Workload is."""
    await apps.workloads(lambda found: all(is_true(each, "Admitted") for each in found), what="it is admitted")


async def test_one_that_kueue_sends_from_a_hub_runs_by_the_workload_that_it_has_made_for_it(client: KubeClient) -> None:
    apps = await place(client, "sent", cpu="200m")
    body = stateful("web", "sent", replicas=2)
    (made,) = workloads_of(body, INTEGRATION)
    await client.create(WORKLOADS, made, namespace="sent")
    await admitted(apps)
    stored = await apps.create(sent(body, INTEGRATION))
    await apps.running(2)
    (workload,) = await apps.listed(WORKLOADS)
    assert workload["metadata"]["name"] == made["metadata"]["name"]
    assert [each["uid"] for each in workload["metadata"]["ownerReferences"]] == [stored["metadata"]["uid"]]
    # The hub takes both back, the object first.
    await client.delete(STATEFUL_SETS, "web", namespace="sent", propagation="Background")
    await apps.running(0)
    await apps.workloads(lambda found: not found, what="its quota is free")


async def test_one_that_names_a_workload_waits_for_it_and_has_no_other(client: KubeClient) -> None:
    apps = await place(client, "early", cpu="200m")
    body = stateful("web", "early", replicas=2)
    await apps.create(sent(body, INTEGRATION))
    await apps.running(0, gated=2)
    assert await apps.listed(WORKLOADS) == []
    (made,) = workloads_of(body, INTEGRATION)
    await client.create(WORKLOADS, made, namespace="early")
    await apps.running(2)


async def test_one_is_not_started_by_a_workload_for_other_pods(client: KubeClient) -> None:
    apps = await place(client, "larger", cpu="200m")
    (made,) = workloads_of(stateful("web", "larger", cpu="1m"), INTEGRATION)
    await client.create(WORKLOADS, made, namespace="larger")
    await admitted(apps)
    await apps.create(sent(stateful("web", "larger"), INTEGRATION))
    why = await apps.noted("WorkloadRefused", about="StatefulSet")
    assert "requests[cpu]: Job has 100m, Workload has 1m" in why
    await apps.running(0, gated=1)
