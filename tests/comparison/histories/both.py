# SPDX-License-Identifier: Apache-2.0
"""A history on both hubs at the same time, step by step, until they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import anyio

from tests.comparison.histories.history import History
from tests.comparison.histories.played import HistoryHub, PlayedHistory

QUIET_SECONDS: Final = 2.5
"""Nothing changes any more when nothing has for so long."""
_MOST_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.5
_LOOKS_AGAIN: Final = 5
"""How often both are looked at before something counts as different."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What only one of both shows after a step."""

    after: int
    kueue: tuple[str, ...]
    ours: tuple[str, ...]


class Both:
    """Both hubs, and what they show of each history; the lines are read for all histories at once."""

    def __init__(self, kueue: HistoryHub, ours: HistoryHub, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._quiet_seconds = quiet_seconds
        self.kueue, self.ours = kueue, ours
        self.found: tuple[dict[str, list[str]], dict[str, list[str]]] = {}, {}
        self.looks = 0

    async def watch(self) -> None:
        """Look at both again and again."""
        while True:
            self.found = await self.kueue.shown(), await self.ours.shown()
            self.looks += 1
            await anyio.sleep(_LOOK_SECONDS)

    async def settled(self, namespace: str) -> tuple[list[str], list[str]]:
        """What both show of a history once that does not change any more."""
        first, last = self.looks, None
        began = since = anyio.current_time()
        while (now := anyio.current_time()) - began < _MOST_SECONDS:
            shown = tuple(each.get(namespace, []) for each in self.found)
            if self.looks <= first + 1 or shown != last:
                last, since = shown, now
            elif now - since >= self._quiet_seconds:
                break
            await anyio.sleep(_LOOK_SECONDS / 2)
        return self.found[0].get(namespace, []), self.found[1].get(namespace, [])


async def play(both: Both, each: History, *, attempt: int) -> Difference | None:
    """The first difference of a history that stays."""
    namespace = f"h{each.seed}x{attempt}"
    played = [PlayedHistory(hub, each, namespace=namespace) for hub in (both.kueue, both.ours)]
    try:
        for index, step in enumerate((None, *each.steps)):
            refused = [await (one.set_up() if step is None else one.take(step)) for one in played]
            for _ in range(_LOOKS_AGAIN):
                shown = await both.settled(namespace)
                if not all(shown):
                    raise LookupError(f"no queue of {namespace} is shown on both hubs, so that nothing was compared")
                theirs, ours = (set(lines) | set(more) for lines, more in zip(shown, refused, strict=True))
                if not decided(theirs ^ ours):
                    break
            else:
                return Difference(index, tuple(sorted(theirs - ours)), tuple(sorted(ours - theirs)))
        return None
    finally:
        with anyio.CancelScope(shield=True):
            for one in played:
                await one.clean_up()


def decided(lines: set[str]) -> list[str]:
    """The lines that are not only about messages."""
    return sorted(line for line in lines if not line.startswith("~"))
