# SPDX-License-Identifier: Apache-2.0
"""Measures writes: CPU time of the server's processes over calls one after the other on one connection.

CPU time is user and system time from /proc. A round ends when the API server has used a second of it, or after too many
calls: a real one collects its garbage every hundred calls or so, for as long as these took, so that a short round has
one collection or none. What a server uses while nothing is asked is taken once and subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Final

import orjson

from tests.bench.apiserver.raw import Address, Line, request
from tests.bench.prices.kinds import Body
from tests.bench.prices.writes import BACKGROUND, PricedWrite, Verb
from tests.bench.queueing.processes import cpu_seconds

API_SERVER: Final = "apiserver"
_OBJECTS: Final = 25
_BATCH: Final = 100
_WARM_UP: Final = 25
_LEAST_SECONDS: Final = 1.0
_MOST_CALLS: Final = 1500
_IDLE_SECONDS: Final = 4.0
_QUIET_SECONDS: Final = 1.0
_QUIET_SHARE: Final = 0.08
_PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One round: what so many calls took together."""

    calls: int
    cpu: Mapping[str, float]
    """Seconds of CPU time, by process."""
    wall: float
    """Seconds of the clock, which other work on the machine makes longer."""
    reviews: int
    """How often a webhook was asked."""


class Meter:
    """Measures on one server; a context manager that owns its connection."""

    def __init__(
        self, address: Address, processes: Mapping[str, int], *, calls: int, reviews: Callable[[], int]
    ) -> None:
        """`calls` is the least of a round; `reviews` counts the requests to webhooks so far."""
        self.idle: dict[str, float] = {}
        """CPU seconds in a second without requests, by process."""
        self._address = address
        self._processes = dict(processes)
        self._calls = calls
        self._reviews = reviews
        self._line = Line(address)

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    def ask(self, method: str, path: str, body: object = None, media: str = "application/json") -> Body:
        """One request that must succeed, outside of any measurement."""
        return self.send(request(method, path, b"" if body is None else orjson.dumps(body), media))

    def status_of(self, method: str, path: str) -> int:
        """The status of the answer."""
        return self._line.ask(request(method, path))[0]

    def wait_for(self, path: str) -> None:
        """Wait until the server serves a collection: that of a new definition comes a moment later."""
        deadline = perf_counter() + _PATIENCE
        while (status := self.status_of("GET", f"{path}?limit=1")) != 200:
            if perf_counter() > deadline:
                raise TimeoutError(f"{path} is not served within {_PATIENCE:.0f} s: {status}")
            sleep(0.05)

    def settle(self) -> None:
        """Wait until the server has done what follows from a change of definitions, such as new OpenAPI documents."""
        deadline = perf_counter() + _PATIENCE
        while perf_counter() < deadline:  # one that is never quiet is measured as it is
            before = self._cpu()[API_SERVER]
            sleep(_QUIET_SECONDS)
            if self._cpu()[API_SERVER] - before < _QUIET_SHARE * _QUIET_SECONDS:
                return

    def rest(self) -> None:
        """Take what the processes use while nothing is asked."""
        self.settle()
        before, began = self._cpu(), perf_counter()
        sleep(_IDLE_SECONDS)
        after, seconds = self._cpu(), perf_counter() - began
        self.idle = {name: (after[name] - before[name]) / seconds for name in after}

    def measure(self, write: PricedWrite) -> Sample:
        """One round of a write."""
        objects = _WrittenObjects(self, write)
        objects.prepare(_WARM_UP)
        for text in objects.requests(_WARM_UP):
            objects.keep(self.send(text))
        cpu, calls, wall, reviews = dict.fromkeys(self._processes, 0.0), 0, 0.0, 0
        while calls < self._calls or (cpu[API_SERVER] < _LEAST_SECONDS and calls < _MOST_CALLS):
            objects.prepare(_BATCH)
            asked, before, began = self._reviews(), self._cpu(), perf_counter()
            for text in objects.requests(_BATCH):
                objects.keep(self.send(text))
            seconds, after = perf_counter() - began, self._cpu()
            reviews += self._reviews() - asked
            calls += _BATCH
            wall += seconds
            for name in cpu:
                cpu[name] += after[name] - before[name] - self.idle.get(name, 0.0) * seconds
        objects.remove()
        return Sample(calls, cpu, wall, reviews)

    def send(self, text: bytes) -> Body:
        """The answer to a request. Raises `RuntimeError` for an error."""
        status, answer = self._line.ask(text)
        if status >= 300:
            raise RuntimeError(f"{text[:200]!r}: {status}: {answer[:300]!r}")
        found: Body = orjson.loads(answer)
        return found

    def _cpu(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self._processes.items()}


class _WrittenObjects:
    """The objects of one measurement: a few that are written in turn, or a new one for each create and delete."""

    def __init__(self, meter: Meter, write: PricedWrite) -> None:
        self._meter = meter
        self._write = write
        self._made = 0
        self._deleted = 0
        self._turns: dict[str, int] = {}
        self._last: dict[str, Body] = {}
        self._sent = ""
        if write.verb not in (Verb.CREATE, Verb.DELETE):
            for _ in range(_OBJECTS):
                self._make()

    def prepare(self, number: int) -> None:
        """Make what so many requests need."""
        if self._write.verb is Verb.DELETE:
            for _ in range(number):
                self._make()

    def requests(self, number: int) -> Iterator[bytes]:
        """So many requests; each needs the answer to the one before."""
        for _ in range(number):
            if self._write.verb is Verb.CREATE:
                name = self._next_name()
            elif self._write.verb is Verb.DELETE:
                name = f"object-{self._deleted}"
                self._deleted += 1
            else:
                name = next(iter(self._turns))
                self._turns[name] = self._turns.pop(name) + 1  # the one that was not written for the longest time
            self._sent = name
            yield self._write.bytes(name, self._turns.get(name, 0), self._last.get(name, {}))

    def keep(self, answer: Body) -> None:
        """The answer to the last request."""
        if self._write.verb is Verb.UPDATE:
            self._last[self._sent] = answer

    def remove(self) -> None:
        """Delete them all."""
        self._meter.ask("DELETE", f"{self._write.kind.collection}?{BACKGROUND}")

    def _make(self) -> None:
        name = self._next_name()
        # An object that is applied later was applied before: else it would have two owners.
        verb = Verb.APPLY if self._write.verb is Verb.APPLY and not self._write.status else Verb.CREATE
        first = PricedWrite(self._write.kind, verb)
        answer = self._meter.send(first.bytes(name, 0, {}))
        if self._write.verb is not Verb.DELETE:
            self._turns[name] = 0
            self._last[name] = answer

    def _next_name(self) -> str:
        name = f"object-{self._made}"
        self._made += 1
        return name
