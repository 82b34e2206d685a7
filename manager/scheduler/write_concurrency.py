# SPDX-License-Identifier: Apache-2.0
"""How many writes may be in flight, by the latency of those before them.

Pure: times are passed in. More writes at once than the API server carries out at once only wait there, before those of
every other client. So the number grows by one for each round of answers that came as soon as expected, and shrinks by a
fifth when they take longer than that: twice the shortest latency of the last minutes, or 40 ms if that is more. An
overloaded server halves it, and one that asks for a retry later (429) gets no new write until then.
"""

from __future__ import annotations

from typing import Final

from multikueue.kube.errors import ApiError, TooManyRequests, Unreachable

_LEAST: Final = 8  # where latency has another cause, such as too few cores, fewer would only take longer
_START: Final = 12
_SHRINK: Final = 0.8
_WEIGHT: Final = 0.2  # of one answer in the average
_SHORT_SECONDS: Final = 0.04  # below this, latency is mostly that of this process
_FACTOR: Final = 2.0
_WINDOW_SECONDS: Final = 300.0  # the shortest latency is that of this window and the one before
_OVERLOAD_SECONDS: Final = 2.0  # for how long an answer tells that the server is overloaded
_RETRY_SECONDS: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_DELAYED_ANSWERS: Final = 10.0  # how many average answers a delay is
_LONGEST_DELAY: Final = 10.0  # times the shortest


class WriteConcurrency:
    """The number of writes that may be in flight, between 8 and `most`."""

    def __init__(self, *, most: int) -> None:
        self._most = float(most)
        self._least = float(min(_LEAST, most))
        self._limit = float(min(_START, most))
        self._average: float | None = None
        self._shortest: float | None = None
        self._shortest_before: float | None = None
        self._window_until: float | None = None
        self._last = 0.0
        self._pause_until = 0.0
        self._answers = 0  # since the limit last shrank
        self._reached = False  # whether a write had to wait because of the limit since it last changed

    @property
    def limit(self) -> int:
        """How many writes may be in flight."""
        return int(self._limit)

    def allows(self, in_flight: int) -> bool:
        """Whether another write may start."""
        if in_flight < self.limit:
            return True
        self._reached = True
        return False

    def pause(self, now: float) -> float:
        """The seconds until a write may start at all, as the server asked; 0 if it may now."""
        return max(0.0, self._pause_until - now)

    def overloaded(self, now: float) -> bool:
        """Whether answers still took too long a moment ago although no fewer writes may be in flight."""
        if self._average is None or now - self._last > _OVERLOAD_SECONDS:
            return False
        return self._limit <= self._least and self._average > self._expected()

    def delay(self, shortest: float, *, now: float) -> float:
        """`shortest` seconds while the server is fast; longer while it is slow, since others wait for it as well.

        In that time several writes of others, one after another, are answered. Ten times `shortest` at most.
        """
        if self._average is None or now - self._last > _WINDOW_SECONDS:
            return shortest
        return max(shortest, min(_DELAYED_ANSWERS * self._average, _LONGEST_DELAY * shortest))

    def answered(self, seconds: float, *, now: float, error: ApiError | Unreachable | None = None) -> None:
        """A write was answered, or failed, after so many seconds."""
        if error is not None:
            self._failed(error, now)
            return
        self._last = now
        self._note_shortest(seconds, now)
        self._average = seconds if self._average is None else self._average + _WEIGHT * (seconds - self._average)
        self._answers += 1
        if self._average > self._expected():
            if self._answers >= self._limit:  # those that were in flight when it shrank tell nothing about the new one
                self._shrink(_SHRINK)
        elif self._reached and self._limit < self._most:
            before = self.limit
            self._limit = min(self._most, self._limit + 1.0 / self._limit)
            self._reached = self.limit == before

    def _failed(self, error: ApiError | Unreachable, now: float) -> None:
        if isinstance(error, TooManyRequests):
            asked = _RETRY_SECONDS if error.retry_after is None else error.retry_after
            if self._pause_until <= now:
                self._shrink(0.5)
            self._pause_until = max(self._pause_until, now + min(_LONGEST_PAUSE, asked))
        elif isinstance(error, Unreachable) or error.status >= 500:
            self._answers += 1
            if self._answers >= self._limit:
                self._shrink(0.5)

    def _shrink(self, factor: float) -> None:
        self._limit = max(self._least, self._limit * factor)
        self._answers = 0
        self._reached = False

    def _note_shortest(self, seconds: float, now: float) -> None:
        if self._window_until is None or now >= self._window_until:
            self._shortest_before, self._shortest = self._shortest, None
            self._window_until = now + _WINDOW_SECONDS
        self._shortest = seconds if self._shortest is None else min(self._shortest, seconds)

    def _expected(self) -> float:
        known = [each for each in (self._shortest, self._shortest_before) if each is not None]
        return max(_SHORT_SECONDS, _FACTOR * min(known))
