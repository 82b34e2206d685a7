# SPDX-License-Identifier: Apache-2.0
"""That the agent and its cluster are there: the Lease, and the ClusterReport.

Owns the renewals and the reports. The Lease is renewed only while this cluster's own API server answers: an agent
that cannot reach its cluster is of no use to the hub, and its work is to be judged lost. That it cannot stop anything
there is written into the Lease instead, so that the hub does not take silence for a fence. Promises that `valid` is
decided by the monotonic clock and from the moment before the renewal was sent, so that fenced work never believes in
a lease that the hub holds for over.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from multikueue.api.constants import CANNOT_STOP_ANNOTATION, MAILBOX_OBJECT_NAME
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_REPORTS, LEASES
from multikueue.core.clock import Clock
from multikueue.core.timestamps import format_micro_time, format_time
from multikueue.kube.client import KubeClient, PatchKind
from multikueue.kube.errors import KubeError
from worker_agent.continuity import Continuity, stored
from worker_agent.hub import HubClient

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """How often the agent is heard; tests scale it down."""

    renew_seconds: float = 10.0
    lease_seconds: int = 40
    report_seconds: float = 10.0
    status_window_seconds: float = 1.0
    gc_seconds: float = 60.0
    """How often copies without an assignment are looked at again; 0 for never."""


class Heartbeat:
    """The Lease of one mailbox."""

    def __init__(
        self,
        hub: HubClient,
        worker: KubeClient,
        *,
        namespace: str,
        holder: str,
        rhythm: Rhythm,
        clock: Clock,
        flipped: Callable[[], None],
        continuity: Continuity,
    ) -> None:
        """`flipped` hears when the lease, or a shorter time that was asked for, ends or is valid again."""
        self.problem = "the lease has not been renewed yet"
        self._hub = hub
        self._worker = worker
        self._namespace = namespace
        self._holder = holder
        self._rhythm = rhythm
        self._clock = clock
        self._flipped = flipped
        self._continuity = continuity
        self._renewed: float | None = None
        self._cannot_stop_since = ""
        self._limits: set[float] = {rhythm.lease_seconds}
        self._running: set[float] = set()
        self.tried = anyio.Event()
        """Set after the first attempt: until then nobody can say whether fenced work may run."""

    def valid(self, *, within: float = float("inf")) -> bool:
        """Whether the last renewal is younger than the lease is long, and than `within` seconds.

        The end of each such time that was ever asked for is told like that of the lease: work that was sent under
        another configuration of the hub has one of its own.
        """
        limit = min(within, self._rhythm.lease_seconds)
        runs = self._age() < limit
        if limit not in self._limits:
            self._limits.add(limit)
            if runs:
                self._running.add(limit)  # who asks knows that; its end is news
        return runs

    async def run(self) -> None:
        """Renew until cancelled. After a failure it is tried again sooner."""
        while True:
            self._tell_turns()  # an end that came in the pause is not to wait for another attempt
            began = self._clock.monotonic()
            try:
                # No attempt lasts past the end of the lease: fenced work is to be stopped then, not after it.
                with anyio.fail_after(self._left() or None):
                    await self._renew()
            except (KubeError, TimeoutError) as error:
                text = str(error) or "no answer in time"
                if text != self.problem:
                    _log.warning("lease of %s not renewed: %s", self._namespace, text)
                self.problem = text
                pause = self._rhythm.renew_seconds / 5
            else:
                if self.problem:
                    _log.info("lease of %s renewed", self._namespace)
                self.problem = ""
                self._renewed = began
                pause = self._rhythm.renew_seconds
            self.tried.set()
            self._tell_turns()
            left = self._left()
            pause = max(0.0, pause - (self._clock.monotonic() - began))
            await anyio.sleep(min(pause, left) if left else pause)

    def _tell_turns(self) -> None:
        age = self._age()
        running = {limit for limit in self._limits if age < limit}
        if running != self._running:
            self._running = running
            self._flipped()

    def _age(self) -> float:
        """The seconds since the last renewal was sent; infinite before the first."""
        return float("inf") if self._renewed is None else self._clock.monotonic() - self._renewed

    def _left(self) -> float:
        """The seconds until the next of the limits is over; 0 when all are."""
        age = self._age()
        return min((limit - age for limit in self._limits if limit > age), default=0.0)

    async def admit(self) -> None:
        """Tell the hub while this cluster does not answer; until cancelled, for an agent that does not renew yet."""
        while True:
            await anyio.sleep(self._rhythm.renew_seconds)
            try:
                await self._look()
            except (KubeError, TimeoutError) as error:
                _log.debug("lease of %s: %s", self._namespace, error)

    async def _renew(self) -> None:
        await self._look()
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": self._rhythm.lease_seconds,
            "renewTime": format_micro_time(self._clock.now()),
        }
        await self._write({"spec": spec, "metadata": {"annotations": {CANNOT_STOP_ANNOTATION: None}}})
        self._cannot_stop_since = ""

    async def _look(self) -> None:
        """Ask this cluster whether it answers. When it does not, tell the hub, and raise what was wrong."""
        try:
            with anyio.fail_after(self._rhythm.renew_seconds):
                await self._worker.request("GET", "/readyz")
        except (KubeError, TimeoutError):
            self._cannot_stop_since = self._cannot_stop_since or format_time(self._clock.now())
            try:
                await self._write({"metadata": {"annotations": {CANNOT_STOP_ANNOTATION: self._cannot_stop_since}}})
            except (KubeError, TimeoutError) as error:
                _log.debug("lease of %s: that the cluster does not answer is not told: %s", self._namespace, error)
            raise

    async def _write(self, body: JsonObject) -> None:
        since = self._continuity.followed()
        with anyio.fail_after(self._rhythm.renew_seconds):
            answer = await self._hub.patch(
                LEASES, MAILBOX_OBJECT_NAME, body, namespace=self._namespace, kind=PatchKind.MERGE
            )
        self._continuity.check(LEASES, answer, since=since)


class Reporter:
    """The ClusterReport of one mailbox."""

    def __init__(
        self,
        hub: HubClient,
        *,
        namespace: str,
        boot_id: str,
        rhythm: Rhythm,
        clock: Clock,
        continuity: Continuity,
        compose: Callable[[], Awaitable[JsonObject]],
        asked: Callable[[JsonObject], bool],
    ) -> None:
        """`asked` hears of the spec after each report, and tells whether somebody waits for the next one."""
        self._hub = hub
        self._namespace = namespace
        self._boot_id = boot_id
        self._rhythm = rhythm
        self._clock = clock
        self._continuity = continuity
        self._compose = compose
        self._asked = asked
        self._changed = anyio.Event()
        self._sequence = 0

    def changed(self) -> None:
        """Something that the report tells has changed; it goes out soon."""
        self._changed.set()

    async def run(self) -> None:
        """Report until cancelled: on a change, but not in a stream, and regularly for the time in it."""
        while True:
            self._changed = anyio.Event()
            awaited = False
            try:
                awaited = await self._send()
            except KubeError as error:
                _log.debug("report of %s not sent: %s", self._namespace, error)
            await anyio.sleep(self._rhythm.status_window_seconds)
            if awaited:
                continue
            with anyio.move_on_after(max(0.0, self._rhythm.report_seconds - self._rhythm.status_window_seconds)):
                await self._changed.wait()

    async def _send(self) -> bool:
        self._sequence += 1
        status = await self._compose() | {
            "bootID": self._boot_id,
            "sequence": self._sequence,
            "time": format_time(self._clock.now()),
        }
        # Replaced whole: a resource that no node has any more must not stay in it.
        patch: list[JsonObject] = [{"op": "add", "path": "/status", "value": status}]
        since = self._continuity.followed()
        answer = await self._hub.patch(
            CLUSTER_REPORTS,
            MAILBOX_OBJECT_NAME,
            patch,
            namespace=self._namespace,
            kind=PatchKind.JSON,
            subresource="status",
        )
        report = stored(answer)
        self._continuity.check(CLUSTER_REPORTS, report, since=since)
        return self._asked(report.get("spec") or {})
