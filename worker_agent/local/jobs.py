# SPDX-License-Identifier: Apache-2.0
"""The remote jobs: jobs that this agent created on its cluster.

Owns the informer of one job kind with the origin label, the index of jobs by assignment, and the writes: create, stop,
delete, adopt. If the agent may not patch jobs, it stops a job by deleting it. Promises that a job is visible as soon as
it was created, before the watch has it, and that every write is guarded by the uid of the job. A conflict is raised to
the caller, which reads the job again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import orjson

from multikueue.api.constants import (
    ASSIGNMENT_ANNOTATION,
    CLUSTER_LABEL,
    EPOCH_ANNOTATION,
    MANAGER_UID_ANNOTATION,
    ORIGIN_LABEL,
    ORIGIN_UID_ANNOTATION,
    PREBUILT_WORKLOAD_ANNOTATION,
    PREBUILT_WORKLOAD_LABEL,
    REMOTE_POD_LABEL,
    WORKLOAD_NAME_ANNOTATION,
)
from multikueue.api.meta import JsonObject
from multikueue.core.clock import Clock
from multikueue.core.grouped_keys import GroupedKeys
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.dispatch.hub.facts import RemoteEnd
from multikueue.dispatch.protocol.epochs import marked_epoch
from multikueue.dispatch.worker.assignment_state import RemoteJobFacts
from multikueue.jobs.framework.capabilities import RemoteGroups
from multikueue.jobs.framework.protocol import JobEnd, JobIntegration
from multikueue.jobs.framework.traits import Hold
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.cache.overlay import WriteOverlay
from multikueue.kube.errors import Forbidden, NotFound
from multikueue.kube.rest.client import KubeClient, PatchKind
from multikueue.kube.runtime.quarantine import Quarantine
from worker_agent.reconnect import RECONNECT
from worker_agent.remembered_marks import RememberedMarks

_log = logging.getLogger(__name__)

ASSIGNMENT_ANNOTATIONS: Final = (
    PREBUILT_WORKLOAD_ANNOTATION,
    EPOCH_ANNOTATION,
    MANAGER_UID_ANNOTATION,
    CLUSTER_LABEL,
    ASSIGNMENT_ANNOTATION,
)
"""The annotations that every remote job has."""


GROUP_PREFIX: Final = "group/"
"""Before the name of a group, in the key of its remote job; no name of an object has a slash."""


@dataclass(frozen=True, slots=True, order=True)
class RemoteJobKey:
    """Which remote job of this cluster: the resource of its kind, and its key."""

    resource: str
    job: Key

    def __str__(self) -> str:
        return f"{self.resource} {self.job}"


class RemoteJobs:
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
        may_patch: Callable[[], bool] = lambda: True,
        may_run: Callable[[], bool] = lambda: True,
        gone: Callable[[RemoteJobKey], None] = lambda key: None,
        listed: Callable[[RemoteJobs], None] = lambda jobs: None,
        quarantine: Quarantine | None = None,
    ) -> None:
        """`changed` is called with each assignment whose job changed, `gone` with each job that was deleted.

        `listed` is called after each list of the jobs. `may_patch` is whether the agent has the right to patch jobs of
        this kind, as far as is known, `may_run` whether it has all rights without which it cannot run them.
        """
        self._may_patch = may_patch
        self._may_run = may_run
        self.integration = integration
        self.installed = True
        """Whether the cluster has the kind."""
        self.informer = Informer(
            client,
            integration.resource,
            label_selector=f"{ORIGIN_LABEL}={origin}",
            clock=clock,
            random=random,
            backoff=RECONNECT,
            quarantine=quarantine,
            on_list=lambda: listed(self),
        )
        self._client = client
        self._cluster = cluster
        self._origin = origin
        self._changed = changed
        self._gone = gone
        self._assigned: GroupedKeys[Key, str] = GroupedKeys()
        self._of_kueue: GroupedKeys[Key, Key] = GroupedKeys()
        self._managers: dict[Key, str] = {}
        self._marks = RememberedMarks()
        # A job that was created, and that no watch has shown since, is not gone because its cluster does not answer.
        self._overlay = WriteOverlay(self.informer.store, clock=clock, expires=False)
        self.informer.add_handler(self._on_job)

    @property
    def obstacle(self) -> str:
        """Why jobs of this kind cannot run on this cluster; empty if they can."""
        resource = self.integration.resource.qualified
        if not self.installed:
            return f"{resource} is not installed on the cluster"
        if not self._may_run():
            return f"the agent has not all rights to {resource}"
        return "" if self.known else f"the {resource} of the cluster have not been read yet"

    @property
    def known(self) -> bool:
        """Whether all jobs of this kind are known; a cluster without the kind has none."""
        return not self.installed or self.informer.synced.is_set()

    def named(self, key: Key) -> RemoteJobKey:
        """The job of that key, among those of all kinds."""
        return RemoteJobKey(self.integration.resource.qualified, key)

    def get(self, key: Key) -> JsonObject | None:
        """The job, from the cache or as just created; only jobs with the origin of this agent are cached."""
        row = self._overlay.get(key)
        return None if row is None else self._marks.on(row.object())

    def of_assignment(self, name: str) -> Iterable[Key]:
        """The jobs annotated with that assignment."""
        return self._assigned.of(name)

    def assignments(self) -> Iterable[str]:
        """Every assignment that a job is annotated with."""
        return self._assigned.groups()

    def of_others(self, manager_uid: str) -> Iterable[Key]:
        """The jobs that this agent created for another management cluster than that one."""
        return tuple(key for key, uid in self._managers.items() if uid != manager_uid)

    def facts(
        self,
        job: JsonObject,
        *,
        assignment: str,
        manager_uid: str,
        adopts: tuple[str, str] | None = None,
        workload: str = "",
        is_same_work: Callable[[JsonObject], bool] = lambda job: False,
    ) -> RemoteJobFacts:
        """The input of `assignment_state.step`; `adopts` has the manager and the uid of a job that may be adopted.

        So may the job that a Kueue has sent for `workload` before this manager took its place on the hub, if
        `is_same_work` holds of it.
        """
        metadata: JsonObject = job["metadata"]
        annotations: dict[str, str] = metadata.get("annotations") or {}
        status: JsonObject = job.get("status") or {}
        kind = self.integration
        end = kind.remote_end(job) if isinstance(kind, RemoteGroups) else kind.finished(job)
        assigned = self._assignment(job) if (metadata.get("labels") or {}).get(ORIGIN_LABEL) == self._origin else ""
        of_manager = annotations.get(MANAGER_UID_ANNOTATION) == manager_uid
        return RemoteJobFacts(
            uid=metadata["uid"],
            ours=assigned == assignment and of_manager,
            former=assigned not in ("", assignment) and of_manager,
            adoptable=(
                # An adoption patches the annotations of the job.
                self._may_patch()
                and bool(self._assignment(job))
                and (annotations.get(MANAGER_UID_ANNOTATION, ""), metadata["uid"]) == adopts
                and not of_manager
            )
            or (bool(workload) and self.workload_of_kueue(job) == workload and is_same_work(job)),
            epoch=marked_epoch(annotations),
            deleting=bool(metadata.get("deletionTimestamp")),
            suspended=kind.remotely_stopped(job) if isinstance(kind, RemoteGroups) else kind.is_suspended(job),
            active=kind.may_have_pods(job),
            end=None if end is None else _end(end),
            status=kind.remote_status(job) if isinstance(kind, RemoteGroups) else status,
        )

    def workload_of_kueue(self, job: JsonObject) -> str:
        """The Workload for which a Kueue of this origin has sent the job; empty if an agent or a user made it.

        The name is made of the uid of the job on the hub; that of a group of pods is the name of the group.
        """
        labels: dict[str, str] = job["metadata"].get("labels") or {}
        annotations: dict[str, str] = job["metadata"].get("annotations") or {}
        if labels.get(ORIGIN_LABEL) != self._origin:
            return ""
        if not annotations.keys().isdisjoint((MANAGER_UID_ANNOTATION, ASSIGNMENT_ANNOTATION)):
            return ""
        return labels.get(PREBUILT_WORKLOAD_LABEL) or annotations.get(PREBUILT_WORKLOAD_ANNOTATION, "")

    def workloads_of_kueue(self) -> Iterable[Key]:
        """The Workloads for which a Kueue of this origin has sent jobs that were not taken over yet."""
        return self._of_kueue.groups()

    def sent_by_kueue(self, workload: Key) -> Iterable[Key]:
        """Those jobs of one Workload: one, or the pods of a group."""
        return self._of_kueue.of(workload)

    def manager_uid(self, job: JsonObject) -> str:
        """The uid of the management cluster that the job was created for."""
        return str((job["metadata"].get("annotations") or {}).get(MANAGER_UID_ANNOTATION, ""))

    def assignment_of(self, job: JsonObject) -> str:
        """The assignment that the job is annotated with; empty if this agent did not create it."""
        return self._assignment(job)

    def workload(self, job: JsonObject) -> Key:
        """The Workload of the job, by its name on the management cluster."""
        metadata: JsonObject = job["metadata"]
        return Key(metadata["namespace"], workload_name(metadata.get("annotations") or {}))

    async def create(self, manifest: JsonObject) -> None:
        """Create the job. Raises `AlreadyExists` and whatever else the API server answers."""
        namespace = manifest["metadata"]["namespace"]
        self._remember(await self._client.create(self.integration.resource, manifest, namespace=namespace))

    async def read(self, key: Key) -> JsonObject | None:
        """The job as it is on the server, whoever created it."""
        try:
            raw = await self._client.get(self.integration.resource, key.name, namespace=key.namespace)
        except NotFound:
            return None
        job = self._marks.on(orjson.loads(raw))
        if (job["metadata"].get("labels") or {}).get(ORIGIN_LABEL) == self._origin:
            self._remember(raw)
        return job

    async def verify_writes(self) -> None:
        """Ask the server about each job that was written long ago and is in no list or watch since: it may be gone.

        It was deleted while no watch ran, or is not in the backup from which the cluster was restored. Raises what the
        API server answers; the rest is asked about next time.
        """
        for row in self._overlay.overdue():
            try:
                self._remember(
                    await self._client.get(self.integration.resource, row.key.name, namespace=row.key.namespace)
                )
            except NotFound:
                if self._overlay.holds(row):  # and not one that was created meanwhile
                    self._on_not_found(row.key)

    async def adopt(self, key: Key, uid: str, manifest: JsonObject, *, found: JsonObject | None = None) -> None:
        """Give the job the marks of the assignment of `manifest`; nothing else of it changes.

        `found` is the job if it may be missing in the cache, for want of its label.
        """
        marks: JsonObject = manifest["metadata"]
        annotations = {name: marks["annotations"][name] for name in ASSIGNMENT_ANNOTATIONS}
        if ORIGIN_UID_ANNOTATION in marks["annotations"]:
            annotations[ORIGIN_UID_ANNOTATION] = marks["annotations"][ORIGIN_UID_ANNOTATION]
        labels = {name: marks["labels"][name] for name in (ORIGIN_LABEL, REMOTE_POD_LABEL) if name in marks["labels"]}
        known = found or self.get(key)
        if known is not None and WORKLOAD_NAME_ANNOTATION in (known["metadata"].get("annotations") or {}):
            # It was created outside the queues of this cluster, whose engine must not manage it now.
            annotations[WORKLOAD_NAME_ANNOTATION] = annotations.pop(PREBUILT_WORKLOAD_ANNOTATION)
        if known is not None and not self._may_patch() and self.workload_of_kueue(known):
            self._marks.set(uid, annotations)
            self._index_job(key, self._marks.on(known))
            self._changed(annotations[ASSIGNMENT_ANNOTATION])
            return
        body = {"metadata": {"uid": uid, "annotations": annotations, **({"labels": labels} if labels else {})}}
        try:
            await self._client.patch(
                self.integration.resource, key.name, body, namespace=key.namespace, kind=PatchKind.MERGE
            )
        except NotFound:
            self._on_not_found(key)

    async def stop(self, key: Key, uid: str, *, by_deletion: bool = False) -> None:
        """Suspend the job; delete it if it cannot be suspended, the agent may not patch it, or with `by_deletion`.

        Does nothing if the job is gone. Raises `Conflict`, also if the uid differs.
        """
        if not by_deletion and self.integration.traits.hold is Hold.SUSPEND and self._may_patch():
            try:
                await self.suspend(key, uid)
            except Forbidden as error:
                _log.warning("cannot suspend job; deleting it job=%s error=%s", key, error.message)
            else:
                return
        await self.delete(key, uid, ended=False)

    async def suspend(self, key: Key, uid: str) -> None:
        """Suspend the job. Raises `Forbidden` and `Conflict`; does nothing if the job is gone."""
        traits = self.integration.traits
        suspension: Any = traits.suspended_value
        for field in reversed(traits.suspend_path):
            suspension = {field: suspension}
        body: JsonObject = {**suspension, "metadata": {"uid": uid}}
        try:
            await self._client.patch(
                self.integration.resource, key.name, body, namespace=key.namespace, kind=PatchKind.MERGE
            )
        except NotFound:
            self._on_not_found(key)

    async def change(self, key: Key, uid: str, patch: JsonObject) -> JsonObject | None:
        """Patch the job; None if it is gone, or the agent may not patch it. Raises `Conflict` if the uid differs."""
        if not self._may_patch():
            _log.warning("job is not changed, the agent may not patch it job=%s", key)
            return None
        body = {**patch, "metadata": {"uid": uid}}
        try:
            raw = await self._client.patch(
                self.integration.resource, key.name, body, namespace=key.namespace, kind=PatchKind.MERGE
            )
        except NotFound:
            self._on_not_found(key)
            return None
        self._remember(raw)
        changed: JsonObject = orjson.loads(raw)
        return changed

    async def delete(self, key: Key, uid: str, *, ended: bool) -> None:
        """Delete the job; one that has not finished stays visible until its pods are gone, so that no second starts."""
        # A pod stays visible by itself until its containers have stopped.
        by_itself = ended or self.integration.traits.hold is Hold.GATE
        propagation = "Background" if by_itself else "Foreground"
        try:
            await self._client.delete(
                self.integration.resource, key.name, namespace=key.namespace, uid=uid, propagation=propagation
            )
        except NotFound:
            self._on_not_found(key)

    def _remember(self, raw: bytes) -> None:
        seen = self._overlay.on_write(raw)
        if seen is not None and seen.new is not None:
            self._index_job(seen.key, self._marks.on(seen.new.object()))

    def _on_not_found(self, key: Key) -> None:
        """The server has no such job: what was written of it is dropped, and its assignment reconciled."""
        self._on_seen(self._overlay.on_not_found(key))

    def _on_job(self, change: Change) -> None:
        self._on_seen(self._overlay.on_change(change))

    def _on_seen(self, seen: Change | None) -> None:
        if seen is None:
            return
        if seen.new is not None:
            job = self._marks.on(seen.new.object())
            assignment, before = self._assignment(job), self._index_job(seen.key, job)
        else:
            assignment, before = "", self._unindex(seen.key)
        for name in {before, assignment} - {""}:
            self._changed(name)
        if seen.new is None:
            self._marks.forget(seen.row.uid)
            self._gone(self.named(seen.key))

    def _index_job(self, key: Key, job: JsonObject) -> str:
        """Index the job under its assignment, or under the Workload of Kueue; returns the assignment before."""
        before, assignment = self._unindex(key), self._assignment(job)
        if assignment:
            self._assigned.put(key, assignment)
            self._managers[key] = self.manager_uid(job)
        elif workload := self.workload_of_kueue(job):
            self._of_kueue.put(key, Key(key.namespace, workload))
        return before

    def _unindex(self, key: Key) -> str:
        self._managers.pop(key, None)
        self._of_kueue.put(key, None)
        return self._assigned.put(key, None) or ""

    def _assignment(self, job: JsonObject) -> str:
        """The assignment of a job of this agent; two agents may share a cluster and an origin."""
        annotations: dict[str, str] = job["metadata"].get("annotations") or {}
        return annotations.get(ASSIGNMENT_ANNOTATION, "") if annotations.get(CLUSTER_LABEL) == self._cluster else ""


def workload_name(annotations: Mapping[str, str]) -> str:
    """The Workload of a remote job with these annotations; empty if it is not a remote job."""
    return annotations.get(PREBUILT_WORKLOAD_ANNOTATION) or annotations.get(WORKLOAD_NAME_ANNOTATION, "")


def _end(end: JobEnd) -> RemoteEnd:
    return RemoteEnd(reason=end.reason, message=end.message, time=parse_time(end.time) if end.time else None)
