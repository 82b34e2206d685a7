# SPDX-License-Identifier: Apache-2.0
"""What users, administrators and controllers do on a hub in a course, without controllers of its own.

The courses say what the job controller would: that a Job runs, has stopped, or has come to its end.
"""

from __future__ import annotations

from typing import Any, Final

import anyio
import orjson

from devcluster.kubelet.node import NodeSpec
from multikueue.api.constants import PRIORITY_CLASS_LABEL
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.kube.rest.client import KubeClient, PatchKind
from tests.support.managers import ensure, job_manifest

Object = dict[str, Any]

NAMESPACE: Final = "team"
_KUEUE: Final = "kueue.x-k8s.io/v1beta2"
_TIME: Final = "2026-01-01T00:00:00Z"
_LOOK_SECONDS: Final = 0.2
_LOOKS: Final = 25


class ComparedHub:
    """The hub of one course."""

    def __init__(self, client: KubeClient, *, nodes: list[NodeSpec] | None = None) -> None:
        """`nodes` are those that are registered as long as they are in the list."""
        self.client = client
        self._nodes = [] if nodes is None else nodes

    async def queue(
        self, name: str = "q", *, cpu: str = "0", checks: tuple[str, ...] = (), preempts: bool = False, **spec: Any
    ) -> None:
        """A queue, with priority classes and with checks that another controller decides; `spec` has more fields."""
        for each in checks:
            await self._check_kind(each)
        await self.classes()
        await ensure(self.client, RESOURCE_FLAVORS, _kueue_object(RESOURCE_FLAVORS, "default", {}))
        given: Object = {"namespaceSelector": {}, "resourceGroups": _cpu_quota(cpu)}
        if preempts:
            given["preemption"] = {"withinClusterQueue": "LowerPriority"}
        if checks:
            given["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
        await self.make(CLUSTER_QUEUES, name, given | spec)
        await self.make(LOCAL_QUEUES, name, {"clusterQueue": name})

    async def classes(self) -> None:
        """The priority classes `low` and `high`."""
        for each, value in (("low", 1), ("high", 100)):
            body = {"apiVersion": _KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": each}, "value": value}
            await ensure(self.client, WORKLOAD_PRIORITY_CLASSES, body)

    async def make(self, resource: Resource, name: str, spec: Object) -> None:
        """An object of one of Kueue's kinds."""
        body = _kueue_object(resource, name, spec)
        await self.client.create(resource, body, namespace=_place(resource))

    async def _check_kind(self, name: str) -> None:
        spec = {"controllerName": "example.com/another"}
        body = {"apiVersion": _KUEUE, "kind": "AdmissionCheck", "metadata": {"name": name}, "spec": spec}
        await ensure(self.client, ADMISSION_CHECKS, body)
        await self.check_is(name, active=True)

    async def check_is(self, name: str, *, active: bool) -> None:
        """The controller of a check says whether it is active."""
        said = {"type": "Active", "status": str(active), "reason": "ByHand", "message": "", "lastTransitionTime": _TIME}
        await self.client.patch(ADMISSION_CHECKS, name, {"status": {"conditions": [said]}}, subresource="status")

    async def submit(
        self,
        name: str,
        *,
        cpu: str = "1",
        memory: str = "",
        parallelism: int = 1,
        queue_name: str | None = "q",
        priority_class: str = "",
        suspend: bool = True,
        template: Object | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> None:
        """A Job of pods with one container; `template` has more fields of the pods."""
        priority = {PRIORITY_CLASS_LABEL: priority_class} if priority_class else {}
        body = job_manifest(
            name,
            namespace=NAMESPACE,
            queue=queue_name,
            cpu=cpu,
            parallelism=parallelism,
            labels=priority | (labels or {}),
            annotations=annotations,
            suspend=suspend,
        )
        pod = body["spec"]["template"]["spec"]
        if memory:
            pod["containers"][0]["resources"]["requests"]["memory"] = memory
        pod |= template or {}
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
        await self.client.patch(resource, name, body, namespace=_place(resource))

    async def status(self, resource: Resource, name: str, *conditions: Object, **fields: object) -> None:
        """Its user adds conditions, and writes other fields."""
        found = await self.client.get_object(resource, name, namespace=_place(resource))
        kept: list[Object] = (found.get("status") or {}).get("conditions") or []
        added = [{"lastTransitionTime": _TIME, **each} for each in conditions]
        kept = [each for each in kept if each["type"] not in {one["type"] for one in added}]
        body = {"status": {"conditions": [*kept, *added], **fields}}
        await self.client.patch(resource, name, body, namespace=_place(resource), subresource="status")

    async def release(self, name: str) -> None:
        """The user of a Workload without a job has stopped what runs, and gives the reservation back."""
        await self.status(
            WORKLOADS,
            name,
            {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "By hand"},
            {"type": "Admitted", "status": "False", "reason": "NoReservation", "message": "By hand"},
            admission=None,
        )

    async def objects(self, resource: Resource) -> list[Object]:
        """All objects of a kind in the namespace of the course."""
        return [orjson.loads(raw) for raw in (await self.client.list_all(resource, namespace=NAMESPACE)).items]

    async def lose_nodes(self, *names: str, deleted: bool = True) -> None:
        """Virtual nodes are deleted or not ready, and stay so."""
        self._nodes[:] = [node for node in self._nodes if node.name not in names]
        since = format_time(SystemClock().now())
        unready = {"type": "Ready", "status": "False", "reason": "ByHand", "lastTransitionTime": since}
        body = {"status": {"conditions": [unready]}}
        for name in names:
            if deleted:
                await self.client.delete(NODES, name)
            else:
                await self.client.patch(NODES, name, body, kind=PatchKind.STRATEGIC, subresource="status")

    async def lose_pod(self, job: str) -> None:
        """A pod of a Job is deleted, the first by name."""
        pods = [pod for pod in await self.objects(PODS) if pod["metadata"]["name"].startswith(f"{job}-")]
        name = min(pod["metadata"]["name"] for pod in pods)
        await self.client.delete(PODS, name, namespace=NAMESPACE, grace_seconds=0)

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


def _place(resource: Resource) -> str | None:
    return NAMESPACE if resource.namespaced else None


def _kueue_object(resource: Resource, name: str, spec: Object) -> Object:
    place = {"namespace": NAMESPACE} if resource.namespaced else {}
    return {"apiVersion": _KUEUE, "kind": resource.kind, "metadata": {"name": name, **place}, "spec": spec}


def _cpu_quota(cpu: str) -> list[Object]:
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    return [{"coveredResources": ["cpu"], "flavors": [flavor]}]
