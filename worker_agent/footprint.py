# SPDX-License-Identifier: Apache-2.0
"""Nodes and pods as the ledger counts them.

Owns what of a Node or Pod matters for room; what a pod requests is `federation.demands`'. `small_node` and `small_pod`
cut objects down as they come from the watch, so that a cluster of a hundred thousand pods stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from multikueue.api.constants import BATCH_JOB_NAME_LABEL, MANAGED_LABEL_VALUE, WORKER_WORKLOAD_POD_LABEL
from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.core.taints import Taint
from multikueue.federation.demands import amounts, pod_requests
from multikueue.federation.ledger import NodeFacts, PodFacts

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
        allocatable=amounts(node["allocatable"]),
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
