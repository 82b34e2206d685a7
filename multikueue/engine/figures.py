# SPDX-License-Identifier: Apache-2.0
"""What metrics show of queues and cohorts beyond their statuses (`docs/spec/kueue-api.md §7`).

Reads only, and takes as long as there are queues, kinds of pending workloads, and inadmissible ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from multikueue.core.keys import Key
from multikueue.engine.cache import shares
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.tree import QuotaNode
from multikueue.engine.queue.pending import Pending
from multikueue.engine.queue.queue import Queue
from multikueue.engine.resources import MAX_INT64, Usage
from multikueue.engine.values import Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """Of a ClusterQueue."""

    name: str
    cohort: str
    """Empty without one."""
    root: str
    """The top of its tree of cohorts; empty without a cohort."""
    quotas: Mapping[tuple[str, str], Quota]
    """By flavor and resource."""
    share: float | None
    """Its weighted share; NaN if it is infinite, None without fair sharing."""
    requested: Mapping[str, int]
    """What its pending workloads request of each resource."""
    hashes: int
    """Kinds of pending workloads that may be evaluated; equal ones are of one kind."""
    inadmissible_hashes: int
    """Kinds of those that are inadmissible."""
    inadmissible: Mapping[Key, int]
    """Inadmissible workloads by LocalQueue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortFigures:
    """Of a cohort that is part of a tree."""

    name: str
    parent: str
    root: str
    quota: Usage
    """That of its tree, without what the parts of it keep for themselves."""
    reserved: Usage
    admitted: int
    """Admitted, unfinished workloads of its tree."""
    share: float | None
    """As that of a queue."""


def of_queue(queue: CachedClusterQueue, *, fair_sharing: bool) -> QueueFigures:
    """The figures of a ClusterQueue."""
    node = queue.node
    by_local, requested = Counter[Key](), Counter[str]()
    open_kinds, closed_kinds = set[str](), set[str]()
    for pending, count, is_inadmissible in _kinds(queue.queue):
        (closed_kinds if is_inadmissible else open_kinds).add(pending.hash)
        if is_inadmissible:
            by_local[pending.local_queue] += count
        for pod_set in pending.requests:
            for resource, amount in pod_set.total.items():
                requested[resource] += amount * count
    return QueueFigures(
        name=queue.name,
        cohort=node.parent_name,
        root=node.root().name if node.parent is not None else "",
        quotas={(key.flavor, key.resource): quota for key, quota in node.quotas.items()},
        share=_share(node, fair_sharing=fair_sharing),
        requested=requested,
        hashes=len(open_kinds),
        inadmissible_hashes=len(closed_kinds),
        inadmissible=by_local,
    )


def of_cohort(node: QuotaNode, admitted: Mapping[str, int], *, fair_sharing: bool) -> CohortFigures:
    """The figures of a cohort; `admitted` are the admitted workloads of each ClusterQueue."""
    return CohortFigures(
        name=node.name,
        parent=node.parent_name,
        root=node.root().name,
        quota={key: min(cell.quota, MAX_INT64) for key, cell in node.cells.items() if cell.declared},
        reserved={key: cell.usage for key, cell in node.cells.items()},
        admitted=sum(admitted.get(name, 0) for name in _queues_below(node)),
        share=_share(node, fair_sharing=fair_sharing),
    )


def _queues_below(node: QuotaNode) -> Iterator[str]:
    yield from node.queues
    for child in node.cohorts.values():
        if not child.cut_off:
            yield from _queues_below(child)


def _kinds(queue: Queue) -> Iterator[tuple[Pending, int, bool]]:
    """A workload of each kind, how many there are of it, and whether they are inadmissible."""
    for pending in queue.inadmissible.values():
        yield pending, 1, True
    for lane in queue.lanes():
        first = lane.first()
        if first is not None:
            yield first[2], lane.size, lane.inadmissible


def _share(node: QuotaNode, *, fair_sharing: bool) -> float | None:
    if not fair_sharing:
        return None
    share = shares.share(node)
    return float("nan") if share.infinite else share.value
