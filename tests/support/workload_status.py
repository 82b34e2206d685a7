# SPDX-License-Identifier: Apache-2.0
"""What a program of a user's writes into the status of a Workload, with the field manager that the rules allow."""

from __future__ import annotations

from collections.abc import Callable

from multikueue.api.constants import ADMISSION_FIELD_MANAGER
from multikueue.api.resource import WORKLOADS
from multikueue.kube.errors import Conflict
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import Object, eventually, get


async def change_workload_status(
    client: KubeClient, name: str, change: Callable[[Object], Object], *, namespace: str
) -> None:
    """Apply the status with these fields of it changed; tried again when the manager was faster."""

    async def write() -> bool:
        found = await get(client, WORKLOADS, name, namespace=namespace)
        assert found is not None
        body = {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "metadata": {key: found["metadata"][key] for key in ("name", "namespace", "resourceVersion")},
            "status": {**found["status"], **change(found["status"])},
        }
        try:
            await client.apply(
                WORKLOADS, name, body, namespace=namespace, manager=ADMISSION_FIELD_MANAGER, subresource="status"
            )
        except Conflict:
            return False
        return True

    await eventually(write, what=f"the status of {name} is written")
