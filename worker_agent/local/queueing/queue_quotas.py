# SPDX-License-Identifier: Apache-2.0
"""The free quota of the worker's ClusterQueues, as in a ClusterReport, and their usage.

Computes the values of `dispatch.protocol.queue_quota` from ClusterQueues, Cohorts and usage, within the limits of a
report. Free quota is what the engine would find: quota that may be borrowed counts, quota that preemption could free
does not. If Cohorts may not be read, only those that ClusterQueues name exist.

Usage is split into that of assignments and of other work. The status of a ClusterQueue lags behind its Workloads, so
that their difference is right only when neither has just changed. The usage of other work is therefore computed when
the status changes, and again after a quiet period; the usage of assignments is always current. A wrong difference would
make the hub dispatch too much or too little.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from multikueue.api.clusterreport import MAX_CLUSTER_QUEUES, MAX_QUOTA_ENTRIES
from multikueue.api.constants import PreemptionPolicy
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import is_true_in
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.queue_quota import ClusterQueueReport, FlavorQuotaReport
from multikueue.engine.cache import quota
from multikueue.engine.cache.tree import Cell, Forest, QuotaNode
from multikueue.engine.resources import MAX_INT64, FlavorResource, amount_of
from multikueue.engine.values import ClusterQueue, Cohort, PreemptionRules

_NEVER: Final = frozenset({"", PreemptionPolicy.NEVER})
QUIET_SECONDS: Final = 2.0
"""After this time without a change, status and Workloads are consistent."""
Amounts = Mapping[FlavorResource, int]
_NOTHING: Final[Amounts] = {}


def queue_quotas(
    queues: Mapping[str, ClusterQueue], cohorts: Iterable[Cohort], usage: QueueUsage, *, reported: Collection[str]
) -> list[ClusterQueueReport]:
    """The queues in `reported`, sorted by name, as many as a report can hold."""
    forest = Forest.of(queues.values(), cohorts)
    for name in queues:
        node = forest.queue(name)
        quota.add_all((node.cell(key), amount) for key, amount in usage.used(name).items() if amount > 0)
    found: list[ClusterQueueReport] = []
    entries = 0
    for name in sorted(reported):
        queue = queues.get(name)
        if queue is None:
            continue
        entries += sum(len(flavor.quotas) for group in queue.resource_groups for flavor in group.flavors)
        if entries > MAX_QUOTA_ENTRIES or len(found) == MAX_CLUSTER_QUEUES:
            break
        found.append(_report(queue, forest.queue(name), usage.own(name)))
    return found


def used_of(status: JsonObject) -> dict[FlavorResource, int]:
    """The reservations in the status of a ClusterQueue. Raises `BadInput` for an amount that is no quantity."""
    found: dict[FlavorResource, int] = {}
    for flavor in status.get("flavorsReservation") or ():
        for entry in flavor.get("resources") or ():
            name = str(entry["name"])
            found[FlavorResource(str(flavor["name"]), name)] = amount_of(name, str(entry.get("total") or 0))
    return found


def held_by(workload: JsonObject) -> tuple[str, dict[FlavorResource, int]]:
    """The ClusterQueue in which a Workload has reserved quota, and how much. Raises `BadInput`."""
    status: JsonObject = workload.get("status") or {}
    admission: JsonObject = status.get("admission") or {}
    if (
        not admission
        or not is_true_in(status, WorkloadCondition.QUOTA_RESERVED)
        or is_true_in(status, WorkloadCondition.FINISHED)
    ):
        return "", {}
    found: dict[FlavorResource, int] = {}
    for pod_set in admission.get("podSetAssignments") or ():
        flavors: dict[str, str] = pod_set.get("flavors") or {}
        for resource, text in (pod_set.get("resourceUsage") or {}).items():
            if resource in flavors:
                key = FlavorResource(flavors[resource], resource)
                found[key] = found.get(key, 0) + amount_of(resource, str(text))
    return str(admission.get("clusterQueue") or ""), found


def _report(queue: ClusterQueue, node: QuotaNode, own: Amounts) -> ClusterQueueReport:
    flavors: dict[str, dict[str, FlavorQuotaReport]] = {}
    for group in queue.resource_groups:
        for flavor in group.flavors:
            cells = flavors.setdefault(flavor.name, {})
            for resource in flavor.quotas:
                key = FlavorResource(flavor.name, resource)
                cells[resource] = _cell(node.cell(key), own.get(key, 0))
    return ClusterQueueReport(
        name=queue.name,
        cohort=node.root().name if node.parent is not None and not node.cut_off else "",
        preempts=_preempts(queue.preemption, in_cohort=node.parent is not None),
        admission_checks=bool(queue.checks),
        flavors=flavors,
    )


def _cell(cell: Cell, own: int) -> FlavorQuotaReport:
    free = 0 if cell.node.cut_off else _bounded(quota.available(cell))
    return FlavorQuotaReport(
        nominal=_bounded(cell.nominal),
        used=_bounded(cell.usage),
        free=free,
        borrowable=max(0, free - max(0, _bounded(cell.nominal) - _bounded(cell.usage))),
        reserved=_bounded(own),
        capacity=0 if cell.node.cut_off else _bounded(cell.potential),
    )


def _bounded(amount: int) -> int:
    """The amount within the range of a report; unlimited quota becomes the maximum."""
    return max(0, min(amount, MAX_INT64))


def _preempts(rules: PreemptionRules, *, in_cohort: bool) -> bool:
    return rules.within_cluster_queue not in _NEVER or (in_cohort and rules.reclaim_within_cohort not in _NEVER)


class QueueUsage:
    """The usage of all ClusterQueues; `now` is of a monotonic clock."""

    def __init__(self) -> None:
        self._status: dict[str, Amounts] = {}
        self._others: dict[str, Amounts] = {}
        self._own: dict[Key, tuple[str, Amounts]] = {}
        self._sums: dict[str, dict[FlavorResource, int]] = {}
        self._touched: dict[str, float] = {}

    def set_status(self, queue: str, used: Amounts, *, now: float) -> bool:
        """Set the usage in the status of the queue; whether the usage of other work changed."""
        if self._status.get(queue) == used:
            return False
        self._status[queue] = used
        self._touched[queue] = now
        return self._divide(queue)

    def forget(self, queue: str) -> None:
        """Remove a queue that is gone."""
        for known in (self._status, self._others, self._touched):
            known.pop(queue, None)

    def set_own(self, workload: Key, queue: str, used: Amounts, *, now: float) -> None:
        """Set the quota that the Workload of an assignment has reserved, and in which queue."""
        before = self._own.pop(workload, ("", _NOTHING))
        if used:
            self._own[workload] = (queue, used)
        if before == (queue, used) or not (before[1] or used):
            return
        for name, amounts, sign in ((*before, -1), (queue, used, 1)):
            self._touched[name] = now
            total = self._sums.setdefault(name, {})
            for key, amount in amounts.items():
                total[key] = total.get(key, 0) + sign * amount
            if not any(total.values()):
                del self._sums[name]

    def settle(self, *, now: float) -> None:
        """Compute the usage of other work again for queues without a recent change."""
        for queue in [queue for queue, touched in self._touched.items() if now - touched >= QUIET_SECONDS]:
            del self._touched[queue]
            if queue in self._status:
                self._divide(queue)

    def own(self, queue: str) -> Amounts:
        """The usage of the queue by assignments."""
        return self._sums.get(queue, _NOTHING)

    def used(self, queue: str) -> Amounts:
        """The whole usage of the queue."""
        others, own = self._others.get(queue, _NOTHING), self.own(queue)
        return {key: others.get(key, 0) + own.get(key, 0) for key in {*others, *own}}

    def _divide(self, queue: str) -> bool:
        before, own = self._others.get(queue), self.own(queue)
        others = {key: max(0, amount - own.get(key, 0)) for key, amount in self._status[queue].items()}
        self._others[queue] = others
        return before != others
