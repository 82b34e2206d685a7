# SPDX-License-Identifier: Apache-2.0
"""The model's order of entries in a cycle (`docs/spec/engine.md §3.8`, §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from multikueue.engine.queue.pending import queue_timestamp
from multikueue.engine.settings import Settings
from tests.support.reference_engine.records import Found, Item
from tests.support.reference_engine.tree import Node, Tree

Entry = tuple[str, Item, Found]
Rank = tuple[bool, tuple[bool, float], int, datetime, str]


def order_of(entries: Iterable[Entry], current: Tree, settings: Settings) -> Iterator[Entry]:
    """The entries of a cycle in their order; each is processed before the next one is taken."""
    entries = list(entries)
    if not settings.fair_sharing:
        entries.sort(
            key=lambda e: (
                e[2].level,
                -e[1].value.priority,
                queue_timestamp(e[1].value, settings),
                e[1].value.uid,
            )
        )
        yield from _victims_last(lambda rest: rest[0], entries)
        return
    # The order of trees does not matter; the engine takes one after the other.
    roots = list(dict.fromkeys(current.root(("q", queue)) for queue, _, _ in entries))
    for root in roots:

        def best(rest: list[Entry], root: Node = root) -> Entry:
            winner = None if root[0] == "q" else _winner(settings, current, root, rest)
            return rest[0] if winner is None else winner[1]

        yield from _victims_last(best, [e for e in entries if current.root(("q", e[0])) == root])


def _victims_last(best: Callable[[list[Entry]], Entry], entries: Iterable[Entry]) -> Iterator[Entry]:
    """The best of those that no other one in `entries` has preempted, again and again."""
    rest = list(entries)
    while rest:
        victims = {key for _, item, _ in rest for key in item.victims if key != item.value.key}
        chosen = best([entry for entry in rest if entry[1].value.key not in victims] or rest)
        rest.remove(chosen)
        yield chosen


def _winner(settings: Settings, tree: Tree, cohort: Node, entries: Iterable[Entry]) -> tuple[Rank, Entry] | None:
    """The best contestant below a cohort, recomputed from the bottom."""
    ranked: list[tuple[Rank, Entry]] = []
    for child in tree.children[cohort]:
        if child[0] == "q":
            entry = next((e for e in entries if e[0] == child[1]), None)
        else:
            winner = _winner(settings, tree, child, entries)
            entry = None if winner is None else winner[1]
        if entry is None:
            continue
        queue, item, found = entry
        with_entry = tree.copy()
        with_entry.put_all(queue, found.usage())
        rank = (
            not with_entry.within(child, found.usage()),
            with_entry.share(child),
            -item.value.priority,
            queue_timestamp(item.value, settings),
            item.value.uid,
        )
        ranked.append((rank, entry))
    return min(ranked, key=lambda pair: pair[0]) if ranked else None
