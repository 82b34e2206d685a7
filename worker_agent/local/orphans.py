# SPDX-License-Identifier: Apache-2.0
"""Orphans: remote jobs, ProvisioningRequests and clones that another management cluster had this agent make (ADR 0010).

Owns their part of the ClusterReport: their number, and pages of them on request. Promises that an orphan is removed
only if a request of an administrator has its uid, and that a remote job of the current management cluster is never
reported as an orphan. A ProvisioningRequest is an orphan once no remote job consumes its capacity, and a clone once
there is no remote job of its assignment; those of an orphan are removed with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import orjson

from multikueue.api.clusterreport import MAX_ORPHANS, OrphanPhase
from multikueue.api.meta import JsonObject
from multikueue.api.resource import PROVISIONING_REQUESTS, WORKLOADS
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.epochs import marked_epoch
from multikueue.kube.errors import Forbidden, KubeError, NotFound
from worker_agent.hub.client import MailboxView
from worker_agent.local.jobs import RemoteJobs
from worker_agent.local.provisioning import WorkerProvisioning, consumes, manager_of
from worker_agent.local.queueing.queues import Queues

_log = logging.getLogger(__name__)

_KIND_OF_REQUESTS: Final = {"apiVersion": PROVISIONING_REQUESTS.api_version, "kind": PROVISIONING_REQUESTS.kind}
_KIND_OF_CLONES: Final = {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind}
"""What LIST leaves out of its items."""
_MESSAGE_LENGTH: Final = 1024
_NOT_SUBMITTED: Final = ("apiVersion", "kind", "metadata", "status")
"""What a user does not write, or is reported beside the manifest."""
_PAGE_BYTES: Final = 400_000  # an object of more than 1.5 MB is not stored


class Orphans:
    """The orphans of one cluster."""

    def __init__(
        self,
        mailbox: MailboxView,
        kinds: Iterable[RemoteJobs],
        queues: Queues,
        provisioning: WorkerProvisioning | None = None,
    ) -> None:
        self._mailbox = mailbox
        self._kinds = tuple(kinds)
        self._queues = queues
        self._provisioning = provisioning
        self._request: JsonObject | None = None
        self._answered = ""
        self._page: JsonObject = {}
        self._discarded: set[str] = set()

    def set_request(self, request: JsonObject | None) -> bool:
        """Take `spec.recovery` of the ClusterReport; whether there is a request to answer."""
        self._request = request
        if request is None:
            self._page, self._answered = {}, ""
        return request is not None

    async def report(self) -> JsonObject:
        """The orphans in a ClusterReport. Raises what the API servers answer."""
        try:
            owner = await self._mailbox.owner()
        except (NotFound, Forbidden):
            owner = ""
        if not owner:
            return {}  # without the owner of the mailbox it is unknown which jobs are orphans
        request = self._request
        if request is not None and request["request"] != self._answered:
            refused = await self._discard(owner, frozenset(request.get("discard") or ()))
            self._page = self._list(owner, after=str(request.get("after") or ""))
            if refused:
                self._page["refused"] = refused[:MAX_ORPHANS]
            self._answered = str(request["request"])
        total = sum(1 for jobs in self._kinds for _ in self._orphans_of(jobs, owner)) + len(self._unused(owner))
        if not total and request is None:
            return {}
        return {"orphans": {"total": total, "request": self._answered, **self._page}}

    async def _discard(self, owner: str, uids: frozenset[str]) -> list[JsonObject]:
        """Remove the orphans with these uids; returns those that the worker's API server refused to remove."""
        refused: list[JsonObject] = []
        # Those of an orphan are not listed, and follow it.
        unused = {str(each["metadata"]["uid"]): each for each in self._unused(owner)}
        for jobs in self._kinds:
            for key in tuple(self._orphans_of(jobs, owner)):
                job = jobs.get(key)
                if job is None or job["metadata"]["uid"] not in uids:
                    continue
                uid = str(job["metadata"]["uid"])
                try:
                    await self._remove(jobs, key, job)
                except KubeError as error:
                    _log.warning("cannot remove orphan job=%s mailbox=%s error=%s", key, self._mailbox.namespace, error)
                    refused.append({"uid": uid, "message": str(error)[:_MESSAGE_LENGTH]})
                else:
                    _log.warning("orphan removed as requested job=%s mailbox=%s", key, self._mailbox.namespace)
                    self._discarded.add(uid)
        for uid, obj in unused.items():
            if uid not in uids:
                continue
            place = _place_of(obj)
            try:
                await self._discard_unused(obj)
            except KubeError as error:
                _log.warning(
                    "cannot remove orphan object=%s mailbox=%s error=%s", place, self._mailbox.namespace, error
                )
                refused.append({"uid": uid, "message": str(error)[:_MESSAGE_LENGTH]})
            else:
                _log.warning("orphan removed as requested object=%s mailbox=%s", place, self._mailbox.namespace)
                self._discarded.add(uid)
        return refused

    async def _discard_unused(self, obj: JsonObject) -> None:
        if obj["kind"] == WORKLOADS.kind:
            key = Key(obj["metadata"]["namespace"], obj["metadata"]["name"])
            await self._queues.clones.discard(key, manager_uid=manager_of(obj))
        elif self._provisioning is not None:
            await self._provisioning.discard(obj)

    async def _remove(self, jobs: RemoteJobs, key: Key, job: JsonObject) -> None:
        await self._queues.clones.discard(jobs.workload(job), manager_uid=jobs.manager_uid(job))
        await jobs.delete(key, job["metadata"]["uid"], ended=jobs.integration.finished(job) is not None)
        if self._provisioning is None:
            return
        for request in self._former(jobs.manager_uid(job)):
            if consumes(job, request):
                await self._provisioning.discard(request)

    def _former(self, manager_uid: str) -> list[JsonObject]:
        """The requests that were made for that manager."""
        found = () if self._provisioning is None else self._provisioning.of_others("")
        return [each for each in found if manager_of(each) == manager_uid]

    def _unused(self, owner: str) -> list[JsonObject]:
        """The requests and clones of other managers without a remote job; none while not all remote jobs are known."""
        if not all(jobs.known for jobs in self._kinds):
            return []
        return [
            each
            for each in (*self._unused_requests(owner), *self._unused_clones(owner))
            if "deletionTimestamp" not in each["metadata"] and each["metadata"]["uid"] not in self._discarded
        ]

    def _unused_requests(self, owner: str) -> Iterable[JsonObject]:
        others = () if self._provisioning is None else self._provisioning.of_others(owner)
        if not others:
            return ()
        known = [row.object() for jobs in self._kinds for row in jobs.informer.store.list()]
        return ({**_KIND_OF_REQUESTS, **each} for each in others if not any(consumes(job, each) for job in known))

    def _unused_clones(self, owner: str) -> Iterable[JsonObject]:
        for assignment in self._queues.clones.assignments():
            clone = self._queues.clones.of_assignment(assignment)
            if clone is None or manager_of(clone) == owner:
                continue
            if not any(jobs.of_assignment(assignment) for jobs in self._kinds):
                yield {**_KIND_OF_CLONES, **clone}

    def _list(self, owner: str, *, after: str) -> JsonObject:
        found = [(_place(jobs, key), key, jobs) for jobs in self._kinds for key in self._orphans_of(jobs, owner)]
        entries: list[tuple[str, Callable[[], JsonObject | None]]] = [
            (place, partial(_orphan_at, jobs, key)) for place, key, jobs in found
        ]
        entries += [(_place_of(each), partial(_unused_orphan, each)) for each in self._unused(owner)]
        entries.sort(key=lambda entry: entry[0])
        items: list[JsonObject] = []
        size, last = 0, ""
        for place, made in entries:
            item = made() if place > after else None
            if item is None:
                continue
            size += len(orjson.dumps(item))
            if items and (len(items) == MAX_ORPHANS or size > _PAGE_BYTES):
                return {"items": items, "next": last}
            items.append(item)
            last = place
        return {"items": items}

    def _orphans_of(self, jobs: RemoteJobs, owner: str) -> Iterator[Key]:
        for key in jobs.of_others(owner):
            if not self._discarded:
                yield key
                continue
            job = jobs.get(key)
            if job is not None and job["metadata"]["uid"] not in self._discarded:
                yield key


def _orphan_at(jobs: RemoteJobs, key: Key) -> JsonObject | None:
    job = jobs.get(key)
    return None if job is None else _orphan(jobs, job)


def _place_of(obj: JsonObject) -> str:
    metadata = obj["metadata"]
    return f"{obj['kind']}/{metadata['namespace']}/{metadata['name']}"


def _unused_orphan(obj: JsonObject) -> JsonObject:
    """A request or a clone as an orphan; what it asks for is not reported."""
    metadata: JsonObject = obj["metadata"]
    annotations: dict[str, str] = metadata.get("annotations") or {}
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "managerUID": manager_of(obj),
        "epoch": marked_epoch(annotations),
        "phase": str(OrphanPhase.SUSPENDED if obj["kind"] == WORKLOADS.kind else OrphanPhase.RUNNING),
        "manifest": {"metadata": {"labels": metadata.get("labels") or {}, "annotations": annotations}},
    }


def _place(jobs: RemoteJobs, key: Key) -> str:
    return f"{jobs.integration.resource.kind}/{key}"


def _orphan(jobs: RemoteJobs, job: JsonObject) -> JsonObject:
    metadata: JsonObject = job["metadata"]
    annotations: dict[str, str] = metadata.get("annotations") or {}
    phase = OrphanPhase.SUSPENDED if jobs.integration.is_suspended(job) else OrphanPhase.RUNNING
    if jobs.integration.finished(job) is not None:
        phase = OrphanPhase.FINISHED
    return {
        "apiVersion": jobs.integration.resource.api_version,
        "kind": jobs.integration.resource.kind,
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "managerUID": jobs.manager_uid(job),
        "epoch": marked_epoch(annotations),
        "phase": str(phase),
        "manifest": {
            **{name: value for name, value in job.items() if name not in _NOT_SUBMITTED},
            "metadata": {"labels": metadata.get("labels") or {}, "annotations": annotations},
        },
    }
