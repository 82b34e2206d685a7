# SPDX-License-Identifier: Apache-2.0
"""The quarantine: objects that a part of the process cannot use. Each is reported, counted and retried.

Every change handler, every reconcile and every loop over objects runs under it, so that an object which cannot be read
never ends a loop or affects other objects. There is at most one entry per reader and object. An error of a server
(`KubeError`) is not the fault of the object and passes through.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

import anyio
import anyio.lowlevel
from prometheus_client import CollectorRegistry, Counter, Gauge

from multikueue.api.resource import Resource
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.errors import HubRestored, MultikueueError
from multikueue.core.keys import Key
from multikueue.core.printable import printable
from multikueue.kube.errors import KubeError

_log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(base=1.0, factor=2.0, cap=300.0, jitter=0.5)
_MESSAGE_LENGTH: Final = 600

PASSES: Final = (KubeError, HubRestored)
"""Errors that are not the fault of an object."""


class QuarantineKey(NamedTuple):
    """The reader that could not use an object, and the object."""

    reader: str
    resource: Resource
    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """An object that a reader cannot use."""

    reader: str
    resource: Resource
    key: Key
    message: str
    """The field, what was expected and what was found; the exception for an error in our code."""
    version: str = ""
    attempts: int = 1


Reporter = Callable[[Quarantined], None]
"""Called when an object is quarantined, and again when the reason changes."""


class QuarantineMetrics:
    """The metrics of all quarantines of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("reader", "resource")
        self.held = Gauge(
            "multikueue_quarantined_objects", "Objects that a reader cannot use now.", labels, registry=registry
        )
        self.total = Counter(
            "multikueue_quarantines", "Times that an object could not be used.", labels, registry=registry
        )


class Quarantine:
    """The quarantined objects of one process."""

    def __init__(
        self,
        *,
        cluster: str = "",
        clock: Clock | None = None,
        random: Random | None = None,
        backoff: Backoff = _BACKOFF,
        metrics: QuarantineMetrics | None = None,
    ) -> None:
        """`cluster` is logged, for a process that reads several clusters."""
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._backoff = backoff
        self._metrics = metrics
        self._reporters: list[Reporter] = []
        self._entries: dict[QuarantineKey, Quarantined] = {}
        self._retries: dict[QuarantineKey, tuple[float, Callable[[], None]]] = {}
        self._due: list[tuple[float, int, QuarantineKey]] = []
        self._sequence = 0
        self._wake = anyio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def add_reporter(self, reporter: Reporter) -> None:
        """Call `reporter` for each object that is quarantined from now on."""
        self._reporters.append(reporter)

    def remove_reporter(self, reporter: Reporter) -> None:
        """Stop calling `reporter`."""
        self._reporters.remove(reporter)

    def entries(self) -> tuple[Quarantined, ...]:
        """All entries."""
        return tuple(self._entries.values())

    def get(self, reader: str, resource: Resource, key: Key) -> Quarantined | None:
        """The entry of the object for `reader`; None if it can use the object."""
        return self._entries.get(QuarantineKey(reader, resource, key))

    def guard(self, reader: str, resource: Resource, key: Key) -> Guard:
        """Quarantine the object if the body raises anything but a server error; release it if it does not raise."""
        return Guard(self, QuarantineKey(reader, resource, key))

    def add(
        self,
        reader: str,
        resource: Resource,
        key: Key,
        error: Exception,
        *,
        version: str = "",
        retry: Callable[[], None] | None = None,
    ) -> None:
        """Quarantine the object for `reader`.

        `retry` is called once, after a pause that grows with each attempt; it calls `release`, or `add` again.
        """
        where = QuarantineKey(reader, resource, key)
        known = self._entries.get(where)
        message = describe(error)
        attempts = 1 if known is None else known.attempts + 1
        entry = Quarantined(
            reader=reader, resource=resource, key=key, message=message, version=version, attempts=attempts
        )
        self._entries[where] = entry
        if self._metrics is not None:
            self._metrics.total.labels(reader, resource.plural).inc()
            if known is None:
                self._metrics.held.labels(reader, resource.plural).inc()
        if retry is not None:
            self._schedule(where, retry, attempts)
        if known is None or known.message != message:
            self._report(entry, error)

    def release(self, reader: str, resource: Resource, key: Key) -> None:
        """Remove the entry: the object could be used, or is gone."""
        if not self._entries:
            return
        where = QuarantineKey(reader, resource, key)
        if self._entries.pop(where, None) is None:
            return
        self._retries.pop(where, None)
        if self._metrics is not None:
            self._metrics.held.labels(reader, resource.plural).dec()
        _log.info(
            "object released from quarantine cluster=%s reader=%s kind=%s key=%s",
            self._cluster,
            reader,
            resource.kind,
            key,
        )

    def release_readers(self, readers: frozenset[str]) -> None:
        """Remove the entries of readers that have ended; their successors read the objects again."""
        for where in [each for each in self._entries if each.reader in readers]:
            self.release(*where)

    async def run(self) -> None:
        """Retry until cancelled."""
        while True:
            self._wake = anyio.Event()
            now = self._clock.monotonic()
            while self._due and self._due[0][0] <= now:
                at, _, where = heapq.heappop(self._due)
                planned = self._retries.get(where)
                if planned is not None and planned[0] == at:
                    del self._retries[where]
                    try:
                        planned[1]()
                    except Exception as error:
                        self.add(*where, error, retry=planned[1])
                    await anyio.lowlevel.checkpoint()
            pause = self._due[0][0] - self._clock.monotonic() if self._due else None
            with anyio.move_on_after(pause):
                await self._wake.wait()

    def _schedule(self, where: QuarantineKey, retry: Callable[[], None], attempts: int) -> None:
        at = self._clock.monotonic() + self._backoff.delay(attempts, self._random)
        self._retries[where] = (at, retry)
        self._sequence += 1
        heapq.heappush(self._due, (at, self._sequence, where))
        self._wake.set()

    def _report(self, entry: Quarantined, error: Exception) -> None:
        text = "object quarantined cluster=%s reader=%s kind=%s key=%s error=%s"
        arguments = (self._cluster, entry.reader, entry.resource.kind, entry.key, entry.message)
        if isinstance(error, MultikueueError):
            _log.warning(text, *arguments)
        else:
            # An error in our code: the traceback shows where.
            _log.error(text, *arguments, exc_info=error)
        for reporter in self._reporters:
            reporter(entry)


class Guard:
    """The context manager of `Quarantine.guard`."""

    __slots__ = ("_quarantine", "_where")

    def __init__(self, quarantine: Quarantine, where: QuarantineKey) -> None:
        self._quarantine = quarantine
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None:
            self._quarantine.release(*self._where)
            return False
        if isinstance(error, PASSES) or not isinstance(error, Exception):
            return False
        self._quarantine.add(*self._where, error)
        return True


def describe(error: Exception) -> str:
    """The reported reason: the message of our own errors, with the class for others."""
    text = str(error) if isinstance(error, MultikueueError) else f"unexpected {type(error).__name__}: {error}"
    return printable(text[:_MESSAGE_LENGTH])
