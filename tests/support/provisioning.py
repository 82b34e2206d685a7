# SPDX-License-Identifier: Apache-2.0
"""A queue with a provisioning check, and the hand of an autoscaler: what it writes into a ProvisioningRequest.

Owns a namespace per scene, so that scenes on one API server do not meet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import orjson

from devcluster.cluster import Cluster
from devcluster.provisioner.definition import definition
from multikueue.api.constants import PROVISIONING_CONTROLLER
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CUSTOM_RESOURCE_DEFINITIONS,
    JOBS,
    POD_TEMPLATES,
    PROVISIONING_REQUEST_CONFIGS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
    Resource,
)
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import (
    Object,
    condition,
    ensure,
    eventually,
    get,
    job_manifest,
    make_queue,
    wait_condition,
    workload_of,
)

TIME = "2026-01-01T12:00:00Z"
CLASS = "check-capacity.autoscaling.x-k8s.io"
QUICK = {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}


@dataclass(slots=True)
class ProvisioningScene:
    """One namespace, queue, check and config, all of one name."""

    client: KubeClient
    name: str

    async def submit(self, job: str = "j", *, argument: str = "", **more: Any) -> None:
        """A Job in the queue."""
        manifest = job_manifest(job, namespace=self.name, queue=self.name, suspend=True, **more)
        if argument:
            manifest["spec"]["template"]["spec"]["containers"][0]["args"] = [argument]
        await self.client.create(JOBS, manifest, namespace=self.name)

    async def requests(self) -> list[Object]:
        """All requests of the namespace."""
        return await self._all(PROVISIONING_REQUESTS)

    async def templates(self) -> list[Object]:
        """All templates of the namespace."""
        return await self._all(POD_TEMPLATES)

    async def _all(self, resource: Resource) -> list[Object]:
        page = await self.client.list_all(resource, namespace=self.name)
        return [orjson.loads(raw) for raw in page.items]

    async def request(self, *, attempt: int = 1, without: str = "") -> Object:
        """The request of that attempt and its templates, once they are there; not the one with the UID `without`."""

        async def probe() -> Object | None:
            found = [
                each
                for each in await self.requests()
                if each["metadata"]["name"].endswith(f"-{attempt}") and each["metadata"]["uid"] != without
            ]
            owners = {owner["uid"] for each in await self.templates() for owner in each["metadata"]["ownerReferences"]}
            return next((each for each in found if each["metadata"]["uid"] in owners), None)

        found = await eventually(probe, what=f"request {attempt} in {self.name}")
        assert found is not None
        return found

    async def answer(
        self, request: Object, *kinds: str, details: dict[str, str] | None = None, **messages: str
    ) -> None:
        """Set these conditions True, as an autoscaler does."""
        name = request["metadata"]["name"]
        now = await self.client.get_object(PROVISIONING_REQUESTS, name, namespace=self.name)
        conditions = {each["type"]: each for each in (now.get("status") or {}).get("conditions") or ()}
        for kind in kinds:
            conditions[kind] = {
                "type": kind,
                "status": "True",
                "reason": kind,
                "message": messages.get(kind, f"{kind} by the test"),
                "lastTransitionTime": TIME,
            }
        status = {"conditions": list(conditions.values()), "provisioningClassDetails": details or {}}
        await self.client.patch(
            PROVISIONING_REQUESTS, name, {"status": status}, namespace=self.name, subresource="status"
        )

    async def no_request(self) -> None:
        """Wait until the namespace has no request."""
        await eventually(self.requests, what=f"no request in {self.name}", until=lambda found: not found)

    async def check(self, *, until: str, job: str = "j", message: str = "") -> Object:
        """The state of the check once it is `until` and its message has that part."""

        async def probe() -> Object:
            workload = await workload_of(self.client, job, namespace=self.name) or {}
            return next(iter((workload.get("status") or {}).get("admissionChecks") or ()), {})

        return await eventually(
            probe,
            what=f"check {until} {message}",
            until=lambda found: found.get("state") == until and message in found.get("message", ""),
        )

    async def condition(self, kind: str, *, job: str = "j", status: str = "True", reason: str | None = None) -> Object:
        """The Workload once it has that condition."""
        return await wait_condition(self.client, job, kind, namespace=self.name, status=status, reason=reason)

    async def started(self, job: str = "j") -> Object:
        """The Job once it is unsuspended."""
        found = await eventually(
            lambda: get(self.client, JOBS, job, namespace=self.name),
            what=f"{job} is started",
            until=lambda seen: seen is not None and seen["spec"].get("suspend") is False,
        )
        assert found is not None
        return found

    async def configure(self, **spec: Any) -> None:
        """Change fields of the config."""
        await self.client.patch(PROVISIONING_REQUEST_CONFIGS, self.name, {"spec": spec})

    async def active(self, *, status: str = "True", reason: str = "Active") -> Object:
        """The Active condition of the check, once it is that."""
        found = await eventually(
            lambda: get(self.client, ADMISSION_CHECKS, self.name),
            what=f"check {self.name} Active={status} {reason}",
            until=lambda seen: (
                (condition(seen, "Active").get("status"), condition(seen, "Active").get("reason")) == (status, reason)
            ),
        )
        return condition(found, "Active")

    async def workload(self, job: str = "j") -> Object:
        """The Workload of the Job."""
        found = await workload_of(self.client, job, namespace=self.name)
        assert found is not None, f"{self.name}/{job} has no Workload"
        return found

    async def delete_job(self, job: str = "j") -> None:
        """Delete the Job as kubectl does, and its Workload, where no garbage collector runs."""
        await self.client.delete(JOBS, job, namespace=self.name, propagation="Background")


async def install_definition(client: KubeClient) -> None:
    """Define ProvisioningRequests, and wait until they are served."""
    await ensure(client, CUSTOM_RESOURCE_DEFINITIONS, definition())

    async def served() -> bool:
        try:
            await client.list_page(PROVISIONING_REQUESTS, limit=1)
        except NotFound:
            return False
        return True

    await eventually(served, what="ProvisioningRequests are served")


async def make_provisioning_check(client: KubeClient, name: str, **spec: Any) -> None:
    """An AdmissionCheck and a ProvisioningRequestConfig of one name; `controller` is another controllerName."""
    controller = spec.pop("controller", PROVISIONING_CONTROLLER)
    await client.create(
        PROVISIONING_REQUEST_CONFIGS,
        {
            "apiVersion": PROVISIONING_REQUEST_CONFIGS.api_version,
            "kind": PROVISIONING_REQUEST_CONFIGS.kind,
            "metadata": {"name": name},
            "spec": {"provisioningClassName": CLASS, "retryStrategy": QUICK, **spec},
        },
    )
    await client.create(
        ADMISSION_CHECKS,
        {
            "apiVersion": ADMISSION_CHECKS.api_version,
            "kind": ADMISSION_CHECKS.kind,
            "metadata": {"name": name},
            "spec": {
                "controllerName": controller,
                "parameters": {
                    "apiGroup": "kueue.x-k8s.io",
                    "kind": PROVISIONING_REQUEST_CONFIGS.kind,
                    "name": name,
                },
            },
        },
    )


@asynccontextmanager
async def provisioning_scene(cluster: Cluster, name: str, **spec: Any) -> AsyncIterator[ProvisioningScene]:
    """A scene on `cluster`, which has the definition; `spec` are fields of its config."""
    async with cluster.client() as client:
        await make_provisioning_check(client, name, **spec)
        await make_queue(client, name, namespace=name, checks=(name,))
        scene = ProvisioningScene(client, name)
        try:
            yield scene
        finally:
            # The next manager on this server need not look at what is over.
            for resource in (CLUSTER_QUEUES, ADMISSION_CHECKS):
                await client.delete(resource, name)
            for raw in (await client.list_all(WORKLOADS, namespace=name)).items:
                workload = orjson.loads(raw)
                with suppress(NotFound):  # that of a deleted Job goes with it
                    await client.delete(WORKLOADS, workload["metadata"]["name"], namespace=name)
