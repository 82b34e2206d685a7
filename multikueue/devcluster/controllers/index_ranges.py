# SPDX-License-Identifier: Apache-2.0
"""Sets of completion indexes as a Job's status writes them: `0,2-5,7`.

Promises the text a real controller writes: ascending, two neighbours with a comma, three or more as a range.
"""

from __future__ import annotations

from collections.abc import Iterable


def parse(text: str, *, below: int | None = None) -> set[int]:
    """The indexes of a text, those below a limit. Raises `ValueError` for what is no such text."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        stop = int(last or first) + 1
        found.update(range(int(first), stop if below is None else min(stop, below)))
    return found


def text_of(indexes: Iterable[int]) -> str:
    """The text of the indexes."""
    parts: list[str] = []
    ordered = sorted(set(indexes))
    start = 0
    for position, index in enumerate(ordered):
        if position + 1 < len(ordered) and ordered[position + 1] == index + 1:
            continue
        first = ordered[start]
        if index - first >= 2:
            parts.append(f"{first}-{index}")
        else:
            parts += [str(number) for number in range(first, index + 1)]
        start = position + 1
    return ",".join(parts)
