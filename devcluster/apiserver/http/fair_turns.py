# SPDX-License-Identifier: Apache-2.0
"""Fairness between users: many requests of one user delay another user's request by a few of them only.

In place of API Priority and Fairness, as far as one event loop needs it. Requests that are ready at the same time are
executed one in each round of the loop, in turn for each user; administrators (`system:masters`) get every second turn,
so that users cannot starve the manager. Each other user may have one request at a time that waits for something, such
as a webhook; further ones queue until it is answered, or has waited so long that the user's webhook may be waiting for
one of them. Requests of a single user are not delayed. Long-running requests are not counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from devcluster.apiserver.http.requests import MASTERS, Reply, User

SEATS: Final = 1
"""How many requests of one user may wait for something at once while other users send requests."""
SEAT_SECONDS: Final = 0.1
"""How long a request keeps its seat while it waits: a webhook may send requests as the user who waits for it."""
_ALONE_SECONDS: Final = 1.0  # after another user's last request, until one user counts as the only one
_ADMINISTRATORS: Final = ""

Waiting = Coroutine[Any, Any, Reply | None]
Start = Callable[[], Reply | Waiting]


class FairTurns:
    """Chooses the next request to execute, for one event loop."""

    def __init__(self, *, seats: int = SEATS, seat_seconds: float = SEAT_SECONDS) -> None:
        self._seats = seats
        self._seat_seconds = seat_seconds
        self._last = ""
        self._last_at = float("-inf")
        self._shared_until = float("-inf")  # until then several users count as active
        self._taken = False  # a request is executed in this round; true while any is queued
        self._administrators_next = True
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._seated: Counter[str] = Counter()
        self._seat_holders: set[Waiting] = set()
        self._seat_queues: dict[str, deque[asyncio.Future[None]]] = {}

    def take(self, user: User, start: Start) -> Reply | Waiting:
        """The result of `start`, now or when it is the user's turn."""
        loop = asyncio.get_running_loop()
        flow = _ADMINISTRATORS if MASTERS in user.groups else user.name
        now = loop.time()
        if flow != self._last:
            if now < self._last_at + _ALONE_SECONDS:
                self._shared_until = now + _ALONE_SECONDS
            self._last = flow
        self._last_at = now
        if now < self._shared_until:
            if self._taken:
                return self._in_turn(flow, start)
            self._taken = True
            loop.call_soon(self._next)
        return self._started(flow, start)

    def _started(self, flow: str, start: Start) -> Reply | Waiting:
        found = start()
        if flow != _ADMINISTRATORS and isinstance(found, Coroutine):
            return self._seat(flow, found)
        return found

    async def _in_turn(self, flow: str, start: Start) -> Reply | None:
        loop = asyncio.get_running_loop()
        if self._taken:
            turn = loop.create_future()
            self._queues.setdefault(flow, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._next()  # the next user's turn
                raise
        self._taken = True
        loop.call_soon(self._next)
        found = self._started(flow, start)
        return await found if isinstance(found, Coroutine) else found

    def _next(self) -> None:
        """Execute the next request; the round is over."""
        self._taken = False
        while self._queues:
            flow = _ADMINISTRATORS
            if flow not in self._queues or not self._administrators_next:
                flow = next((name for name in self._queues if name != _ADMINISTRATORS), _ADMINISTRATORS)
            queue = self._queues.pop(flow)
            turn = queue.popleft()
            if queue:
                self._queues[flow] = queue  # at the end
            if not turn.done():
                self._administrators_next = flow != _ADMINISTRATORS
                self._taken = True
                turn.set_result(None)
                return

    async def _seat(self, flow: str, work: Waiting) -> Reply | None:
        try:
            await self._take_seat(flow)
        except BaseException:
            work.close()
            raise
        self._seat_holders.add(work)
        expiry = asyncio.get_running_loop().call_later(self._seat_seconds, self._leave_seat, flow, work)
        try:
            return await work
        finally:
            expiry.cancel()
            self._leave_seat(flow, work)

    async def _take_seat(self, flow: str) -> None:
        loop = asyncio.get_running_loop()
        if self._seated[flow] >= self._seats and loop.time() < self._shared_until:
            seat = loop.create_future()
            self._seat_queues.setdefault(flow, deque()).append(seat)
            try:
                await seat
            except asyncio.CancelledError:
                if not seat.cancelled():
                    self._free_seat(flow)
                raise
        else:
            self._seated[flow] += 1

    def _leave_seat(self, flow: str, holder: Waiting) -> None:
        if holder in self._seat_holders:
            self._seat_holders.remove(holder)
            self._free_seat(flow)

    def _free_seat(self, flow: str) -> None:
        """Give the seat to the request that has waited longest, if there is one."""
        queue = self._seat_queues.get(flow)
        while queue:
            seat = queue.popleft()
            if not queue:
                del self._seat_queues[flow]
            if not seat.done():
                seat.set_result(None)
                return
        self._seated[flow] -= 1
        if not self._seated[flow]:
            del self._seated[flow]
