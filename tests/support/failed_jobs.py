# SPDX-License-Identifier: Apache-2.0
"""Remote jobs that fail, with their pods, on servers where no controller and no kubelet runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from devcluster.apiserver import errors
from devcluster.apiserver.http.pod_access import KubeletRequest
from devcluster.apiserver.http.requests import Answer, Reply, Request, RequestTarget
from multikueue.api.constants import BATCH_CONTROLLER_UID_LABEL, BATCH_JOB_NAME_LABEL
from multikueue.api.resource import JOBS, PODS, SERVICE_ACCOUNTS
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import ensure

SERVICE_ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}


@dataclass
class Logs:
    """Answers `pods/log`; `code` is the error to answer with instead, `seen` are the options of each request."""

    text: dict[str, str] = field(default_factory=dict)
    code: int = 0
    seen: list[dict[str, str]] = field(default_factory=list)

    async def logs(self, request: Request, target: RequestTarget) -> Reply:
        """The log of the pod."""
        self.seen.append(dict(request.query))
        if self.code:
            raise errors.StatusError(self.code, "InternalError", "no log today")
        return Answer(200, self.text.get(target.name, "").encode(), "text/plain")

    async def stream(self, request: Request, requested: KubeletRequest) -> Reply:
        """Not called."""
        raise AssertionError("exec was called")

    async def forward(self, request: Request, requested: KubeletRequest) -> Reply:
        """Not called."""
        raise AssertionError("port-forward was called")


def failed_status(message: str = "it has failed") -> dict[str, Any]:
    """The status of a Job that has just failed."""
    now = format_time(SystemClock().now())
    stamp = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now, "reason": "BackoffLimitExceeded"}
    return {
        "active": 0,
        "ready": 0,
        "failed": 1,
        "conditions": [{"type": kind, "message": message, **stamp} for kind in ("FailureTarget", "Failed")],
    }


def failed_pod(name: str, *, job: str, job_uid: str, exit_code: int = 3, ended: str = "") -> dict[str, Any]:
    """A pod of the Job that ended with an error."""
    terminated = {
        "exitCode": exit_code,
        "reason": "Error",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": ended or "2026-01-01T00:00:01Z",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {BATCH_JOB_NAME_LABEL: job, BATCH_CONTROLLER_UID_LABEL: job_uid}},
        "spec": {
            "restartPolicy": "Never",
            "nodeName": "node",
            "containers": [{"name": "main", "image": "busybox"}],
        },
        "status": {
            "phase": "Failed",
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "busybox",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": terminated},
                }
            ],
        },
    }


async def make_failed_pod(client: KubeClient, pod: dict[str, Any], *, namespace: str) -> None:
    """Create it, with its status."""
    account = {**SERVICE_ACCOUNT, "metadata": {"name": "default", "namespace": namespace}}
    await ensure(client, SERVICE_ACCOUNTS, account)
    await client.create(PODS, {key: value for key, value in pod.items() if key != "status"}, namespace=namespace)
    name = pod["metadata"]["name"]
    await client.patch(PODS, name, {"status": pod["status"]}, namespace=namespace, subresource="status")


async def fail_job(client: KubeClient, name: str, *, namespace: str, message: str = "it has failed") -> None:
    """Let a Job fail that runs."""
    job = await client.get_object(JOBS, name, namespace=namespace)
    status = {**failed_status(message), "startTime": (job.get("status") or {}).get("startTime")}
    await client.patch(JOBS, name, {"status": status}, namespace=namespace, subresource="status")
