# SPDX-License-Identifier: Apache-2.0
"""Whether pods can run on a flavor, quota aside (`docs/spec/engine.md §3.4` point 2).

Owns taints, node selection, and which flavors serve pods that request a topology. Each check returns the message for
users, or nothing.
"""

from __future__ import annotations

from typing import Protocol

from multikueue.core.selectors import NodeSelectorTerm
from multikueue.core.taints import Taint, untolerated
from multikueue.engine.values import Flavor
from multikueue.engine.workloads import PodSet, PodShape

_NO_FIELDS: dict[str, str] = {}


class Topologies(Protocol):
    """The look-up of topologies that flavor choice needs (§6)."""

    def levels(self, topology: str) -> tuple[str, ...] | None:
        """The label keys of a topology, highest first; None if it does not exist."""


def mismatch(flavor: Flavor, shape: PodShape) -> str:
    """Why pods of that shape cannot run on a flavor: a taint or a label."""
    taint = untolerated(flavor.taints, (*shape.tolerations, *flavor.tolerations))
    if taint is not None:
        return f"untolerated taint {taint_text(taint)} in flavor {flavor.name}"
    if flavor.node_labels and not _selected(flavor, shape):
        return f"flavor {flavor.name} doesn't match node affinity"
    return ""


def topology_mismatch(
    flavor: Flavor, pod_set: PodSet, *, all_topology: bool, requests_group: bool, topologies: Topologies
) -> str:
    """Why a flavor cannot serve a pod set, given the pod set's topology request or the lack of one.

    `all_topology` is whether all flavors of the queue have a topology, `requests_group` whether the pods request any
    resource of the flavor's group.
    """
    request = pod_set.topology
    if request is None or not request.explicit:
        if flavor.topology and not all_topology:
            return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling'
        return ""
    if not flavor.topology:
        return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling' if requests_group else ""
    levels = topologies.levels(flavor.topology)
    if levels is None:
        return f'Flavor "{flavor.name}" information missing in TAS cache'
    sliced = (level for level, _ in request.slices)
    wanted = [key for key in (request.required, request.preferred, request.slice_required, *sliced) if key]
    if any(key not in levels for key in wanted):
        return f'Flavor "{flavor.name}" does not contain the requested level'
    return ""


def taint_text(taint: Taint) -> str:
    """A taint as messages print it; the last item is the time it was added, which flavors do not have."""
    return f"{{{taint.key} {taint.value} {taint.effect} <nil>}}"


def _selected(flavor: Flavor, shape: PodShape) -> bool:
    """Whether a node with exactly the flavor's labels would be selected; keys of other flavors are ignored."""
    labels = flavor.node_labels
    if any(key in labels and labels[key] != value for key, value in shape.node_selector.items()):
        return False
    if shape.affinity is None:
        return True
    terms = []
    for term in shape.affinity:
        kept = tuple(expression for expression in term.expressions if expression.key in labels)
        if not kept:
            # Terms are alternatives: one without a key of this flavor admits all of it.
            return True
        terms.append(NodeSelectorTerm(kept))
    return not terms or any(term.matches(labels, _NO_FIELDS) for term in terms)
