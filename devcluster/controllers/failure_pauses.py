# SPDX-License-Identifier: Apache-2.0
"""The growing pauses between the deletions of a DaemonSet's failed pods on one node.

A pause starts with a deletion. It doubles with the next one, unless twice the longest pause has passed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_FIRST_SECONDS: Final = 1.0
_MOST_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True)
class _Pause:
    begun: float
    seconds: float

    def is_over(self, now: float) -> bool:
        """Whether it is forgotten."""
        return now - self.begun > 2 * _MOST_SECONDS


class FailurePauses(Generic[K]):
    """The pauses by key; times are monotonic seconds."""

    def __init__(self) -> None:
        self._pauses: dict[K, _Pause] = {}

    def left(self, key: K, now: float) -> float | None:
        """The seconds that are left of a pause; None if it has passed."""
        pause = self._pauses.get(key)
        if pause is None or pause.is_over(now) or now - pause.begun >= pause.seconds:
            return None
        return pause.begun + pause.seconds - now

    def begin(self, key: K, now: float) -> None:
        """Begin the next pause of a key, and forget those that are over."""
        self._pauses = {each: pause for each, pause in self._pauses.items() if not pause.is_over(now)}
        last = self._pauses.get(key)
        seconds = min(_MOST_SECONDS, last.seconds * 2) if last is not None else _FIRST_SECONDS
        self._pauses[key] = _Pause(now, seconds)
