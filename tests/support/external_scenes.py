# SPDX-License-Identifier: Apache-2.0
"""A hub and a worker that run the `Pipeline` of docs/jobs/external-frameworks.md, whose Workloads the test makes.

The test plays the other controller on the hub, and the kind's own controller on the worker.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import anyio
import orjson
import yaml

from devcluster.cluster import Cluster
from multikueue.api.constants import PRIORITY_CLASS_LABEL
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, REMOTE_ASSIGNMENTS, WORKLOADS, Resource
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.kube.errors import AlreadyExists, NotFound
from multikueue.kube.rest.client import KubeClient
from tests.support.kind_scenes import KindScene, kind_scene
from tests.support.limited_workers import INTERVALS
from tests.support.managers import Object, eventually, get
from tests.support.sites import Transport
from tests.support.workers import check_of
from tests.support.workload_status import change_workload_status
from tests.unit.jobs.declared.builders import blocks

CRD, CONFIGURATION, ROLE, PIPELINE, WORKLOAD = (yaml.safe_load(text) for text in blocks("external-frameworks"))
PIPELINES: Final = Resource("ci.example.com", "v1", "Pipeline", "pipelines")
NAME: Final = CONFIGURATION["multiKueue"]["externalFrameworks"][0]["name"]
MANAGED: Final = "kueue.x-k8s.io/multikueue"


@dataclass(frozen=True)
class ExternalScene:
    """What one test has of its own."""

    scene: KindScene
    resource: Resource

    @property
    def hub(self) -> KubeClient:
        return self.scene.hub

    @property
    def worker(self) -> KubeClient:
        return self.scene.worker

    @property
    def namespace(self) -> str:
        return self.scene.namespace

    async def job(
        self, name: str, *, managed_by: str = MANAGED, spec: Object | None = None, **metadata: object
    ) -> Object:
        """An object of the kind on the hub, as its user creates it."""
        body = copy.deepcopy(PIPELINE)
        body |= {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        body["metadata"] = {"name": name, "namespace": self.namespace, **metadata}
        body["spec"].pop("managedBy")
        if managed_by:
            body["spec"]["managedBy"] = managed_by
        stored: Object = orjson.loads(await self.hub.create(self.resource, body, namespace=self.namespace))
        return stored

    async def queue(
        self, job: Object, *, workload: str = "", priority: str = "", annotations: Object | None = None
    ) -> str:
        """A Workload of it, as the other controller creates it; its name."""
        body = copy.deepcopy(WORKLOAD)
        name = workload or f"{self.resource.singular}-{job['metadata']['name']}"
        owner = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        body["metadata"] = {
            "name": name,
            "namespace": self.namespace,
            "ownerReferences": [owner],
            "labels": {PRIORITY_CLASS_LABEL: priority} if priority else {},
            "annotations": annotations or {},
        }
        body["spec"]["queueName"] = self.scene.name
        if priority:
            reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": priority}
            body["spec"] |= {"priority": 1000, "priorityClassRef": reference}
        await self.hub.create(WORKLOADS, body, namespace=self.namespace)
        return name

    async def submit(
        self, name: str, *, workload: str = "", priority: str = "", annotations: Object | None = None
    ) -> Object:
        """Both; gives the object."""
        job = await self.job(name)
        await self.queue(job, workload=workload, priority=priority, annotations=annotations)
        return job

    async def remote(self, name: str, *, epoch: int = 1) -> Object:
        """The object on the worker once that epoch has made it."""
        found = await eventually(
            lambda: get(self.worker, self.resource, name, namespace=self.namespace),
            what=f"{name} of epoch {epoch} is on the worker",
            until=lambda seen: (
                seen is not None and seen["metadata"]["annotations"]["multikueue.io/epoch"] == str(epoch)
            ),
        )
        assert found is not None
        return found

    async def says(self, name: str, **status: object) -> None:
        """The kind's own controller on the worker writes a status."""
        body = {"status": status}
        await self.worker.patch(self.resource, name, body, namespace=self.namespace, subresource="status")

    async def shown(self, name: str, **status: object) -> Object:
        """The object on the hub once it has exactly that status."""
        found = await eventually(
            lambda: get(self.hub, self.resource, name, namespace=self.namespace),
            what=f"the hub shows {status} of {name}",
            until=lambda seen: seen is not None and seen.get("status") == status,
        )
        assert found is not None
        return found

    async def workload(self, name: str, what: str, holds: Callable[[Object], bool]) -> Object:
        """The Workload of that name once that holds."""
        found = await eventually(
            lambda: get(self.hub, WORKLOADS, name, namespace=self.namespace),
            what=f"{name} {what}",
            until=lambda seen: seen is not None and holds(seen),
        )
        assert found is not None
        return found

    async def check(self, name: str, state: str, *, message: str = "") -> Object:
        """The Workload once its check says that."""

        def said(seen: Object) -> bool:
            check = check_of(seen, self.scene.name)
            return check.get("state") == state and message in str(check.get("message"))

        return await self.workload(name, f"has the check {state} {message}", said)

    async def rejected(self, name: str, *, message: str) -> Object:
        """The Workload once its check was Rejected so, or was reset since because the Workload held quota."""
        return await self.workload(name, f"is rejected: {message}", lambda seen: message in _messages(seen))

    async def finish(self, name: str) -> None:
        """The other controller finds its object ended, and says so in the Workload."""
        now = format_time(SystemClock().now())
        ended = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "all steps"}
        finished = {**ended, "lastTransitionTime": now}
        await change_workload_status(
            self.hub,
            name,
            lambda status: {"conditions": [*status["conditions"], finished]},
            namespace=self.namespace,
        )

    async def gone(self, name: str) -> None:
        """Wait until the worker has no such object, and the hub no assignment."""
        await eventually(
            lambda: get(self.worker, self.resource, name, namespace=self.namespace),
            what=f"{name} is gone from the worker",
            until=lambda seen: seen is None,
        )

    async def without_workload(self, name: str) -> None:
        """Wait until the hub has no such Workload."""
        await eventually(
            lambda: get(self.hub, WORKLOADS, name, namespace=self.namespace),
            what=f"{name} is gone from the hub",
            until=lambda seen: seen is None,
        )

    async def assignments(self) -> list[str]:
        """The Workloads that agents are to run."""
        page = await self.hub.list_all(REMOTE_ASSIGNMENTS, namespace=f"mk-{self.scene.name}")
        return [orjson.loads(raw)["spec"]["workload"]["name"] for raw in page.items]


def _messages(workload: Object) -> str:
    status = workload.get("status") or {}
    entries = (*(status.get("admissionChecks") or ()), *(status.get("conditions") or ()))
    return "\n".join(str(each.get("message")) for each in entries)


async def define(client: KubeClient, crd: Object) -> None:
    """Create the definition, and wait until it is served."""
    with suppress(AlreadyExists):
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]["name"]
    resource = Resource(crd["spec"]["group"], version, names["kind"], names["plural"])

    await eventually(lambda: _is_served(client, resource), what=f"{resource.qualified} is served")


async def undefined(client: KubeClient, resource: Resource) -> None:
    """Wait until the kind is served no longer, as its definition was deleted."""
    await eventually(
        lambda: _is_served(client, resource),
        what=f"{resource.qualified} is not served",
        until=lambda served: not served,
    )
    await eventually(
        lambda: get(client, CUSTOM_RESOURCE_DEFINITIONS, resource.qualified),
        what=f"the definition of {resource.qualified} is gone",
        until=lambda seen: seen is None,
    )


async def _is_served(client: KubeClient, resource: Resource) -> bool:
    try:
        await client.list_page(resource, limit=1)
    except NotFound:
        return False
    return True


@asynccontextmanager
async def external_scene(
    hub: Cluster,
    worker: Cluster,
    title: str,
    *,
    transport: Transport,
    cpu: str = "10",
    crd: Object = CRD,
    rules: tuple[Object, ...] = tuple(ROLE["rules"]),
    on_hub: bool = True,
    on_worker: bool = True,
    lease_seconds: int = INTERVALS.lease_seconds,
) -> AsyncIterator[ExternalScene]:
    """The scene; `cpu` is the quota, `rules` what the agent or the kubeconfig may do with the kind on the worker."""
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]["name"]
    resource = Resource(crd["spec"]["group"], version, names["kind"], names["plural"])
    for cluster, wanted in ((hub, on_hub), (worker, on_worker)):
        if wanted:
            async with cluster.client() as client:
                await define(client, crd)
    async with kind_scene(
        hub,
        worker,
        f"external-{title}",
        transport=transport,
        cpu=cpu,
        operator=False,
        frameworks=("batch/job",),
        external=(f"{resource.kind}.{version}.{resource.group}",),
        rights=rules,
        lease_seconds=lease_seconds,
    ) as scene:
        try:
            yield ExternalScene(scene, resource)
        finally:
            with anyio.CancelScope(shield=True):
                for client in (scene.hub, scene.worker):
                    with suppress(NotFound):  # the kind may have been removed
                        await client.delete_collection(resource, namespace=scene.namespace)
