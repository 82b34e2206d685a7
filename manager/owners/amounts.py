# SPDX-License-Identifier: Apache-2.0
"""Amounts of resources by name: what pod templates request, and what Workloads hold quota for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import count_of
from multikueue.core.quantity import Quantity
from multikueue.engine.decode.pods import Shapes
from multikueue.jobs.kinds.oversized_pods import requests_of

ZERO: Final = Quantity.parse("0")
Amounts = Mapping[str, Quantity]


def add(total: dict[str, Quantity], amounts: Amounts) -> None:
    """Add to a total."""
    for name, amount in amounts.items():
        total[name] = total.get(name, ZERO) + amount


def above(total: Amounts, held: Amounts) -> list[str]:
    """The resources of which there is more in total than is held."""
    return [name for name in sorted(total) if total[name] > held.get(name, ZERO)]


def held_by(workloads: Iterable[JsonObject]) -> Amounts:
    """What quota is held for by all of these together."""
    held: dict[str, Quantity] = {}
    for workload in workloads:
        add(held, _held(workload))
    return held


def _held(workload: JsonObject) -> dict[str, Quantity]:
    """What its pod sets request, or what was counted for them if that is more: names of resources may be mapped."""
    try:
        declared = requests_in((workload.get("spec") or {}).get("podSets") or ())
    except BadInput:
        declared = {}
    counted: dict[str, Quantity] = {}
    admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
    for assignment in admission.get("podSetAssignments") or ():
        usage: dict[str, str] = assignment.get("resourceUsage") or {}
        for name, amount in usage.items():
            counted[name] = counted.get(name, ZERO) + Quantity.parse(amount)
    names = declared.keys() | counted.keys()
    return {name: max(declared.get(name, ZERO), counted.get(name, ZERO)) for name in names}


def requests_in(pod_sets: Iterable[JsonObject]) -> dict[str, Quantity]:
    """What all pods of these pod sets request. Raises `BadInput`."""
    shapes = Shapes(limit=8)
    total: dict[str, Quantity] = {}
    for each in pod_sets:
        count = count_of(each, "count", at="podSets", default=1)
        for name, amount in requests_of(each.get("template") or {}, shapes).items():
            total[name] = total.get(name, ZERO) + amount * count
    return total
