# SPDX-License-Identifier: Apache-2.0
"""The free quota of the worker's ClusterQueues, as in a ClusterReport.

Computes the values of `dispatch.protocol.queue_quota` from ClusterQueues, Cohorts and usage, within the limits of a
report. Free quota is what the engine would find: quota that may be borrowed counts, quota that preemption could free
does not. If Cohorts may not be read, only those that ClusterQueues name exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from multikueue.api.clusterreport import MAX_CLUSTER_QUEUES, MAX_QUOTA_ENTRIES
from multikueue.api.constants import PreemptionPolicy
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import is_true_in
from multikueue.dispatch.protocol.queue_quota import ClusterQueueReport, FlavorQuotaReport
from multikueue.engine.cache import quota
from multikueue.engine.cache.tree import Cell, Forest, QuotaNode
from multikueue.engine.resources import MAX_INT64, FlavorResource, amount_of
from multikueue.engine.values import ClusterQueue, Cohort, Preemption
from worker_agent.local.queueing.queue_usage import Amounts, QueueUsage

_NEVER: Final = frozenset({"", PreemptionPolicy.NEVER})


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


def _preempts(rules: Preemption, *, in_cohort: bool) -> bool:
    return rules.within_cluster_queue not in _NEVER or (in_cohort and rules.reclaim_within_cohort not in _NEVER)
