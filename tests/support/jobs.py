# SPDX-License-Identifier: Apache-2.0
"""What a Job's own controller would write, for tests on servers where none runs."""

from __future__ import annotations

from typing import Any

from multikueue.api.resource import JOBS
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.kube.rest.client import KubeClient


def running_status(active: int = 1) -> dict[str, Any]:
    """The status of a Job that runs."""
    return {"active": active, "ready": active, "startTime": format_time(SystemClock().now())}


def succeeded_status() -> dict[str, Any]:
    """The status of a Job that has just succeeded, on top of the one it ran with."""
    now = format_time(SystemClock().now())
    stamp = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now, "reason": "CompletionsReached"}
    return {
        "active": 0,
        "ready": 0,
        "succeeded": 1,
        "completionTime": now,
        "conditions": [{"type": "SuccessCriteriaMet", **stamp}, {"type": "Complete", "message": "done", **stamp}],
    }


async def run_job(client: KubeClient, name: str, *, namespace: str) -> None:
    """Let a Job have a pod that runs."""
    await _say(client, name, namespace=namespace, status=running_status())


async def finish_job(client: KubeClient, name: str, *, namespace: str) -> None:
    """Let a Job succeed."""
    status = {"startTime": format_time(SystemClock().now()), **succeeded_status()}
    await _say(client, name, namespace=namespace, status=status)


async def _say(client: KubeClient, name: str, *, namespace: str, status: dict[str, Any]) -> None:
    job = await client.get_object(JOBS, name, namespace=namespace)
    # A job that runs began when it began: the API server takes no other time for it.
    began = {} if job["spec"].get("suspend") else {"startTime": (job.get("status") or {}).get("startTime")}
    status |= {field: value for field, value in began.items() if value}
    await client.patch(JOBS, name, {"status": status}, namespace=namespace, subresource="status")
