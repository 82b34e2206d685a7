# SPDX-License-Identifier: Apache-2.0
"""Reports in the status of a waiting job that it is suspended; clients would show it as running otherwise.

Only readers need it, so it is written within the budget of `pendingReasons`, like the reason why a Workload waits.
"""

from __future__ import annotations

from typing import Final

import orjson

from manager.context import ManagerContext
from manager.scheduler.pending_writes import News, PendingSender, PendingWrites
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import JobEvent
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.jobs.framework.protocol import JobIntegration, JobWrite
from multikueue.kube.errors import Conflict, NotFound
from multikueue.kube.runtime.controller import Result
from multikueue.kube.runtime.events import NORMAL, Reference

_AGE_SECONDS: Final = 2.0
"""Newer jobs are skipped: most of them start at once, and the write would be wasted."""


class SuspendedJobs:
    """The suspended jobs of one kind whose status does not show it yet."""

    def __init__(self, context: ManagerContext, integration: JobIntegration, pending_writes: PendingWrites) -> None:
        self._context = context
        self._integration = integration
        self._pending_writes = pending_writes
        self._jobs = context.caches.view(integration.resource)
        self._slot = f"suspended {integration.framework}"
        self._sender = PendingSender(self._news, self._send, integration.resource)

    def check(self, key: Key) -> Result | None:
        """Queue the write within the budget, or request another call once the job is old enough."""
        job = self._jobs.object(key)
        if job is None or self._write(job) is None:
            return None
        age = (self._context.clock.now() - parse_time(job["metadata"]["creationTimestamp"])).total_seconds()
        if age < _AGE_SECONDS:
            return Result(after=_AGE_SECONDS - max(0.0, age))
        self._pending_writes.put(key, self._sender.about((key, job["metadata"]["uid"])), slot=self._slot)
        return None

    def _wanted(self, key: Key, uid: str) -> tuple[JsonObject, JobWrite] | None:
        job = self._jobs.object(key)
        write = self._write(job) if job is not None and job["metadata"]["uid"] == uid else None
        return None if job is None or write is None else (job, write)

    def _news(self, about: tuple[Key, str]) -> News:
        return News.NOTHING if self._wanted(*about) is None else News.REASON

    def _write(self, job: JsonObject) -> JobWrite | None:
        if "deletionTimestamp" in job["metadata"]:
            return None
        return self._integration.suspended_status(job, now=self._context.clock.now())

    async def _send(self, about: tuple[Key, str]) -> None:
        found = self._wanted(*about)
        if found is None:
            return
        job, write = found
        metadata = job["metadata"]
        try:
            answer = await self._context.client.patch(
                self._integration.resource,
                metadata["name"],
                write.body,
                namespace=metadata["namespace"],
                subresource=write.subresource or None,
                resource_version=metadata["resourceVersion"],
            )
        except (Conflict, NotFound):
            return  # it has changed, and is checked again with that event
        self._jobs.on_write(answer)
        self._context.recorder.event(Reference.of(orjson.loads(answer)), NORMAL, JobEvent.SUSPENDED, "Job suspended")
