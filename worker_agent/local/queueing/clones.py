# SPDX-License-Identifier: Apache-2.0
"""The clones: Workloads that this agent created in the queues of the worker cluster.

Owns their informer, their index by assignment, and every write to them: create, set the priority, open the preemption
gate, deactivate, adopt, delete. Promises that a Workload of another owner is never changed, that the clone of an older
epoch is gone before one of a newer epoch is created, and that an eviction by the worker is reported and not undone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Final

import orjson

from multikueue.api.constants import (
    ASSIGNMENT_ANNOTATION,
    CLUSTER_LABEL,
    EPOCH_ANNOTATION,
    MANAGER_UID_ANNOTATION,
    ORIGIN_LABEL,
    PREBUILT_WORKLOAD_LABEL,
    RESOURCE_IN_USE_FINALIZER,
)
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import WORKLOADS
from multikueue.core.clock import Clock
from multikueue.core.conditions import is_true_in
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.propagated_metadata import propagated_annotations, propagated_labels
from multikueue.dispatch.worker.assignment_state import NAME_CONFLICT, REMOVING_OLD_JOB, Obstacle
from multikueue.jobs.framework.pod_templates import same
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine
from worker_agent.local.queueing.queued_work import (
    GATE_FIELD_MANAGER,
    WAITS_IN_QUEUE,
    CloneAdmission,
    CloneSpec,
    clone_admission,
    clone_epoch,
    clone_manager,
    gate_is_to_open,
    opened_gate,
)
from worker_agent.local.rights import Rights
from worker_agent.reconnect import RECONNECT
from worker_agent.remembered_marks import RememberedMarks

_log = logging.getLogger(__name__)

_REJECTED: Final = "WorkloadRejected"
_PRIORITY_FIELDS: Final = ("priority", "priorityClassRef")


class Clones:
    """The clones of one cluster."""

    def __init__(
        self,
        client: KubeClient,
        *,
        cluster: str,
        origin: str,
        clock: Clock,
        random: Random,
        rights: Rights,
        changed: Callable[[str], None],
        quarantine: Quarantine | None = None,
    ) -> None:
        """`changed` is called with each assignment whose clone changed."""
        self._client = client
        self._rights = rights
        self._cluster = cluster
        self._origin = origin
        self._clock = clock
        self._changed = changed
        self._by_assignment: dict[str, set[Key]] = {}
        self._adopted: dict[str, Key] = {}
        self._remembered = RememberedMarks()
        self.informer = Informer(
            client,
            WORKLOADS,
            label_selector=f"{ORIGIN_LABEL}={origin}",
            clock=clock,
            random=random,
            backoff=RECONNECT,
            quarantine=quarantine,
        )
        self.informer.add_handler(self._on_clone)

    def is_clone(self, workload: JsonObject) -> bool:
        """Whether this agent created the Workload for an assignment."""
        return bool(self._assignment(self._remembered.on(workload)))

    def assignments(self) -> Iterable[str]:
        """Every assignment that a clone is annotated with."""
        return tuple(self._by_assignment)

    def of_assignment(self, assignment: str) -> JsonObject | None:
        """The clone of the assignment; None if there is none."""
        key = next(iter(self._by_assignment.get(assignment, ())), None)
        return None if key is None else self._object(key)

    def has(self, assignment: str) -> bool:
        """Whether there is a clone of the assignment."""
        return bool(self._by_assignment.get(assignment))

    def may_start(self, job: JsonObject, desired: CloneSpec, *, wanted: bool) -> bool:
        """Whether the engine may start the suspended job: not if its Workload is gone, finished or deactivated.

        A clone that is `wanted` and not there was created a moment ago.
        """
        name = (job["metadata"].get("labels") or {}).get(PREBUILT_WORKLOAD_LABEL)
        own = name in (None, desired.workload.name)  # a name that is too long for a label is in no label
        clone = self._object(desired.workload if own else Key(job["metadata"]["namespace"], str(name)))
        if clone is None:
            return own and wanted
        active: bool = (clone.get("spec") or {}).get("active") is not False
        return active and not is_true_in(clone.get("status"), WorkloadCondition.FINISHED)

    async def ensure(self, desired: CloneSpec) -> CloneAdmission:
        """Create or update the clone of this epoch; its state in the queues of the worker."""
        clone = self._find(desired)
        if clone is None and (adopted := self._adopted_of(desired.assignment)) is not None:
            return clone_admission(adopted)
        if clone is None:
            obstacle = await self._create(desired)
            return CloneAdmission(shortage=WAITS_IN_QUEUE, obstacle=obstacle)
        if self._is_of_kueue(clone, desired):
            await self.take_over(desired)
            return CloneAdmission(shortage=WAITS_IN_QUEUE)
        if not self._is_of(clone, desired):
            return CloneAdmission(obstacle=_conflict(desired))
        if clone_epoch(clone) != desired.epoch or clone["metadata"].get("deletionTimestamp"):
            await self._delete(clone)
            return CloneAdmission(shortage=f"{REMOVING_OLD_JOB}: of epoch {clone_epoch(clone)}")
        await self._set_priority(clone, desired)
        why = await self._open_gate(clone) if gate_is_to_open(clone, gate=desired.gate, spec=desired.spec) else ""
        admission = clone_admission(clone)
        if not why or not admission.shortage:
            return admission
        return replace(admission, shortage=f"{admission.shortage}; {why}", stuck=True)

    async def deactivate(self, desired: CloneSpec) -> bool | None:
        """Deactivate the clone, so that the worker's engine stops its job; False if there is no clone.

        None if the agent may not patch the clone.
        """
        clone = self._find(desired)
        return False if clone is None or not self._is_of(clone, desired) else await self._deactivate(clone)

    async def deactivate_of(self, assignment: str) -> bool | None:
        """As `deactivate`, for an assignment that the agent has not read: all Workloads that are annotated with it."""
        found = [self._object(key) for key in tuple(self._by_assignment.get(assignment, ()))]
        answers = [await self._deactivate(clone) for clone in found if clone is not None]
        return None if None in answers else bool(answers)

    def spec_of(self, desired: CloneSpec) -> JsonObject:
        """The spec that the clone was created with, or is to be created with."""
        clone = self._find(desired)
        spec: JsonObject = desired.spec if clone is None else clone.get("spec") or {}
        return spec

    async def adopt(self, desired: CloneSpec, clone: Key, *, manager_uid: str) -> None:
        """Give the clone of that manager the annotations of `desired`; does nothing if it has another owner."""
        found = self._object(clone)
        if found is None or not self._assignment(found) or clone_manager(found) != manager_uid:
            return
        annotations = {
            ASSIGNMENT_ANNOTATION: desired.assignment,
            EPOCH_ANNOTATION: str(desired.epoch),
            MANAGER_UID_ANNOTATION: desired.manager_uid,
        }
        self._adopted[desired.assignment] = clone
        await self._patch(found, {"metadata": {"annotations": annotations}})

    async def take_over(self, desired: CloneSpec) -> None:
        """Give the Workload that a Kueue has sent for the same Workload of the hub the annotations of `desired`."""
        found = self._object(desired.workload)
        if found is None or not self._is_of_kueue(found, desired):
            return
        _log.info("taking over what Kueue has sent workload=%s assignment=%s", desired.workload, desired.assignment)
        if self._rights.has("patch", WORKLOADS):
            await self._patch(found, {"metadata": {"annotations": self._marks(desired)}})
            return
        self._remembered.set(found["metadata"]["uid"], self._marks(desired))
        self._by_assignment.setdefault(desired.assignment, set()).add(desired.workload)
        self._changed(desired.assignment)

    def _is_of_kueue(self, clone: JsonObject, desired: CloneSpec) -> bool:
        """Whether no agent has made it, which has the origin of this one, and its pods are those that are desired."""
        annotations: dict[str, str] = clone["metadata"].get("annotations") or {}
        if not annotations.keys().isdisjoint((ASSIGNMENT_ANNOTATION, MANAGER_UID_ANNOTATION, CLUSTER_LABEL)):
            return False
        return same((clone.get("spec") or {}).get("podSets"), desired.spec.get("podSets"))

    def _marks(self, desired: CloneSpec) -> dict[str, str]:
        """The annotations by which a clone is known to be of an assignment."""
        return {
            CLUSTER_LABEL: self._cluster,
            ASSIGNMENT_ANNOTATION: desired.assignment,
            EPOCH_ANNOTATION: str(desired.epoch),
            MANAGER_UID_ANNOTATION: desired.manager_uid,
        }

    def _adopted_of(self, assignment: str) -> JsonObject | None:
        """The clone that was adopted for it, and is not shown with its new annotations yet."""
        key = self._adopted.get(assignment)
        return None if key is None else self._object(key)

    async def remove(self, assignment: str, *, manager_uid: str) -> None:
        """Delete the clones of an assignment that is gone, if they were created for that manager."""
        self._adopted.pop(assignment, None)
        for key in tuple(self._by_assignment.get(assignment, ())):
            clone = self._object(key)
            if clone is not None and clone_manager(clone) == manager_uid:
                await self._delete(clone)

    async def discard(self, workload: Key, *, manager_uid: str) -> None:
        """Delete the clone of that name, if this agent created it for that manager."""
        clone = self._object(workload)
        if clone is not None and self._assignment(clone) and clone_manager(clone) == manager_uid:
            await self._delete(clone)

    def _is_of(self, clone: JsonObject, desired: CloneSpec) -> bool:
        return self._assignment(clone) == desired.assignment and clone_manager(clone) == desired.manager_uid

    def _find(self, desired: CloneSpec) -> JsonObject | None:
        """The clone of that name, or an adopted one, which has the name that its former manager gave it."""
        return self._object(desired.workload) or self.of_assignment(desired.assignment)

    async def _deactivate(self, clone: JsonObject) -> bool | None:
        if (clone.get("spec") or {}).get("active") is not False:
            if not self._rights.has("patch", WORKLOADS):
                return None
            try:
                await self._patch(clone, {"spec": {"active": False}})
            except Forbidden as error:
                name = clone["metadata"]["name"]
                _log.warning("cannot deactivate workload workload=%s error=%s", name, error.message)
                return None
        return True

    async def _patch(self, clone: JsonObject, body: JsonObject) -> None:
        metadata = clone["metadata"]
        guarded = {**body, "metadata": {**body.get("metadata", {}), "uid": metadata["uid"]}}
        try:
            await self._client.patch(WORKLOADS, metadata["name"], guarded, namespace=metadata["namespace"])
        except NotFound:
            return

    async def _set_priority(self, clone: JsonObject, desired: CloneSpec) -> None:
        """Copy the priority of the hub's Workload, which decides its place in the worker's queue."""
        wanted = {field: desired.spec.get(field) for field in _PRIORITY_FIELDS}
        if wanted == {field: clone["spec"].get(field) for field in _PRIORITY_FIELDS}:
            return
        try:
            await self._patch(clone, {"spec": wanted})
        except (Invalid, Forbidden, BadRequest) as error:
            _log.warning("cannot change priority workload=%s error=%s", desired.workload, error.message)

    async def _open_gate(self, clone: JsonObject) -> str:
        """Open the preemption gate; why that failed, or an empty string."""
        metadata, body = clone["metadata"], opened_gate(clone, now=self._clock.now())
        name, namespace = metadata["name"], metadata["namespace"]
        try:
            await self._client.apply(
                WORKLOADS, name, body, namespace=namespace, manager=GATE_FIELD_MANAGER, subresource="status"
            )
        except NotFound:
            return ""  # its deletion will be watched
        except (Invalid, Forbidden, BadRequest) as error:
            _log.warning("cannot open preemption gate workload=%s/%s error=%s", namespace, name, error.message)
            return f"its preemption gate cannot be opened: {error.message}"
        _log.info("preemption gate opened workload=%s/%s", namespace, name)
        return ""

    async def _create(self, desired: CloneSpec) -> Obstacle | None:
        body = {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "metadata": {
                "name": desired.workload.name,
                "namespace": desired.workload.namespace,
                "labels": {**propagated_labels(desired.labels), ORIGIN_LABEL: self._origin},
                "annotations": {**propagated_annotations(desired.annotations), **self._marks(desired)},
            },
            "spec": desired.spec,
        }
        try:
            await self._client.create(WORKLOADS, body, namespace=desired.workload.namespace)
        except AlreadyExists:
            return await self._conflict_with_existing(desired)
        except (Invalid, Forbidden, BadRequest, NotFound) as error:
            return Obstacle(_REJECTED, error.message)
        _log.info(
            "workload created in worker queue workload=%s queue=%s epoch=%d",
            desired.workload,
            desired.queue,
            desired.epoch,
        )
        return None

    async def _conflict_with_existing(self, desired: CloneSpec) -> Obstacle | None:
        """The obstacle of an uncached Workload of that name; None if it is the clone, just created."""
        name, namespace = desired.workload.name, desired.workload.namespace
        try:
            raw = await self._client.get(WORKLOADS, name, namespace=namespace)
        except NotFound:
            return None
        except Forbidden:
            page = await self._client.list_page(WORKLOADS, namespace=namespace, field_selector=f"metadata.name={name}")
            if not page.items:
                return None
            raw = page.items[0]
        return None if self._assignment(orjson.loads(raw)) == desired.assignment else _conflict(desired)

    async def _delete(self, clone: JsonObject) -> None:
        """Delete the clone. Raises `Conflict` if it has changed since it was cached."""
        name, namespace = clone["metadata"]["name"], clone["metadata"]["namespace"]
        try:
            if not clone["metadata"].get("deletionTimestamp"):
                clone = orjson.loads(
                    await self._client.delete(WORKLOADS, name, namespace=namespace, uid=clone["metadata"]["uid"])
                )
            metadata = clone["metadata"]
            finalizers: list[str] = metadata.get("finalizers") or []
            if RESOURCE_IN_USE_FINALIZER in finalizers:
                # The engine removes its finalizer with the job, which may never have been created.
                left = [each for each in finalizers if each != RESOURCE_IN_USE_FINALIZER]
                if not self._rights.has("patch", WORKLOADS):
                    return  # only the engine itself can remove it
                await self._client.patch(
                    WORKLOADS,
                    name,
                    {"metadata": {"uid": metadata["uid"], "finalizers": left}},
                    namespace=namespace,
                    resource_version=metadata["resourceVersion"],
                )
        except NotFound:
            return

    def _object(self, key: Key) -> JsonObject | None:
        """The Workload, with what is remembered of it."""
        found = self.informer.store.object(key)
        return None if found is None else self._remembered.on(found)

    def _assignment(self, clone: JsonObject) -> str:
        annotations: dict[str, str] = clone["metadata"].get("annotations") or {}
        return annotations.get(ASSIGNMENT_ANNOTATION, "") if annotations.get(CLUSTER_LABEL) == self._cluster else ""

    def _on_clone(self, change: Change) -> None:
        name = self._assignment(self._remembered.on(change.row.object()))
        before = "" if change.old is None else self._assignment(self._remembered.on(change.old.object()))
        if before and before != name:
            # It was adopted for another assignment.
            self._unindex(before, change.key)
        if not name:
            return
        self._adopted.pop(name, None)
        keys = self._by_assignment.setdefault(name, set())
        if change.new is not None:
            keys.add(change.key)
        else:
            self._remembered.forget(change.row.uid)
            self._unindex(name, change.key)
        self._changed(name)

    def _unindex(self, name: str, key: Key) -> None:
        keys = self._by_assignment.get(name, set())
        keys.discard(key)
        if not keys:
            self._by_assignment.pop(name, None)


def _conflict(desired: CloneSpec) -> Obstacle:
    return Obstacle(NAME_CONFLICT, f'Workload "{desired.workload}" is there already and is not of this assignment')
