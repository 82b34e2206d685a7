# SPDX-License-Identifier: Apache-2.0
"""Whether the pods of a request fit, and on how many new nodes. Pure; amounts in thousandths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from devcluster.controllers.placement import NodeInfo, Unschedulable, select_node
from devcluster.controllers.pod_info import amounts_of, pod_info_of
from devcluster.kubelet.node import DEFAULT_ALLOCATABLE
from multikueue.api.objects import JsonObject
from multikueue.core.selectors import LabelSelector

MOST_PODS: Final = 10_000
_NEW: Final = "new-node"

PodGroup = tuple[JsonObject, int]
"""The spec of a pod, and how many of them."""


def new_nodes(groups: Sequence[PodGroup], *, labels: Mapping[str, str], most: int) -> tuple[int, str]:
    """How many nodes of the default size the pods need, and why they do not fit; empty if they do.

    The nodes get the labels that the pods select, so only resources, affinity and taints count.
    """
    nodes: list[NodeInfo] = []
    allocatable = amounts_of(DEFAULT_ALLOCATABLE)
    for spec, count in groups:
        pod = replace(pod_info_of({"spec": spec}), selector=LabelSelector())
        for _ in range(count):
            found = select_node(pod, nodes)
            if isinstance(found, Unschedulable):
                node = NodeInfo(name=f"{_NEW}-{len(nodes) + 1}", labels=labels, allocatable=allocatable)
                found = select_node(pod, [node])
                if isinstance(found, Unschedulable):
                    return 0, f"a pod does not fit on an empty node: {found.message}"
                nodes.append(node)
                if len(nodes) > most:
                    return 0, f"out of capacity: more than {most} nodes are needed, which is what is left"
            _place(nodes, found, pod.requests)
    return len(nodes), ""


def lack_on(groups: Sequence[PodGroup], nodes: Sequence[NodeInfo]) -> str:
    """Why the pods do not all fit on these nodes; empty if they do. Changes the nodes."""
    for spec, count in groups:
        pod = pod_info_of({"spec": spec})
        for number in range(count):
            found = select_node(pod, nodes)
            if isinstance(found, Unschedulable):
                return f"capacity for {number} of {count} pods: {found.message}"
            _place(nodes, found, pod.requests)
    return ""


def selected_labels(groups: Iterable[PodGroup]) -> dict[str, str]:
    """The labels that the pods select."""
    return {key: value for spec, _ in groups for key, value in (spec.get("nodeSelector") or {}).items()}


def _place(nodes: Iterable[NodeInfo], name: str, requests: Mapping[str, int]) -> None:
    next(node for node in nodes if node.name == name).add_pod(requests)
