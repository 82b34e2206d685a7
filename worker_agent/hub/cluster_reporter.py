# SPDX-License-Identifier: Apache-2.0
"""The ClusterReport of the mailbox: when it is written, and its writes.

A change is reported after `batch` seconds, with all that changed meanwhile. While changes continue there is one report
every `interval` seconds and one more after the last change; without changes, one every `period` seconds. A report that
failed is retried with a pause that doubles up to `period`. The number of writes is bounded whatever happens on the
cluster, and the last state is always reported.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from multikueue.api.constants import MAILBOX_OBJECT_NAME
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_REPORTS
from multikueue.core.clock import Clock
from multikueue.core.timestamps import format_time
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import PatchKind
from worker_agent.hub.client import HubClient
from worker_agent.hub.heartbeat import AgentIntervals
from worker_agent.hub.restore_detector import RestoreDetector, stored

_log = logging.getLogger(__name__)

_TIMER_SLACK: Final = 0.001  # timers may fire this much early


class ReportPace:
    """When the next report is due; `now` is of a monotonic clock."""

    def __init__(self, *, batch: float, interval: float, period: float) -> None:
        self._batch = min(batch, interval)
        self._interval = interval
        self._period = max(period, interval)
        self._changed: float | None = None
        self._attempted: float | None = None
        self._pause = 0.0

    def changed(self, now: float) -> bool:
        """Record a change of what is reported; whether it is the first since the last report began."""
        if self._changed is not None:
            return False
        self._changed = now
        return True

    def left(self, now: float) -> float:
        """The seconds until the next report is due; 0 if it is due."""
        if self._attempted is None:
            return 0.0
        due = self._attempted + self._period
        if self._changed is not None:
            due = min(due, max(self._changed + self._batch, self._attempted + self._pause))
        return max(0.0, due - now)

    def began(self, now: float) -> None:
        """A report is being written; later changes belong to the next one."""
        self._attempted = now
        self._changed = None

    def sent(self, now: float, *, awaited: bool = False) -> None:
        """The report was written; with `awaited` the hub waits for another one."""
        self._pause = self._interval
        if awaited:
            self.changed(now)

    def failed(self, now: float) -> None:
        """The report was not written, so that its changes are still unreported."""
        self._pause = min(self._period, max(self._interval, 2 * self._pause))
        self.changed(now)


class ClusterReporter:
    """The ClusterReport of one mailbox."""

    def __init__(
        self,
        hub: HubClient,
        *,
        namespace: str,
        boot_id: str,
        intervals: AgentIntervals,
        clock: Clock,
        restore_detector: RestoreDetector,
        compose: Callable[[], Awaitable[JsonObject]],
        on_spec: Callable[[JsonObject], bool],
    ) -> None:
        """`compose` gives the status. `on_spec` is called with the spec after each report.

        `on_spec` returns whether the hub waits for another report.
        """
        self._hub = hub
        self._namespace = namespace
        self._boot_id = boot_id
        self._clock = clock
        self._restore_detector = restore_detector
        self._compose = compose
        self._on_spec = on_spec
        self._pace = ReportPace(
            batch=intervals.batch_seconds, interval=intervals.status_window_seconds, period=intervals.report_seconds
        )
        self._sooner = anyio.Event()
        self._sequence = 0

    def changed(self) -> None:
        """Write a report soon: what it contains has changed."""
        if self._pace.changed(self._clock.monotonic()):
            self._sooner.set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            self._sooner = anyio.Event()
            left = self._pace.left(self._clock.monotonic())
            if left >= _TIMER_SLACK:
                with anyio.move_on_after(left):
                    await self._sooner.wait()
                continue
            self._pace.began(self._clock.monotonic())
            try:
                awaited = await self._send()
            except KubeError as error:
                _log.debug("cluster report not written namespace=%s error=%s", self._namespace, error)
                self._pace.failed(self._clock.monotonic())
            else:
                self._pace.sent(self._clock.monotonic(), awaited=awaited)

    async def _send(self) -> bool:
        self._sequence += 1
        status = await self._compose() | {
            "bootID": self._boot_id,
            "sequence": self._sequence,
            "time": format_time(self._clock.now()),
        }
        # Replaced whole: a resource that no node has any more must not stay in it.
        patch: list[JsonObject] = [{"op": "add", "path": "/status", "value": status}]
        since = self._restore_detector.followed()
        answer = await self._hub.patch(
            CLUSTER_REPORTS,
            MAILBOX_OBJECT_NAME,
            patch,
            namespace=self._namespace,
            kind=PatchKind.JSON,
            subresource="status",
        )
        report = stored(answer)
        self._restore_detector.check(CLUSTER_REPORTS, report, since=since)
        return self._on_spec(report.get("spec") or {})
