# SPDX-License-Identifier: Apache-2.0
"""Nodes, pods and pod templates as the ledger counts them.

Owns what of a Node or Pod matters for room, and the effective requests of a pod: containers and sidecars add up, an
init container counts only where it needs more than what runs later, overhead comes on top. `small_node` and
`small_pod` cut objects down as they come from the watch, so that a cluster of a hundred thousand pods stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import orjson

from multikueue.api.constants import BATCH_JOB_NAME_LABEL, MANAGED_LABEL_VALUE, WORKER_WORKLOAD_POD_LABEL
from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.core.selectors import NodeSelectorTerm, Requirement
from multikueue.core.taints import Taint, Toleration
from multikueue.federation.ledger import Demand, NodeFacts, PodFacts

_ENDED: Final = frozenset({"Succeeded", "Failed"})


def small_node(raw: bytes) -> bytes:
    """What `node_facts` reads, and nothing else."""
    node: JsonObject = orjson.loads(raw)
    spec, status = node.get("spec") or {}, node.get("status") or {}
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    return orjson.dumps(
        {
            "allocatable": status.get("allocatable") or {},
            "labels": node["metadata"].get("labels") or {},
            "taints": spec.get("taints") or [],
            "ready": ready and not spec.get("unschedulable"),
        }
    )


def node_facts(name: str, small: bytes) -> NodeFacts:
    """The node for the ledger."""
    node: JsonObject = orjson.loads(small)
    return NodeFacts(
        name=name,
        allocatable=_amounts(node["allocatable"]),
        labels=node["labels"],
        taints=tuple(
            Taint(key=taint["key"], value=taint.get("value", ""), effect=taint["effect"]) for taint in node["taints"]
        ),
        ready=node["ready"],
    )


def small_pod(raw: bytes) -> bytes:
    """What `pod_facts` reads, and nothing else; empty for a pod that takes no room."""
    pod: JsonObject = orjson.loads(raw)
    spec: JsonObject = pod.get("spec") or {}
    node = spec.get("nodeName")
    if not node or (pod.get("status") or {}).get("phase") in _ENDED:
        return b""
    metadata: JsonObject = pod["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    owner = ""
    if labels.get(WORKER_WORKLOAD_POD_LABEL) == MANAGED_LABEL_VALUE and BATCH_JOB_NAME_LABEL in labels:
        owner = str(Key(metadata["namespace"], labels[BATCH_JOB_NAME_LABEL]))
    return orjson.dumps([node, owner, pod_requests(spec)])


def pod_facts(small: bytes) -> PodFacts | None:
    """The pod for the ledger; None for one that takes no room."""
    if not small:
        return None
    node, owner, requests = orjson.loads(small)
    return PodFacts(node=node, owner=owner, requests=requests)


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
    # Requests of the pod as a whole stand in place of what its containers add up to.
    total |= _amounts((spec.get("resources") or {}).get("requests") or {})
    return _sum((total, _amounts(spec.get("overhead") or {})))


def demands(pod_sets: Iterable[JsonObject]) -> tuple[Demand, ...]:
    """What the pod sets of a job want of the ledger."""
    return tuple(_demand(pod_set) for pod_set in pod_sets)


def _demand(pod_set: JsonObject) -> Demand:
    spec: JsonObject = (pod_set.get("template") or {}).get("spec") or {}
    return Demand(
        count=int(pod_set.get("count", 1)),
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
    # The API server copies limits to missing requests when it defaults a pod; a template is not defaulted so.
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(quantities: Mapping[str, object]) -> dict[str, int]:
    return {
        name: (Quantity.parse(str(value)).milli_ceil() if name == "cpu" else Quantity.parse(str(value)).ceil())
        for name, value in quantities.items()
    }


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _max(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
