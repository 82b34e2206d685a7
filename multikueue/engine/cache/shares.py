# SPDX-License-Identifier: Apache-2.0
"""The dominant resource share of a queue or cohort (`docs/spec/engine.md §2.7`).

Owns the share, its order and its integer for the status. Callers decide which usage the cells hold.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from multikueue.engine.cache.tree import QuotaNode
from multikueue.engine.resources import MAX_INT64, add, clamp


class Share(NamedTuple):
    """A share; an infinite one (weight 0 and borrowing) compares above all others.

    `value` is the weighted ratio, or the unweighted one if the share is infinite.
    """

    infinite: bool
    value: float

    def status(self) -> int:
        """What `status.fairSharing.weightedShare` shows."""
        return MAX_INT64 if self.infinite else math.ceil(self.value)


NO_SHARE: Final = Share(infinite=False, value=0.0)


def share(node: QuotaNode) -> Share:
    """What a node borrows of what its parent could lend, in thousandths, divided by its weight."""
    parent = node.parent
    if parent is None or node.cut_off:
        return NO_SHARE
    borrowed: dict[str, int] = {}
    for key, cell in node.cells.items():
        excess = cell.usage - cell.quota
        if excess > 0 and cell.declared:
            borrowed[key.resource] = borrowed.get(key.resource, 0) + excess
    if not borrowed:
        return NO_SHARE
    available = parent.lendable
    if available is None:
        available = parent.lendable = lendable(parent)
    ratio = 0.0
    for resource, excess in borrowed.items():
        total = available.get(resource, 0)
        if total > 0 and 1000 * excess / total > ratio:
            ratio = 1000 * excess / total
    if ratio == 0:
        return NO_SHARE
    return Share(infinite=True, value=ratio) if node.weight == 0 else Share(infinite=False, value=ratio / node.weight)


def dominant(node: QuotaNode) -> str:
    """The resource that determines a node's share; empty if it borrows nothing."""
    parent = node.parent
    if parent is None or node.cut_off:
        return ""
    available = lendable(parent)
    ratios: dict[str, float] = {}
    for key, cell in node.cells.items():
        excess = cell.usage - cell.quota
        if excess > 0 and cell.declared and available.get(key.resource, 0) > 0:
            ratios[key.resource] = ratios.get(key.resource, 0.0) + 1000 * excess / available[key.resource]
    return min(ratios, key=lambda resource: (-ratios[resource], resource), default="")


def borrows(node: QuotaNode) -> bool:
    """Whether a node uses more than its quota of any resource."""
    if node.parent is None or node.cut_off:
        return False
    return any(cell.usage > cell.quota and cell.declared for cell in node.cells.values())


def lendable(cohort: QuotaNode) -> dict[str, int]:
    """What a cohort could have of each resource of its root, over all flavors."""
    totals: dict[str, int] = {}
    for key, top in cohort.root().cells.items():
        if top.declared:
            below = cohort.cells.get(key)
            potential = below.potential if below is not None else cohort.cell(key).potential
            totals[key.resource] = add(totals.get(key.resource, 0), potential)
    return {resource: clamp(total) for resource, total in totals.items()}
