# SPDX-License-Identifier: Apache-2.0
"""Logs through the agent of kinds whose operators make the pods by objects in between: RayJob and TrainJob.

The test makes the objects between as KubeRay and Kubeflow Trainer do; the agent has the shipped roles, by which it may
not read them. The kubelets of these clusters have no logs, so that the answer names the pod that was read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

import orjson
import pytest

from multikueue.api.resource import JOBS, PODS, Resource
from multikueue.kube.rest.client import KubeClient
from tests.component.kinds.conftest import Clusters
from tests.component.kinds.test_relayed_logs import asked
from tests.support.crds import kinds
from tests.support.kind_federations import NAMESPACE, KindFederation, kind_federation, open_queue, queue_of
from tests.support.managers import Object, eventually, get
from tests.support.operators.played_kinds import PLAYED_KINDS, PlayedKind
from tests.support.sites import Transport

pytestmark = pytest.mark.anyio

apart = pytest.mark.conformance
OPERATED: Final = {each.kind: each for each in PLAYED_KINDS if each.kind in ("RayJob", "TrainJob")}
BETWEEN: Final[Mapping[str, tuple[Resource, ...]]] = {
    "RayJob": (kinds.RAY_CLUSTERS,),
    "TrainJob": (kinds.JOB_SETS, JOBS),
}
"""The kinds of the objects between a job and its pods, from the job on."""
CONTAINER: Final = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
POD_SPEC: Final = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [CONTAINER]}

JOB_SPEC: Final = {"managedBy": "example.com/the-test", "template": {"spec": POD_SPEC}}
"""Of a Job whose pods the test makes: the Job controller leaves it alone."""


def labels_of(kind: str, job: str) -> dict[str, str]:
    """Those that the kind's operator gives each pod."""
    if kind == "RayJob":
        return {"ray.io/originated-from-cr-name": job, "ray.io/originated-from-crd": "RayJob"}
    return {"jobset.sigs.k8s.io/jobset-name": job}


@dataclass(frozen=True)
class OperatedJobs:
    """The federation, and a client of each worker."""

    federation: KindFederation
    workers: Mapping[str, KubeClient]

    async def runs(self, kind: PlayedKind, name: str, transport: str) -> Object:
        """The remote job of a new job."""
        body = kind.sample(name, {"multikueue.io/run-for": "forever"})
        body["metadata"] |= {
            "namespace": NAMESPACE,
            "labels": {"kueue.x-k8s.io/queue-name": queue_of(kind, transport)},
        }
        await self.federation.submit(kind, body)
        found = await eventually(
            lambda: get(self.workers[transport], kind.resource, name, namespace=NAMESPACE),
            what=f"{name} is on the worker",
            until=lambda seen: seen is not None,
        )
        assert found is not None
        return found

    async def pod_read(self, resource: Resource, name: str) -> str:
        """The pod whose lines the agent answers with; asked again if the worker did not answer the agent in time."""
        hub = self.federation.hub

        async def answer() -> tuple[str, str]:
            status = await asked(hub, resource, name, namespace=NAMESPACE)
            return str(status["pod"]), str(status.get("message"))

        pod, _ = await eventually(answer, what=f"a pod of {name} is read", until=lambda seen: bool(seen[0]))
        return pod

    async def pod(self, kind: str, job: Object, name: str, *, on: KubeClient) -> None:
        """A pod of the remote job, below the objects that its operator makes."""
        owner = job
        for resource in BETWEEN[kind]:
            owner = await made(on, resource, f"{name}-{resource.singular}", owner=owner)
        await made(on, PODS, name, owner=owner, labels=labels_of(kind, job["metadata"]["name"]))


async def made(
    client: KubeClient, resource: Resource, name: str, *, owner: Object, labels: Mapping[str, str] | None = None
) -> Object:
    """An object that nothing runs, controlled by `owner`."""
    own = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    reference = {**own, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels or {}, "ownerReferences": [reference]}
    spec: Object = {"suspend": True}
    if resource == JOBS:
        spec = JOB_SPEC
    elif resource == PODS:
        spec = POD_SPEC
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
    found: Object = orjson.loads(await client.create(resource, body, namespace=NAMESPACE))
    return found


@pytest.fixture(scope="module")
async def operated(clusters: Clusters) -> AsyncIterator[OperatedJobs]:
    workers = {str(Transport.PULL): clusters.worker, str(Transport.PUSH): clusters.plain}
    played = list(OPERATED.values())
    async with (
        kind_federation(clusters.hub, workers, played, local=False) as federation,
        clusters.worker.client() as pulled,
        clusters.plain.client() as pushed,
    ):
        clients = dict(zip(workers, (pulled, pushed), strict=True))
        for client in clients.values():
            await kinds.install(client, kinds.RAY_CLUSTERS, kinds.JOB_SETS)
        for kind in played:
            for transport in workers:
                await open_queue(federation.hub, kind, transport)
        yield OperatedJobs(federation, clients)


@apart
@pytest.mark.parametrize("transport", list(Transport), ids=str)
@pytest.mark.parametrize("kind", sorted(OPERATED))
async def test_the_pod_below_the_objects_of_the_operator_is_read_and_none_of_another_job(
    operated: OperatedJobs, kind: str, transport: Transport
) -> None:
    name = f"{kind.lower()}-{transport}"
    worker = operated.workers[str(transport)]
    job = await operated.runs(OPERATED[kind], name, str(transport))
    await operated.pod(kind, job, f"{name}-own", on=worker)
    # A tenant of the worker gives a pod of another Job the labels; it is newer.
    other = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"{name}-other", "namespace": NAMESPACE}}
    body = {**other, "spec": JOB_SPEC}
    stored: Object = orjson.loads(await worker.create(JOBS, body, namespace=NAMESPACE))
    await made(worker, PODS, f"{name}-foreign", owner={**other, **stored}, labels=labels_of(kind, name))
    assert await operated.pod_read(OPERATED[kind].resource, name) == f"{name}-own"
