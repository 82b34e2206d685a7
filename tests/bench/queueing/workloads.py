# SPDX-License-Identifier: Apache-2.0
"""The objects of the mix: queues in cohorts and their Workloads, which say how long they run once admitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from multikueue.api.resource import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS, Resource
from tests.bench.engine.mix import BASELINE, LARGE_SCALE, Class, Mix

Object = dict[str, Any]

NAMESPACE: Final = "team"
MIXES: Final = {mix.name: mix for mix in (BASELINE, LARGE_SCALE)}
_RUNS: Final = "example.com/runs-ms"
_CLASS: Final = "example.com/class"
_BETA: Final = "kueue.x-k8s.io/v1beta2"


def sized(mix: Mix, *, queues: int | None, scale: float) -> Mix:
    """The mix with so many queues in all, in cohorts as large as before, and a part of the Workloads of each queue."""
    classes = tuple(replace(each, count=max(1, round(each.count * scale))) for each in mix.classes)
    if queues is None:
        return replace(mix, classes=classes)
    cohorts = -(-queues // mix.queues)
    return replace(mix, cohorts=cohorts, queues=-(-queues // cohorts), classes=classes)


def names(mix: Mix) -> list[str]:
    """The queues."""
    return [f"q-{cohort}-{queue}" for cohort in range(mix.cohorts) for queue in range(mix.queues)]


def queue_manifests(mix: Mix) -> Iterator[tuple[Resource, Object]]:
    """A flavor, and for each queue a ClusterQueue and a LocalQueue."""
    yield RESOURCE_FLAVORS, {"apiVersion": _BETA, "kind": RESOURCE_FLAVORS.kind, "metadata": {"name": "default"}}
    quota = {"name": "cpu", "nominalQuota": "20", "borrowingLimit": "100"}
    for name in names(mix):
        spec = {
            "namespaceSelector": {},
            "cohortName": name.rpartition("-")[0],
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}],
        }
        yield CLUSTER_QUEUES, _object(CLUSTER_QUEUES, {"name": name}, spec)
        yield LOCAL_QUEUES, _object(LOCAL_QUEUES, {"name": name, "namespace": NAMESPACE}, {"clusterQueue": name})


def workload(queue: str, entry: Class, number: int) -> Object:
    """One Workload of a queue."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": str(entry.cpu)}}}
    metadata = {
        "name": f"{entry.name}-{queue}-{number}",
        "namespace": NAMESPACE,
        "annotations": {_RUNS: str(entry.runs_ms), _CLASS: entry.name},
    }
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    pod_sets = [{"name": "main", "count": 1, "template": template}]
    return _object(WORKLOADS, metadata, {"queueName": queue, "priority": entry.priority, "podSets": pod_sets})


def seconds_of(found: Object) -> float:
    """How long it runs once it is admitted."""
    return int(found["metadata"]["annotations"][_RUNS]) / 1000


def class_of(found: Object) -> str:
    """small, medium or large."""
    return str(found["metadata"]["annotations"][_CLASS])


def _object(resource: Resource, metadata: Object, spec: Object) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
