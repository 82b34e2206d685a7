# SPDX-License-Identifier: Apache-2.0
"""The courses of the other kinds of jobs, which run on the hub: all kinds at once, each in a queue of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from multikueue.api.constants import (
    MULTIKUEUE_MANAGED_BY,
    POD_GROUP_NAME_LABEL,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
)
from multikueue.api.resource import DEPLOYMENTS, LEADER_WORKER_SETS, PODS, RESOURCE_FLAVORS, STATEFUL_SETS, Resource
from tests.comparison.federation import ComparedFederation
from tests.comparison.hub import NAMESPACE, ComparedHub, Object
from tests.comparison.kinds_hub import KINDS
from tests.comparison.looks import Look
from tests.support.crds.kinds import APP_WRAPPERS, RAY_JOBS, TRAIN_JOBS
from tests.support.operators.played_kinds import PlayedKind
from tests.support.operators.samples import pod_template

_LONG: Final = {"multikueue.io/run-for": "forever"}
_SHORT: Final = {"multikueue.io/run-for": "200ms"}
_FAILS: Final = {**_SHORT, "multikueue.io/exit-code": "1"}
_FLAVOR: Final = "nodes"
_LABELS: Final = {"kubernetes.io/os": "linux"}
_SETTLING_SECONDS: Final = 4.0
_GET: Final = {"httpGet": {"port": 80}}
_CONTAINERS: Final = [
    {
        "name": "main",
        "image": "example.com:5000/x:1",
        "resources": {"requests": {"cpu": "100m"}},
        "ports": [{"containerPort": 80}],
        "env": [
            {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ],
        "livenessProbe": _GET,
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 3},
        "startupProbe": {"grpc": {"port": 80}},
        "lifecycle": {"preStop": _GET},
        "securityContext": {"runAsUser": 1000},
    }
]
_DISPATCHED: Final = tuple(each for each in KINDS if each.dispatched)
_GROWING: Final = (DEPLOYMENTS, LEADER_WORKER_SETS)
_SERVED: Final = (*_GROWING, STATEFUL_SETS)


async def kinds(hub: ComparedHub) -> AsyncIterator[Look]:
    """Jobs run, are preempted, run again, succeed and fail."""
    await _prepare(hub)
    for kind in KINDS:
        await make_queue(hub, kind.resource.plural, pods=kind.pods)
        await _submit(hub, kind, "low", _LONG)
    yield Look("they run", _SETTLING_SECONDS)
    for kind in KINDS:
        await _submit(hub, kind, "high", _LONG, priority="high")
    yield Look("others preempt them", _SETTLING_SECONDS)
    for kind in KINDS:
        await hub.client.delete(kind.resource, _name(kind, "high"), namespace=NAMESPACE, propagation="Background")
    yield Look("they run again", _SETTLING_SECONDS)
    for kind in KINDS:
        await hub.change(kind.resource, _name(kind, "low"), _suspended(kind))
    yield Look("users suspend them", _SETTLING_SECONDS)
    for kind in KINDS:
        await hub.client.delete(kind.resource, _name(kind, "low"), namespace=NAMESPACE, propagation="Background")
        if kind.ends:
            await _submit(hub, kind, "quick", _SHORT)
    yield Look("others succeed", _SETTLING_SECONDS)
    for kind in KINDS:
        if kind.ends:
            await _submit(hub, kind, "broken", _FAILS)
    yield Look("others fail", _SETTLING_SECONDS)


async def running_and_waiting(hub: ComparedHub) -> None:
    """A job of each kind runs, and another one waits; pods of Deployments and the like run."""
    await _prepare(hub)
    for kind in KINDS:
        await make_queue(hub, kind.resource.plural, pods=kind.pods)
        for name in ("runs", "waits"):
            await _submit(hub, kind, name, _LONG)
    for each in _SERVED:
        await make_queue(hub, each.plural, pods=2)
        await hub.client.create(each, _served(each, "x", replicas=2), namespace=NAMESPACE)


async def dispatched_kinds(both: ComparedFederation) -> AsyncIterator[Look]:
    """MultiKueue: jobs of all kinds run on a worker cluster, are deleted, succeed and fail."""
    await running_on_worker(both)
    yield Look("they run", 2 * _SETTLING_SECONDS)
    for kind in _DISPATCHED:
        await both.hub.client.delete(kind.resource, _name(kind, "long"), namespace=NAMESPACE, propagation="Background")
        if kind.ends:
            await _submit(both.hub, kind, "quick", _SHORT, queue="q")
    yield Look("others succeed", 2 * _SETTLING_SECONDS)
    for kind in _DISPATCHED:
        if kind.ends:
            await _submit(both.hub, kind, "broken", _FAILS, queue="q")
    yield Look("others fail", 2 * _SETTLING_SECONDS)


async def running_on_worker(both: ComparedFederation, name: str = "long", *, queue: str = "q") -> None:
    """A job of each kind is sent to the worker."""
    await both.hub.classes()
    for kind in _DISPATCHED:
        await _submit(both.hub, kind, name, _LONG, queue=queue)


async def deployment_on_worker(both: ComparedFederation, name: str, *, queue: str) -> None:
    """A Deployment of two pods, which are sent to the worker one by one."""
    body = _served(DEPLOYMENTS, name, replicas=2, queue=queue)
    await both.hub.client.create(DEPLOYMENTS, body, namespace=NAMESPACE)


async def pod_groups_on_worker(both: ComparedFederation, name: str, *, queue: str) -> None:
    """A group of two equal pods, and one of two roles."""
    for pod, group, requests in (("g1", "g", "100m"), ("g2", "g", "100m"), ("h1", "h", "100m"), ("h2", "h", "200m")):
        template = pod_template(_LONG, terminationGracePeriodSeconds=0)
        template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": requests}}
        labels = {QUEUE_NAME_LABEL: queue, POD_GROUP_NAME_LABEL: f"{group}-{name}"}
        annotations = {**_LONG, POD_GROUP_TOTAL_COUNT_ANNOTATION: "2"}
        metadata = {"name": f"{pod}-{name}", "namespace": NAMESPACE, "labels": labels, "annotations": annotations}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        await both.hub.client.create(PODS, body, namespace=NAMESPACE)


async def dispatched_serving(both: ComparedFederation) -> AsyncIterator[Look]:
    """MultiKueue: pod groups run on a worker; Deployments, StatefulSets and LeaderWorkerSets grow, shrink and go."""
    for kind in _SERVED:
        await both.hub.client.create(kind, _served(kind, "x", replicas=2, queue="q"), namespace=NAMESPACE)
    await pod_groups_on_worker(both, "x", queue="q")
    yield Look("they run", 2 * _SETTLING_SECONDS)
    for kind in _GROWING:
        await both.hub.change(kind, f"{kind.plural}-x", {"spec": {"replicas": 3}})
    yield Look("they have another replica", 2 * _SETTLING_SECONDS)
    for kind in _SERVED:
        await both.hub.change(kind, f"{kind.plural}-x", {"spec": {"replicas": 0}})
    yield Look("they have none", 2 * _SETTLING_SECONDS)
    for kind in _SERVED:
        await both.hub.client.delete(kind, f"{kind.plural}-x", namespace=NAMESPACE, propagation="Background")
    yield Look("they are deleted", 2 * _SETTLING_SECONDS)


async def serving(hub: ComparedHub) -> AsyncIterator[Look]:
    """Deployments, StatefulSets and LeaderWorkerSets run, grow, shrink, are preempted, and are deleted."""
    await _prepare(hub)
    for kind in _SERVED:
        await make_queue(hub, kind.plural, pods=4)
        await hub.client.create(kind, _served(kind, "low", replicas=2), namespace=NAMESPACE)
    yield Look("they run", _SETTLING_SECONDS)
    for kind in _GROWING:
        await hub.change(kind, f"{kind.plural}-low", {"spec": {"replicas": 3}})
    yield Look("they have another replica", _SETTLING_SECONDS)
    for kind in _GROWING:
        await hub.change(kind, f"{kind.plural}-low", {"spec": {"replicas": 1}})
    yield Look("they have one replica", _SETTLING_SECONDS)
    for kind in _SERVED:
        await hub.change(kind, f"{kind.plural}-low", {"spec": {"replicas": 0}})
    yield Look("they have none", _SETTLING_SECONDS)
    for kind in _SERVED:
        await hub.change(kind, f"{kind.plural}-low", {"spec": {"replicas": 2}})
    yield Look("they have two again", _SETTLING_SECONDS)
    for kind in _SERVED:
        await hub.client.create(kind, _served(kind, "high", replicas=2, priority="high"), namespace=NAMESPACE)
    yield Look("others preempt them", _SETTLING_SECONDS)
    for kind in _SERVED:
        await hub.client.delete(kind, f"{kind.plural}-high", namespace=NAMESPACE, propagation="Background")
    yield Look("those are deleted", _SETTLING_SECONDS)


async def _prepare(hub: ComparedHub) -> None:
    await hub.make(RESOURCE_FLAVORS, _FLAVOR, {"nodeLabels": _LABELS})
    await hub.classes()


async def make_queue(hub: ComparedHub, name: str, *, pods: int) -> None:
    """A queue with quota for so many pods."""
    resources = [{"name": "cpu", "nominalQuota": f"{pods * 100}m"}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": _FLAVOR, "resources": resources}]}]
    await hub.queue(name, preempts=True, resourceGroups=groups)


def _name(kind: PlayedKind, job: str) -> str:
    return f"{kind.resource.plural}-{job}"


async def _submit(
    hub: ComparedHub,
    kind: PlayedKind,
    job: str,
    annotations: dict[str, str],
    *,
    queue: str = "",
    priority: str = "",
) -> None:
    body = kind.sample(_name(kind, job), annotations)
    labels = {QUEUE_NAME_LABEL: queue or kind.resource.plural}
    labels |= {PRIORITY_CLASS_LABEL: priority} if priority else {}
    body["metadata"] |= {"namespace": NAMESPACE, "labels": labels}
    if queue:
        *parents, field = kind.managed_by
        holder = body
        for each in parents:
            holder = holder.setdefault(each, {})
        holder[field] = MULTIKUEUE_MANAGED_BY
    if kind.resource == APP_WRAPPERS:  # whose templates have no schema
        body["spec"]["components"][0]["template"]["spec"]["template"]["spec"]["containers"] = _CONTAINERS
    # What the schemas of these kinds add.
    if kind.resource == TRAIN_JOBS:
        body["spec"]["runtimeRef"] |= {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"}
    if kind.resource == RAY_JOBS:
        body["spec"]["submissionMode"] = "K8sJobMode"
    await hub.client.create(kind.resource, body, namespace=NAMESPACE)


def _suspended(kind: PlayedKind) -> Object:
    body: Any = True
    for field in reversed(kind.suspend):
        body = {field: body}
    return dict(body)


def _served(kind: Resource, name: str, *, replicas: int, queue: str = "", priority: str = "") -> Object:
    template = pod_template(_LONG, terminationGracePeriodSeconds=0)
    template["spec"] |= {"restartPolicy": "Always"}
    template["metadata"] |= {"labels": {"app": f"{kind.plural}-{name}"}}
    labels = {QUEUE_NAME_LABEL: queue or kind.plural} | ({PRIORITY_CLASS_LABEL: priority} if priority else {})
    spec: Object = {"replicas": replicas}
    if kind == LEADER_WORKER_SETS:
        spec["leaderWorkerTemplate"] = {"size": 1, "workerTemplate": template}
    else:
        spec |= {"selector": {"matchLabels": template["metadata"]["labels"]}, "template": template}
    if kind == STATEFUL_SETS:
        spec |= {"serviceName": "s", "podManagementPolicy": "Parallel"}
    metadata = {"name": f"{kind.plural}-{name}", "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
