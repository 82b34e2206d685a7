# SPDX-License-Identifier: Apache-2.0
"""The effective requests of the pods of a job, and where they may run.

Containers and sidecars add up, an init container counts only if it needs more than what runs later, and overhead is
added. The agent uses it to reserve capacity, the manager to choose a cluster. Amounts are thousandths for cpu and units
for everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, MAX_INT64, parse_unsigned
from multikueue.core.printable import excerpt
from multikueue.core.quantity import Quantity
from multikueue.core.selectors import NodeSelectorTerm, Requirement
from multikueue.core.taints import Toleration
from multikueue.dispatch.worker.ledger import Demand


def pod_requests(spec: JsonObject) -> dict[str, int]:
    """The effective requests of a pod, thousandths for cpu and units for everything else."""
    total = _sum(_requests(container) for container in spec.get("containers") or ())
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        wanted = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, wanted))
            peak = _max(peak, sidecars)
        else:
            peak = _max(peak, _sum((sidecars, wanted)))
    total = _max(_sum((total, sidecars)), peak)
    # Requests of the pod as a whole replace the sum of its containers.
    total |= amounts((spec.get("resources") or {}).get("requests") or {})
    return _sum((total, amounts(spec.get("overhead") or {})))


def demands(pod_sets: Iterable[JsonObject]) -> tuple[Demand, ...]:
    """The demands of the pod sets of a job."""
    return tuple(_demand(pod_set) for pod_set in pod_sets)


def _demand(pod_set: JsonObject) -> Demand:
    spec: JsonObject = (pod_set.get("template") or {}).get("spec") or {}
    return Demand(
        count=parse_unsigned(pod_set.get("count", 1), field="podSets.count", maximum=MAX_INT32),
        requests=pod_requests(spec),
        node_selector=spec.get("nodeSelector") or {},
        affinity=_affinity(spec),
        tolerations=tuple(
            Toleration(
                key=toleration.get("key", ""),
                operator=toleration.get("operator") or "Equal",
                value=toleration.get("value", ""),
                effect=toleration.get("effect", ""),
            )
            for toleration in spec.get("tolerations") or ()
        ),
        topology=bool(pod_set.get("topologyRequest")),
    )


def _affinity(spec: JsonObject) -> tuple[NodeSelectorTerm, ...] | None:
    node: JsonObject = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required: JsonObject | None = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return None
    return tuple(
        NodeSelectorTerm(
            _expressions(term.get("matchExpressions") or ()),
            _expressions(term.get("matchFields") or ()),
        )
        for term in required.get("nodeSelectorTerms") or ()
    )


def _expressions(items: Iterable[JsonObject]) -> tuple[Requirement, ...]:
    return tuple(Requirement(item["key"], item["operator"], tuple(item.get("values") or ())) for item in items)


def _requests(container: JsonObject) -> dict[str, int]:
    resources: JsonObject = container.get("resources") or {}
    # The API server defaults requests to limits in pods, but not in templates.
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def amounts(quantities: Mapping[str, object]) -> dict[str, int]:
    """Quantities as integers of at most 64 bits, as the scheduler counts them. Raises `BadInput`."""
    return {name: _amount(name, value) for name, value in quantities.items()}


def _amount(name: str, value: object) -> int:
    quantity = Quantity.parse(str(value))
    amount = quantity.milli_ceil() if name == "cpu" else quantity.ceil()
    if abs(amount) > MAX_INT64:
        raise BadInput(f"{excerpt(name)}: expected an amount of at most 64 bits, found {excerpt(str(value))}")
    return amount


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _max(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
