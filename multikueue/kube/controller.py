# SPDX-License-Identifier: Apache-2.0
"""Runs a reconciler over the keys of a work queue.

A reconciler is `async def reconcile(key) -> Result | None`. It gets identity only, never an event: it reads the state
of the world, decides, and acts, and may run twice, late, or on a stale cache. What it returns or raises is one of four
outcomes: nothing more to do; come back after some seconds; an error, which is tried again with a growing pause; or a
`TerminalError`, which is not, because only a change of the object can help.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import anyio
import anyio.lowlevel
from prometheus_client import CollectorRegistry, Counter, Histogram

from multikueue.core.clock import Clock, SystemClock
from multikueue.core.errors import MultikueueError
from multikueue.kube import errors
from multikueue.kube.workqueue import Closed, WorkQueue

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

_OUTCOMES: Final = ("success", "requeue_after", "error", "terminal")
_BREATH_SECONDS: Final = 0.02
_QUIET_FAILURES: Final = 3  # conflicts and races cure themselves; what fails more often is worth a line


@dataclass(frozen=True, slots=True)
class Result:
    """Come back `after` seconds; None means when something changes."""

    after: float | None = None


class TerminalError(MultikueueError):
    """Trying again cannot help before the object itself changes."""


class ControllerMetrics:
    """The series of all controllers of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.outcomes = Counter(
            "controller_runtime_reconcile", "Reconciles by outcome", ("controller", "result"), registry=registry
        )
        self.seconds = Histogram(
            "controller_runtime_reconcile_time_seconds", "Duration of a reconcile", ("controller",), registry=registry
        )


class Controller(Generic[K]):
    """`workers` reconciles at a time, never two of one key."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result | None]],
        *,
        workers: int = 1,
        queue: WorkQueue[K] | None = None,
        clock: Clock | None = None,
        metrics: ControllerMetrics | None = None,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[K] = queue if queue is not None else WorkQueue(clock=clock)
        self._reconcile = reconcile
        self._workers = workers
        self._clock = clock or SystemClock()
        self._outcomes = (
            {outcome: metrics.outcomes.labels(name, outcome) for outcome in _OUTCOMES} if metrics is not None else {}
        )
        self._busy = 0.0  # seconds of reconciles since others had a turn
        self._seconds = metrics.seconds.labels(name) if metrics is not None else None

    def enqueue(self, key: K, priority: int = 0) -> None:
        """Have `key` reconciled."""
        self.queue.add(key, priority)

    async def run(self) -> None:
        """Work until cancelled, or until the queue is closed and empty."""
        async with anyio.create_task_group() as tasks:
            for _ in range(self._workers):
                tasks.start_soon(self._work)

    async def _work(self) -> None:
        while True:
            if self._busy >= _BREATH_SECONDS:
                # A reconcile that finds nothing to do awaits nothing: ten thousand of them would starve the lease.
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
        """One reconcile and its outcome; raises nothing but cancellation."""
        started = self._clock.monotonic()
        try:
            result = await self._reconcile(key)
        except TerminalError as error:
            self.queue.forget(key)
            self._count("terminal")
            logger.error("%s %s: %s; waiting for a change", self.name, key, error)
        except (errors.Conflict, errors.Unreachable, errors.TooManyRequests) as error:
            # Ordinary: a stale cache or a server that is away. Only a long row of them is news.
            self._fail(key, error, loud=self.queue.failures(key) >= _QUIET_FAILURES)
        except MultikueueError as error:
            self._fail(key, error, loud=True)
        except Exception:
            self.queue.retry(key)
            self._count("error")
            logger.exception("%s %s: a reconcile broke; trying again", self.name, key)
        else:
            self.queue.forget(key)
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

    def _fail(self, key: K, error: MultikueueError, *, loud: bool) -> None:
        seconds = self.queue.retry(key)
        self._count("error")
        log = logger.warning if loud else logger.debug
        log("%s %s: %s; again in %.2f s", self.name, key, error, seconds)

    def _count(self, outcome: str) -> None:
        if self._outcomes:
            self._outcomes[outcome].inc()
