# SPDX-License-Identifier: Apache-2.0
"""Writes of why Workloads and their jobs wait: few per second, and after every other write.

A pending reason changes nothing but what its readers see, and under load there are more of them than of all other
writes. Promises that only the newest write of each key and slot is kept; that none is lost: it is sent when the budget
allows, and its sender retries one that failed; that a write in which only figures changed is sent at most once per
interval; that first reasons come before changed ones while the budget is used up; that namespaces take turns; and that
other writes go first, for a second at most, or three while the server is overloaded, so that it does not hold a reason
back for ever.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

import anyio

from manager.scheduler.write_queue import NamespaceTurns
from multikueue.api.resource import WORKLOADS, Resource
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.limiter import Limiter
from multikueue.kube.runtime.quarantine import Quarantine

_log = logging.getLogger(__name__)

_RUNNERS: Final = 4
_YIELDS: Final = 50  # other writes go first for a second in all
_YIELDS_TO_SERVER: Final = 150
_CHANGED_SECONDS: Final = 30.0  # how long another reason than the one shown leaves a used up budget to first ones
_LOOK_SECONDS: Final = 0.02
_AGAIN_SECONDS: Final = 10.0
FIGURES_SECONDS: Final = 60.0
"""How long a condition may show old figures while its reason stays."""

_Slot = tuple[Key, str]


class News(Enum):
    """What a write would change."""

    NOTHING = "nothing"
    FIGURES = "figures"
    """The reason is unchanged; amounts in its message or in `resourceRequests` differ."""
    CHANGED = "changed"
    """Another reason or message than the one that the object shows."""
    REASON = "reason"


class PendingWrite(Protocol):
    """A write that is decided when it is sent, on the object as it is then."""

    @property
    def resource(self) -> Resource:
        """The kind of object that the key names."""

    def news(self) -> News:
        """What it would change now."""

    def send(self) -> Awaitable[None]:
        """Send it, and handle its failure."""


_Subject = TypeVar("_Subject")


@dataclass(frozen=True, slots=True)
class PendingSender(Generic[_Subject]):
    """Decides and sends one kind of pending writes, each about a small value.

    Thousands of Workloads wait at once: a write of each is that value, and no functions of its own.
    """

    news: Callable[[_Subject], News]
    send: Callable[[_Subject], Awaitable[None]]
    resource: Resource = WORKLOADS

    def about(self, subject: _Subject) -> PendingWrite:
        """The write about this value."""
        return _WriteAbout(self, subject)


@dataclass(frozen=True, slots=True)
class _WriteAbout(Generic[_Subject]):
    sender: PendingSender[_Subject]
    subject: _Subject

    @property
    def resource(self) -> Resource:
        return self.sender.resource

    def news(self) -> News:
        return self.sender.news(self.subject)

    def send(self) -> Awaitable[None]:
        return self.sender.send(self.subject)


class PendingWrites:
    """The newest such write of each key and slot, and when it is sent."""

    def __init__(
        self,
        *,
        clock: Clock,
        limiter: Limiter | None = None,
        others_under_way: Callable[[int], bool] = lambda own: False,
        server_overloaded: Callable[[], bool] = lambda: False,
        quarantine: Quarantine | None = None,
        figures_seconds: float = FIGURES_SECONDS,
    ) -> None:
        """Without a `limiter` there is no budget. `others_under_way` gets how many writes of ours are under way, and
        answers whether more are.

        A write that raises what it should have handled quarantines its object for the reader `status`.
        """
        self._clock = clock
        self._limiter = limiter
        self._others_under_way = others_under_way
        self._server_overloaded = server_overloaded
        self._quarantine = quarantine if quarantine is not None else Quarantine()
        self._figures_seconds = figures_seconds
        self._writes: dict[_Slot, PendingWrite] = {}
        self._ready = NamespaceTurns()
        self._slots: dict[Key, list[str]] = {}  # by key that waits for its turn
        self._later: list[tuple[float, int, _Slot]] = []
        self._due: dict[_Slot, float] = {}
        self._figures_due: dict[_Slot, float] = {}
        self._changed_due: dict[_Slot, float] = {}
        self._sequence = 0
        self._claimed: set[_Slot] = set()  # what a runner waits for the budget for
        self._sending = 0
        self._wake = anyio.Event()

    def __len__(self) -> int:
        """Writes that have not been sent."""
        return len(self._writes)

    def put(self, key: Key, write: PendingWrite, *, slot: str) -> None:
        """Send `write` when its turn comes; it replaces one of the same key and slot."""
        self._writes[key, slot] = write
        self._offer(key, slot)

    def retry(self, key: Key, write: PendingWrite, *, slot: str, seconds: float) -> None:
        """Retry `write`, which failed, after so many seconds, unless a newer one was put."""
        if (key, slot) not in self._writes:
            self._writes[key, slot] = write
            self._put_off((key, slot), self._clock.monotonic() + seconds)

    def drop(self, key: Key, *, slot: str) -> None:
        """Drop the write of that key and slot: there is another decision."""
        self._writes.pop((key, slot), None)
        self._due.pop((key, slot), None)
        self._figures_due.pop((key, slot), None)
        self._changed_due.pop((key, slot), None)

    async def run(self) -> None:
        """Send until cancelled; unsent writes are dropped, and the next leader decides them again."""
        async with anyio.create_task_group() as runners:
            for number in range(_RUNNERS):
                runners.start_soon(self._run_one, name=f"pending-writes-{number}")

    async def _run_one(self) -> None:
        while True:
            key, slot = await self._next()
            with self._quarantine.guard("status", self._writes[key, slot].resource, key):
                await self._send(key, slot)

    async def _send(self, key: Key, slot: str) -> None:
        where = key, slot
        try:
            news = self._writes[where].news()
        except Exception:
            self.drop(key, slot=slot)
            raise
        if news is News.FIGURES:
            due = self._figures_due.setdefault(where, self._clock.monotonic() + self._figures_seconds)
            if due > self._clock.monotonic():
                self._put_off(where, due)
                return
        if news is News.CHANGED and self._limiter is not None and not self._limiter.available():
            due = self._changed_due.setdefault(where, self._clock.monotonic() + _CHANGED_SECONDS)
            if due > self._clock.monotonic():
                self._put_off(where, due)
                return
        if news is not News.NOTHING:
            self._claimed.add(where)
            try:
                await self._wait_for_the_budget()
            finally:
                self._claimed.discard(where)
        newest = self._writes.pop(where, None)
        self._figures_due.pop(where, None)
        self._changed_due.pop(where, None)
        if newest is None or news is News.NOTHING:
            return
        self._sending += 1
        try:
            await newest.send()
        except KubeError as error:
            _log.warning(
                "pending reason not written kind=%s key=%s retry_after=%.0f error=%s",
                newest.resource.kind,
                key,
                _AGAIN_SECONDS,
                error,
            )
            self.retry(key, newest, slot=slot, seconds=_AGAIN_SECONDS)
        finally:
            self._sending -= 1

    async def _wait_for_the_budget(self) -> None:
        seconds = self._limiter.reserve() if self._limiter is not None else 0.0
        if seconds:
            await anyio.sleep(seconds)
        for look in range(_YIELDS_TO_SERVER):
            others = look < _YIELDS and self._others_under_way(self._sending)
            if not others and not self._server_overloaded():
                break
            await anyio.sleep(_LOOK_SECONDS)

    async def _next(self) -> _Slot:
        while True:
            now = self._clock.monotonic()
            while self._later and self._later[0][0] <= now:
                due, _, where = heapq.heappop(self._later)
                if self._due.get(where) == due:
                    del self._due[where]
                    self._offer(*where)
            while self._ready:
                key = self._ready.popleft()
                slots = self._slots[key]
                slot = slots.pop(0)
                if slots:
                    self._ready.append(key)
                else:
                    del self._slots[key]
                if (key, slot) in self._writes:
                    return key, slot
            if self._wake.is_set():
                self._wake = anyio.Event()
            with anyio.move_on_after(self._later[0][0] - now if self._later else None):
                await self._wake.wait()

    def _offer(self, key: Key, slot: str) -> None:
        if (key, slot) in self._claimed:
            return  # the newest write is sent when the budget allows it
        slots = self._slots.get(key)
        if slots is None:
            self._slots[key] = [slot]
            self._ready.append(key)
        elif slot not in slots:
            slots.append(slot)
        self._wake.set()

    def _put_off(self, where: _Slot, due: float) -> None:
        if self._due.get(where) == due:
            return
        self._due[where] = due
        self._sequence += 1
        heapq.heappush(self._later, (due, self._sequence, where))
        self._wake.set()
