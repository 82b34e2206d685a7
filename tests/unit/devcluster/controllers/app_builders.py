# SPDX-License-Identifier: Apache-2.0
"""ReplicaSets, Deployments, StatefulSets and their pods for the tests of controllers' decisions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from devcluster.controllers import revision_sets
from devcluster.controllers.revision_sets import DESIRED, MOST, REVISION
from multikueue.api.objects import JsonObject
from multikueue.core.timestamps import format_time

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LABELS = {"app": "web"}


def ago(seconds: float) -> str:
    return format_time(NOW - timedelta(seconds=seconds))


def template(version: str = "1") -> JsonObject:
    return {"metadata": {"labels": dict(LABELS)}, "spec": {"containers": [{"name": "main", "image": version}]}}


def app(kind: str, status: JsonObject | None = None, *, version: str = "1", **spec: Any) -> JsonObject:
    """An object of apps/v1 named web, of which the status has seen the spec."""
    metadata = {"name": "web", "namespace": "ns", "uid": f"{kind}-uid", "generation": 1}
    made = {"replicas": 3, "selector": {"matchLabels": LABELS}, "template": template(version), **spec}
    return {"metadata": metadata, "spec": made, "status": {"observedGeneration": 1, **(status or {})}}


def deployment(status: JsonObject | None = None, **spec: Any) -> JsonObject:
    rolling = {"maxSurge": spec.pop("surge", 1), "maxUnavailable": spec.pop("unavailable", 1)}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    return app("deployment", status, **{"strategy": strategy, "progressDeadlineSeconds": 600, **spec})


def replica_set(
    version: str,
    replicas: int,
    *,
    available: int | None = None,
    revision: int = 1,
    age: float = 100.0,
    desired: int = 3,
    most: int = 4,
) -> JsonObject:
    """A ReplicaSet of that version of the template; all of its pods are available unless told otherwise."""
    value = revision_sets.replica_set_of(deployment(version=version)).value
    annotations = {REVISION: str(revision), DESIRED: str(desired), MOST: str(most)}
    value["metadata"] |= {
        "uid": f"set-{version}",
        "generation": 1,
        "annotations": annotations,
        "creationTimestamp": ago(age),
    }
    value["spec"]["replicas"] = replicas
    shown = replicas if available is None else available
    counts = {"replicas": replicas, "readyReplicas": shown, "availableReplicas": shown, "observedGeneration": 1}
    return {**value, "status": counts}


def pod(
    name: str,
    phase: str = "Running",
    *,
    ready: bool = True,
    since: float = 60.0,
    age: float = 60.0,
    node: str = "node-1",
    deleting: bool = False,
    cost: str | None = None,
    restarts: int = 0,
    **labels: str,
) -> JsonObject:
    """A pod, ready for `since` seconds and created `age` seconds ago."""
    metadata: JsonObject = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "labels": {**LABELS, **{key.replace("_", "-"): value for key, value in labels.items()}},
        "creationTimestamp": ago(age),
    }
    if cost is not None:
        metadata["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    if deleting:
        metadata["deletionTimestamp"] = ago(0)
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": ago(since)}] if ready else []
    containers = [{"name": "main", "restartCount": restarts}]
    status = {"phase": phase, "conditions": conditions, "containerStatuses": containers}
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": status}
