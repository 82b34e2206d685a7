# SPDX-License-Identifier: Apache-2.0
"""Builders of ResourceQuotas and of the objects that count for them."""

from __future__ import annotations

from typing import Any, Final

Document = dict[str, Any]

INSIDE: Final = "/namespaces/{ns}"
QUOTAS: Final = f"/api/v1{INSIDE}/resourcequotas"
PLACES: Final[dict[str, str]] = {
    "Pod": f"/api/v1{INSIDE}/pods",
    "Service": f"/api/v1{INSIDE}/services",
    "ConfigMap": f"/api/v1{INSIDE}/configmaps",
    "Secret": f"/api/v1{INSIDE}/secrets",
    "ReplicationController": f"/api/v1{INSIDE}/replicationcontrollers",
    "PersistentVolumeClaim": f"/api/v1{INSIDE}/persistentvolumeclaims",
    "ResourceQuota": QUOTAS,
    "Job": f"/apis/batch/v1{INSIDE}/jobs",
    "Lease": f"/apis/coordination.k8s.io/v1{INSIDE}/leases",
    "Event": f"/api/v1{INSIDE}/events",
}


def document(kind: str, name: str = "{id}", **more: Any) -> Document:
    """An object of a kind."""
    version = PLACES[kind].removeprefix("/apis/").removeprefix("/api/").partition(INSIDE)[0]
    return {"kind": kind, "apiVersion": version, "metadata": {"name": name}, **more}


def quota(hard: Document, name: str = "q", **spec: Any) -> Document:
    """A quota with these hard limits."""
    return document("ResourceQuota", name, spec={"hard": hard, **spec})


def selecting(scope: str, operator: str, *values: str) -> Document:
    """A selector of one scope."""
    term = {"scopeName": scope, "operator": operator, **({"values": [*values]} if values else {})}
    return {"scopeSelector": {"matchExpressions": [term]}}
