# SPDX-License-Identifier: Apache-2.0
"""What a new pod gets of its RuntimeClass: overhead, node selector and tolerations."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from multikueue.core.quantity import Quantity

COLLECTION: Final = "runtimeclasses.node.k8s.io"


def complete(spec: JsonObject, runtime_class: JsonObject | None) -> str | None:
    """Set in a pod's spec what its class has, in place. Returns why the pod is refused, or None."""
    fixed = documents.child(runtime_class or {}, "overhead", "podFixed")
    overhead = documents.child(spec, "overhead")
    if overhead and not fixed:
        return "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    if overhead and not _same(overhead, fixed):
        return "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    if fixed:
        spec["overhead"] = dict(fixed)
    scheduling = documents.child(runtime_class or {}, "scheduling")
    selector = documents.child(scheduling, "nodeSelector")
    given = spec.get("nodeSelector") or {}
    for key, value in selector.items():
        if given.get(key, value) != value:
            return (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {given[key]}"
            )
    if selector:
        spec["nodeSelector"] = {**given, **selector}
    tolerations = documents.items(scheduling, "tolerations")
    if tolerations:
        own = documents.items(spec, "tolerations")
        spec["tolerations"] = [*own, *(entry for entry in tolerations if entry not in own)]
    return None


def _same(overhead: JsonObject, fixed: JsonObject) -> bool:
    return overhead.keys() == fixed.keys() and all(
        Quantity.parse(amount) == Quantity.parse(fixed[name]) for name, amount in overhead.items()
    )
