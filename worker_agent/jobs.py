# SPDX-License-Identifier: Apache-2.0
"""The jobs that this agent made on its cluster.

Owns the informer of one job kind by our origin label, which job belongs to which assignment, and the three writes:
create, suspend, delete. Promises that a job that was just created is seen, whether the watch has told of it yet or
not, and that every write to a job is guarded by its uid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from random import Random
from typing import Final

import orjson

from multikueue.api.constants import (
    ASSIGNMENT_ANNOTATION,
    CLUSTER_LABEL,
    EPOCH_ANNOTATION,
    MANAGER_UID_ANNOTATION,
    ORIGIN_LABEL,
    PREBUILT_WORKLOAD_ANNOTATION,
)
from multikueue.api.meta import JsonObject
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.federation.facts import RemoteEnd
from multikueue.federation.mirror import JobFacts
from multikueue.integrations.protocol import JobIntegration
from multikueue.kube.client import KubeClient, PatchKind
from multikueue.kube.errors import Conflict, NotFound
from multikueue.kube.informer import Change, Informer
from worker_agent.reconnect import RECONNECT

MARKS: Final = (
    PREBUILT_WORKLOAD_ANNOTATION,
    EPOCH_ANNOTATION,
    MANAGER_UID_ANNOTATION,
    CLUSTER_LABEL,
    ASSIGNMENT_ANNOTATION,
)
"""By which a job is known to be somebody's copy."""


class Jobs:
    """One job kind on this cluster."""

    def __init__(
        self,
        client: KubeClient,
        integration: JobIntegration,
        *,
        cluster: str,
        origin: str,
        clock: Clock,
        random: Random,
        changed: Callable[[str], None],
    ) -> None:
        self.integration = integration
        self.informer = Informer(
            client,
            integration.resource,
            label_selector=f"{ORIGIN_LABEL}={origin}",
            clock=clock,
            random=random,
            backoff=RECONNECT,
        )
        self._client = client
        self._cluster = cluster
        self._origin = origin
        self._changed = changed
        self._assignments: dict[Key, str] = {}
        self._by_assignment: dict[str, set[Key]] = {}
        self._managers: dict[Key, str] = {}
        self._made: dict[Key, JsonObject] = {}
        self.informer.add_handler(self._on_job)

    def get(self, key: Key) -> JsonObject | None:
        """The job, as watched or as just created; only those with our origin are known."""
        return self._made.get(key) or self.informer.store.object(key)

    def of_assignment(self, name: str) -> Iterable[Key]:
        """The jobs that say they were made for that assignment."""
        return tuple(self._by_assignment.get(name, ()))

    def assignments(self) -> Iterable[str]:
        """Every assignment that some job says it was made for."""
        return tuple(self._by_assignment)

    def of_others(self, manager_uid: str) -> Iterable[Key]:
        """The jobs that this agent made for another management cluster than that one."""
        return tuple(key for key, uid in self._managers.items() if uid != manager_uid)

    def facts(
        self, job: JsonObject, *, assignment: str, manager_uid: str, adopts: tuple[str, str] | None = None
    ) -> JobFacts:
        """The job as `mirror.step` looks at it; `adopts` is manager and uid of the job that may be taken over."""
        metadata: JsonObject = job["metadata"]
        annotations: dict[str, str] = metadata.get("annotations") or {}
        status: JsonObject = job.get("status") or {}
        epoch = annotations.get(EPOCH_ANNOTATION, "")
        suspended = self.integration.is_suspended(job)
        end = self.integration.finished(job)
        return JobFacts(
            uid=metadata["uid"],
            ours=(metadata.get("labels") or {}).get(ORIGIN_LABEL) == self._origin
            and self._assignment(job) == assignment
            and annotations.get(MANAGER_UID_ANNOTATION) == manager_uid,
            adoptable=bool(self._assignment(job))
            and (annotations.get(MANAGER_UID_ANNOTATION, ""), metadata["uid"]) == adopts
            and annotations.get(MANAGER_UID_ANNOTATION) != manager_uid,
            epoch=int(epoch) if epoch.isdigit() else 0,
            deleting=bool(metadata.get("deletionTimestamp")),
            suspended=suspended,
            # Until its own controller says Suspended it may be about to make pods.
            live=self.integration.is_active(job) or not (suspended and _says_suspended(status)),
            end=None if end is None else RemoteEnd(reason=end.reason, message=end.message, time=_ended_at(status)),
            status=status,
        )

    def manager_uid(self, job: JsonObject) -> str:
        """Which management cluster had it made."""
        return str((job["metadata"].get("annotations") or {}).get(MANAGER_UID_ANNOTATION, ""))

    def workload(self, job: JsonObject) -> Key:
        """The Workload that it stands for, by the name that its manager gave it."""
        metadata: JsonObject = job["metadata"]
        name = (metadata.get("annotations") or {}).get(PREBUILT_WORKLOAD_ANNOTATION, "")
        return Key(metadata["namespace"], str(name))

    async def create(self, manifest: JsonObject) -> None:
        """Make the job. Raises `AlreadyExists`, and whatever else the API server says about the manifest."""
        namespace = manifest["metadata"]["namespace"]
        self._remember(await self._client.create(self.integration.resource, manifest, namespace=namespace))

    async def look(self, key: Key) -> JsonObject | None:
        """The job as it is on the server now, whoever made it."""
        try:
            raw = await self._client.get(self.integration.resource, key.name, namespace=key.namespace)
        except NotFound:
            return None
        job: JsonObject = orjson.loads(raw)
        if (job["metadata"].get("labels") or {}).get(ORIGIN_LABEL) == self._origin:
            self._remember(raw)
        return job

    async def adopt(self, key: Key, uid: str, manifest: JsonObject) -> None:
        """Give the job the marks that it would have, had it been made from `manifest`; nothing else of it changes."""
        marks = {name: manifest["metadata"]["annotations"][name] for name in MARKS}
        body = {"metadata": {"uid": uid, "annotations": marks}}
        try:
            await self._client.patch(
                self.integration.resource, key.name, body, namespace=key.namespace, kind=PatchKind.MERGE
            )
        except (NotFound, Conflict):
            return

    async def suspend(self, key: Key, uid: str) -> None:
        """Tell the job to stop its pods; one that is gone or another by now is left alone."""
        body = {"metadata": {"uid": uid}, "spec": {"suspend": True}}
        try:
            await self._client.patch(
                self.integration.resource, key.name, body, namespace=key.namespace, kind=PatchKind.MERGE
            )
        except (NotFound, Conflict):
            return

    async def delete(self, key: Key, uid: str, *, ended: bool) -> None:
        """Remove the job; one that has not ended stays visible until its pods are gone, so that no second starts."""
        propagation = "Background" if ended else "Foreground"
        try:
            await self._client.delete(
                self.integration.resource, key.name, namespace=key.namespace, uid=uid, propagation=propagation
            )
        except (NotFound, Conflict):
            return
        finally:
            self._made.pop(key, None)

    def _remember(self, raw: bytes) -> None:
        job: JsonObject = orjson.loads(raw)
        key = Key(job["metadata"]["namespace"], job["metadata"]["name"])
        row = self.informer.store.get(key)
        if row is None or row.uid != job["metadata"]["uid"]:
            self._made[key] = job
            self._file(key, self._assignment(job), manager_uid=self.manager_uid(job))

    def _on_job(self, change: Change) -> None:
        made = self._made.get(change.key)
        if made is not None and change.row.uid == made["metadata"]["uid"]:
            del self._made[change.key]
            made = None
        if change.new is not None:
            job = change.new.object()
            assignment = self._assignment(job)
            before = self._file(change.key, assignment, manager_uid=self.manager_uid(job))
        elif made is None:
            assignment = before = self._file(change.key, "")
        else:
            return  # the deletion of a former job of that name
        for name in {before, assignment} - {""}:
            self._changed(name)

    def _assignment(self, job: JsonObject) -> str:
        """The assignment that a job was made for by this agent; two agents may share a cluster, and an origin."""
        annotations: dict[str, str] = job["metadata"].get("annotations") or {}
        return annotations.get(ASSIGNMENT_ANNOTATION, "") if annotations.get(CLUSTER_LABEL) == self._cluster else ""

    def _file(self, key: Key, assignment: str, *, manager_uid: str = "") -> str:
        """Note whose job it is, or with an empty name that it is gone; gives whose it was before."""
        before = self._assignments.pop(key, "")
        self._managers.pop(key, None)
        if before:
            keys = self._by_assignment[before]
            keys.discard(key)
            if not keys:
                del self._by_assignment[before]
        if assignment:
            self._assignments[key] = assignment
            self._managers[key] = manager_uid
            self._by_assignment.setdefault(assignment, set()).add(key)
        return before


def _says_suspended(status: JsonObject) -> bool:
    return any(c.get("type") == "Suspended" and c.get("status") == "True" for c in status.get("conditions") or ())


def _ended_at(status: JsonObject) -> datetime | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            moment = condition.get("lastTransitionTime")
            return parse_time(moment) if moment else None
    return None
