# SPDX-License-Identifier: Apache-2.0
"""How long workloads run, and how soon a tree releases quota if all run as long as those that ended lately."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Final

from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.reserved_workloads import Reserved
from multikueue.engine.cache.tree import QuotaNode
from multikueue.engine.resources import FlavorResource

_SHORTEST_RUN: Final = 0.001


def mean_runs(names: Iterable[str], cluster_queues: Mapping[str, CachedClusterQueue]) -> tuple[float | None, ...]:
    """How many seconds workloads of each of these queues run; None if that is not known.

    If none of a queue has ended, it is the mean of the other queues of its tree.
    """
    of_trees: dict[QuotaNode, float | None] = {}
    runs: list[float | None] = []
    for name in names:
        cluster_queue = cluster_queues.get(name)
        run = cluster_queue.mean_run if cluster_queue is not None else None
        if cluster_queue is not None and run is None:
            root = cluster_queue.node.root()
            if root not in of_trees:
                of_trees[root] = _mean_of_tree(root, cluster_queues)
            run = of_trees[root]
        runs.append(run)
    return tuple(runs)


def seconds_until_released(
    records: Iterable[Reserved], cluster_queues: Mapping[str, CachedClusterQueue]
) -> float | None:
    """How soon the trees of these workloads release as much as they hold; None if that is not known."""
    held: defaultdict[QuotaNode, defaultdict[FlavorResource, float]] = defaultdict(lambda: defaultdict(float))
    for record in records:
        for cell, amount in record.usage:
            held[cell.node.root()][cell.key] += max(amount, 0)
    longest: float | None = None
    for root, amounts in held.items():
        rates = _rates(root, cluster_queues)
        for key, needed in amounts.items():
            if needed > 0 and not rates[key] > 0:
                return None
            longest = max(longest or 0.0, needed / rates[key] if needed > 0 else 0.0)
    return longest


def _rates(root: QuotaNode, cluster_queues: Mapping[str, CachedClusterQueue]) -> defaultdict[FlavorResource, float]:
    """How much a tree releases in a second. Queues in which nothing has ended yet release nothing."""
    rates: defaultdict[FlavorResource, float] = defaultdict(float)
    for node in root.all_queues():
        cluster_queue = cluster_queues.get(node.name)
        run = cluster_queue.mean_run if cluster_queue is not None else None
        for cell in node.cells.values() if run is not None else ():
            rates[cell.key] += cell.usage / max(run or 0.0, _SHORTEST_RUN)
    return rates


def _mean_of_tree(root: QuotaNode, cluster_queues: Mapping[str, CachedClusterQueue]) -> float | None:
    queues = (cluster_queues.get(node.name) for node in root.all_queues())
    runs = [found.mean_run for found in queues if found is not None and found.mean_run is not None]
    return fmean(runs) if runs else None
