# SPDX-License-Identifier: Apache-2.0
"""The scheduling requirements of a pod: requests, selectors, tolerations. Pure; amounts in thousandths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from multikueue.api.objects import JsonObject
from multikueue.core.quantity import Quantity
from multikueue.core.selectors import LabelSelector, NodeSelectorTerm, Requirement
from multikueue.core.taints import Toleration

Amounts = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodInfo:
    """The requirements of one pod; `terms` is None without required node affinity."""

    requests: Mapping[str, int]
    selector: LabelSelector = field(default_factory=LabelSelector)
    terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0


def pod_info_of(pod: JsonObject) -> PodInfo:
    """The requirements of a pod. Raises `BadInput` for an invalid selector."""
    spec = pod["spec"]
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return PodInfo(
        requests=requests_of(spec),
        selector=LabelSelector.of(spec.get("nodeSelector") or {}),
        terms=tuple(_term(entry) for entry in required.get("nodeSelectorTerms") or ()) if required else None,
        tolerations=tuple(_toleration(entry) for entry in spec.get("tolerations") or ()),
        priority=spec.get("priority") or 0,
    )


def requests_of(spec: JsonObject) -> Amounts:
    """The requests of the pod, including one of the resource `pods`.

    Containers run concurrently, init containers one after the other with the sidecars started before them.
    """
    main = _sum(_requests(container) for container in spec["containers"])
    sidecars: Amounts = {}
    start: Amounts = {}
    for container in spec.get("initContainers") or ():
        requests = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, requests))
            start = _most(start, sidecars)
        else:
            start = _most(start, _sum((sidecars, requests)))
    total = _most(_sum((main, sidecars)), start)
    whole = (spec.get("resources") or {}).get("requests")
    if whole:
        total.update(amounts_of(whole))
    total = _sum((total, amounts_of(spec.get("overhead") or {})))
    total["pods"] = 1000
    return total


def amounts_of(written: Mapping[str, str]) -> Amounts:
    """The quantities of a manifest in thousandths."""
    return {name: Quantity.parse(text).milli_ceil() for name, text in written.items()}


def _requests(container: JsonObject) -> Amounts:
    resources = container.get("resources") or {}
    return amounts_of({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(parts: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _most(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def _term(entry: JsonObject) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        tuple(_requirements(entry.get("matchExpressions") or ())), tuple(_requirements(entry.get("matchFields") or ()))
    )


def _requirements(entries: Iterable[JsonObject]) -> Iterator[Requirement]:
    for entry in entries:
        yield Requirement(entry["key"], entry["operator"], tuple(entry.get("values") or ()))


def _toleration(entry: JsonObject) -> Toleration:
    return Toleration(
        entry.get("key") or "", entry.get("operator") or "Equal", entry.get("value") or "", entry.get("effect") or ""
    )
