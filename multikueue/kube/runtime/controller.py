# SPDX-License-Identifier: Apache-2.0
"""Runs a reconciler over the keys of a work queue.

A reconciler is `async def reconcile(key) -> Result | None`. It gets a key, never an event: it reads the current state,
decides and acts, and may run twice, late, or on a stale cache. It has three outcomes: done; requeue after some seconds;
or an error, which is retried with a growing pause. An error that is not one of a server means that the object cannot be
used: it is quarantined, which reports it to its owner.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import anyio
import anyio.lowlevel
from prometheus_client import CollectorRegistry, Counter, Histogram

from multikueue.api.resource import Resource
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.kube import errors
from multikueue.kube.runtime.quarantine import Quarantine
from multikueue.kube.runtime.workqueue import Closed, WorkQueue

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

_OUTCOMES: Final = ("success", "requeue_after", "error")
_YIELD_SECONDS: Final = 0.005
_QUIET_FAILURES: Final = 3  # conflicts and races resolve themselves; more failures are logged


@dataclass(frozen=True, slots=True)
class Result:
    """Requeue after `after` seconds; None to wait for a change."""

    after: float | None = None


class ControllerMetrics:
    """The metrics of all controllers of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.outcomes = Counter(
            "controller_runtime_reconcile", "Reconciles by outcome", ("controller", "result"), registry=registry
        )
        self.seconds = Histogram(
            "controller_runtime_reconcile_time_seconds", "Duration of a reconcile", ("controller",), registry=registry
        )


class Controller(Generic[K]):
    """Runs up to `workers` reconciles at a time, never two of one key."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result | None]],
        *,
        workers: int = 1,
        queue: WorkQueue[K] | None = None,
        clock: Clock | None = None,
        metrics: ControllerMetrics | None = None,
        quarantine: Quarantine | None = None,
        resource: Resource | None = None,
    ) -> None:
        """With `quarantine` and the `resource` of the keys, an object whose reconcile raises is quarantined.

        With several workers the keys of one namespace use at most half of them, rounded up.
        """
        self.name = name
        self._quarantine = quarantine
        self._resource = resource
        self.queue: WorkQueue[K] = queue if queue is not None else WorkQueue(clock=clock, share=(workers + 1) // 2)
        self._reconcile = reconcile
        self._workers = workers
        self._clock = clock or SystemClock()
        self._outcomes = (
            {outcome: metrics.outcomes.labels(name, outcome) for outcome in _OUTCOMES} if metrics is not None else {}
        )
        self._busy = 0.0  # seconds of reconciles since the last yield to the event loop
        self._seconds = metrics.seconds.labels(name) if metrics is not None else None

    def enqueue(self, key: K, priority: int = 0) -> None:
        """Add `key` to the queue."""
        self.queue.add(key, priority)

    async def run(self) -> None:
        """Work until cancelled, or until the queue is closed and empty."""
        async with anyio.create_task_group() as tasks:
            for _ in range(self._workers):
                tasks.start_soon(self._work)

    async def _work(self) -> None:
        while True:
            if self._busy >= _YIELD_SECONDS:
                # A reconcile with nothing to do never awaits: ten thousand of them would delay the lease renewal.
                self._busy = 0.0
                await anyio.lowlevel.checkpoint()
            try:
                key = await self.queue.get()
            except Closed:
                return
            try:
                await self.process(key)
            finally:
                self.queue.done(key)

    async def process(self, key: K) -> None:
        """Run one reconcile and handle its outcome; raises nothing but cancellation."""
        started = self._clock.monotonic()
        try:
            result = await self._reconcile(key)
        except (errors.Conflict, errors.Unreachable, errors.TooManyRequests) as error:
            # A stale cache or an unreachable server is ordinary; only many failures in a row are logged.
            self._fail(key, error, loud=self.queue.failures(key) >= _QUIET_FAILURES)
        except errors.KubeError as error:
            self._fail(key, error, loud=True)
        except Exception as error:
            self._quarantine_or_retry(key, error)
        else:
            self.queue.forget(key)
            if self._quarantine is not None and self._resource is not None and isinstance(key, Key):
                self._quarantine.release(self.name, self._resource, key)
            if result is not None and result.after is not None:
                self.queue.add_after(key, result.after)
                self._count("requeue_after")
            else:
                self._count("success")
        finally:
            seconds = self._clock.monotonic() - started
            self._busy += seconds
            if self._seconds is not None:
                self._seconds.observe(seconds)

    def _quarantine_or_retry(self, key: K, error: Exception) -> None:
        if self._quarantine is not None and self._resource is not None and isinstance(key, Key):
            self.queue.retry(key)
            self._count("error")
            self._quarantine.add(self.name, self._resource, key, error)
        elif isinstance(error, MultikueueError):
            self._fail(key, error, loud=True)
        else:
            self.queue.retry(key)
            self._count("error")
            logger.error("reconcile failed; retrying controller=%s key=%s", self.name, key, exc_info=error)

    def _fail(self, key: K, error: MultikueueError, *, loud: bool) -> None:
        seconds = self.queue.retry(key)
        self._count("error")
        log = logger.warning if loud else logger.debug
        log("reconcile failed; retrying controller=%s key=%s error=%s seconds=%.2f", self.name, key, error, seconds)

    def _count(self, outcome: str) -> None:
        if self._outcomes:
            self._outcomes[outcome].inc()
