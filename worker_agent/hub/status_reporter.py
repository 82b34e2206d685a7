# SPDX-License-Identifier: Apache-2.0
"""Writes the status of each assignment to the hub.

Owns batching: a status that the hub waits for is written at once; progress of a running job is batched, with a pause
that grows, and starts as `start_windows.py` says; a status that was written already is not written again. Promises that
the newest status is written eventually, that sequence numbers of one boot only grow, and that a status is never written
to another assignment of the same name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

import orjson

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.api.resource import REMOTE_ASSIGNMENTS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.parsing import version_number
from multikueue.dispatch.protocol.job_logs import LogAnswer, answers_of
from multikueue.dispatch.protocol.wire import assigned_epoch, status_of, status_wire
from multikueue.dispatch.worker.assignment_state import ReportedStatus
from multikueue.kube.cache.store import Row
from multikueue.kube.errors import Invalid, NotFound
from multikueue.kube.rest.client import PatchKind
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue
from worker_agent.hub.client import HubClient
from worker_agent.hub.start_windows import StartWindows

_log = logging.getLogger(__name__)

_SENDERS: Final = 8
_MAX_WINDOWS: Final = 4
_BACKOFF: Final = Backoff(base=0.05, factor=2.0, cap=5.0, jitter=0.3)


@dataclass(slots=True)
class _PendingStatus:
    uid: str
    status: ReportedStatus
    sent: ReportedStatus | None = None
    logs: tuple[LogAnswer, ...] = ()
    """The current chunk of each request for logs."""
    sent_logs: tuple[LogAnswer, ...] = ()
    sent_at: float | None = None
    sequence: int = 0
    version: int = 0
    """The resourceVersion with which the hub had `sent`; 0 if unknown."""
    progress: int = 0
    started: float | None = None
    """When its start came in."""
    awaits_start: bool = False
    """Whether the hub waits for its start."""

    @property
    def is_sent(self) -> bool:
        """Whether the hub has it."""
        return self.status == self.sent and self.logs == self.sent_logs


class StatusReporter:
    """The statuses of all assignments of one mailbox."""

    def __init__(
        self,
        client: HubClient,
        namespace: str,
        *,
        boot_id: str,
        window: float,
        clock: Clock,
        random: Random,
        written: Callable[[JsonObject], None] = lambda obj: None,
    ) -> None:
        """`written` is called with each assignment whose status was written, as the hub stored it."""
        self.writes = 0
        self._written = written
        self._client = client
        self._namespace = namespace
        self._boot_id = boot_id
        self._window = window
        self._clock = clock
        self._pending: dict[str, _PendingStatus] = {}
        self._starts = StartWindows(window=window, clock=clock)
        queue: WorkQueue[str] = WorkQueue(clock=clock, backoff=_BACKOFF, random=random)
        self._controller = Controller("status", self._send, workers=_SENDERS, queue=queue, clock=clock)

    def latest(self, name: str, uid: str) -> ReportedStatus | None:
        """The newest status of the assignment with that uid, written or not."""
        pending = self._pending.get(name)
        return pending.status if pending is not None and pending.uid == uid else None

    def put(
        self, name: str, uid: str, status: ReportedStatus, *, reported: ReportedStatus, awaits_start: bool = False
    ) -> None:
        """Write `status` soon; `reported` is the status that the assignment has on the hub.

        `awaits_start`: the hub waits for the start, so that it is batched for the usual time only.
        """
        pending = self._pending.get(name)
        if pending is None or pending.uid != uid:
            pending = self._pending[name] = _PendingStatus(uid=uid, status=reported, sent=reported)
        if status == pending.status:
            return
        before, pending.status, pending.awaits_start = pending.status, status, awaits_start
        if _is_awaited(before, status):
            if pending.started is not None and before.phase is AssignmentPhase.RUNNING:
                self._starts.ended(pending.started)
            self._controller.enqueue(name)
        else:
            self._controller.queue.add_after(name, self._pause(pending))

    def put_logs(self, name: str, uid: str, logs: tuple[LogAnswer, ...]) -> None:
        """Write these chunks at once, with the newest status; ignored before the first status of the assignment."""
        pending = self._pending.get(name)
        if pending is not None and pending.uid == uid and pending.logs != logs:
            pending.logs = logs
            self._controller.enqueue(name)

    def is_ahead_of(self, row: Row) -> bool:
        """Whether the last write gave the assignment a later version than this row has."""
        pending = self._pending.get(row.key.name)
        return pending is not None and pending.uid == row.uid and version_number(row.resource_version) < pending.version

    def resend(self, obj: JsonObject) -> None:
        """Write the newest status again if the hub has another one; `obj` is the assignment as the hub has it."""
        metadata: JsonObject = obj["metadata"]
        pending = self._pending.get(metadata["name"])
        if pending is None or pending.uid != metadata["uid"]:
            return
        if pending.status.epoch > assigned_epoch(obj):
            # The hub lost that epoch, and may use its number for another dispatch.
            del self._pending[metadata["name"]]
            return
        pending.sent, pending.sent_logs = status_of(obj), answers_of(obj)
        pending.version = min(pending.version, _version(metadata))
        if not pending.is_sent:
            self._controller.enqueue(metadata["name"])

    def _pause(self, pending: _PendingStatus) -> float:
        """How long progress is batched: a short time at first, as the end may follow soon, then longer each time."""
        if pending.sent_at is None:
            if pending.started is None:
                pending.started = self._starts.started()
            return self._starts.usual if pending.awaits_start else self._starts.seconds()
        pause = self._window * min(1 << pending.progress, _MAX_WINDOWS)
        return max(self._window, pending.sent_at + pause - self._clock.monotonic())

    def resend_if_replaced(self, obj: JsonObject) -> None:
        """Write the last status again if an earlier write has replaced it, because it was repeated or arrived late."""
        metadata: JsonObject = obj["metadata"]
        pending = self._pending.get(metadata["name"])
        if pending is None or pending.uid != metadata["uid"] or not pending.version:
            return
        status: JsonObject = obj.get("status") or {}
        reported = (status.get("bootID"), status.get("sequence"))
        if reported == (self._boot_id, pending.sequence) or _version(metadata) <= pending.version:
            return  # it is the last status, or the cache is older than the last write
        # Of a write whose answer was lost, this is the version that it gave the assignment.
        pending.sent, pending.sent_logs, pending.version = status_of(obj), answers_of(obj), _version(metadata)
        self._controller.queue.add_after(metadata["name"], self._pause(pending))

    def forget(self, name: str) -> None:
        """Drop the status of an assignment that is gone."""
        self._pending.pop(name, None)

    @property
    def unsent(self) -> int:
        """How many statuses have not reached the hub."""
        return sum(not pending.is_sent for pending in self._pending.values())

    async def run(self) -> None:
        """Write until cancelled."""
        await self._controller.run()

    async def _send(self, name: str) -> Result | None:
        pending = self._pending.get(name)
        if pending is None or pending.is_sent:
            return None
        status, logs = pending.status, pending.logs
        self.writes += 1
        sequence = self.writes
        body = status_wire(status, sequence=sequence, boot_id=self._boot_id, now=self._clock.now())
        if logs:
            body["logs"] = [each.wire() for each in logs]
        patch: list[JsonObject] = [
            {"op": "test", "path": "/metadata/uid", "value": pending.uid},
            {"op": "add", "path": "/status", "value": body},
        ]
        try:
            answer = await self._client.patch(
                REMOTE_ASSIGNMENTS,
                name,
                patch,
                namespace=self._namespace,
                kind=PatchKind.JSON,
                subresource="status",
            )
        except NotFound:
            return None  # removed meanwhile; its event will follow
        except Invalid as error:
            # The test of the uid failed, or the server rejects the status: a retry would not change that.
            _log.warning("hub rejected status assignment=%s error=%s", name, error)
        else:
            pending.sequence = sequence
            pending.version = 0
            if isinstance(answer, bytes):
                stored: JsonObject = orjson.loads(answer)
                pending.version = _version(stored.get("metadata") or {})
                self._written(stored)
        if pending.sent is not None and pending.sent != status and pending.sent.phase is status.phase:
            pending.progress += 1
        pending.sent, pending.sent_logs, pending.sent_at = status, logs, self._clock.monotonic()
        return None


def _version(metadata: JsonObject) -> int:
    """As a number; API servers guarantee that versions of one resource can be compared."""
    return version_number(str(metadata.get("resourceVersion") or ""))


def _is_awaited(before: ReportedStatus, status: ReportedStatus) -> bool:
    """Whether the hub waits for the status in order to decide.

    It does not wait for Running: it has granted the assignment, and a moment later there is more progress to report, or
    already the end of a short job.
    """
    if status.phase is AssignmentPhase.RUNNING:
        return False
    return (before.epoch, before.phase, before.reason, before.blocked_since) != (
        status.epoch,
        status.phase,
        status.reason,
        status.blocked_since,
    )
