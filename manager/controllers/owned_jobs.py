# SPDX-License-Identifier: Apache-2.0
"""Jobs that are left to the quota of their owner: together they request no more than quota is held for.

Who wrote the reference to an owner is not known of a job that was created while the webhook was not installed. So it
is a hint, and what the jobs of one owner request is compared with its Workloads. The oldest are served first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.quantity import Quantity
from multikueue.engine.decode.pods import Shapes
from multikueue.jobs.framework.counts import count_of
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.kinds.oversized_pods import requests_of

_ZERO: Final = Quantity.parse("0")


def excess(
    job: JsonObject, siblings: Iterable[JsonObject], workloads: Iterable[JsonObject], *, integration: JobIntegration
) -> str:
    """What `job`, with older running siblings of the same owner, requests beyond its Workloads; empty if nothing.

    A job that cannot be understood has its problem as the answer; such a sibling counts for nothing.
    """
    held: dict[str, Quantity] = {}
    for workload in workloads:
        for name, amount in _held_by(workload).items():
            held[name] = held.get(name, _ZERO) + amount
    try:
        total = _requests(integration.pod_sets(job))
    except BadInput as error:
        return str(error)
    for sibling in siblings:
        if _age(sibling) >= _age(job) or not _runs(sibling, integration):
            continue
        try:
            older = _requests(integration.pod_sets(sibling))
        except BadInput:
            continue
        for name, amount in older.items():
            total[name] = total.get(name, _ZERO) + amount
    above = [name for name in sorted(total) if total[name] > held.get(name, _ZERO)]
    return ", ".join(f"{name} {total[name]} instead of {held.get(name, _ZERO)}" for name in above)


def _age(job: JsonObject) -> tuple[str, str]:
    metadata = job["metadata"]
    return str(metadata.get("creationTimestamp") or ""), str(metadata.get("name") or "")


def _runs(job: JsonObject, integration: JobIntegration) -> bool:
    if "deletionTimestamp" in job["metadata"] or integration.is_suspended(job):
        return False
    return integration.finished(job) is None


def _held_by(workload: JsonObject) -> dict[str, Quantity]:
    """What its pod sets request, or what was counted for them if that is more: names of resources may be mapped."""
    try:
        declared = _requests((workload.get("spec") or {}).get("podSets") or ())
    except BadInput:
        declared = {}
    counted: dict[str, Quantity] = {}
    admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
    for assignment in admission.get("podSetAssignments") or ():
        usage: dict[str, str] = assignment.get("resourceUsage") or {}
        for name, amount in usage.items():
            counted[name] = counted.get(name, _ZERO) + Quantity.parse(amount)
    names = declared.keys() | counted.keys()
    return {name: max(declared.get(name, _ZERO), counted.get(name, _ZERO)) for name in names}


def _requests(pod_sets: Iterable[JsonObject]) -> dict[str, Quantity]:
    """What all pods of these pod sets request. Raises `BadInput`."""
    shapes = Shapes(limit=8)
    total: dict[str, Quantity] = {}
    for each in pod_sets:
        count = count_of(each, "count", at="podSets", default=1)
        for name, amount in requests_of(each.get("template") or {}, shapes).items():
            total[name] = total.get(name, _ZERO) + amount * count
    return total
