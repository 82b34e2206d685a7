# SPDX-License-Identifier: Apache-2.0
"""Parts of an answer that the user may not read, each with the rights that would show it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from multikueue.api.resource import Resource


@dataclass(frozen=True, slots=True)
class LeftOutPart:
    """A part of the answer that is missing, and the rights that would show it: verb, kinds and scope."""

    what: str
    rights: tuple[str, ...]


def left_out_parts(
    parts: Iterable[tuple[str, Iterable[Resource]]], forbidden: Collection[Resource]
) -> list[LeftOutPart]:
    """The parts for which some kind is forbidden, each with the missing rights."""
    found = []
    for what, kinds in parts:
        missing = [kind for kind in kinds if kind in forbidden]
        if missing:
            found.append(LeftOutPart(what, tuple(_rights(missing))))
    return found


def _rights(kinds: Iterable[Resource]) -> Iterable[str]:
    by_group: dict[str, list[str]] = {}
    for kind in kinds:
        by_group.setdefault(kind.group, []).append(kind.plural)
    for group, plurals in sorted(by_group.items()):
        yield f"list {', '.join(sorted(plurals))}{f' ({group})' if group else ''} in the whole cluster"
