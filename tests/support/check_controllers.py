# SPDX-License-Identifier: Apache-2.0
"""Admission checks of foreign controllers: their objects, and how their controllers write."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from multikueue.api.resource import ADMISSION_CHECKS, WORKLOADS
from multikueue.kube.errors import Conflict
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import eventually, workload_of

Object = dict[str, Any]


async def make_foreign_check(
    client: KubeClient, name: str, *, controller: str = "example.com/budget", active: bool = True
) -> None:
    """An AdmissionCheck whose controller runs, or does not."""
    check = {
        "apiVersion": ADMISSION_CHECKS.api_version,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
    }
    await client.create(ADMISSION_CHECKS, check)
    if active:
        await set_active(client, name)


async def set_active(client: KubeClient, name: str, *, generation: int = 1, status: str = "True") -> None:
    """The Active condition, as the controller of the check sets it."""
    active = {
        "type": "Active",
        "status": status,
        "reason": "Active" if status == "True" else "Broken",
        "message": "its controller runs" if status == "True" else "its configuration is broken",
        "lastTransitionTime": _now(),
        "observedGeneration": generation,
    }
    await client.patch(ADMISSION_CHECKS, name, {"status": {"conditions": [active]}}, subresource="status")


def entry(name: str, state: str, message: str = "", **more: Any) -> Object:
    """An entry of status.admissionChecks."""
    return {"name": name, "state": state, "message": message, "lastTransitionTime": _now(), **more}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def apply_check(client: KubeClient, workload: Object, wanted: Object, *, manager: str = "budget") -> Object:
    """Server-side apply of one entry, by a field manager of its own; repeated when the server gives up in a race."""
    metadata = workload["metadata"]
    body = {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "status": {"admissionChecks": [wanted]},
    }
    while True:
        try:
            answer = await client.apply(
                WORKLOADS,
                metadata["name"],
                body,
                namespace=metadata["namespace"],
                manager=manager,
                subresource="status",
            )
        except Conflict:
            continue
        stored: Object = orjson.loads(answer)
        return stored


async def patch_check(client: KubeClient, workload: Object, wanted: Object, *, manager: str = "old") -> Object:
    """A merge patch of the whole list as it was read, as old clients write; repeated after a conflict."""
    metadata = workload["metadata"]
    while True:
        live = await client.get_object(WORKLOADS, metadata["name"], namespace=metadata["namespace"])
        others = [each for each in live["status"].get("admissionChecks") or () if each["name"] != wanted["name"]]
        try:
            answer = await client.patch(
                WORKLOADS,
                metadata["name"],
                {"status": {"admissionChecks": [*others, wanted]}},
                namespace=metadata["namespace"],
                resource_version=live["metadata"]["resourceVersion"],
                manager=manager,
                subresource="status",
            )
        except Conflict:
            continue
        stored: Object = orjson.loads(answer)
        return stored


def check_of(workload: Object | None, name: str) -> Object:
    """The entry of that check; empty if it is not listed."""
    entries = ((workload or {}).get("status") or {}).get("admissionChecks") or ()
    return next((each for each in entries if each["name"] == name), {})


async def listed_check(client: KubeClient, job: str, name: str, *, namespace: str, state: str = "Pending") -> Object:
    """The Workload of the Job, once the check is listed in that state and quota is reserved."""

    async def probe() -> Object | None:
        return await workload_of(client, job, namespace=namespace)

    def reached(seen: Object | None) -> bool:
        return bool(((seen or {}).get("status") or {}).get("admission")) and check_of(seen, name).get("state") == state

    found = await eventually(probe, what=f"check {name} of {namespace}/{job} is {state}", until=reached)
    assert found is not None
    return found
