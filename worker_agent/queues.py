# SPDX-License-Identifier: Apache-2.0
"""Admission by the queues of the worker cluster itself, where it runs Kueue (or this manager) and has the LocalQueue.

Owns the clones of Workloads that this agent made: made for a wish, looked at for the worker's admission, allowed to
preempt, deactivated when the work is to stop, and removed with the wish. Promises that a clone of somebody else is
never touched, that one of an older epoch is gone before a newer one is made, and that the worker's eviction is told and
not undone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Final

import anyio
import orjson

from multikueue.api.constants import (
    ASSIGNMENT_ANNOTATION,
    BATCH_CONTROLLER_UID_LABEL,
    BATCH_JOB_NAME_LABEL,
    CLUSTER_LABEL,
    EPOCH_ANNOTATION,
    LEGACY_CONTROLLER_UID_LABEL,
    LEGACY_JOB_NAME_LABEL,
    MANAGED_LABEL_VALUE,
    MANAGER_UID_ANNOTATION,
    ORIGIN_LABEL,
    PREBUILT_WORKLOAD_LABEL,
    RESOURCE_IN_USE_FINALIZER,
    WORKER_WORKLOAD_POD_LABEL,
    GatePosition,
)
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import FinishedReason
from multikueue.api.resource import LOCAL_QUEUES, WORKLOADS
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.federation.facts import RemoteEnd
from multikueue.federation.mirror import NAME_CONFLICT, REMOVING_OLD_COPY, Obstacle
from multikueue.federation.wire import gate_of
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, KubeError, NotFound
from multikueue.kube.informer import Change, Informer
from worker_agent import preemption_gates as gates
from worker_agent.reconnect import RECONNECT

_log = logging.getLogger(__name__)

ENGINE: Final = "kueue"
WAITS_IN_QUEUE: Final = "it waits in the LocalQueue of the worker cluster"
_REJECTED: Final = "WorkloadRejected"
_JOB_LABELS: Final = frozenset(
    {BATCH_JOB_NAME_LABEL, BATCH_CONTROLLER_UID_LABEL, LEGACY_JOB_NAME_LABEL, LEGACY_CONTROLLER_UID_LABEL}
)
"""What Kubernetes gives the pods of a Job by itself: those of the hub's Job are not those of the worker's."""
_PRIORITY_FIELDS: Final = ("priority", "priorityClassRef")
_LABEL_LENGTH: Final = 63
_MAX_QUEUES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a clone stands: `shortage` is empty once it is admitted."""

    shortage: str = ""
    obstacle: Obstacle | None = None
    halt: Obstacle | None = None
    """Why the worker's own engine has stopped it."""
    end: RemoteEnd | None = None
    blocked_since: datetime | None = None
    """Since when it waits for nothing but its preemption gate."""
    stuck: bool = False
    """Whether that gate is to be open and could not be opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneWish:
    """What of an assignment makes a clone."""

    assignment: str
    epoch: int
    manager_uid: str
    workload: Key
    queue: str
    spec: JsonObject
    labels: JsonObject
    annotations: JsonObject
    gate: GatePosition | None = None
    """Where its preemption gate is to be, if the hub says anything about it."""

    @classmethod
    def of(cls, obj: JsonObject) -> CloneWish:
        """As read from the mailbox. Raises `BadInput`."""
        spec: JsonObject = obj["spec"]
        return cls(
            assignment=obj["metadata"]["name"],
            epoch=int(spec["epoch"]),
            manager_uid=str(spec["managerUID"]),
            workload=Key(str(spec["workload"]["namespace"]), str(spec["workload"]["name"])),
            queue=str(spec.get("queueName") or ""),
            spec=spec.get("workloadSpec") or {},
            labels=spec.get("workloadLabels") or {},
            annotations=spec.get("workloadAnnotations") or {},
            gate=gate_of(obj),
        )


class Queues:
    """The LocalQueues of this cluster, and the clones in them."""

    def __init__(
        self,
        client: KubeClient,
        *,
        cluster: str,
        origin: str,
        clock: Clock,
        random: Random,
        changed: Callable[[str], None],
        reported: Callable[[], None],
    ) -> None:
        """`changed` hears of assignments whose clone is another one now, `reported` of other LocalQueues."""
        self._client = client
        self._cluster = cluster
        self._origin = origin
        self._changed = changed
        self._reported = reported
        self._random = random
        self._clock = clock
        self.present = False
        """Whether there is such an engine, and this agent may use it."""
        self.refused = ""
        """Why it may not, as the API server says; empty where it may, or where there is none."""
        self._by_assignment: dict[str, set[Key]] = {}
        self._clones = Informer(
            client,
            WORKLOADS,
            label_selector=f"{ORIGIN_LABEL}={origin}",
            clock=clock,
            random=random,
            backoff=RECONNECT,
        )
        self._queues = Informer(client, LOCAL_QUEUES, clock=clock, random=random, backoff=RECONNECT)
        self._clones.add_handler(self._on_clone)
        self._queues.add_handler(self._on_queue)

    async def discover(self) -> tuple[Informer, ...]:
        """What is to be followed: nothing where there is no such engine, or none that this agent may use."""
        attempt = 0
        while True:
            attempt += 1
            try:
                for resource in (WORKLOADS, LOCAL_QUEUES):
                    await self._client.list_page(resource, limit=1, metadata_only=True)
            except NotFound:
                return ()
            except Forbidden as error:
                self.refused = error.message
                return ()
            except KubeError as error:
                _log.debug("whether this cluster has queues is not known yet: %s", error)
                await anyio.sleep(RECONNECT.delay(attempt, self._random))
            else:
                self.present = True
                return (self._clones, self._queues)

    def report(self) -> JsonObject:
        """What a ClusterReport tells of them."""
        keys = sorted(self._queues.store.keys())
        if not self.present or not keys:
            return {}
        named = [{"namespace": key.namespace, "name": key.name, "active": self._active(key)} for key in keys]
        return {"engine": ENGINE, "localQueues": named[:_MAX_QUEUES]}

    def by_cluster_queue(self) -> dict[str, list[Key]]:
        """The LocalQueues, by the ClusterQueue that they point to."""
        found: dict[str, list[Key]] = {}
        for row in sorted(self._queues.store.list(), key=lambda row: row.key):
            name = str((row.object().get("spec") or {}).get("clusterQueue") or "")
            found.setdefault(name, []).append(row.key)
        return found

    def assignments(self) -> Iterable[str]:
        """Every assignment that some clone says it was made for."""
        return tuple(self._by_assignment)

    def clone_of(self, assignment: str) -> JsonObject | None:
        """The clone that was made for it."""
        key = next(iter(self._by_assignment.get(assignment, ())), None)
        return None if key is None else self._clones.store.object(key)

    def serves(self, wish: CloneWish) -> bool:
        """Whether the worker's own queues admit this one: the LocalQueue is there, or was when it was asked."""
        if not self.present or not wish.spec:
            return False
        return Key(wish.workload.namespace, wish.queue) in self._queues.store or bool(
            self._by_assignment.get(wish.assignment)
        )

    async def ask(self, wish: CloneWish) -> Standing:
        """Have a clone of this epoch, and say where it stands."""
        clone = self._find(wish)
        if clone is None:
            obstacle = await self._create(wish)
            return Standing(shortage=WAITS_IN_QUEUE, obstacle=obstacle)
        if not self._is_of(clone, wish):
            return Standing(obstacle=_conflict(wish))
        if _epoch(clone) != wish.epoch or clone["metadata"].get("deletionTimestamp"):
            await self._delete(clone)
            return Standing(shortage=f"{REMOVING_OLD_COPY}: of epoch {_epoch(clone)}")
        await self._set_priority(clone, wish)
        why = await self._open_gate(clone) if gates.is_to_open(clone, gate=wish.gate, spec=wish.spec) else ""
        standing = _standing(clone)
        if not why or not standing.shortage:
            return standing
        return replace(standing, shortage=f"{standing.shortage}; {why}", stuck=True)

    async def deactivate(self, wish: CloneWish) -> bool:
        """Have the worker's engine stop it for good; whether there is a clone by which it can be told to."""
        clone = self._find(wish)
        if clone is None or not self._is_of(clone, wish):
            return False
        if (clone.get("spec") or {}).get("active") is not False:
            await self._patch(clone, {"spec": {"active": False}})
        return True

    async def adopt(self, wish: CloneWish, clone: Key, *, manager_uid: str) -> None:
        """Give the clone that was made for that manager the marks of `wish`; a clone of anybody else is left alone."""
        found = self._clones.store.object(clone)
        if found is None or not self._assignment(found) or _manager(found) != manager_uid:
            return
        marks = {
            ASSIGNMENT_ANNOTATION: wish.assignment,
            EPOCH_ANNOTATION: str(wish.epoch),
            MANAGER_UID_ANNOTATION: wish.manager_uid,
        }
        await self._patch(found, {"metadata": {"annotations": marks}})

    async def remove(self, assignment: str, *, manager_uid: str) -> None:
        """Remove the clones of an assignment that is gone, if that manager had them made."""
        for key in tuple(self._by_assignment.get(assignment, ())):
            clone = self._clones.store.object(key)
            if clone is not None and _manager(clone) == manager_uid:
                await self._delete(clone)

    async def discard(self, workload: Key, *, manager_uid: str) -> None:
        """Remove the clone of that name, if that manager had it made by this agent."""
        clone = self._clones.store.object(workload)
        if clone is not None and self._assignment(clone) and _manager(clone) == manager_uid:
            await self._delete(clone)

    def manifest(self, manifest: JsonObject, wish: CloneWish) -> JsonObject:
        """The job as the worker's engine starts it: suspended, and without what the hub's flavors added to it."""
        spec = {**manifest["spec"], "suspend": True}
        pod_sets: list[JsonObject] = wish.spec.get("podSets") or []
        if len(pod_sets) == 1:
            spec["template"] = _template(pod_sets[0]["template"])
        metadata = manifest["metadata"]
        if len(wish.workload.name) <= _LABEL_LENGTH:
            # Older engines know the label, newer ones the annotation that is there already.
            labels = {**(metadata.get("labels") or {}), PREBUILT_WORKLOAD_LABEL: wish.workload.name}
            metadata = {**metadata, "labels": labels}
        return {**manifest, "metadata": metadata, "spec": spec}

    def _is_of(self, clone: JsonObject, wish: CloneWish) -> bool:
        return self._assignment(clone) == wish.assignment and _manager(clone) == wish.manager_uid

    def _find(self, wish: CloneWish) -> JsonObject | None:
        """The clone of that name, or else one that was taken over and has the name that its former manager gave it."""
        return self._clones.store.object(wish.workload) or self.clone_of(wish.assignment)

    async def _patch(self, clone: JsonObject, body: JsonObject) -> None:
        metadata = clone["metadata"]
        guarded = {**body, "metadata": {**body.get("metadata", {}), "uid": metadata["uid"]}}
        try:
            await self._client.patch(WORKLOADS, metadata["name"], guarded, namespace=metadata["namespace"])
        except (NotFound, Conflict):
            return

    async def _set_priority(self, clone: JsonObject, wish: CloneWish) -> None:
        """Its place among the worker's own work changes with that of the hub's Workload; nothing else of it does."""
        wanted = {field: wish.spec.get(field) for field in _PRIORITY_FIELDS}
        if wanted == {field: clone["spec"].get(field) for field in _PRIORITY_FIELDS}:
            return
        try:
            await self._patch(clone, {"spec": wanted})
        except (Invalid, Forbidden, BadRequest) as error:
            _log.warning("workload %s: its priority stays as it was: %s", wish.workload, error.message)

    async def _open_gate(self, clone: JsonObject) -> str:
        """Let it preempt; why that could not be said to the worker's engine, if it could not."""
        metadata, body = clone["metadata"], gates.opened(clone, now=self._clock.now())
        name, namespace = metadata["name"], metadata["namespace"]
        try:
            await self._client.apply(
                WORKLOADS, name, body, namespace=namespace, manager=gates.FIELD_MANAGER, subresource="status"
            )
        except (NotFound, Conflict):
            return ""  # it is another one now, of which its own event tells
        except (Invalid, Forbidden, BadRequest) as error:
            _log.warning("workload %s/%s: its preemption gate stays closed: %s", namespace, name, error.message)
            return f"its preemption gate cannot be opened: {error.message}"
        _log.info("workload %s/%s: its preemption gate is open", namespace, name)
        return ""

    async def _create(self, wish: CloneWish) -> Obstacle | None:
        body = {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "metadata": {
                "name": wish.workload.name,
                "namespace": wish.workload.namespace,
                "labels": {**wish.labels, ORIGIN_LABEL: self._origin},
                "annotations": {
                    **wish.annotations,
                    CLUSTER_LABEL: self._cluster,
                    ASSIGNMENT_ANNOTATION: wish.assignment,
                    EPOCH_ANNOTATION: str(wish.epoch),
                    MANAGER_UID_ANNOTATION: wish.manager_uid,
                },
            },
            "spec": wish.spec,
        }
        try:
            await self._client.create(WORKLOADS, body, namespace=wish.workload.namespace)
        except AlreadyExists:
            return await self._occupied(wish)
        except (Invalid, Forbidden, BadRequest, NotFound) as error:
            return Obstacle(_REJECTED, error.message)
        _log.info("workload %s: asks LocalQueue %s for epoch %d", wish.workload, wish.queue, wish.epoch)
        return None

    async def _occupied(self, wish: CloneWish) -> Obstacle | None:
        """A Workload of that name is there that is not seen: of somebody else, or ours and just made."""
        try:
            raw = await self._client.get(WORKLOADS, wish.workload.name, namespace=wish.workload.namespace)
        except NotFound:
            return None
        return None if self._assignment(orjson.loads(raw)) == wish.assignment else _conflict(wish)

    async def _delete(self, clone: JsonObject) -> None:
        """Delete it. What conflicts is done again when the change that it conflicts with is seen."""
        name, namespace = clone["metadata"]["name"], clone["metadata"]["namespace"]
        try:
            if not clone["metadata"].get("deletionTimestamp"):
                clone = orjson.loads(
                    await self._client.delete(WORKLOADS, name, namespace=namespace, uid=clone["metadata"]["uid"])
                )
            metadata = clone["metadata"]
            finalizers: list[str] = metadata.get("finalizers") or []
            if RESOURCE_IN_USE_FINALIZER in finalizers:
                # The engine's own waits for a job that may never have been made; what others wait for is theirs.
                left = [each for each in finalizers if each != RESOURCE_IN_USE_FINALIZER]
                await self._client.patch(
                    WORKLOADS,
                    name,
                    {"metadata": {"uid": metadata["uid"], "finalizers": left}},
                    namespace=namespace,
                    resource_version=metadata["resourceVersion"],
                )
        except (NotFound, Conflict):
            return

    def _active(self, key: Key) -> bool:
        queue = self._queues.store.object(key)
        entries: list[JsonObject] = ((queue or {}).get("status") or {}).get("conditions") or []
        return not any(entry["type"] == "Active" and entry["status"] == "False" for entry in entries)

    def _assignment(self, clone: JsonObject) -> str:
        annotations: dict[str, str] = clone["metadata"].get("annotations") or {}
        return annotations.get(ASSIGNMENT_ANNOTATION, "") if annotations.get(CLUSTER_LABEL) == self._cluster else ""

    def _on_clone(self, change: Change) -> None:
        name = self._assignment(change.row.object())
        before = "" if change.old is None else self._assignment(change.old.object())
        if before and before != name:
            # It was taken over for another assignment.
            self._unfile(before, change.key)
        if not name:
            return
        keys = self._by_assignment.setdefault(name, set())
        if change.new is not None:
            keys.add(change.key)
        else:
            self._unfile(name, change.key)
        self._changed(name)

    def _unfile(self, name: str, key: Key) -> None:
        keys = self._by_assignment.get(name, set())
        keys.discard(key)
        if not keys:
            self._by_assignment.pop(name, None)

    def _on_queue(self, change: Change) -> None:
        if change.type != "MODIFIED":
            self._reported()


def _template(template: JsonObject) -> JsonObject:
    metadata: JsonObject = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in _JOB_LABELS}
    return {
        "metadata": {**metadata, "labels": {**labels, WORKER_WORKLOAD_POD_LABEL: MANAGED_LABEL_VALUE}},
        "spec": template["spec"],
    }


def _standing(clone: JsonObject) -> Standing:
    conditions = {entry["type"]: entry for entry in (clone.get("status") or {}).get("conditions") or ()}
    finished = _true(conditions, "Finished")
    if finished is not None and finished.get("reason") == FinishedReason.OUT_OF_SYNC:
        moment = parse_time(finished["lastTransitionTime"])
        end = RemoteEnd(reason=finished["reason"], message=str(finished.get("message", "")), time=moment)
        return Standing(end=end, halt=Obstacle(end.reason, end.message))
    evicted = _true(conditions, "Evicted")
    if evicted is not None and finished is None:
        # Which the worker did for itself, as for work of a higher priority there; the hub decides where it goes now.
        return Standing(
            shortage=WAITS_IN_QUEUE,
            halt=Obstacle(str(evicted.get("reason", "")), str(evicted.get("message", ""))),
        )
    if finished is not None or _true(conditions, "Admitted") is not None:
        return Standing()
    reserved: JsonObject = conditions.get("QuotaReserved") or {}
    waits = "" if reserved.get("status") == "True" else str(reserved.get("message") or "")
    blocked = gates.blocked_since(clone) if reserved.get("status") != "True" else None
    return Standing(shortage=f"{WAITS_IN_QUEUE}{': ' if waits else ''}{waits}", blocked_since=blocked)


def _true(conditions: dict[str, JsonObject], kind: str) -> JsonObject | None:
    found = conditions.get(kind)
    return found if found is not None and found.get("status") == "True" else None


def _conflict(wish: CloneWish) -> Obstacle:
    return Obstacle(NAME_CONFLICT, f'Workload "{wish.workload}" is there already and is not of this assignment')


def _epoch(clone: JsonObject) -> int:
    text = (clone["metadata"].get("annotations") or {}).get(EPOCH_ANNOTATION, "")
    return int(text) if text.isdigit() else 0


def _manager(clone: JsonObject) -> str:
    return str((clone["metadata"].get("annotations") or {}).get(MANAGER_UID_ANNOTATION, ""))
