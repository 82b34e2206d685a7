# SPDX-License-Identifier: Apache-2.0
"""Sets of completion indexes in the format of a Job's status, as in `0,2-5,7`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from multikueue.api.intervals import Intervals

MOST: Final = 200_000
"""Limit that keeps a malicious status from exhausting the memory."""


def parse(text: str, *, below: int | None = None) -> set[int]:
    """The indexes below `below` (at most `MOST`). Raises `ValueError` for malformed text."""
    most = MOST if below is None else min(below, MOST)
    return {
        index
        for first, last in Intervals.parse(text, field="indexes").pairs
        for index in range(first, min(last + 1, most))
    }


def text_of(indexes: Iterable[int]) -> str:
    """The text that kube-controller-manager writes: ascending, three or more consecutive indexes as a range."""
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
