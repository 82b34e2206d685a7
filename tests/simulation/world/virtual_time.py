# SPDX-License-Identifier: Apache-2.0
"""An event loop whose time passes only when nothing else is left to do.

Owns virtual time: a timer an hour away is due at once when nothing is due before it, so that minutes of a federation
cost milliseconds, and the same seed gives the same order of everything. There are no sockets, threads or signals in it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, Final

from anyio import lowlevel
from anyio._backends import _asyncio as anyio_asyncio
from anyio._core import _eventloop, _synchronization, _tasks

_TURN: Final = 1e-6
_NOWHERE: Final = copy_context()


class _Ordered(dict[Any, None]):
    """A set whose order is that of its additions, as far as anyio uses sets."""

    __slots__ = ()

    def add(self, member: object) -> None:
        """Add it at the end."""
        self[member] = None

    def discard(self, member: object) -> None:
        """Take it out if it is there."""
        self.pop(member, None)

    remove = dict.__delitem__


# What is cancelled together would be cancelled by where it lies in memory, which depends on all that was made before.
setattr(anyio_asyncio, "set", _Ordered)  # noqa: B010 (mypy would have it that modules are final)


def _backend(name: str | None = None) -> type[anyio_asyncio.AsyncIOBackend]:
    return anyio_asyncio.AsyncIOBackend


# Every event, scope and sleep asks which loop there is: it is always this one.
for _module in (_eventloop, _synchronization, _tasks, lowlevel):
    setattr(_module, "get_async_backend", _backend)  # noqa: B010
EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Deadlock(Exception):
    """Nothing is left that could ever happen."""


class _Selector(selectors.BaseSelector):
    """Takes the loop's own wake-up pipe, to which nothing writes; it is never read."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        raise RuntimeError("the loop of a simulation waits for no socket")

    def register(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)  # type: ignore[arg-type]

    def unregister(self, fileobj: object) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)  # type: ignore[arg-type]

    def get_map(self) -> Mapping[object, selectors.SelectorKey]:  # type: ignore[override]
        return {}


class _Call(asyncio.TimerHandle):
    """A callback of virtual time: asyncio's own asks at each step whether it is debugged and who else compares it."""

    __slots__ = ()
    # The same for all: to set them in each costs more than the rest.
    _repr = None
    _scheduled = False
    _source_traceback = None

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        """Have it not called."""
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; `time()` is seconds since the simulation began. What is due at one time runs in the order it was asked.

    It takes turns by itself: asyncio's own turn asks for sockets, measures time and compares timers in Python, which
    is a tenth of what a seed costs.
    """

    def __init__(self) -> None:
        super().__init__(_Selector())
        self._now = 0.0
        self._soon: deque[_Call] = self._ready  # type: ignore[attr-defined]
        self._timers: list[tuple[float, int, _Call]] = []
        self._asked = 0

    get_debug = staticmethod(bool)
    """Never; each future asks."""

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """In the next turn."""
        handle = _Call(0.0, callback, args, self, context)
        self._soon.append(handle)
        return handle

    def until(self, when: float) -> asyncio.Future[bool]:
        """Done with True when it is so late; may be made done with something else before."""
        future: asyncio.Future[bool] = asyncio.Future(loop=self)
        self.call_at(when, _ring, future, context=_NOWHERE)
        return future

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """When it is so late."""
        timer = _Call(when, callback, args, self, context)
        self._asked += 1
        heappush(self._timers, (when, self._asked, timer))
        return timer

    def _run_once(self) -> None:
        """Turns until the loop is stopped: in each time passes, and what is due then runs.

        It passes as far as the next timer if nothing else is to do.
        """
        soon, timers = self._soon, self._timers
        while True:
            while timers and timers[0][2]._cancelled:
                heappop(timers)
            # Every turn takes a moment, as in life: who waits for the rest of a rounding error would wait for ever.
            now = self._now + _TURN
            if not soon and not self._stopping:  # type: ignore[attr-defined]
                if not timers:
                    raise Deadlock("no timer and no callback is left")
                now = max(now, timers[0][0])
            self._now = now
            while timers and timers[0][0] <= now:
                soon.append(heappop(timers)[2])
            for _ in range(len(soon)):
                handle = soon.popleft()
                if handle._cancelled:
                    continue
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": "a callback broke", "exception": error, "handle": handle})
            if self._stopping:  # type: ignore[attr-defined]
                return


def _ring(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(True)


class SimClock:
    """The clock of one machine: off by `offset` seconds, and `drift` faster than true time."""

    def __init__(self, loop: VirtualLoop, *, offset: float = 0.0, drift: float = 0.0) -> None:
        self._loop = loop
        self._began = EPOCH + timedelta(seconds=offset)
        self._rate = 1.0 + drift

    def now(self) -> datetime:
        """What this machine believes the time to be."""
        return self._began + timedelta(seconds=self._loop._now * self._rate)

    def monotonic(self) -> float:
        """Seconds at this machine's own rate."""
        return self._loop._now * self._rate
