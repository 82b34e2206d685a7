# SPDX-License-Identifier: Apache-2.0
"""Usage in the tree and what it leaves available (`docs/spec/engine.md §2.5` and §2.6).

Owns taking and releasing quota, availability, borrowing and its level. All functions work on the cells of one flavor
resource and touch only the path to the root. Taking a non-negative amount and releasing the same are exact inverses in
any state of the tree; a negative amount (§3.10) stays at its queue and must be undone there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from multikueue.engine.cache.tree import Cell

Amounts = list[tuple[Cell, int]]


def add_usage(cell: Cell, amount: int) -> None:
    """Use `amount` more; only what does not fit into the local part reaches the parent."""
    at: Cell | None = cell
    while at is not None:
        usage = at.usage
        at.usage = usage + amount
        free = at.local - usage
        if free > 0:
            amount -= free
        if amount <= 0:
            return
        at = at.parent


def remove_usage(cell: Cell, amount: int) -> None:
    """Use `amount` less."""
    at: Cell | None = cell
    while at is not None:
        stored = at.usage - at.local
        at.usage -= amount
        if stored <= 0:
            return
        if stored < amount:
            amount = stored
        at = at.parent


def add_all(amounts: Iterable[tuple[Cell, int]]) -> None:
    """`add_usage` each."""
    for cell, amount in amounts:
        add_usage(cell, amount)


def remove_all(amounts: Iterable[tuple[Cell, int]]) -> None:
    """`remove_usage` each."""
    for cell, amount in amounts:
        remove_usage(cell, amount)


def available(cell: Cell) -> int:
    """The amount that can still be used; may be negative."""
    parent = cell.parent
    if parent is None:
        return cell.quota - cell.usage
    above = parent.parent
    if above is None:
        return _available_below(cell, parent.quota - parent.usage)
    path = [cell, parent]
    while above.parent is not None:
        path.append(above)
        above = above.parent
    found = above.quota - above.usage
    for at in reversed(path):
        found = _available_below(at, found)
    return found


def _available_below(cell: Cell, above: int) -> int:
    """The amount that can still be used at a cell whose parent has `above` available."""
    local = cell.local
    usage = cell.usage
    ceiling = cell.ceiling
    if usage >= local:
        if ceiling is not None and ceiling - usage + local < above:
            return ceiling - usage + local
        return above
    if ceiling is not None and ceiling < above:
        above = ceiling
    return above + local - usage


def fits(amounts: Iterable[tuple[Cell, int]]) -> bool:
    """Whether each amount is available; an amount of zero always is."""
    return all(amount <= 0 or amount <= available(cell) for cell, amount in amounts)


def fits_beside(others: Collection[tuple[Cell, int]], amounts: Iterable[tuple[Cell, int]]) -> bool:
    """Whether each amount is available while the others, which may not be negative, are used as well."""
    add_all(others)
    found = fits(amounts)
    remove_all(others)
    return found


def level(cell: Cell, amount: int) -> tuple[int, bool]:
    """How high in the tree a queue must borrow for `amount`, and whether that is less than the whole tree."""
    parent = cell.parent
    if parent is None:
        return 0, False
    if cell.usage + amount <= cell.nominal:
        return 0, True
    rest = amount - max(0, cell.local - cell.usage)
    at = parent
    while True:
        if at.usage + rest <= at.quota:
            return at.node.height, at.parent is not None
        above = at.parent
        if above is None:
            return at.node.height, False
        rest -= max(0, at.local - at.usage)
        at = above
