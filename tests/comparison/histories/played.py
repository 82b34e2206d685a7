# SPDX-License-Identifier: Apache-2.0
"""A history on one hub: its steps as requests, and what is shown of it, in a namespace of its own.

Each Job is a second younger than the one before, by the clock of the embedded API server, so that no order depends on
uids. Nothing runs Jobs: a step `run` says that the pods of one are active, and `stop` that they are not any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any, Final

import anyio
import orjson

from devcluster.operators.definitions import JOB_SETS
from multikueue.api.constants import JOB_MIN_PARALLELISM_ANNOTATION, MULTIKUEUE_MANAGED_BY, PRIORITY_CLASS_LABEL
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    JOBS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    RESOURCE_FLAVORS,
    SERVICE_ACCOUNTS,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.kube import errors
from multikueue.kube.rest.client import KubeClient
from tests.comparison.histories.groups import PodsOfGroups, is_live, lines_of_pod, pod
from tests.comparison.histories.history import CHECKS, PRIORITIES, History, Object, Step, SubmittedJob
from tests.comparison.histories.places import GPU
from tests.comparison.histories.pods import PODS_ANNOTATION
from tests.comparison.histories.workers import ON_WORKERS, WorkersOfHistory, remote_lines
from tests.comparison.shown import comparable, leaves
from tests.support.managers import ensure, job_manifest, make_namespace

_KUEUE: Final = "kueue.x-k8s.io/v1beta2"
_TIME: Final = "2026-01-01T00:00:00Z"
_PAST: Final = 6 * 3600
_SHOWN: Final = (JOBS, WORKLOADS, LOCAL_QUEUES, CLUSTER_QUEUES)
_OF_JOBS: Final = ("replicatedJobs", "parallelism", "template.spec.nodeSelector", "template.spec.tolerations")
_OFTEN_LATE: Final = frozenset({("LocalQueue", "pendingWorkloads"), ("ClusterQueue", "fairSharing.weightedShare")})
_WAIT_SECONDS: Final = 0.1
_WAITS: Final = 50


class HistoryHub:
    """A hub that histories are played on side by side."""

    def __init__(
        self, client: KubeClient, *, sets: bool, groups: bool, workers: Mapping[str, KubeClient] | None = None
    ) -> None:
        """Whether there are JobSets, and groups of pods; and worker clusters by name."""
        self.client = client
        self.workers = workers or {}
        self._resources = (*_SHOWN, *((JOB_SETS,) if sets else ()), *((PODS,) if groups else ()))
        self._age = 0
        self._creating = anyio.Lock()

    async def prepare(self) -> None:
        """Make what all histories share."""
        for name, value in PRIORITIES.items():
            body = {"apiVersion": _KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
            await ensure(self.client, WORKLOAD_PRIORITY_CLASSES, body)
        for name in CHECKS:
            spec = {"controllerName": "example.com/another"}
            body = {"apiVersion": _KUEUE, "kind": "AdmissionCheck", "metadata": {"name": name}, "spec": spec}
            await ensure(self.client, ADMISSION_CHECKS, body)
            active = {
                "type": "Active",
                "status": "True",
                "reason": "ByHand",
                "message": "",
                "lastTransitionTime": _TIME,
            }
            status = {"status": {"conditions": [active]}}
            await self.client.patch(ADMISSION_CHECKS, name, status, subresource="status")

    async def create(self, resource: Resource, body: Object, *, namespace: str | None) -> None:
        """Create an object that is a second younger than the last one."""
        async with self._creating:
            self._age += 1
            await self.client.request("PUT", "/faults", body={"clockOffset": self._age - _PAST})
            await self.client.create(resource, body, namespace=namespace)

    async def shown(self) -> dict[str, list[str]]:
        """The lines of each namespace."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for resource in self._resources:
            for raw in (await self.client.list_all(resource)).items:
                obj: Object = {"kind": resource.kind, **orjson.loads(raw)}
                metadata = obj["metadata"]
                namespace = metadata.get("namespace") or metadata["name"].partition("-")[0]
                found[namespace] += (comparable(line.replace(f"{namespace}-", "")) for line in _lines(obj))
        for name, worker in self.workers.items():
            for namespace, lines in (await remote_lines(name, worker)).items():
                found[namespace] += (comparable(line.replace(f"{namespace}-", "")) for line in lines)
        return found


class PlayedHistory:
    """One history on a hub."""

    def __init__(self, hub: HistoryHub, played: History, *, namespace: str) -> None:
        """`namespace` is the prefix of all names that are not in a namespace, too."""
        self.namespace = namespace
        self._hub = hub
        self._history = played
        jobs = [step.job for step in played.steps if step.job is not None]
        self._sets = {job.name for job in jobs if job.parts}
        self._groups = {job.name: job for job in jobs if job.is_group}
        self._pods = PodsOfGroups(hub.client, namespace)
        self._workers = WorkersOfHistory(hub.workers, played, namespace=namespace)
        self._replaced = 0

    async def set_up(self) -> list[str]:
        """Make what is there at first. Returns what was refused."""
        await make_namespace(self._hub.client, self.namespace)
        if self._groups:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            await self._hub.create(SERVICE_ACCOUNTS, account, namespace=self.namespace)
        refused: list[str] = []
        of_flavors: Object = {}
        if self._history.levels:
            levels = [{"nodeLabel": each} for each in self._history.levels]
            refused += await self._try(self._make(TOPOLOGIES, "all", {"levels": levels}))
            of_flavors = {"topologyName": self._name("all")}
        for flavor, nodes in self._history.nodes.items():
            for node in nodes:
                manifest = node.manifest(name=self._name(node.name), flavor=self._labels(flavor))
                await self._hub.create(NODES, manifest, namespace=None)
                # A new Node gets a taint until its kubelet is ready.
                await self._hub.client.patch(NODES, self._name(node.name), {"spec": manifest["spec"]})
        flavors = {
            name: spec | of_flavors | {"nodeLabels": self._labels(name)} for name, spec in self._history.flavors.items()
        }
        for resource, specs in (
            (RESOURCE_FLAVORS, flavors),
            (COHORTS, self._history.cohorts),
            (CLUSTER_QUEUES, self._history.queues),
        ):
            for name, spec in specs.items():
                refused += await self._try(self._make(resource, name, self._named(spec)))
        for name in self._history.queues:
            refused += await self._try(self._make(LOCAL_QUEUES, name, {"clusterQueue": self._name(name)}))
        await self._workers.set_up(flavors)
        return refused

    async def take(self, step: Step) -> list[str]:
        """One step. Returns what was refused.

        Raises `LookupError` if a job cannot be made or come to its end: both would show the same, and nothing at all.
        """
        refused = await self._try(self._take(step))
        if refused and step.verb in ("submit", "finish"):
            raise LookupError(f"{step} in {self.namespace} was {refused[0]}, so that nothing would be compared")
        return refused

    async def clean_up(self) -> None:
        """Delete what is not in the namespace, and the Jobs."""
        client = self._hub.client
        for group in self._groups:
            await self._pods.delete(group)
        await self._workers.clean_up()
        for resource in (JOBS, *((JOB_SETS,) if self._sets else ()), WORKLOADS, LOCAL_QUEUES):
            await client.delete_collection(resource, namespace=self.namespace)
        for resource, names in (
            (CLUSTER_QUEUES, self._history.queues),
            (COHORTS, self._history.cohorts),
            (RESOURCE_FLAVORS, self._history.flavors),
            (TOPOLOGIES, ["all"] if self._history.levels else []),
            (NODES, [node.name for nodes in self._history.nodes.values() for node in nodes]),
        ):
            for name in names:
                try:
                    await client.delete(resource, self._name(name))
                except errors.NotFound:
                    continue

    async def _try(self, request: Any) -> list[str]:
        try:
            await request
        except (errors.Invalid, errors.Forbidden, errors.NotFound, errors.BadRequest) as error:
            return [f"refused: {type(error).__name__}"]
        return []

    async def _take(self, step: Step) -> None:
        client = self._hub.client
        if step.verb in ON_WORKERS:
            await self._workers.take(step)
            return
        if step.name in self._groups and step.verb not in ("activate", "deactivate", "check"):
            await self._take_with_group(step, self._groups[step.name])
            return
        match step.verb:
            case "fail" | "replace":
                return
            case "submit":
                assert step.job is not None
                await self._submit(step.job)
            case "finish":
                if await self._is_suspended(step.name):
                    return
                if step.name in self._sets:
                    done = {"type": "Completed", "status": "True", "reason": "Ended", "message": ""}
                    await self._status(step.name, conditions=[done | {"lastTransitionTime": _TIME}])
                    return
                kinds = ("SuccessCriteriaMet", "Complete")
                shared = {"status": "True", "reason": "Ended", "message": "", "lastTransitionTime": _TIME}
                conditions = [{"type": kind, "lastProbeTime": _TIME, **shared} for kind in kinds]
                times = {"startTime": _TIME, "completionTime": _TIME}
                await self._status(step.name, active=0, ready=0, conditions=conditions, **times)
            case "delete":
                kind = self._kind(step.name)
                await client.delete(kind, step.name, namespace=self.namespace, propagation="Background")
                await self._delete_workloads(step.name)
            case "run":
                if not await self._is_suspended(step.name):
                    await self._active(step.name, 1)
            case "stop":
                if await self._is_suspended(step.name):
                    await self._active(step.name, 0)
            case "activate" | "deactivate":
                body: Object = {"spec": {"active": step.verb == "activate"}}
                for workload in await self._workloads(step.name):
                    await client.patch(WORKLOADS, workload["metadata"]["name"], body, namespace=self.namespace)
            case "priority":
                labels = {"metadata": {"labels": {PRIORITY_CLASS_LABEL: step.spec["class"]}}}
                await client.patch(self._kind(step.name), step.name, labels, namespace=self.namespace)
            case "queue":
                await client.patch(CLUSTER_QUEUES, self._name(step.name), {"spec": self._named(dict(step.spec))})
            case "cohort":
                await client.patch(COHORTS, self._name(step.name), {"spec": self._named(dict(step.spec))})
            case "check":
                for workload in await self._workloads(step.name):
                    await self._check(workload, step.spec)
            case "pods":
                body = {"metadata": {"annotations": {PODS_ANNOTATION: step.spec["are"]}}}
                await client.patch(JOBS, step.name, body, namespace=self.namespace)
            case "node":
                node = step.spec["node"]
                manifest = node.manifest(name=self._name(node.name), flavor={})
                await client.patch(NODES, self._name(node.name), {"spec": manifest["spec"]})
                body = {"status": manifest["status"]}
                await client.patch(NODES, self._name(node.name), body, subresource="status")
            case other:
                raise ValueError(f"no step is called {other}")

    async def _take_with_group(self, step: Step, job: SubmittedJob) -> None:
        match step.verb:
            case "submit":
                for index in range(job.parallelism):
                    await self._make_pod(job, f"{job.name}-{index}")
                await self._until_workload(job.name)
            case "replace":
                lives = [each for each in await self._pods.of(job.name) if is_live(each)]
                for _ in range(job.parallelism - len(lives)):
                    self._replaced += 1
                    await self._make_pod(job, f"{job.name}-r{self._replaced}")
            case "finish":
                await self._pods.finish(job.name)
            case "fail":
                await self._pods.fail(job.name)
            case "delete":
                await self._pods.delete(job.name)
                # Kueue keeps pods that were deleted while they waited, as those that ran; here they go at once.
                await self._delete_workloads(job.name)
            case _:
                return  # its pods run by themselves, and stay as they were made

    async def _delete_workloads(self, job: str) -> None:
        for workload in await self._workloads(job):
            with suppress(errors.NotFound):  # the manager may be faster
                await self._hub.client.delete(WORKLOADS, workload["metadata"]["name"], namespace=self.namespace)

    async def _make_pod(self, job: SubmittedJob, name: str) -> None:
        await self._hub.create(PODS, pod(name, job), namespace=self.namespace)

    async def _submit(self, job: SubmittedJob) -> None:
        body = job_manifest(
            job.name,
            namespace=self.namespace,
            queue=job.queue,
            cpu=str(job.cpu),
            parallelism=job.parallelism,
            labels={PRIORITY_CLASS_LABEL: job.priority} if job.priority else {},
            annotations=_annotations(job),
            suspend=True,
        )
        if self._history.workers:
            body["spec"] |= {"managedBy": MULTIKUEUE_MANAGED_BY, "backoffLimit": 0}
        pod = body["spec"]["template"]["spec"]
        if job.gpu:
            resources = pod["containers"][0]["resources"]
            resources["requests"][GPU] = str(job.gpu)
            resources["limits"] = (resources.get("limits") or {}) | {GPU: str(job.gpu)}
        if job.flavor:
            pod["nodeSelector"] = self._labels(job.flavor)
        if job.tolerates:
            pod["tolerations"] = [{"key": "spot", "operator": "Exists"}]
        if job.topology:
            body["spec"]["template"]["metadata"] = {"annotations": dict(job.topology)}
        if job.parts:
            await self._hub.create(JOB_SETS, _set(job, body), namespace=self.namespace)
        else:
            await self._hub.create(JOBS, body, namespace=self.namespace)
        await self._until_workload(job.name)

    async def _until_workload(self, job: str) -> None:
        for _ in range(_WAITS):
            if await self._workloads(job):
                return
            await anyio.sleep(_WAIT_SECONDS)

    async def _check(self, workload: Object, states: Mapping[str, str]) -> None:
        checks: list[Object] = (workload.get("status") or {}).get("admissionChecks") or []
        found = [
            each | {"state": states[each["name"]], "message": "by hand", "lastTransitionTime": _TIME}
            if each["name"] in states
            else each
            for each in checks
        ]
        if found != checks:
            name, body = workload["metadata"]["name"], {"status": {"admissionChecks": found}}
            client = self._hub.client
            await client.patch(WORKLOADS, name, body, namespace=self.namespace, subresource="status")

    async def _workloads(self, job: str) -> list[Object]:
        found = (await self._hub.client.list_all(WORKLOADS, namespace=self.namespace)).items
        workloads: list[Object] = [orjson.loads(raw) for raw in found]
        return [
            each
            for each in workloads
            if each["metadata"]["name"] == job
            or any(owner["name"] == job for owner in each["metadata"].get("ownerReferences") or ())
        ]

    def _kind(self, job: str) -> Resource:
        return JOB_SETS if job in self._sets else JOBS

    async def _is_suspended(self, job: str) -> bool:
        found = await self._hub.client.get_object(self._kind(job), job, namespace=self.namespace)
        return bool(found["spec"].get("suspend"))

    async def _active(self, job: str, pods: int) -> None:
        """So many pods of a job are active, of a JobSet those of its first Job."""
        if job in self._sets:
            shown = {"name": "r0", "active": pods, "ready": 0, "succeeded": 0, "failed": 0, "suspended": 0}
            await self._status(job, replicatedJobsStatus=[shown])
        else:
            await self._status(job, active=pods, ready=pods, startTime=_TIME if pods else None, conditions=None)

    async def _status(self, name: str, **status: object) -> None:
        await self._hub.client.patch(
            self._kind(name), name, {"status": status}, namespace=self.namespace, subresource="status"
        )

    async def _make(self, resource: Resource, name: str, spec: Object) -> None:
        metadata: Object = {"name": name} if resource.namespaced else {"name": self._name(name)}
        body = {"apiVersion": _KUEUE, "kind": resource.kind, "metadata": metadata, "spec": spec}
        await self._hub.create(resource, body, namespace=self.namespace if resource.namespaced else None)

    def _name(self, name: str) -> str:
        return f"{self.namespace}-{name}"

    def _labels(self, flavor: str) -> dict[str, str]:
        """Those of the nodes of a flavor: of this history only, where there are nodes."""
        labels: dict[str, str] = self._history.flavors[flavor]["nodeLabels"]
        return {key: self._name(value) if self._history.levels else value for key, value in labels.items()}

    def _named(self, spec: Object) -> Object:
        """The spec with the names of this history."""
        found = {
            key: self._name(value) if key in ("cohortName", "parentName") else value for key, value in spec.items()
        }
        if "admissionChecksStrategy" in spec:
            rules = spec["admissionChecksStrategy"]["admissionChecks"]
            named = [
                rule | {"onFlavors": [self._name(each) for each in rule["onFlavors"]]} if "onFlavors" in rule else rule
                for rule in rules
            ]
            found["admissionChecksStrategy"] = {"admissionChecks": named}
        if "resourceGroups" in spec:
            found["resourceGroups"] = [
                group | {"flavors": [each | {"name": self._name(each["name"])} for each in group["flavors"]]}
                for group in spec["resourceGroups"]
            ]
        return found


def _annotations(job: SubmittedJob) -> dict[str, str]:
    minimum = {JOB_MIN_PARALLELISM_ANNOTATION: str(job.minimum)} if job.minimum else {}
    return minimum | ({PODS_ANNOTATION: job.pods} if job.pods else {})


def _set(job: SubmittedJob, manifest: Object) -> Object:
    """The JobSet of a job, whose pods are as those of the Job."""
    template = manifest["spec"]["template"]
    parts = []
    for index, pods in enumerate(job.parts):
        own = deepcopy(template)
        own["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(job.cpu + index)
        spec = {"parallelism": pods, "completions": pods, "template": own}
        parts.append({"name": f"r{index}", "replicas": 1, "template": {"spec": spec}})
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": manifest["metadata"],
        "spec": {"suspend": True, "replicatedJobs": parts},
    }


def _lines(obj: Object) -> Iterator[str]:
    """What is compared of an object; what may differ, as messages and how often one was evicted, begins with `~`."""
    if obj["kind"] == PODS.kind:
        yield from lines_of_pod(obj)
        return
    name = f"{obj['kind']} {_shown_name(obj)}"
    status: Object = obj.get("status") or {}
    if obj["kind"] in ("Job", "JobSet"):
        suspended = bool(obj["spec"].get("suspend"))
        yield f"{name}: suspended {suspended}"
        if not suspended:  # a Job that is stopped gets its own template back at another moment
            yield from (f"{name}: {path}: {value}" for path, value in leaves(obj["spec"]) if path.startswith(_OF_JOBS))
        if obj["spec"].get("managedBy") and not suspended:  # Kueue leaves the last status to a Job that was stopped
            shown = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
            yield f"{name}: active {status.get('active') or 0}, ready {status.get('ready') or 0}, {sorted(shown)}"
        return
    for each in sorted(status.get("conditions") or (), key=lambda each: str(each["type"])):
        # Why it waits is written by Kueue when it was evaluated last, and here when that changes.
        waits = each["type"] == "QuotaReserved" and each["status"] == "False"
        # Kueue says of each new Workload that its pods are not ready, and here it is said once it is admitted.
        waits |= each["type"] == "PodsReady" and each["reason"] == "WaitForStart" and not status.get("admission")
        if not waits:
            yield f"{name}: {each['type']}={each['status']} {each['reason']}"
        yield f"~ {name}: {each['type']}: {each['reason']}: {each.get('message')}"
    if obj["kind"] == "Workload":
        if "clusterName" in status:
            yield f"{name}: cluster {status['clusterName']}"
        yield f"{name}: active {obj['spec'].get('active')}, priority {obj['spec'].get('priority')}"
        for path, value in leaves(status.get("admission")):
            is_hash = path.endswith("].name") and any(owner["kind"] == PODS.kind for owner in _owners(obj))
            yield f"{name}: {path}: {'HASH' if is_hash else value}"
        yield from (f"{name}: check {each['name']} {each['state']}" for each in status.get("admissionChecks") or ())
        yield f"{name}: requeued {(status.get('requeueState') or {}).get('count')}"
        for each in (status.get("schedulingStats") or {}).get("evictions") or ():
            yield f"~ {name}: evicted {each['count']} times for {each['reason']}"
        return
    for path, value in leaves(status):
        if not path.startswith(("conditions", "flavors[")):
            # Kueue's are of the last change of that queue, whatever has happened elsewhere since.
            late = "~ " if (obj["kind"], path) in _OFTEN_LATE else ""
            yield f"{late}{name}: {path}: {value}"


def _owners(obj: Object) -> list[Object]:
    return obj["metadata"].get("ownerReferences") or []


def _shown_name(obj: Object) -> str:
    owners = _owners(obj)
    is_of_job = obj["kind"] == "Workload" and owners and owners[0]["kind"] != PODS.kind
    return str(owners[0]["name"] if is_of_job else obj["metadata"]["name"])
