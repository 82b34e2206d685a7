# SPDX-License-Identifier: Apache-2.0
"""Sets of indexes as Kubernetes writes them, `0-4,7`, stored as intervals."""

from __future__ import annotations

from dataclasses import dataclass

from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.core.printable import excerpt


@dataclass(frozen=True, slots=True)
class Intervals:
    """Disjoint, ordered intervals of indexes, both ends included."""

    pairs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str, *, field: str) -> Intervals:
        """The indexes that `text` lists, in any order. Raises `BadInput` naming `field`."""
        found: list[tuple[int, int]] = []
        for part in text.split(",") if text else ():
            first_text, dash, last_text = part.partition("-")
            first = parse_unsigned(first_text, field=field, maximum=MAX_INT32)
            last = parse_unsigned(last_text, field=field, maximum=MAX_INT32) if dash else first
            if last < first:
                raise BadInput(f"{field}: expected intervals such as 0-4,7, found {excerpt(part)}")
            found.append((first, last))
        return cls(_merged(found))

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.pairs)

    def __or__(self, other: Intervals) -> Intervals:
        return Intervals(_merged([*self.pairs, *other.pairs]))

    def __contains__(self, index: int) -> bool:
        return any(first <= index <= last for first, last in self.pairs)


def _merged(pairs: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(pairs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)
