# SPDX-License-Identifier: Apache-2.0
"""Pods, pod groups and their Workloads, for tests of the kind."""

from __future__ import annotations

from typing import Any

from multikueue.api.constants import ADMISSION_SCHEDULING_GATE, POD_FINALIZER
from multikueue.jobs.framework.workloads import Priority, workload_for
from multikueue.jobs.kinds.pod import BARE_POD, PodIntegration
from multikueue.jobs.kinds.pod_group import role_of

K = "kueue.x-k8s.io/"
POD = PodIntegration()
Object = dict[str, Any]


def pod(
    name: str, *, total: int = 0, gated: bool = True, phase: str = "Pending", cpu: str = "1", **extra: Any
) -> Object:
    annotations = dict(extra.get("annotations", {}))
    labels = {K + "queue-name": "q", K + "managed": "true"}
    if total:
        labels[K + "pod-group-name"] = "g"
        annotations[K + "pod-group-total-count"] = str(total)
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "creationTimestamp": f"2026-01-01T00:00:{name[-1]:0>2}Z",
        "labels": labels | extra.get("labels", {}),
        "annotations": annotations,
        "finalizers": [POD_FINALIZER],
    } | extra.get("metadata", {})
    spec: Object = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}
    spec |= {"schedulingGates": [{"name": ADMISSION_SCHEDULING_GATE}]} if gated else {"nodeName": "n"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def group(*pods: Object) -> Object:
    return POD.composed(pods)


def running(name: str, phase: str = "Running", **extra: Any) -> Object:
    made = pod(name, total=2, gated=False, phase=phase, **extra)
    made["metadata"]["labels"][K + "podset"] = role_of(pod(name, total=2))
    return made


def workload(of: Object, *conditions: str) -> Object:
    status = {"conditions": [{"type": kind, "status": "True"} for kind in conditions]}
    return workload_for(of, BARE_POD, priority=Priority()) | {"status": status}


PAIR = (pod("a1", total=2), pod("a2", total=2))
SERVING: Object = {"annotations": {K + "pod-group-serving": "true"}}
DELETING: Object = {"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}}
