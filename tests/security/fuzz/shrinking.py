# SPDX-License-Identifier: Apache-2.0
"""Fewer writes that still break it.

Owns the search: halves, quarters and so on of a failing list, then the edits of each write that is left. Each try is a
federation of its own, so that nothing of an earlier one is in it; `budget` bounds how many there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.security.fuzz.writes import Write

T = TypeVar("T")
Fails = Callable[[Sequence[Write]], Awaitable[bool]]


async def shrink(writes: Sequence[Write], fails: Fails, *, keep: int, budget: int) -> list[Write]:
    """A small part of `writes` that `fails` is true of; the first `keep` stay. All of them when it is not of those."""
    left = budget

    async def tried(candidate: Sequence[Write]) -> bool:
        nonlocal left
        if left <= 0:
            return False
        left -= 1
        return await fails(candidate)

    if not await tried(writes):
        return list(writes)
    head, rest = list(writes[:keep]), list(writes[keep:])

    async def fails_with(part: Sequence[Write]) -> bool:
        return await tried([*head, *part])

    rest = await _reduced(rest, fails_with)
    for number, write in enumerate(rest):
        if len(write.edits) < 2:
            continue

        async def fails_with_edits(
            part: Sequence[object], number: int = number, write: Write = write, rest: Sequence[Write] = tuple(rest)
        ) -> bool:
            edits = tuple(edit for edit in write.edits if edit in part)
            return await fails_with([*rest[:number], replace(write, edits=edits), *rest[number + 1 :]])

        rest[number] = replace(write, edits=tuple(await _reduced(write.edits, fails_with_edits)))
    return [*head, *rest]


async def _reduced(items: Sequence[T], fails: Callable[[Sequence[T]], Awaitable[bool]]) -> list[T]:
    """Delta debugging: leave parts out as long as it still fails."""
    found, parts = list(items), 2
    while len(found) > 1 and parts <= len(found):
        size = -(-len(found) // parts)
        for start in range(0, len(found), size):
            without = found[:start] + found[start + size :]
            if without and await fails(without):
                found, parts = without, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(found), parts * 2)
    return found
