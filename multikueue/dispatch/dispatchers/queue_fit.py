# SPDX-License-Identifier: Apache-2.0
"""Whether a ClusterQueue of a worker has quota for one more workload.

Used for a cluster that has the LocalQueue: its quota decides, and nodes are a hint, since the nodes of the quota may
not exist yet (a node pool that an autoscaler holds at zero). It is an estimate: flavors of the worker differ from
those of the hub, so any flavor counts that has quota for a whole pod set, and the worker's engine decides. Missing
quota excludes no cluster: its queue may preempt, and quota may change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from multikueue.core.keys import Key
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity, Fit, Lack, Level
from multikueue.dispatch.protocol.queue_quota import ClusterQueueReport, FlavorQuotaReport
from multikueue.dispatch.worker.ledger import PODS, Demand, amount_text

_NOTHING: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True)
class _Unreported:
    """What the report does not include yet of one resource: what was sent since and what ended since."""

    sent: int = 0
    ended: int = 0


def fit_quota(
    capacity: ClusterCapacity,
    workload: Key,
    demands: tuple[Demand, ...],
    *,
    local_queue: Key,
    queue: ClusterQueueReport,
    counted: Collection[str] = (),
) -> Fit:
    """When `queue` could admit the workload, ignoring what is counted for itself.

    `counted` are the resources with quota on the hub; the queue never admits the workload without quota for each. Other
    resources without quota are left to the nodes.
    """
    wanted = _wanted(queue, demands, counted)
    held = capacity.held_by_cluster_queue(apart_from=workload)
    unreported = {resource: _unreported(capacity, queue, resource, held) for resource in wanted}
    level, lacks, free_after = Level.NOW, dict[str, Lack](), 1.0
    usable: dict[str, int] = {}
    for resource, amount in wanted.items():
        cells, unknown = queue.resource(resource), unreported[resource]
        size = sum(cell.capacity for cell in cells)
        free = usable[resource] = max(0, sum(cell.free for cell in cells) + unknown.ended - unknown.sent)
        if amount > size:
            level, lacks[resource] = Level.NEVER, Lack(resource, amount - size)
        elif amount > free:
            level, lacks[resource] = min(level, Level.LATER), Lack(resource, amount - free)
        elif size:
            free_after = min(free_after, (free - amount) / size)
    if level is Level.NOW:
        for demand in demands:
            short = _short_in_every_flavor(queue, demand, unreported)
            if short is not None:
                level, lacks[short.resource] = Level.LATER, short
    return Fit(
        level,
        tuple(lacks[resource] for resource in sorted(lacks)),
        free_after if level is Level.NOW else 0.0,
        queue=_described(local_queue, queue, usable),
        nodes_now=capacity.fit(workload, demands).level is Level.NOW,
        preempts=queue.preempts,
        asks_first=queue.admission_checks,
    )


def _wanted(queue: ClusterQueueReport, demands: tuple[Demand, ...], counted: Collection[str]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for demand in demands:
        for resource, amount in _of(queue, demand).items():
            if resource in counted or queue.resource(resource):
                wanted[resource] = wanted.get(resource, 0) + amount
    return wanted


def _of(queue: ClusterQueueReport, demand: Demand) -> dict[str, int]:
    """The total requests of a pod set; pods are a resource if the queue has quota for them.

    So are devices and transformed resources, which another cluster may count by other names, or not at all.
    """
    found = {resource: amount * demand.count for resource, amount in demand.requests.items()}
    found |= {name: amount * demand.count for name, amount in demand.quota.items() if queue.resource(name)}
    if queue.resource(PODS):
        found[PODS] = demand.count
    return {resource: amount for resource, amount in found.items() if amount > 0}


def _unreported(
    capacity: ClusterCapacity, queue: ClusterQueueReport, resource: str, held: Mapping[str, Mapping[str, int]]
) -> _Unreported:
    assert capacity.report is not None, "the queue comes from the report"
    sent = 0
    for name, amounts in held.items():
        other = capacity.report.cluster_queues.get(name)
        # Work that was sent to another queue of the cohort may borrow from this one.
        if other is not None and (name == queue.name or (other.cohort and other.cohort == queue.cohort)):
            sent += max(0, amounts.get(resource, 0) - _reserved(other, resource))
    return _Unreported(sent, max(0, _reserved(queue, resource) - held.get(queue.name, _NOTHING).get(resource, 0)))


def _reserved(queue: ClusterQueueReport, resource: str) -> int:
    return sum(cell.reserved for cell in queue.resource(resource))


def _short_in_every_flavor(
    queue: ClusterQueueReport, demand: Demand, unreported: Mapping[str, _Unreported]
) -> Lack | None:
    """The smallest lack of any flavor if none has quota for the whole pod set; None if one has.

    Each resource group is satisfied by one flavor of its own.
    """
    wanted = _of(queue, demand)
    groups: dict[frozenset[str], list[Lack | None]] = {}
    for cells in queue.flavors.values():
        groups.setdefault(frozenset(cells), []).append(_short(cells, wanted, unreported))
    for shorts in groups.values():
        lacks = [short for short in shorts if short is not None]
        if len(lacks) == len(shorts):
            return min(lacks, key=lambda lack: (lack.amount, lack.resource))
    return None


def _short(
    cells: Mapping[str, FlavorQuotaReport], wanted: Mapping[str, int], unreported: Mapping[str, _Unreported]
) -> Lack | None:
    for resource, cell in cells.items():
        amount = wanted.get(resource, 0)
        # What ended since may have been in this flavor.
        free = min(cell.capacity, cell.free + unreported[resource].ended) if amount else 0
        if amount > free:
            return Lack(resource, amount - free)
    return None


def _described(local_queue: Key, queue: ClusterQueueReport, usable: Mapping[str, int]) -> str:
    parts = [_amounts(queue, resource, free) for resource, free in sorted(usable.items())]
    return f"LocalQueue {local_queue} of ClusterQueue {queue.name}: {', '.join(parts) or 'no quota needed'}"


def _amounts(queue: ClusterQueueReport, resource: str, usable: int) -> str:
    cells = queue.resource(resource)
    if not cells:
        return f"no quota for {resource}"
    nominal, borrowable = sum(cell.nominal for cell in cells), sum(cell.borrowable for cell in cells)
    own = max(0, usable - borrowable)
    text = f"free {amount_text(resource, own)} of {amount_text(resource, nominal)} {resource}"
    return f"{text} and {amount_text(resource, usable - own)} to borrow" if usable > own else text
