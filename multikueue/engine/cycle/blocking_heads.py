# SPDX-License-Identifier: Apache-2.0
"""The heads of strict queues for which a cycle keeps places that others lose (`docs/spec/engine.md §3.10`).

The others become inadmissible, and nothing is freed when such a head leaves: it held no quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.tree import QuotaNode
from multikueue.engine.queue.pending import Pending


class BlockingHeads:
    """Those heads, and the roots of the trees in which others wait because of them."""

    def __init__(self, cluster_queues: Mapping[str, CachedClusterQueue]) -> None:
        self._cluster_queues = cluster_queues
        self._heads: dict[tuple[str, QuotaNode], Pending] = {}

    def add(self, heads: Iterable[Pending], root: QuotaNode) -> None:
        """Others of this tree have become inadmissible because of places that are kept for these heads."""
        for head in heads:
            if head.queue is not None:
                self._heads[head.queue.name, root] = head

    def take_ended(self) -> list[QuotaNode]:
        """The trees in which one of them is not evaluated as a head any more; it is forgotten."""
        if not self._heads:
            return []
        ended = [where for where, head in self._heads.items() if not self._is_head(head, *where)]
        for where in ended:
            del self._heads[where]
        return [root for _, root in ended]

    def _is_head(self, head: Pending, name: str, root: QuotaNode) -> bool:
        cluster_queue = self._cluster_queues.get(name)
        if cluster_queue is None or cluster_queue.node.root() is not root:
            return False
        return cluster_queue.active and cluster_queue.queue.head() is head
