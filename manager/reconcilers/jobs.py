# SPDX-License-Identifier: Apache-2.0
"""The job reconciler of one integration: facts from the caches, one decision, its steps carried out.

Owns which changes concern which job, and which jobs are ours at all. The rules are `job_decision`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import orjson

from manager.caches import OWNER_INDEX, PREBUILT_INDEX, owner_term, prebuilt_name
from manager.context import ManagerContext
from manager.reconcilers import job_decision
from manager.reconcilers.job_decision import (
    CreateWorkload,
    DeleteWorkload,
    JobFacts,
    LookAgain,
    OwnWorkload,
    ReleaseWorkload,
    SetPriority,
    Step,
    UpdateWorkload,
    WriteJob,
    WriteReclaimable,
    WriteStatus,
)
from multikueue.api.constants import (
    RECLAIMABLE_PODS_FIELD_MANAGER,
    RESOURCE_IN_USE_FINALIZER,
)
from multikueue.api.meta import JsonObject
from multikueue.api.resource import (
    LOCAL_QUEUES,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.integrations import priorities
from multikueue.integrations.admission_infos import pod_set_infos
from multikueue.integrations.priorities import PriorityClasses, UnknownPriorityClass
from multikueue.integrations.protocol import JobIntegration, PodSetInfo
from multikueue.integrations.workloads import Priority, name_for, workload_for
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import AlreadyExists, Conflict, NotFound
from multikueue.kube.events import Reference
from multikueue.kube.informer import Change

_log = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 1.0
_UNKNOWN_CLASS_SECONDS = 30.0  # a class that is created later is found without following every job that lacks one


class JobReconciler:
    """Keeps each job of one kind and its Workload in step."""

    def __init__(
        self,
        context: ManagerContext,
        integration: JobIntegration,
        *,
        manages_namespace: Callable[[str], bool],
        tracks_pods: bool,
        workers: int = 5,
    ) -> None:
        self._context = context
        self._integration = integration
        self._manages_namespace = manages_namespace
        self._tracks_pods = tracks_pods
        self._jobs = context.caches.view(integration.resource)
        self._workloads = context.caches.view(WORKLOADS)
        self.controller: Controller[Key] = Controller(
            integration.framework,
            self.reconcile,
            workers=workers,
            clock=context.clock,
            metrics=context.metrics.controllers,
        )

    def attach(self) -> None:
        """Follow the jobs, and Workloads on behalf of their jobs."""
        self._context.caches.subscribe(self._integration.resource, lambda change: self.controller.enqueue(change.key))
        self._context.caches.subscribe(WORKLOADS, self._workload_changed)

    def _workload_changed(self, change: Change) -> None:
        resource = self._integration.resource
        for owner in self._workloads.parse(change.row)["metadata"].get("ownerReferences") or ():
            group, _, _ = owner["apiVersion"].rpartition("/")
            if (group, owner["kind"]) == (resource.group, resource.kind):
                self.controller.enqueue(Key(change.key.namespace, owner["name"]))
        for key in self._jobs.indexed(PREBUILT_INDEX, str(change.key)):
            self.controller.enqueue(key)

    async def reconcile(self, key: Key) -> Result | None:
        """One look at one job."""
        job = self._jobs.object(key)
        owned = self._owned(key)
        uid = job["metadata"]["uid"] if job is not None else ""
        for workload in owned:
            if not any(owner["uid"] == uid for owner in workload["metadata"]["ownerReferences"]):
                await self._remove_orphan(key, workload)
        if job is None or not self._is_ours(job):
            return None
        prebuilt = prebuilt_name(job)
        if prebuilt:
            found = self._context.statuses.current(Key(key.namespace, prebuilt))
            workloads = [] if found is None else [found]
        else:
            workloads = [
                workload
                for workload in owned
                if any(owner["uid"] == uid for owner in workload["metadata"]["ownerReferences"])
            ]
            made = self._context.statuses.current(Key(key.namespace, name_for(job, self._integration)))
            if made is not None and all(made["metadata"]["uid"] != other["metadata"]["uid"] for other in workloads):
                workloads.append(made)  # of its name, whoever owns it: a second one cannot be made beside it
            workloads.sort(key=lambda workload: workload["metadata"]["creationTimestamp"])
        facts = JobFacts(
            job=job,
            integration=self._integration,
            workloads=workloads,
            prebuilt=prebuilt,
            tracks_pods=self._tracks_pods,
            infos=self._infos,
            priority=self._priority_now(job),
            stands=self._context.statuses.stands,
        )
        result: Result | None = None
        try:
            steps = job_decision.decide(facts, now=self._context.clock.now())
            for step in steps:
                result = await self._carry_out(step, job) or result
        except UnknownPriorityClass as error:
            self._tell(job, "Warning", "WorkloadPriorityClassNotFound", str(error))
            return Result(after=_UNKNOWN_CLASS_SECONDS)
        except BadInput as error:
            _log.error("%s %s cannot be queued: %s", self._integration.resource.kind, key, error)
            self._tell(job, "Warning", "ErrWorkloadCompose", str(error))
            return None
        return result

    def _owned(self, key: Key) -> list[JsonObject]:
        resource = self._integration.resource
        term = owner_term(api_version=resource.api_version, kind=resource.kind, namespace=key.namespace, name=key.name)
        return list(self._workloads.objects(OWNER_INDEX, term))

    def _is_ours(self, job: JsonObject) -> bool:
        metadata = job["metadata"]
        if not self._manages_namespace(metadata["namespace"]):
            return False
        return bool(
            self._integration.queue_name(job)
            or prebuilt_name(job)
            or self._context.configuration.manage_jobs_without_queue_name
        )

    def _infos(self, workload: JsonObject) -> tuple[PodSetInfo, ...]:
        flavors = self._context.caches.view(RESOURCE_FLAVORS)
        admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
        names = {
            name
            for assignment in admission.get("podSetAssignments") or ()
            for name in (assignment.get("flavors") or {}).values()
        }
        found = {name: flavors.object(Key("", name)) for name in names}
        return pod_set_infos(workload, {name: flavor for name, flavor in found.items() if flavor is not None})

    async def _carry_out(self, step: Step, job: JsonObject) -> Result | None:
        match step:
            case CreateWorkload():
                await self._create(job)
            case UpdateWorkload(workload):
                await self._update(job, workload)
            case SetPriority(workload, wanted):
                await self._prioritize(job, workload, wanted)
            case DeleteWorkload(workload):
                await self._delete(job, workload)
            case OwnWorkload(workload):
                await self._own(job, workload)
            case ReleaseWorkload(workload):
                await self._release(workload)
            case WriteJob(write, event, message):
                answer = await self._context.client.patch(
                    self._integration.resource,
                    job["metadata"]["name"],
                    write.body,
                    namespace=job["metadata"]["namespace"],
                    subresource=write.subresource or None,
                    # Decided on this job: what the user changed since is decided anew.
                    resource_version=job["metadata"]["resourceVersion"],
                )
                self._jobs.observe(answer)
                self._tell(job, "Normal", event, message)
            case WriteStatus(workload, change, event, message):
                metadata = workload["metadata"]
                key = Key(metadata["namespace"], metadata["name"])
                written = await self._context.statuses.write(key, change, uid=metadata["uid"])
                if event and written is not None:
                    self._tell(job, "Normal", event, message)
            case WriteReclaimable(workload, pods):
                await self._reclaim(
                    workload, {"reclaimablePods": [{"name": pod.name, "count": pod.count} for pod in pods]}
                )
            case LookAgain():
                return Result(after=_LOOK_AGAIN_SECONDS)
        return None

    async def _create(self, job: JsonObject) -> None:
        manifest = self._manifest(job)
        namespace = job["metadata"]["namespace"]
        try:
            answer = await self._context.client.create(WORKLOADS, manifest, namespace=namespace)
        except AlreadyExists:
            # Made by an earlier reconcile that our cache does not show yet.
            self._workloads.observe(
                await self._context.client.get(WORKLOADS, manifest["metadata"]["name"], namespace=namespace)
            )
            return
        self._workloads.observe(answer)
        name = f"{namespace}/{manifest['metadata']['name']}"
        self._tell(job, "Normal", "CreatedWorkload", f"Created Workload: {name}")
        kind = self._integration.resource.kind
        created = parse_time(job["metadata"]["creationTimestamp"])
        metrics = self._context.metrics
        metrics.creation_latency.labels(kind, metrics.role).observe(
            max(0.0, (self._context.clock.now() - created).total_seconds())
        )
        queue = Key(namespace, manifest["spec"]["queueName"])
        if self._context.caches.view(LOCAL_QUEUES).get(queue) is None:
            _log.error("%s %s/%s waits: LocalQueue %s doesn't exist", kind, namespace, job["metadata"]["name"], queue)
            self._tell(
                job,
                "Warning",
                "LocalQueueNotFound",
                f"LocalQueue {queue} doesn't exist; create it or correct the label kueue.x-k8s.io/queue-name",
            )

    def _manifest(self, job: JsonObject) -> JsonObject:
        return workload_for(
            job,
            self._integration,
            priority=self._priority(job),
            labels_to_copy=self._context.configuration.integrations.label_keys_to_copy,
        )

    def _priority(self, job: JsonObject) -> Priority:
        """Raises `UnknownPriorityClass`."""
        classes = self._context.caches.view(WORKLOAD_PRIORITY_CLASSES)
        pod_classes = self._context.caches.view(PRIORITY_CLASSES)

        def value(found: JsonObject | None) -> int | None:
            return None if found is None else int(found.get("value") or 0)

        def default() -> tuple[str, int] | None:
            marked = (item for item in pod_classes.objects() if item.get("globalDefault"))
            found = next(marked, None)
            return None if found is None else (found["metadata"]["name"], int(found.get("value") or 0))

        return priorities.resolve(
            self._integration.priority(job),
            PriorityClasses(
                workload=lambda name: value(classes.object(Key("", name))),
                pod=lambda name: value(pod_classes.object(Key("", name))),
                default=default,
            ),
        )

    def _priority_now(self, job: JsonObject) -> Priority | None:
        try:
            return self._priority(job)
        except UnknownPriorityClass:  # told when a Workload is to be made; one that exists keeps what it has
            return None

    async def _prioritize(self, job: JsonObject, workload: JsonObject, wanted: Priority) -> None:
        metadata = workload["metadata"]
        reference = {"group": wanted.group, "kind": wanted.kind, "name": wanted.name} if wanted.name else None
        answer = await self._context.client.patch(
            WORKLOADS,
            metadata["name"],
            {"spec": {"priority": wanted.value, "priorityClassRef": reference}},
            namespace=metadata["namespace"],
            resource_version=metadata["resourceVersion"],
        )
        self._workloads.observe(answer)
        self._tell(job, "Normal", "UpdatedWorkload", f"Updated workload priority class: {wanted.name or 'none'}")

    async def _update(self, job: JsonObject, workload: JsonObject) -> None:
        metadata = workload["metadata"]
        spec = self._manifest(job)["spec"]
        answer = await self._context.client.patch(
            WORKLOADS,
            metadata["name"],
            {"spec": {**spec, "active": workload["spec"].get("active", True)}},
            namespace=metadata["namespace"],
            resource_version=metadata["resourceVersion"],
        )
        self._workloads.observe(answer)
        self._tell(job, "Normal", "UpdatedWorkload", f"Updated not matching Workload: {metadata['name']}")

    async def _delete(self, job: JsonObject, workload: JsonObject) -> None:
        metadata = workload["metadata"]
        try:
            await self._context.client.delete(
                WORKLOADS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
            )
        except (NotFound, Conflict):  # gone, or another one of that name: either way this one is deleted
            return
        await self._release(workload)
        self._tell(job, "Normal", "DeletedWorkload", f"Deleted not matching Workload: {metadata['name']}")

    async def _own(self, job: JsonObject, workload: JsonObject) -> None:
        metadata = workload["metadata"]
        resource = self._integration.resource
        owner = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        answer = await self._context.client.patch(
            WORKLOADS,
            metadata["name"],
            {"metadata": {"ownerReferences": [*(metadata.get("ownerReferences") or ()), owner]}},
            namespace=metadata["namespace"],
            resource_version=metadata["resourceVersion"],
        )
        self._workloads.observe(answer)

    async def _remove_orphan(self, key: Key, workload: JsonObject) -> None:
        """Remove the Workload of a job that is gone.

        The garbage collector would, but it may be half a minute behind while CRDs change, and until then the quota is
        held and remote copies run.
        """
        if RESOURCE_IN_USE_FINALIZER in (workload["metadata"].get("finalizers") or ()):
            workload = await self._release(workload) or workload
        metadata = workload["metadata"]
        owners: list[JsonObject] = metadata.get("ownerReferences") or []
        if "deletionTimestamp" in metadata or len(owners) != 1 or not await self._is_gone(key, uid=owners[0]["uid"]):
            return
        try:
            await self._context.client.delete(
                WORKLOADS,
                metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata["uid"],
                # Whoever deletes a job and keeps its dependents has taken the owner off it before.
                resource_version=metadata["resourceVersion"],
            )
        except NotFound:
            return

    async def _is_gone(self, key: Key, *, uid: str) -> bool:
        """Ask the server: the cache of jobs may be behind that of Workloads."""
        try:
            raw = await self._context.client.get(self._integration.resource, key.name, namespace=key.namespace)
        except NotFound:
            return True
        return bool(orjson.loads(raw)["metadata"]["uid"] != uid)

    async def _release(self, workload: JsonObject) -> JsonObject | None:
        """Take our finalizer off it; gives the Workload as it is then, None when that ended it."""
        metadata = workload["metadata"]
        left = [item for item in metadata.get("finalizers") or () if item != RESOURCE_IN_USE_FINALIZER]
        try:
            answer = await self._context.client.patch(
                WORKLOADS,
                metadata["name"],
                {"metadata": {"uid": metadata["uid"], "finalizers": left}},
                namespace=metadata["namespace"],
                resource_version=metadata["resourceVersion"],
            )
        except NotFound:
            return None
        if "deletionTimestamp" in metadata:
            return None
        self._workloads.observe(answer)
        released: JsonObject = orjson.loads(answer)
        return released

    async def _reclaim(self, workload: JsonObject, status: JsonObject) -> None:
        metadata = workload["metadata"]
        try:
            answer = await self._context.client.apply(
                WORKLOADS,
                metadata["name"],
                {
                    "apiVersion": WORKLOADS.api_version,
                    "kind": WORKLOADS.kind,
                    "metadata": {name: metadata[name] for name in ("name", "namespace", "uid")},
                    "status": status,
                },
                namespace=metadata["namespace"],
                manager=RECLAIMABLE_PODS_FIELD_MANAGER,
                subresource="status",
            )
        except NotFound:
            return
        self._workloads.observe(answer)

    def _tell(self, job: JsonObject, kind: str, reason: str, message: str) -> None:
        self._context.recorder.event(Reference.of(job), kind, reason, message)
