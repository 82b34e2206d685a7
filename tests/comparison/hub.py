# SPDX-License-Identifier: Apache-2.0
"""What users, administrators and controllers do on a hub in a course, without controllers of its own.

The courses say what the job controller would: that a Job runs, has stopped, or has come to its end.
"""

from __future__ import annotations

from typing import Any, Final

import anyio
import orjson

from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import ensure, job_manifest, make_queue

Object = dict[str, Any]

NAMESPACE: Final = "team"
_KUEUE: Final = "kueue.x-k8s.io/v1beta2"
_TIME: Final = "2026-01-01T00:00:00Z"
_LOOK_SECONDS: Final = 0.2
_LOOKS: Final = 25


class ComparedHub:
    """The hub of one course."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client

    async def queue(self, name: str = "q", *, checks: tuple[str, ...] = (), preempts: bool = False, cpu: str) -> None:
        """A queue, with priority classes and with checks that another controller decides."""
        for each in checks:
            await self._check_kind(each)
        preemption = {"withinClusterQueue": "LowerPriority"} if preempts else None
        await make_queue(self.client, name, namespace=NAMESPACE, cpu=cpu, checks=checks, preemption=preemption)
        for each, value in (("low", 1), ("high", 100)):
            body = {"apiVersion": _KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": each}, "value": value}
            await ensure(self.client, WORKLOAD_PRIORITY_CLASSES, body)

    async def _check_kind(self, name: str) -> None:
        spec = {"controllerName": "example.com/another"}
        body = {"apiVersion": _KUEUE, "kind": "AdmissionCheck", "metadata": {"name": name}, "spec": spec}
        await ensure(self.client, ADMISSION_CHECKS, body)
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": _TIME}
        await self.client.patch(ADMISSION_CHECKS, name, {"status": {"conditions": [active]}}, subresource="status")

    async def submit(self, name: str, *, cpu: str = "1", parallelism: int = 1, **labels: str) -> None:
        """A suspended Job in the queue `q`; labels without their prefix, with `_` for `-`."""
        given = {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in labels.items()}
        body = job_manifest(
            name, namespace=NAMESPACE, queue="q", cpu=cpu, parallelism=parallelism, labels=given, suspend=True
        )
        await self.client.create(JOBS, body, namespace=NAMESPACE)

    async def run(self, name: str, *, pods: int = 1, ready: int | None = None) -> None:
        """Its pods run, once it may, and so many are ready; all unless it is said."""
        for _ in range(_LOOKS):
            if not (await self.client.get_object(JOBS, name, namespace=NAMESPACE))["spec"]["suspend"]:
                break
            await anyio.sleep(_LOOK_SECONDS)
        else:
            raise LookupError(f"Job {NAMESPACE}/{name} is still suspended")
        await self.show(name, active=pods, ready=pods if ready is None else ready, startTime=_TIME, conditions=None)

    async def stop(self, name: str) -> None:
        """Its pods have stopped."""
        suspended = {"type": "Suspended", "status": "True", "lastTransitionTime": _TIME, "lastProbeTime": _TIME}
        await self.show(name, active=0, ready=0, startTime=None, conditions=[suspended])

    async def end(self, name: str, *, succeeded: bool = True) -> None:
        """It has come to its end."""
        kinds = ("SuccessCriteriaMet", "Complete") if succeeded else ("FailureTarget", "Failed")
        shared = {"status": "True", "reason": "Ended", "message": "It ended", "lastTransitionTime": _TIME}
        conditions = [{"type": kind, "lastProbeTime": _TIME, **shared} for kind in kinds]
        counts: Object = {"succeeded": 1, "completionTime": _TIME} if succeeded else {"failed": 1}
        await self.show(name, active=0, ready=0, terminating=0, startTime=_TIME, conditions=conditions, **counts)

    async def show(self, name: str, **status: object) -> None:
        """The status of a Job."""
        await self.client.patch(JOBS, name, {"status": status}, namespace=NAMESPACE, subresource="status")

    async def change(self, resource: Resource, name: str, body: Object) -> None:
        """Merge this into an object."""
        namespace = None if resource == CLUSTER_QUEUES else NAMESPACE
        await self.client.patch(resource, name, body, namespace=namespace)

    async def workload(self, job: str) -> Object:
        """The Workload of a Job, once it is there."""
        for _ in range(_LOOKS):
            for raw in (await self.client.list_all(WORKLOADS, namespace=NAMESPACE)).items:
                found: Object = orjson.loads(raw)
                if any(owner["name"] == job for owner in found["metadata"].get("ownerReferences") or ()):
                    return found
            await anyio.sleep(_LOOK_SECONDS)
        raise LookupError(f"no Workload of Job {NAMESPACE}/{job}")

    async def activate(self, job: str, *, active: bool) -> None:
        """Its user activates or deactivates the Workload."""
        found = await self.workload(job)
        await self.change(WORKLOADS, found["metadata"]["name"], {"spec": {"active": active}})

    async def check(self, job: str, name: str, state: str, message: str, **more: object) -> None:
        """The controller of a check says this."""
        for _ in range(_LOOKS):
            found = await self.workload(job)
            checks: list[Object] = (found.get("status") or {}).get("admissionChecks") or []
            if any(each["name"] == name for each in checks):
                break
            await anyio.sleep(_LOOK_SECONDS)
        else:
            raise LookupError(f"the Workload of Job {NAMESPACE}/{job} has no check {name}")
        said = {"state": state, "message": message, "lastTransitionTime": _TIME, **more}
        body = {"status": {"admissionChecks": [each | said if each["name"] == name else each for each in checks]}}
        path = found["metadata"]["name"]
        await self.client.patch(WORKLOADS, path, body, namespace=NAMESPACE, subresource="status")
