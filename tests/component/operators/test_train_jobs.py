# SPDX-License-Identifier: Apache-2.0
"""The operator of TrainJobs: the runtime with which one was started counts until it is suspended."""

from __future__ import annotations

import pytest

from devcluster.operators.train_jobs import TrainJobOperator
from multikueue.api.objects import JsonObject
from multikueue.api.resource import PODS
from tests.support.crds import kinds
from tests.support.operators.playground import Playground, playground
from tests.support.operators.samples import pod_template

# They test what tests use: not with each `make test`.
pytestmark = pytest.mark.conformance

TRAIN = kinds.TRAIN_JOBS
RUNTIMES = kinds.CLUSTER_TRAINING_RUNTIMES


def template() -> JsonObject:
    made = pod_template({"multikueue.io/run-for": "forever"})
    made["spec"]["containers"][0]["name"] = "node"
    return made


def runtime(*, nodes: int) -> JsonObject:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": template()}}}
    spec = {"mlPolicy": {"numNodes": nodes}, "template": {"spec": {"replicatedJobs": [job]}}}
    return {"apiVersion": RUNTIMES.api_version, "kind": RUNTIMES.kind, "metadata": {"name": "torch"}, "spec": spec}


def train_job() -> JsonObject:
    spec = {"runtimeRef": {"name": "torch"}}
    return {"apiVersion": TRAIN.api_version, "kind": TRAIN.kind, "metadata": {"name": "one"}, "spec": spec}


async def until_pods(cluster: Playground, count: int) -> set[str]:
    found: set[str] = set()

    async def holds() -> bool:
        found.clear()
        found.update(pod["metadata"]["uid"] for pod in await cluster.listed(PODS))
        return len(found) == count

    await cluster.until(f"{count} pods", holds)
    return found


async def kill_one(cluster: Playground) -> None:
    """Delete a pod and wait for another one: by its end the operator compares the pods with what they should be."""
    before = await cluster.listed(PODS)
    killed = before[0]["metadata"]
    await cluster.client.delete(PODS, killed["name"], namespace="default")
    uids = {pod["metadata"]["uid"] for pod in before}

    async def replaced() -> bool:
        now = {pod["metadata"]["uid"] for pod in await cluster.listed(PODS)}
        return len(now) >= len(uids) and now != uids

    await cluster.until("another pod", replaced)
    assert uids - await until_pods(cluster, len(uids)) == {killed["uid"]}


async def test_a_runtime_that_changes_or_goes_changes_no_pods_of_a_job_that_runs() -> None:
    async with playground(TrainJobOperator) as cluster:
        await kinds.install(cluster.client, RUNTIMES)
        await cluster.client.create(RUNTIMES, runtime(nodes=2))
        await cluster.create(TRAIN, train_job())
        await until_pods(cluster, 2)
        await cluster.client.patch(RUNTIMES, "torch", {"spec": {"mlPolicy": {"numNodes": 5}}})
        await kill_one(cluster)
        await cluster.client.delete(RUNTIMES, "torch")
        await kill_one(cluster)


async def test_a_job_that_is_suspended_starts_again_with_the_runtime_of_now() -> None:
    async with playground(TrainJobOperator) as cluster:
        await kinds.install(cluster.client, RUNTIMES)
        await cluster.client.create(RUNTIMES, runtime(nodes=2))
        await cluster.create(TRAIN, train_job())
        await until_pods(cluster, 2)
        await cluster.client.patch(RUNTIMES, "torch", {"spec": {"mlPolicy": {"numNodes": 3}}})
        await cluster.change(TRAIN, "one", {"spec": {"suspend": True}})
        await until_pods(cluster, 0)
        await cluster.change(TRAIN, "one", {"spec": {"suspend": False}})
        await until_pods(cluster, 3)
