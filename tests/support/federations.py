# SPDX-License-Identifier: Apache-2.0
"""What e2e tests ask of a federation: the example applied, Jobs in, everything empty again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import orjson

from devcluster import manifests
from devcluster.federation.federation import Federation
from devcluster.kubelet import journal
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, PODS, REMOTE_ASSIGNMENTS, WORKLOADS, Resource
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.in_process import InProcessFederation

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"


def job(name: str, *, namespace: str = "team-a", pods: int = 1, run_for: str = "2s", cpu: str = "1") -> dict[str, Any]:
    """A Job of one of the two teams."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": "jobs"}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {"multikueue.io/run-for": run_for}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


async def apply_two_teams(federation: Federation | InProcessFederation) -> list[dict[str, Any]]:
    """Apply the example to the hub, and its namespaces to the workers; the objects."""
    example = manifests.read(EXAMPLES / "two-teams")
    namespaces = [each for each in example if each["kind"] == "Namespace"]
    async with federation.hub.client() as hub:
        await manifests.apply_when_served(hub, example)
    for cluster in federation.workers.values():
        async with cluster.client() as worker:
            await manifests.create_all(worker, namespaces)
    return example


async def objects(client: KubeClient, resource: Resource) -> list[dict[str, Any]]:
    """All objects of a resource, parsed."""
    return [orjson.loads(raw) for raw in (await client.list_all(resource)).items]


async def names(client: KubeClient, resource: Resource) -> list[str]:
    """The names of all objects of a resource."""
    return sorted(each["metadata"]["name"] for each in await objects(client, resource))


def ended(found: dict[str, Any]) -> str | None:
    """`Complete` or `Failed` for a Job that has ended."""
    for condition in found.get("status", {}).get("conditions") or []:
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return None


async def finished(hub: KubeClient) -> list[str]:
    """The names of the Jobs that are complete."""
    return sorted(each["metadata"]["name"] for each in await objects(hub, JOBS) if ended(each) == "Complete")


async def wait_until(condition: Callable[[], Any], *, within: float, what: str) -> None:
    """Wait until an async condition holds; fails with what was waited for."""
    with anyio.move_on_after(within):
        while not await condition():
            await anyio.sleep(0.2)
        return
    raise AssertionError(f"not within {within:.0f} s: {what}")


async def left_over(federation: Federation) -> list[str]:
    """What is left of any Job, on any cluster."""
    left = []
    async with federation.hub.client() as hub:
        for resource in (JOBS, PODS, WORKLOADS, REMOTE_ASSIGNMENTS):
            left += [f"hub {resource.kind} {name}" for name in await names(hub, resource)]
        for queue in await objects(hub, CLUSTER_QUEUES):
            status = queue.get("status", {})
            for flavor in status.get("flavorsReservation") or []:
                used = [each for each in flavor["resources"] if str(each.get("total", "0")) != "0"]
                left += [f"quota of {queue['metadata']['name']}: {each}" for each in used]
    for name, cluster in federation.workers.items():
        async with cluster.client() as worker:
            for resource in (JOBS, PODS):
                left += [f"{name} {resource.kind} {each}" for each in await names(worker, resource)]
    return left


def pods_that_ran(
    federation: Federation | InProcessFederation, *, namespace: str, name: str
) -> list[journal.JournalEntry]:
    """Each start of a pod of a Job, once."""
    found = {
        entry.uid: entry
        for entry in federation.journal()
        if entry.event == journal.STARTED and (entry.namespace, entry.owner) == (namespace, f"Job/{name}")
    }
    return list(found.values())


def ran_once(federation: Federation | InProcessFederation, jobs: Sequence[dict[str, Any]]) -> list[str]:
    """The Jobs of which not exactly the wanted number of pods ran, or on more than one cluster."""
    wrong = []
    for each in jobs:
        metadata = each["metadata"]
        ran = pods_that_ran(federation, namespace=metadata["namespace"], name=metadata["name"])
        clusters = sorted({entry.cluster for entry in ran})
        if len(ran) != each["spec"]["completions"] or len(clusters) != 1:
            wrong.append(f"{metadata['name']}: {len(ran)} pods on {clusters}")
    return wrong
