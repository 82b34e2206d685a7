# SPDX-License-Identifier: Apache-2.0
"""Deployments in queues, on an embedded hub and on a real one with the real controllers: each pod is a job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from multikueue.api.constants import PARTITION_POLICY_ANNOTATION
from multikueue.api.resource import (
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
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

PAGES = Path(__file__).parents[3] / "docs" / "jobs"
EXAMPLE = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
pytestmark = pytest.mark.anyio


async def place(client: KubeClient, name: str, *, cpu: str = "1", preemption: Object | None = None) -> Apps:
    """A namespace with a queue of its name."""
    await make_queue(client, name, namespace=name, cpu=cpu, preemption=preemption)
    return Apps(client, name)


def deployment(name: str, queue: str | None, **given: Any) -> Object:
    return app(DEPLOYMENTS, name, queue, **given)


async def test_a_deployment_waits_for_quota_pod_by_pod(client: KubeClient) -> None:
    apps = await place(client, "one", cpu="200m")
    stored = await apps.create(deployment("web", "one", replicas=1))
    assert stored["spec"]["template"]["metadata"]["labels"][QUEUE] == "one"
    assert stored["spec"]["template"]["metadata"]["annotations"] == {K + "pod-suspending-parent": "deployment"}
    await apps.running(1)
    await apps.scale(DEPLOYMENTS, "web", 3)
    await apps.running(2, gated=1)
    workloads = await apps.workloads(lambda found: len(found) == 3, what="each pod has a Workload")
    assert [each["metadata"]["ownerReferences"][0]["kind"] for each in workloads] == ["Pod"] * 3
    await apps.scale(DEPLOYMENTS, "web", 1)
    await apps.running(1)
    await apps.workloads(
        lambda found: len([each for each in found if not is_true(each, "Finished")]) == 1, what="one holds quota"
    )
    await client.delete(DEPLOYMENTS, "web", namespace="one")
    await apps.running(0)
    await apps.workloads(lambda found: not found, what="their Workloads go")


async def test_a_rolling_update_needs_quota_for_the_pods_that_it_makes(client: KubeClient) -> None:
    apps = await place(client, "rolling", cpu="300m")
    await apps.create(deployment("web", "rolling", replicas=2))
    old = {pod["metadata"]["uid"] for pod in await apps.running(2)}
    container = {"name": "c", "image": "newer", "resources": {"requests": {"cpu": "100m"}}}
    await apps.change(DEPLOYMENTS, "web", spec={"template": {"spec": {"containers": [container]}}})
    await apps.pods(
        lambda pods: len(pods) == 2 and all(runs(pod) and pod["metadata"]["uid"] not in old for pod in pods),
        what="both pods are replaced",
    )


async def test_a_preempted_pod_is_made_again_and_waits(client: KubeClient) -> None:
    for name, value in (("low", 1), ("high", 100)):
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        await ensure(client, WORKLOAD_PRIORITY_CLASSES, body)
    apps = await place(client, "preempted", cpu="200m", preemption={"withinClusterQueue": "LowerPriority"})
    await apps.create(deployment("low", "preempted", replicas=2, labels={K + "priority-class": "low"}))
    await apps.running(2)
    await apps.create(deployment("high", "preempted", replicas=1, labels={K + "priority-class": "high"}))
    await apps.pods(
        lambda pods: (
            sorted(pod["metadata"]["labels"]["app"] for pod in pods if runs(pod)) == ["high", "low"]
            and [pod["metadata"]["labels"]["app"] for pod in pods if is_gated(pod)] == ["low"]
        ),
        what="one of them gives its quota to the other Deployment",
    )
    await client.delete(DEPLOYMENTS, "high", namespace="preempted")
    await apps.running(2)


async def test_its_queue_is_not_changed_while_a_pod_is_ready_and_never_removed(client: KubeClient) -> None:
    apps = await place(client, "moved")
    await make_queue(client, "moved-2", namespace="moved")
    await apps.create(deployment("web", "moved"))
    await eventually(
        lambda: apps.get(DEPLOYMENTS, "web"),
        what="a pod is ready",
        until=lambda seen: seen is not None and seen["status"].get("readyReplicas") == 1,
    )
    with pytest.raises(Forbidden, match="immutable while the job is not suspended"):
        await apps.change(DEPLOYMENTS, "web", metadata={"labels": {QUEUE: "moved-2"}})
    with pytest.raises(Forbidden, match="a Deployment cannot leave its queue"):
        await apps.change(DEPLOYMENTS, "web", metadata={"labels": {QUEUE: None}})
    await apps.scale(DEPLOYMENTS, "web", 0)
    await eventually(
        lambda: apps.get(DEPLOYMENTS, "web"),
        what="no pod is ready",
        until=lambda seen: seen is not None and not seen["status"].get("readyReplicas"),
    )
    stored = await apps.change(DEPLOYMENTS, "web", metadata={"labels": {QUEUE: "moved-2"}})
    assert stored["spec"]["template"]["metadata"]["labels"][QUEUE] == "moved-2"
    await apps.scale(DEPLOYMENTS, "web", 1)
    await apps.running(1)
    running = [each for each in await apps.listed(WORKLOADS) if not is_true(each, "Finished")]
    assert [each["status"]["admission"]["clusterQueue"] for each in running] == ["moved-2"]


async def test_the_queue_in_its_template_is_always_its_own(client: KubeClient) -> None:
    apps = await place(client, "own")
    await make_queue(client, "own-2", namespace="own")
    await apps.create(deployment("web", "own", replicas=0, template={"labels": {QUEUE: "own-2"}}))
    change = {"template": {"metadata": {"labels": {QUEUE: None}}}}
    stored = await apps.change(DEPLOYMENTS, "web", spec=change)
    assert stored["spec"]["template"]["metadata"]["labels"][QUEUE] == "own"


async def test_its_template_says_of_its_pods_how_they_are_sent(client: KubeClient) -> None:
    apps = await place(client, "sent")
    await apps.create(deployment("web", "sent", replicas=0))
    change = {"metadata": {"annotations": {PARTITION_POLICY_ANNOTATION: "fenced"}}}
    stored = orjson.loads(await client.patch(DEPLOYMENTS, "web", change, namespace="sent"))
    assert stored["spec"]["template"]["metadata"]["annotations"][PARTITION_POLICY_ANNOTATION] == "fenced"


async def test_the_label_of_the_namespace_gives_a_deployment_its_queue(client: KubeClient) -> None:
    await place(client, "labelled")
    await client.patch(NAMESPACES, "labelled", {"metadata": {"labels": {K + "default-queue": "labelled"}}})

    async def queue() -> str | None:
        body = deployment("web", None)
        stored = orjson.loads(await client.create(DEPLOYMENTS, body, namespace="labelled", dry_run=True))
        found: str | None = stored["spec"]["template"]["metadata"]["labels"].get(QUEUE)
        return found

    assert await eventually(queue, what="the label is known") == "labelled"


async def test_one_without_a_queue_is_left_alone(client: KubeClient) -> None:
    apps = await place(client, "plain")
    await apps.create(deployment("web", None, replicas=2))
    for pod in await apps.running(2):
        assert K + "managed" not in pod["metadata"]["labels"]
    assert await apps.listed(WORKLOADS) == []


async def test_a_queue_without_quota_is_shown_as_the_reason(client: KubeClient) -> None:
    apps = await place(client, "short", cpu="50m")
    await apps.create(deployment("web", "short"))
    await apps.running(0, gated=1)
    await apps.workloads(
        lambda found: (
            "insufficient quota for cpu" in condition(found[0] if found else None, "QuotaReserved").get("message", "")
        ),
        what="its Workload shows the reason",
    )


@pytest.mark.parametrize("page", ["deployment", "statefulset"])
async def test_the_example_of_its_page_runs(client: KubeClient, page: str) -> None:
    body = yaml.safe_load(EXAMPLE.findall((PAGES / f"{page}.md").read_text())[0])
    apps = await place(client, f"page-{page}")
    body["metadata"] |= {"namespace": apps.namespace, "labels": {QUEUE: apps.namespace}}
    await apps.create(body)
    await apps.running(2)


async def test_a_group_in_the_template_is_refused(client: KubeClient) -> None:
    apps = await place(client, "grouped")
    with pytest.raises(Forbidden, match="the pods of a Deployment are queued one by one, not as a group"):
        await apps.create(deployment("web", "grouped", template={"annotations": {K + "pod-group-name": "g"}}))
    assert await apps.listed(PODS) == []
