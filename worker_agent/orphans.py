# SPDX-License-Identifier: Apache-2.0
"""Copies that another management cluster had made, and whose fate an administrator of this one decides (ADR 0010).

Owns what a ClusterReport tells of them: how many there are, and page by page what they are, to who asks. Promises that
none of them is removed unless it is named by its uid in a request, and that a copy of the present management cluster
is never among them. The agent decides nothing: it cannot write anything but its report.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

import orjson

from multikueue.api.clusterreport import MAX_ORPHANS, OrphanPhase
from multikueue.api.constants import EPOCH_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.kube.errors import Forbidden, NotFound
from worker_agent.hub import MailboxView
from worker_agent.jobs import Jobs
from worker_agent.queues import Queues

_log = logging.getLogger(__name__)

_PAGE_BYTES: Final = 400_000  # an object of more than 1.5 MB is not stored


class Orphans:
    """The orphans of one cluster."""

    def __init__(self, mailbox: MailboxView, kinds: Iterable[Jobs], queues: Queues) -> None:
        self._mailbox = mailbox
        self._kinds = tuple(kinds)
        self._queues = queues
        self._request: JsonObject | None = None
        self._answered = ""
        self._page: JsonObject = {}
        self._discarded: set[str] = set()

    def asked(self, request: JsonObject | None) -> bool:
        """Take what `spec.recovery` asks for; tells whether somebody waits for the agent."""
        self._request = request
        if request is None:
            self._page, self._answered = {}, ""
        return request is not None

    async def report(self) -> JsonObject:
        """What a ClusterReport tells of them. Raises what the API servers answer."""
        try:
            owner = await self._mailbox.owner()
        except (NotFound, Forbidden):
            owner = ""
        if not owner:
            return {}  # whose mailbox it is nobody knows yet, nor then who is a stranger in it
        request = self._request
        if request is not None and request["request"] != self._answered:
            await self._discard(owner, frozenset(request.get("discard") or ()))
            self._page = self._look(owner, after=str(request.get("after") or ""))
            self._answered = str(request["request"])
        total = sum(1 for jobs in self._kinds for _ in self._strangers(jobs, owner))
        if not total and request is None:
            return {}
        return {"orphans": {"total": total, "request": self._answered, **self._page}}

    async def _discard(self, owner: str, uids: frozenset[str]) -> None:
        for jobs in self._kinds:
            for key in self._strangers(jobs, owner):
                job = jobs.get(key)
                if job is None or job["metadata"]["uid"] not in uids:
                    continue
                _log.warning("job %s: removed, as an administrator of %s asked", key, self._mailbox.namespace)
                made_by = jobs.manager_uid(job)
                await self._queues.discard(jobs.workload(job), manager_uid=made_by)
                await jobs.delete(key, job["metadata"]["uid"], ended=jobs.integration.finished(job) is not None)
                self._discarded.add(job["metadata"]["uid"])

    def _look(self, owner: str, *, after: str) -> JsonObject:
        found = [(_place(jobs, key), key, jobs) for jobs in self._kinds for key in self._strangers(jobs, owner)]
        found.sort(key=lambda entry: entry[0])
        items: list[JsonObject] = []
        size, last = 0, ""
        for place, key, jobs in found:
            job = jobs.get(key)
            if place <= after or job is None:
                continue
            item = _orphan(jobs, job)
            size += len(orjson.dumps(item))
            if items and (len(items) == MAX_ORPHANS or size > _PAGE_BYTES):
                return {"items": items, "next": last}
            items.append(item)
            last = place
        return {"items": items}

    def _strangers(self, jobs: Jobs, owner: str) -> Iterator[Key]:
        for key in jobs.of_others(owner):
            if not self._discarded:
                yield key
                continue
            job = jobs.get(key)
            if job is not None and job["metadata"]["uid"] not in self._discarded:
                yield key


def _place(jobs: Jobs, key: Key) -> str:
    return f"{jobs.integration.resource.kind}/{key}"


def _orphan(jobs: Jobs, job: JsonObject) -> JsonObject:
    metadata: JsonObject = job["metadata"]
    annotations: dict[str, str] = metadata.get("annotations") or {}
    epoch = annotations.get(EPOCH_ANNOTATION, "")
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
        "epoch": int(epoch) if epoch.isdigit() else 0,
        "phase": str(phase),
        "manifest": {
            "metadata": {"labels": metadata.get("labels") or {}, "annotations": annotations},
            "spec": job.get("spec") or {},
        },
    }
