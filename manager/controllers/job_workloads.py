# SPDX-License-Identifier: Apache-2.0
"""The writes to the Workloads of jobs of one kind, and the events that record them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from manager.context import ManagerContext
from manager.controllers.job_runtimes import JobRuntimes
from manager.workload.changes import was_rejected
from multikueue.api import admission
from multikueue.api.constants import (
    ELASTIC_JOB_ANNOTATION,
    JOB_WORKLOADS_FIELD_MANAGER,
    RECLAIMABLE_PODS_FIELD_MANAGER,
)
from multikueue.api.featuregates import ELASTIC_JOBS
from multikueue.api.meta import JsonObject
from multikueue.api.resource import (
    LOCAL_QUEUES,
    PRIORITY_CLASSES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.jobs.framework import workloads
from multikueue.jobs.framework.admission import recreation
from multikueue.jobs.framework.capabilities import GroupedKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.slices import elastic_problem, is_elastic, resized, sizes_of
from multikueue.jobs.framework.workloads import (
    Priority,
    PriorityClasses,
    UnknownPriorityClass,
    owner_references,
    workload_for,
)
from multikueue.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound
from multikueue.kube.runtime.events import Reference

_log = logging.getLogger(__name__)


class WorkloadRefused(MultikueueError):
    """The Workload of a job breaks a rule, ours or the API server's; its message names the field."""


class JobWorkloads:
    """Makes, changes and deletes them; `job_decision` decides when."""

    def __init__(self, context: ManagerContext, integration: JobIntegration, runtimes: JobRuntimes) -> None:
        self._context = context
        self._runtimes = runtimes
        self._integration = integration
        self._workloads = context.caches.view(WORKLOADS)

    async def create(self, job: JsonObject, replaces: JsonObject | None = None) -> None:
        """Make the Workload of the job; of an elastic one a slice, which may replace another.

        Raises `WorkloadRefused`, `UnknownPriorityClass` and `BadInput`.
        """
        if is_elastic(job) and not self._context.configuration.gate(ELASTIC_JOBS):
            raise BadInput(
                f"annotation {ELASTIC_JOB_ANNOTATION}: elastic jobs are not supported while the feature gate"
                f" {ELASTIC_JOBS} is off; remove the annotation"
            )
        problem = elastic_problem(job, self._integration)
        if problem:
            raise BadInput(f"annotation {ELASTIC_JOB_ANNOTATION}: {problem}")
        manifest = self._manifest(job, replaces)
        if replaces is not None:
            # The templates of the job have what the admission of the older slice added.
            manifest["spec"]["podSets"] = resized(replaces, sizes_of(manifest["spec"]["podSets"]))["spec"]["podSets"]
        manifest["metadata"]["annotations"] |= self._runtimes.marks(job, manifest["spec"]["podSets"])
        namespace = job["metadata"]["namespace"]
        # The validating webhook is not called for what this manager creates.
        refused = admission.refusals(WORKLOADS, manifest, gate=self._context.configuration.gate)
        if refused:
            raise WorkloadRefused(f"Workload {namespace}/{manifest['metadata']['name']}: {'; '.join(refused)}")
        try:
            answer = await self._context.client.create(
                WORKLOADS, manifest, namespace=namespace, field_manager=JOB_WORKLOADS_FIELD_MANAGER
            )
        except AlreadyExists:
            # Made by an earlier reconcile that our cache does not show yet.
            self._workloads.on_write(
                await self._context.client.get(WORKLOADS, manifest["metadata"]["name"], namespace=namespace)
            )
            return
        except (BadRequest, Forbidden, Invalid) as error:
            raise WorkloadRefused(f"Workload {namespace}/{manifest['metadata']['name']}: {error.message}") from error
        self._workloads.on_write(answer)
        name = f"{namespace}/{manifest['metadata']['name']}"
        self.event(job, "Normal", "CreatedWorkload", f"Created Workload: {name}")
        kind = self._integration.resource.kind
        created = parse_time(job["metadata"]["creationTimestamp"])
        metrics = self._context.metrics
        metrics.creation_latency.labels(kind, metrics.role).observe(
            max(0.0, (self._context.clock.now() - created).total_seconds())
        )
        self._warn_without_queue(job, str(manifest["spec"].get("queueName") or ""))

    def _warn_without_queue(self, job: JsonObject, name: str) -> None:
        queue = Key(job["metadata"]["namespace"], name)
        if self._context.caches.view(LOCAL_QUEUES).get(queue) is not None:
            return
        _log.error(
            "LocalQueue of job not found kind=%s key=%s queue=%s",
            self._integration.resource.kind,
            Key(queue.namespace, job["metadata"]["name"]),
            queue,
        )
        again = recreation(job, self._integration)
        lack = (
            f"LocalQueue {queue} doesn't exist; create it or correct the label kueue.x-k8s.io/queue-name{again}"
            if name
            else f"It names no LocalQueue, and waits until it has the label kueue.x-k8s.io/queue-name{again}"
        )
        self.event(job, "Warning", "LocalQueueNotFound", lack)

    def _manifest(self, job: JsonObject, replaces: JsonObject | None = None) -> JsonObject:
        return workload_for(
            job,
            self._integration,
            priority=self._priority(job),
            labels_to_copy=self._context.configuration.integrations.label_keys_to_copy,
            elastic=is_elastic(job),
            replaces=replaces,
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

        return workloads.resolved_priority(
            self._integration.priority(job),
            PriorityClasses(
                workload=lambda name: value(classes.object(Key("", name))),
                pod=lambda name: value(pod_classes.object(Key("", name))),
                default=default,
            ),
        )

    def priority_now(self, job: JsonObject) -> Priority | None:
        """What the job requests now; None when its class does not exist."""
        try:
            return self._priority(job)
        except UnknownPriorityClass:  # reported when a Workload is created; an existing one keeps its class
            return None

    async def prioritize(self, job: JsonObject, workload: JsonObject, wanted: Priority) -> None:
        """Give the Workload the class that the job names now."""
        metadata = workload["metadata"]
        reference = {"group": wanted.group, "kind": wanted.kind, "name": wanted.name} if wanted.name else None
        answer = await self._context.client.patch(
            WORKLOADS,
            metadata["name"],
            {"spec": {"priority": wanted.value, "priorityClassRef": reference}},
            namespace=metadata["namespace"],
            resource_version=metadata["resourceVersion"],
        )
        self._workloads.on_write(answer)
        self.event(job, "Normal", "UpdatedWorkload", f"Updated workload priority class: {_named(workload)}")

    async def follow(self, job: JsonObject, workload: JsonObject, patch: JsonObject) -> None:
        """Carry out a patch of `changes_to_follow`."""
        metadata = workload["metadata"]
        try:
            answer = await self._context.client.patch(
                WORKLOADS,
                metadata["name"],
                patch,
                namespace=metadata["namespace"],
                resource_version=metadata["resourceVersion"],
            )
        except NotFound:
            return
        self._workloads.on_write(answer)
        changed = ", ".join(sorted((patch.get("spec") or {}).keys() | _annotations_of(patch).keys()))
        self.event(job, "Normal", "UpdatedWorkload", f"Updated Workload {metadata['name']} from its job: {changed}")

    async def update(self, job: JsonObject, workload: JsonObject) -> None:
        """Give a Workload without a reservation the spec that the job makes now. Raises `WorkloadRefused`."""
        metadata = workload["metadata"]
        spec = {"queueName": None, **self._manifest(job)["spec"]}
        marks = self._runtimes.marks(job, spec["podSets"])
        active = workload["spec"].get("active", True)
        if spec["queueName"] != workload["spec"].get("queueName"):
            active = active or was_rejected(workload)  # it has left the queue whose check rejected it
        try:
            answer = await self._context.client.patch(
                WORKLOADS,
                metadata["name"],
                {"spec": {**spec, "active": active}} | ({"metadata": {"annotations": marks}} if marks else {}),
                namespace=metadata["namespace"],
                resource_version=metadata["resourceVersion"],
            )
        except (BadRequest, Forbidden, Invalid) as error:
            raise WorkloadRefused(f"Workload {metadata['namespace']}/{metadata['name']}: {error.message}") from error
        self._workloads.on_write(answer)
        if spec["podSets"] != workload["spec"].get("podSets"):
            message = f"Updated not matching Workload for suspended job: {_named(workload)}"
            self.event(job, "Normal", "UpdatedWorkload", message)

    async def resize(self, job: JsonObject, workload: JsonObject, pod_sets: Sequence[JsonObject]) -> None:
        """Give a slice these pod sets, which differ from its own in their counts only. Raises `WorkloadRefused`."""
        metadata = workload["metadata"]
        try:
            answer = await self._context.client.patch(
                WORKLOADS,
                metadata["name"],
                {"spec": {"podSets": list(pod_sets)}},
                namespace=metadata["namespace"],
                resource_version=metadata["resourceVersion"],
            )
        except (BadRequest, Forbidden, Invalid) as error:
            raise WorkloadRefused(f"Workload {metadata['namespace']}/{metadata['name']}: {error.message}") from error
        self._workloads.on_write(answer)
        counts = ", ".join(f"{each['name']} {each['count']}" for each in pod_sets)
        self.event(job, "Normal", "UpdatedWorkload", f"Resized Workload {metadata['name']}: {counts}")

    async def delete(self, job: JsonObject, workload: JsonObject) -> None:
        """Delete a Workload that does not match the job; our finalizer is removed when its deletion is seen.

        Raises `Conflict`, as when it has got quota meanwhile.
        """
        metadata = workload["metadata"]
        try:
            await self._context.client.delete(
                WORKLOADS,
                metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )
        except NotFound:
            return
        self.event(job, "Normal", "DeletedWorkload", f"Deleted not matching Workload: {_named(workload)}")

    async def own(self, job: JsonObject, workload: JsonObject) -> None:
        """Make the job, or each member of the group, an owner of the Workload."""
        metadata = workload["metadata"]
        present = {owner.get("uid") for owner in metadata.get("ownerReferences") or ()}
        owners = [each for each in owner_references(job, self._integration) if each["uid"] not in present]
        # No label: with one the webhook is asked, and meanwhile the check of MultiKueue finds no owner.
        answer = await self._context.client.patch(
            WORKLOADS,
            metadata["name"],
            {"metadata": {"ownerReferences": [*(metadata.get("ownerReferences") or ()), *owners]}},
            namespace=metadata["namespace"],
            resource_version=metadata["resourceVersion"],
        )
        self._workloads.on_write(answer)

    async def reclaim(self, workload: JsonObject, status: JsonObject) -> None:
        """Apply `status`, which has the reclaimable pods alone."""
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
        self._workloads.on_write(answer)

    def event(self, job: JsonObject, kind: str, reason: str, message: str) -> None:
        """Record an event about the job, or about the first member of a group."""
        about = self._integration.members(job)[0] if isinstance(self._integration, GroupedKind) else job
        self._context.recorder.event(Reference.of(about), kind, reason, message)


def _annotations_of(patch: JsonObject) -> JsonObject:
    return (patch.get("metadata") or {}).get("annotations") or {}


def _named(workload: JsonObject) -> str:
    return f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"
