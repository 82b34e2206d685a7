# SPDX-License-Identifier: Apache-2.0
"""What a tenant of the hub may have made on a worker, on both transports: no more than the dispatch policies allow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from multikueue.api.constants import MULTIKUEUE_MANAGED_BY
from multikueue.api.resource import JOBS, LOCAL_QUEUES, MULTIKUEUE_CLUSTERS, WORKLOADS
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import Object, eventually, job_manifest, make_namespace
from tests.support.scenes import Scene, Stage, scene, settings
from tests.support.sites import Site
from tests.support.workers import check_of

pytestmark = pytest.mark.anyio

CAPACITY = "multikueue.io/dispatcher-capacity"
INCREMENTAL = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
EXTERNAL = "example.com/dispatcher"
PRIVILEGED = {"securityContext": {"privileged": True}}


@dataclass(frozen=True)
class Tenant:
    """Somebody who may create Jobs in one namespace of the hub."""

    made: Scene
    namespace: str

    async def submits(self, name: str, **pod: Any) -> None:
        """A Job with these fields of its pod spec."""
        job = job_manifest(name, namespace=self.namespace, queue=self.made.name)
        job["spec"]["template"]["spec"].update(pod)
        await self.made.client.create(JOBS, job, namespace=self.namespace)

    async def submits_with_own_workload(self, name: str) -> None:
        """A Job that no controller of the hub makes a Workload for, and the Workload beside it."""
        job = job_manifest(name, namespace=self.namespace, queue=self.made.name, suspend=True)
        job["spec"]["managedBy"] = MULTIKUEUE_MANAGED_BY
        stored = orjson.loads(await self.made.client.create(JOBS, job, namespace=self.namespace))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": stored["metadata"]["uid"]}
        body = {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "metadata": {
                "name": f"job-{name}",
                "namespace": self.namespace,
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": {
                "queueName": self.made.name,
                "podSets": [{"name": "main", "count": 1, "template": job["spec"]["template"]}],
            },
        }
        await self.made.client.create(WORKLOADS, body, namespace=self.namespace)

    async def workload(self, name: str) -> Object | None:
        """The Workload of the Job."""
        page = await self.made.client.list_all(WORKLOADS, namespace=self.namespace)
        found = [orjson.loads(raw) for raw in page.items]
        return next((each for each in found if each["metadata"]["ownerReferences"][0]["name"] == name), None)

    async def hears(self, name: str, *parts: str) -> str:
        """The message of the check once it says all of that."""

        async def message() -> str:
            return str(check_of(await self.workload(name), self.made.name).get("message", ""))

        return await eventually(
            message, what=f"the check of {name} says {parts}", until=lambda text: all(part in text for part in parts)
        )

    async def reached(self) -> list[str]:
        """What of this namespace is on the workers: Jobs, and Workloads in their queues."""
        found = []
        for worker in (self.made.w1, self.made.w2):
            for resource in (JOBS, WORKLOADS):
                page = await worker.client.list_all(resource, namespace=self.namespace)
                found += [f"{worker.name}: {orjson.loads(raw)['metadata']['name']}" for raw in page.items]
        return found


@asynccontextmanager
async def tenant(made: Scene, namespace: str) -> AsyncIterator[Tenant]:
    """A tenant of that namespace, which the workers have too; the queue of one of them takes work from it."""
    for client in (made.client, made.w1.client, made.w2.client):
        await make_namespace(client, namespace)
    for client in (made.client, made.w1.client):
        await make_local_queue(client, made.name, namespace=namespace)
    try:
        yield Tenant(made, namespace)
    finally:
        for client in (made.client, made.w1.client):
            await client.delete(LOCAL_QUEUES, made.name, namespace=namespace)
        await made.client.delete_collection(JOBS, namespace=namespace, propagation="Background")


async def make_local_queue(client: KubeClient, name: str, *, namespace: str) -> None:
    """A LocalQueue of the ClusterQueue of that name."""
    body = {
        "apiVersion": LOCAL_QUEUES.api_version,
        "kind": LOCAL_QUEUES.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": name},
    }
    await client.create(LOCAL_QUEUES, body, namespace=namespace)


async def annotate(made: Scene, worker: Site, **texts: str | None) -> None:
    """What an administrator of the hub allows on one cluster."""
    annotations = {f"multikueue.io/{key.replace('_', '-')}": text for key, text in texts.items()}
    await made.client.patch(MULTIKUEUE_CLUSTERS, worker.name, {"metadata": {"annotations": annotations}})


@pytest.mark.parametrize("namespace", ["kube-public", "kube-tools", "multikueue-system"])
@pytest.mark.also_on_binaries
async def test_a_job_in_a_namespace_of_the_system_is_sent_nowhere(stage: Stage, namespace: str) -> None:
    async with scene(stage, f"policy-{namespace}") as made, tenant(made, namespace) as attacker:
        await attacker.submits("j", serviceAccountName="admin")
        said = await attacker.hears("j", "none may run this workload", f'never allows the namespace "{namespace}"')
        assert said.startswith("Waiting for a worker cluster: ")
        # Others are not held up, and what is there when their work arrives is all that there will be.
        workload = await made.submit("other")
        await made.w1.asked(workload)
        assert await attacker.reached() == []


async def test_a_workload_made_by_hand_for_a_job_in_kube_system_is_sent_nowhere(stage: Stage) -> None:
    async with scene(stage, "policy-by-hand") as made, tenant(made, "kube-system") as attacker:
        await attacker.submits_with_own_workload("j")
        await attacker.hears("j", 'never allows the namespace "kube-system"')
        await made.w1.asked(await made.submit("other"))
        assert await attacker.reached() == []
        await made.client.delete(WORKLOADS, "job-j", namespace="kube-system")


@pytest.mark.parametrize("dispatcher", [CAPACITY, INCREMENTAL, EXTERNAL])
async def test_no_dispatcher_goes_round_the_policy(stage: Stage, dispatcher: str) -> None:
    configuration = settings(dispatcherName=dispatcher)
    async with scene(stage, f"policy-{dispatcher}", configuration=configuration) as made:
        async with tenant(made, "kube-public") as attacker:
            await attacker.submits("j")
            await attacker.hears("j", 'never allows the namespace "kube-public"')
            await made.submit("other")
            if dispatcher == EXTERNAL:
                for found in (await attacker.workload("j"), await made.workload("other")):
                    assert found is not None
                    metadata, body = found["metadata"], {"nominatedClusterNames": [made.w1.name, made.w2.name]}
                    await made.client.patch(
                        WORKLOADS,
                        metadata["name"],
                        {"status": body},
                        namespace=metadata["namespace"],
                        subresource="status",
                    )
            await clone_of(made.w1, made.w2, job="other")
            after = await attacker.workload("j")
            assert after is not None
            assert not after["status"].get("clusterName")
            assert await attacker.reached() == []


async def test_a_cluster_gets_only_what_its_annotations_allow(stage: Stage) -> None:
    async with scene(stage, "policy-clusters") as made:
        team = Tenant(made, made.namespace)
        await annotate(made, made.w1, pod_security="baseline")
        await annotate(made, made.w2, allowed_service_accounts="batch")
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
        await team.submits("privileged", containers=[{**container, **PRIVILEGED}])
        await team.hears(
            "privileged",
            f"{made.w1.name}: its dispatch policy forbids spec.template.spec.containers[0].securityContext.privileged",
            f'{made.w2.name}: its dispatch policy forbids spec.template.spec.serviceAccountName: "default"',
        )
        await team.submits("plain")
        await clone_of(made.w1, job="plain")
        found = await team.reached()
        assert found
        assert all("privileged" not in each and each.startswith(made.w1.name) for each in found)


async def test_an_invalid_annotation_stops_dispatch_to_the_cluster_with_a_message(stage: Stage) -> None:
    async with scene(stage, "policy-mistake") as made:
        team = Tenant(made, made.namespace)
        problem = "annotation multikueue.io/pod-security: expected one of privileged, baseline, restricted"
        await annotate(made, made.w2, allowed_namespaces="")
        await annotate(made, made.w1, pod_security="strict")
        await made.cluster_says(made.w1, "True", "Active", part=problem)
        await team.submits("j")
        await team.hears("j", f"{made.w1.name}: its dispatch policy is invalid", problem, f"{made.w2.name}: its")
        assert await team.reached() == []
        await annotate(made, made.w1, pod_security=None)
        await clone_of(made.w1, job="j")
        await annotate(made, made.w2, allowed_namespaces=None)


async def test_work_that_runs_when_a_policy_is_tightened_continues_and_none_follows_it(stage: Stage) -> None:
    async with scene(stage, "policy-tightened", clusters=(1,)) as made:
        team = Tenant(made, made.namespace)
        await made.running(made.w1)
        await annotate(made, made.w1, denied_namespaces="ns-*")
        await team.submits("later")
        await team.hears("later", f'{made.w1.name}: its dispatch policy denies the namespace "{made.namespace}"')
        await made.w1.ends("j")
        await made.finished()
        assert [each for each in await team.reached() if "later" in each] == []


async def clone_of(*workers: Site, job: str) -> Object:
    """Wait for the copy of that Job's Workload in the queue of one of the workers."""

    async def probe() -> Object | None:
        for worker in workers:
            page = await worker.client.list_all(WORKLOADS, namespace=worker.namespace)
            for raw in page.items:
                found: Object = orjson.loads(raw)
                if found["metadata"]["name"].startswith(f"job-{job}"):
                    return found
        return None

    found = await eventually(probe, what=f"{[worker.name for worker in workers]} is asked for {job}")
    assert found is not None
    return found
