# SPDX-License-Identifier: Apache-2.0
"""The Lease of the mailbox: that the agent runs and reaches its own cluster.

Owns the renewals. The Lease is renewed only while the API server of the worker cluster answers: an agent that cannot
reach its cluster is useless to the hub, which then treats the work there as lost. That the agent cannot stop Jobs at
that time is written to the Lease, so that the hub does not take the missing renewals for a fence. Promises that `valid`
counts by the monotonic clock from before the renewal was sent, so that fenced work never runs on a lease that has
expired on the hub.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from multikueue.api.constants import CANNOT_STOP_ANNOTATION, MAILBOX_OBJECT_NAME
from multikueue.api.meta import JsonObject
from multikueue.api.resource import LEASES
from multikueue.core.clock import Clock
from multikueue.core.timestamps import format_micro_time, format_time
from multikueue.kube.errors import Forbidden, KubeError
from multikueue.kube.rest.client import KubeClient, PatchKind
from worker_agent.hub.client import HubClient
from worker_agent.hub.restore_detector import RestoreDetector

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentIntervals:
    """How often the agent writes to the hub and checks its cluster; tests scale it down."""

    renew_seconds: float = 10.0
    lease_seconds: int = 40
    report_seconds: float = 10.0
    """The longest time between two ClusterReports; a change is reported after `batch_seconds`."""
    status_window_seconds: float = 1.0
    """The shortest time between two ClusterReports, and between two progress statuses of one assignment."""
    batch_seconds: float = 0.1
    gc_seconds: float = 60.0
    """How often remote jobs without an assignment are reconciled again; 0 for never."""
    rights_seconds: float = 120.0
    """How often the rights on the cluster are reviewed."""
    kind_seconds: float = 5.0
    """How often it is looked whether a CustomResourceDefinition of a job kind was installed or removed."""
    pod_start_seconds: float = 5.0
    """After this a job without a started pod is looked at, then with pauses that grow to twelve times as long."""


class Heartbeat:
    """The Lease of one mailbox."""

    def __init__(
        self,
        hub: HubClient,
        worker: KubeClient,
        *,
        namespace: str,
        holder: str,
        intervals: AgentIntervals,
        clock: Clock,
        validity_changed: Callable[[], None],
        restore_detector: RestoreDetector,
    ) -> None:
        """`validity_changed` is called when the lease, or a shorter one of an assignment, ends or is valid again."""
        self.problem = "the lease has not been renewed yet"
        self._hub = hub
        self._worker = worker
        self._namespace = namespace
        self._holder = holder
        self._intervals = intervals
        self._clock = clock
        self._validity_changed = validity_changed
        self._restore_detector = restore_detector
        self._renewed: float | None = None
        self._cannot_stop_since = ""
        self._limits: set[float] = {intervals.lease_seconds}
        self._valid_limits: set[float] = set()
        self._limit_added = anyio.Event()
        self.tried = anyio.Event()
        """Set after the first attempt; before it, it is unknown whether fenced work may run."""

    def valid(self, *, within: float = float("inf")) -> bool:
        """Whether the last renewal is younger than the lease duration, and than `within` seconds."""
        return self._age() < min(within, self._intervals.lease_seconds)

    def permits_fenced_work(self, lease_seconds: float) -> bool:
        """Whether fenced work of an assignment with this lease duration may run.

        An assignment that was sent under another configuration of the hub has its own lease duration. From the first
        call with it on, renewals come in time for it too, and its end is notified like that of the lease.
        """
        is_valid = self.valid(within=lease_seconds)
        if lease_seconds < self._intervals.lease_seconds and lease_seconds not in self._limits:
            self._limits.add(lease_seconds)
            if is_valid:
                self._valid_limits.add(lease_seconds)  # the caller knows it now; only its end is notified
            self._limit_added.set()
        return is_valid

    async def run(self) -> None:
        """Renew until cancelled. After a failure the next attempt comes sooner."""
        while True:
            self._notify_changes()  # of a limit that ended during the pause, before the next attempt
            began = self._clock.monotonic()
            try:
                # No attempt lasts longer than the lease: fenced work is to be stopped then, not after it.
                with anyio.fail_after(self._left() or None):
                    await self._renew()
            except (KubeError, TimeoutError) as error:
                text = str(error) or "no answer in time"
                if text != self.problem:
                    _log.warning("lease not renewed namespace=%s error=%s", self._namespace, text)
                self.problem = text
                attempts = 5
            else:
                if self.problem:
                    _log.info("lease renewed namespace=%s", self._namespace)
                self.problem = ""
                self._renewed = began
                attempts = 1
            self.tried.set()
            self._notify_changes()
            await self._pause(since=began, attempts=attempts)

    async def _pause(self, *, since: float, attempts: int) -> None:
        """Wait until the next of so many attempts in a renewal interval, or until a limit ends."""
        while True:
            self._limit_added = anyio.Event()
            # Renewals are as many in the shortest limit as they would be in a whole lease.
            interval = self._intervals.renew_seconds * min(self._limits) / self._intervals.lease_seconds
            pause = max(0.0, interval / attempts - (self._clock.monotonic() - since))
            with anyio.move_on_after(min(pause, self._left() or pause)) as passed:
                await self._limit_added.wait()
            if passed.cancelled_caught:
                return

    def _notify_changes(self) -> None:
        age = self._age()
        valid_limits = {limit for limit in self._limits if age < limit}
        if valid_limits != self._valid_limits:
            self._valid_limits = valid_limits
            self._validity_changed()

    def _age(self) -> float:
        """The seconds since the last renewal was sent; infinite before the first."""
        return float("inf") if self._renewed is None else self._clock.monotonic() - self._renewed

    def _left(self) -> float:
        """The seconds until the next limit ends; 0 if all have ended."""
        age = self._age()
        return min((limit - age for limit in self._limits if limit > age), default=0.0)

    async def report_unreachable_cluster(self) -> None:
        """Write to the Lease while the worker's API server does not answer, without a renewal; until cancelled."""
        while True:
            await anyio.sleep(self._intervals.renew_seconds)
            try:
                await self._check_cluster()
            except (KubeError, TimeoutError) as error:
                _log.debug("worker cluster does not answer namespace=%s error=%s", self._namespace, error)

    async def _renew(self) -> None:
        await self._check_cluster()
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": self._intervals.lease_seconds,
            "renewTime": format_micro_time(self._clock.now()),
        }
        await self._write({"spec": spec, "metadata": {"annotations": {CANNOT_STOP_ANNOTATION: None}}})
        self._cannot_stop_since = ""

    async def _check_cluster(self) -> None:
        """Request /readyz of the worker cluster. If it does not answer, annotate the Lease and raise the error."""
        try:
            with anyio.fail_after(self._intervals.renew_seconds):
                await self._worker.request("GET", "/readyz")
        except Forbidden:
            return  # it answers, and the agent may not read whether it is ready
        except (KubeError, TimeoutError):
            self._cannot_stop_since = self._cannot_stop_since or format_time(self._clock.now())
            try:
                await self._write({"metadata": {"annotations": {CANNOT_STOP_ANNOTATION: self._cannot_stop_since}}})
            except (KubeError, TimeoutError) as error:
                _log.debug("lease not annotated namespace=%s error=%s", self._namespace, error)
            raise

    async def _write(self, body: JsonObject) -> None:
        since = self._restore_detector.followed()
        with anyio.fail_after(self._intervals.renew_seconds):
            answer = await self._hub.patch(
                LEASES, MAILBOX_OBJECT_NAME, body, namespace=self._namespace, kind=PatchKind.MERGE
            )
        self._restore_detector.check(LEASES, answer, since=since)
