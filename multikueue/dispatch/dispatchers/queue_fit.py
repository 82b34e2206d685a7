# SPDX-License-Identifier: Apache-2.0
"""Whether a ClusterQueue of a worker has quota for one more workload.

Used for a cluster that has the LocalQueue: its quota decides, and nodes are a hint, since the nodes of the quota may
not exist yet (a node pool that an autoscaler holds at zero). It is an estimate: flavors of the worker differ from
those of the hub, so any flavor counts that has quota for a whole pod set and whose labels and taints its pods match,
and the worker's engine decides. Missing quota excludes no cluster: its queue may preempt, and quota may change.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from multikueue.core.keys import Key
from multikueue.core.taints import untolerated
from multikueue.dispatch.dispatchers.cluster_capacity import FLAVORS, ClusterCapacity, Fit, Lack, Level
from multikueue.dispatch.protocol.queue_quota import ClusterQueueReport, FlavorQuotaReport, FlavorReport
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
    flavors: Mapping[str, FlavorReport],
    counted: Collection[str] = (),
) -> Fit:
    """When `queue` could admit the workload, ignoring what is counted for itself.

    `flavors` are those of the report. `counted` are the resources with quota on the hub; the queue never admits the
    workload without quota for each. Other resources without quota are left to the nodes.
    """
    wanted = _wanted(queue, demands, counted)
    held = capacity.held_by_cluster_queue(apart_from=workload)
    unreported = {resource: _unreported(capacity, queue, resource, held) for resource in wanted}
    matching = [matching_flavors(queue, flavors, demand) for demand in demands]
    of_any = frozenset[str]().union(*matching)
    level, lacks, free_after = Level.NOW, dict[str, Lack](), 1.0
    usable: dict[str, int] = {}
    for resource, amount in wanted.items():
        cells, unknown = queue.resource(resource, of=of_any), unreported[resource]
        size = sum(cell.capacity for cell in cells)
        free = usable[resource] = max(0, sum(cell.free for cell in cells) + unknown.ended - unknown.sent)
        if amount > size:
            level, lacks[resource] = Level.NEVER, Lack(resource, amount - size)
        elif amount > free:
            level, lacks[resource] = min(level, Level.LATER), Lack(resource, amount - free)
        elif size:
            free_after = min(free_after, (free - amount) / size)
    for demand, own in zip(demands, matching, strict=True):
        when, short = _in_one_flavor(queue, demand, own, unreported)
        if short is None:
            continue
        if short.resource == FLAVORS:
            level, lacks = when, {FLAVORS: short}
            break
        if level is Level.NOW or when < level:
            level, lacks[short.resource] = when, short
    described = f"LocalQueue {local_queue} of ClusterQueue {queue.name}"
    return Fit(
        level,
        tuple(lacks[resource] for resource in sorted(lacks)),
        free_after if level is Level.NOW else 0.0,
        queue=described if FLAVORS in lacks else f"{described}: {_free(queue, usable, of_any)}",
        nodes_now=capacity.fit(workload, demands).level is Level.NOW,
        preempts=queue.preempts,
        asks_first=queue.admission_checks or any(_is_placed(queue, flavors, demand) for demand in demands),
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


def matching_flavors(queue: ClusterQueueReport, flavors: Mapping[str, FlavorReport], demand: Demand) -> frozenset[str]:
    """The flavors of the queue on whose nodes the pods may run, by labels, taints and topologies.

    Pods that request a topology need a flavor with one, and others one without, unless all flavors of the queue have
    one.

    A label counts in all flavors of its resource group, as in Kueue before its patches of June 2026. Later versions ask
    only the flavors that have it, so that one without it, on whose nodes the pods cannot run, may be the choice there.
    """
    found: set[str] = set()
    placed = _is_placed(queue, flavors, demand)
    for names in _resource_groups(queue):
        # A flavor that was not reported may be for any pods.
        known = {name: flavors[name] for name in names if name in flavors}
        keys = frozenset(key for flavor in known.values() for key in flavor.labels)
        found.update(
            name
            for name in names
            if name not in known or (known[name].topology is placed and _matches(known[name], keys, demand))
        )
    return frozenset(found)


def _is_placed(queue: ClusterQueueReport, flavors: Mapping[str, FlavorReport], demand: Demand) -> bool:
    """Whether the queue places the pods by a topology, for which free quota alone is not enough."""
    known = [flavors.get(name) for name in queue.flavors]
    return demand.topology or (bool(known) and all(flavor is not None and flavor.topology for flavor in known))


def _resource_groups(queue: ClusterQueueReport) -> Iterable[list[str]]:
    """The flavors of each resource group: those with the same resources."""
    groups: dict[frozenset[str], list[str]] = {}
    for name, cells in queue.flavors.items():
        groups.setdefault(frozenset(cells), []).append(name)
    return groups.values()


def _matches(flavor: FlavorReport, keys: frozenset[str], demand: Demand) -> bool:
    asked = demand.of_queues
    tolerations = (*asked.tolerations, *flavor.tolerations)
    if untolerated(flavor.taints, tolerations) is not None:
        return False
    if any(key in keys and flavor.labels.get(key) != value for key, value in asked.node_selector.items()):
        return False
    if demand.affinity is None:
        return True
    terms = [[each for each in term.expressions if each.key in keys] for term in demand.affinity]
    # Terms are alternatives: one without such a label is for all flavors.
    return not terms or any(all(each.matches(flavor.labels) for each in term) for term in terms)


def _in_one_flavor(
    queue: ClusterQueueReport, demand: Demand, matching: Collection[str], unreported: Mapping[str, _Unreported]
) -> tuple[Level, Lack | None]:
    """When one flavor has quota for the whole pod set, and the smallest lack of any if that is not now.

    Each resource group is satisfied by one flavor of its own.
    """
    wanted = _of(queue, demand)
    level, found = Level.NOW, None
    for names in _resource_groups(queue):
        if not any(resource in wanted for resource in queue.flavors[names[0]]):
            continue
        fits = [_fit_of(queue.flavors[name], wanted, unreported) for name in names if name in matching]
        if not fits:
            return Level.NEVER, Lack(FLAVORS)
        best = max(when for when, _ in fits)
        lacks = [lack for when, lack in fits if when is best and lack is not None]
        if best < level and lacks:
            level, found = best, min(lacks, key=lambda lack: (lack.amount, lack.resource))
    return level, found


def _fit_of(
    cells: Mapping[str, FlavorQuotaReport], wanted: Mapping[str, int], unreported: Mapping[str, _Unreported]
) -> tuple[Level, Lack | None]:
    later: Lack | None = None
    for resource, cell in cells.items():
        amount = wanted.get(resource, 0)
        if amount > cell.capacity:
            return Level.NEVER, Lack(resource, amount - cell.capacity)
        # What ended since may have been in this flavor.
        free = min(cell.capacity, cell.free + unreported[resource].ended) if amount else 0
        if amount > free and later is None:
            later = Lack(resource, amount - free)
    return (Level.NOW, None) if later is None else (Level.LATER, later)


def _free(queue: ClusterQueueReport, usable: Mapping[str, int], of: Container[str]) -> str:
    parts = [_amounts(queue, resource, free, of) for resource, free in sorted(usable.items())]
    return ", ".join(parts) or "no quota needed"


def _amounts(queue: ClusterQueueReport, resource: str, usable: int, of: Container[str]) -> str:
    cells = queue.resource(resource, of=of)
    if not queue.resource(resource):
        return f"no quota for {resource}"
    nominal, borrowable = sum(cell.nominal for cell in cells), sum(cell.borrowable for cell in cells)
    own = max(0, usable - borrowable)
    text = f"free {amount_text(resource, own)} of {amount_text(resource, nominal)} {resource}"
    return f"{text} and {amount_text(resource, usable - own)} to borrow" if usable > own else text
