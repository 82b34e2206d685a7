# SPDX-License-Identifier: Apache-2.0
"""The worker clusters of a history with dispatch: their queues, what happens there, and what is shown of them.

Each queue of the hub is on one worker cluster only, so that it does not depend on the moment which one runs a Job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from multikueue.api.resource import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS, Resource
from multikueue.kube import errors
from multikueue.kube.rest.client import KubeClient
from tests.comparison.histories.history import History, Object, Step
from tests.comparison.shown import leaves
from tests.support.managers import make_namespace

ON_WORKERS: Final = ("remote queue", "remote end", "vanish")
"""Steps that happen on the worker cluster of a job or queue."""
_KUEUE: Final = "kueue.x-k8s.io/v1beta2"
_TIME: Final = "2026-01-01T00:00:00Z"
_FIRST: Final = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}
"""The condition that a Job has before that of its end."""


class WorkersOfHistory:
    """The worker clusters of one history, which has a namespace on each; without dispatch there are none."""

    def __init__(self, clients: Mapping[str, KubeClient], played: History, *, namespace: str) -> None:
        self._clients = {name: clients[name] for name in played.workers}
        self._history = played
        self._namespace = namespace
        self._worker_of = {queue: name for name, queues in played.workers.items() for queue in queues}
        self._jobs = {step.job.name: step.job for step in played.steps if step.job is not None}

    async def set_up(self, flavors: Mapping[str, Object]) -> None:
        """Make the queues, with the flavors of the hub, whose specs are given by name."""
        for worker, client in self._clients.items():
            await make_namespace(client, self._namespace)
            for name, spec in flavors.items():
                await self._make(client, RESOURCE_FLAVORS, name, spec)
            for name, spec in self._history.workers[worker].items():
                await self._make(client, CLUSTER_QUEUES, name, self._named(spec))
                await self._make(client, LOCAL_QUEUES, name, {"clusterQueue": self._name(name)})

    async def take(self, step: Step) -> None:
        """One step that happens there; nothing if the job is not there, or does not run."""
        match step.verb:
            case "remote queue":
                client = self._clients[self._worker_of[step.name]]
                await client.patch(CLUSTER_QUEUES, self._name(step.name), {"spec": self._named(step.spec)})
            case "remote end":
                await self._end(step.name, step.spec["condition"])
            case "vanish":
                await self._delete(step.name)
            case other:
                raise ValueError(f"no step on worker clusters is called {other}")

    async def clean_up(self) -> None:
        """Delete what was made."""
        for worker, client in self._clients.items():
            for resource in (JOBS, WORKLOADS, LOCAL_QUEUES):
                await client.delete_collection(resource, namespace=self._namespace)
            for resource, names in (
                (CLUSTER_QUEUES, self._history.workers[worker]),
                (RESOURCE_FLAVORS, self._history.flavors),
            ):
                for name in names:
                    with suppress(errors.NotFound):
                        await client.delete(resource, self._name(name))

    async def _delete(self, job: str) -> None:
        """Delete the remote Job; there is no garbage collector that would delete its Workload."""
        client = self._of_job(job)
        with suppress(errors.NotFound):
            await client.delete(JOBS, job, namespace=self._namespace, propagation="Background")
        for raw in (await client.list_all(WORKLOADS, namespace=self._namespace)).items:
            metadata = orjson.loads(raw)["metadata"]
            if any(owner["name"] == job for owner in metadata.get("ownerReferences") or ()):
                with suppress(errors.NotFound):
                    await client.delete(WORKLOADS, metadata["name"], namespace=self._namespace)

    async def _end(self, job: str, condition: str) -> None:
        client = self._of_job(job)
        try:
            found = await client.get_object(JOBS, job, namespace=self._namespace)
        except errors.NotFound:
            return
        if found["spec"].get("suspend"):
            return
        shared = {"status": "True", "reason": "Ended", "message": "", "lastTransitionTime": _TIME}
        kinds = (_FIRST[condition], condition)
        status: Object = {"active": 0, "ready": 0, "terminating": 0, "startTime": _TIME}
        status["conditions"] = [{"type": kind, "lastProbeTime": _TIME, **shared} for kind in kinds]
        if condition == "Complete":
            status["completionTime"] = _TIME
        await client.patch(JOBS, job, {"status": status}, namespace=self._namespace, subresource="status")

    def _of_job(self, job: str) -> KubeClient:
        return self._clients[self._worker_of[self._jobs[job].queue]]

    async def _make(self, client: KubeClient, resource: Resource, name: str, spec: Object) -> None:
        metadata: Object = {"name": name} if resource.namespaced else {"name": self._name(name)}
        body = {"apiVersion": _KUEUE, "kind": resource.kind, "metadata": metadata, "spec": spec}
        await client.create(resource, body, namespace=self._namespace if resource.namespaced else None)

    def _name(self, name: str) -> str:
        return f"{self._namespace}-{name}"

    def _named(self, spec: Mapping[str, Any]) -> Object:
        """The spec with the flavors of this history."""
        groups = [
            group | {"flavors": [each | {"name": self._name(each["name"])} for each in group["flavors"]]}
            for group in spec.get("resourceGroups") or ()
        ]
        return {**spec, **({"resourceGroups": groups} if groups else {})}


async def remote_lines(worker: str, client: KubeClient) -> dict[str, list[str]]:
    """What is shown of a worker cluster, by namespace: what runs there, and what has quota and is not over.

    What only waits is left out, as this project's hub does not ask a cluster that has no quota; so is what has ended,
    which it keeps for its logs if it failed.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for resource, lines in ((JOBS, _job_lines), (WORKLOADS, _workload_lines)):
        for raw in (await client.list_all(resource)).items:
            obj: Object = orjson.loads(raw)
            prefix = f"remote {worker} {resource.kind} {obj['metadata']['name']}"
            found[obj["metadata"]["namespace"]] += (f"{prefix}: {line}" for line in lines(obj))
    return found


def _job_lines(job: Object) -> Iterator[str]:
    conditions = (job.get("status") or {}).get("conditions") or ()
    is_over = any(each["type"] in _FIRST and each["status"] == "True" for each in conditions)
    if not is_over and not job["spec"].get("suspend"):
        yield f"runs with {sorted((job['spec']['template']['spec'].get('nodeSelector') or {}).items())}"


def _workload_lines(workload: Object) -> Iterator[str]:
    status: Object = workload.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    if "admission" not in status or "Finished" in conditions:
        return
    yield from (f"{name}={each['status']} {each['reason']}" for name, each in sorted(conditions.items()))
    yield from (f"{path}: {value}" for path, value in leaves(status["admission"]))
