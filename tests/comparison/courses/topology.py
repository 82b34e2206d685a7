# SPDX-License-Identifier: Apache-2.0
"""The course of topology aware scheduling, on a hub whose nodes are in two blocks of two racks of two hosts each.

Each host has four cpu. Jobs are deleted before the next step, unless it is about them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

import anyio

from devcluster.kubelet.node import DEFAULT_ALLOCATABLE, NodeSpec
from multikueue.api.constants import (
    HOSTNAME_LABEL,
    IS_GROUP_WORKLOAD_ANNOTATION,
    POD_GROUP_NAME_LABEL,
    POD_GROUP_POD_INDEX_LABEL_ANNOTATION,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    POD_SET_GROUP_NAME_ANNOTATION,
    POD_SET_PREFERRED_TOPOLOGY_ANNOTATION,
    POD_SET_REQUIRED_TOPOLOGY_ANNOTATION,
    POD_SET_SLICE_REQUIRED_TOPOLOGY_ANNOTATION,
    POD_SET_SLICE_SIZE_ANNOTATION,
    POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
)
from multikueue.api.resource import JOBS, NODES, PODS, RESOURCE_FLAVORS, TOPOLOGIES, WORKLOADS, Resource
from tests.comparison.courses.course import RESERVED_SECONDS
from tests.comparison.hub import NAMESPACE, ComparedHub, Object
from tests.comparison.looks import Look
from tests.support.crds.kinds import JOB_SETS

BLOCK: Final = "cloud.provider.com/topology-block"
RACK: Final = "cloud.provider.com/topology-rack"
_POOL: Final = {"pool": "tas"}
HOSTS: Final = tuple(
    NodeSpec(
        name=f"b{block}-r{rack}-h{host}",
        allocatable={**DEFAULT_ALLOCATABLE, "cpu": "4", "pods": "110"},
        labels={BLOCK: f"b{block}", RACK: f"b{block}-r{rack}", **_POOL},
    )
    for block in (1, 2)
    for rack in (1, 2)
    for host in (1, 2)
)
_REQUIRED: Final = POD_SET_REQUIRED_TOPOLOGY_ANNOTATION
_PREFERRED: Final = POD_SET_PREFERRED_TOPOLOGY_ANNOTATION
_UNCONSTRAINED: Final = POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION
_SLICE: Final = POD_SET_SLICE_REQUIRED_TOPOLOGY_ANNOTATION
_SIZE: Final = POD_SET_SLICE_SIZE_ANNOTATION
_IN_RACK: Final = {_REQUIRED: RACK}
_FIRST_RACK: Final[Object] = {"nodeSelector": {RACK: "b1-r1"}}
_RUN_FOR: Final = "multikueue.io/run-for"
_SPOT: Final = {"key": "spot", "value": "true", "effect": "NoSchedule"}
_WAKING_SECONDS: Final = 5.0
"""By then what waits was tried again, since a node has changed."""
_REPLACING_SECONDS: Final = 14.0
"""By then a Job has a new pod for one that was deleted."""
_GONE_SECONDS: Final = 10.0


async def topology(hub: ComparedHub) -> AsyncIterator[Look]:
    """Jobs of all modes are placed, wait, preempt others, lose nodes, and end."""
    await _queue(hub)
    yield Look("there is a queue of a flavor with a topology", RESERVED_SECONDS)
    for steps in (
        _modes,
        _beside_others,
        _ranks,
        _slices,
        _roles,
        _single_pods,
        _too_large,
        _refused_nodes,
        _waking,
        _preemption,
        _other_queues,
        _topologies,
        _ended,
        _node_failures,
    ):
        async for look in steps(hub):
            yield look


async def running_and_waiting(hub: ComparedHub) -> None:
    """Jobs and a group of pods that have places, and a job that waits for those of another."""
    await _queue(hub)
    await _submit(hub, "rack", 2, _IN_RACK, pod=_FIRST_RACK)
    await _submit(hub, "indexed", 6, {_REQUIRED: BLOCK}, indexed=True)
    await _submit(hub, "waits", 8, _IN_RACK, pod=_FIRST_RACK)
    await _group(hub)


async def _queue(hub: ComparedHub) -> None:
    await hub.make(TOPOLOGIES, "default", _levels(BLOCK, RACK, HOSTNAME_LABEL))
    await hub.make(RESOURCE_FLAVORS, "tas", {"nodeLabels": _POOL, "topologyName": "default"})
    await hub.queue(preempts=True, resourceGroups=_quota("tas"))


async def _group(hub: ComparedHub) -> None:
    for name, index in (("g1", 1), ("g2", 0)):
        annotations = {**_IN_RACK, POD_GROUP_TOTAL_COUNT_ANNOTATION: "2", POD_GROUP_POD_INDEX_LABEL_ANNOTATION: "index"}
        await _pod(hub, name, annotations, {POD_GROUP_NAME_LABEL: "g", "index": str(index)}, cpu="3")


async def _modes(hub: ComparedHub) -> AsyncIterator[Look]:
    await _submit(hub, "rack", 2, _IN_RACK)
    await _submit(hub, "host", 3, {_REQUIRED: HOSTNAME_LABEL})
    await _submit(hub, "loose", 5, {_UNCONSTRAINED: "true"})
    await _submit(hub, "implied", 2)
    yield Look("four jobs have a rack, a host, and any hosts")
    await _clear(hub)
    await _submit(hub, "up", 12, {_PREFERRED: RACK})
    yield Look("a job that prefers a rack has a block")
    await _clear(hub)
    await _submit(hub, "spread", 20, {_PREFERRED: RACK})
    yield Look("a larger one has parts of two blocks")
    await _clear(hub)


async def _beside_others(hub: ComparedHub) -> AsyncIterator[Look]:
    """Pods without a queue leave 1, 2 and 3 cpu on the first hosts."""
    for host, cpu in (("b1-r1-h1", "3"), ("b1-r1-h2", "2"), ("b1-r2-h1", "1")):
        await _plain(hub, f"other-{host}", host, cpu)
    await anyio.sleep(RESERVED_SECONDS)
    for name, pods, asked in (
        ("one", 3, {_UNCONSTRAINED: "true"}),
        ("several", 7, {_UNCONSTRAINED: "true"}),
        ("implied", 5, {}),
        ("rack", 3, _IN_RACK),
        ("block", 9, {_REQUIRED: BLOCK}),
        ("host", 2, {_REQUIRED: HOSTNAME_LABEL}),
        ("near", 5, {_PREFERRED: HOSTNAME_LABEL}),
        ("far", 18, {_PREFERRED: BLOCK}),
    ):
        await _submit(hub, name, pods, asked)
        yield Look(f"beside other pods there is {name}")
        await _remove(hub, JOBS, name)
    await _clear(hub)


async def _ranks(hub: ComparedHub) -> AsyncIterator[Look]:
    await _submit(hub, "indexed", 6, {_REQUIRED: BLOCK}, indexed=True)
    await _submit(hub, "repeats", 1, _IN_RACK, cpu="3", completions=2, run_for="4s")
    yield Look("an indexed job runs, and one of two pods that follow each other", 2 * _WAKING_SECONDS)
    await _clear(hub)


async def _slices(hub: ComparedHub) -> AsyncIterator[Look]:
    await _submit(hub, "six", 12, {_REQUIRED: BLOCK, _SLICE: RACK, _SIZE: "6"}, indexed=True)
    await _submit(hub, "alone", 4, {_SLICE: HOSTNAME_LABEL, _SIZE: "2"}, indexed=True)
    await _submit(hub, "ten", 10, {_REQUIRED: BLOCK, _SLICE: RACK, _SIZE: "10"}, indexed=True)
    yield Look("jobs have slices, and one has slices that are too large")
    await _clear(hub)


async def _roles(hub: ComparedHub) -> AsyncIterator[Look]:
    """JobSets of a leader and of three workers, who need two cpu each."""
    grouped = {POD_SET_GROUP_NAME_ANNOTATION: "all"}
    await _job_set(hub, "group", _IN_RACK | grouped, completion_mode="NonIndexed")
    await _job_set(hub, "apart", _IN_RACK)
    yield Look("two JobSets run, one of them as a group")
    await _clear(hub)
    await _job_set(hub, "sliced", {_REQUIRED: BLOCK, _SLICE: RACK, _SIZE: "1"}, replicas=2)
    await _job_set(hub, "large", _IN_RACK, workers=4)
    yield Look("another one has workers of two Jobs, and one is too large")
    await _clear(hub)


async def _single_pods(hub: ComparedHub) -> AsyncIterator[Look]:
    await _pod(hub, "single", _IN_RACK)
    await _pod(hub, "implied", {})
    await _group(hub)
    yield Look("single pods run, and a group of two")
    await _clear(hub)


async def _too_large(hub: ComparedHub) -> AsyncIterator[Look]:
    await _submit(hub, "rack", 20, _IN_RACK)
    await _submit(hub, "host", 5, {_REQUIRED: HOSTNAME_LABEL})
    await _submit(hub, "all", 40, {_PREFERRED: RACK})
    await _submit(hub, "loose", 40, {_UNCONSTRAINED: "true"})
    await _submit(hub, "implied", 40)
    await _submit(hub, "level", 1, {_REQUIRED: "example.com/row"})
    await _submit(hub, "cpu", 1, _IN_RACK, cpu="5")
    await _submit(hub, "labels", 2, _IN_RACK, pod={"nodeSelector": {"zone": "none"}})
    terms = [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    await _submit(hub, "gpus", 2, _IN_RACK, pod={"affinity": affinity})
    yield Look("nine jobs fit nowhere")
    await _clear(hub)


async def _refused_nodes(hub: ComparedHub) -> AsyncIterator[Look]:
    await _change_node(hub, "b1-r1-h1", taints=[_SPOT])
    await _change_node(hub, "b1-r1-h2", unschedulable=True)
    await anyio.sleep(RESERVED_SECONDS)
    await _submit(hub, "loose", 7, {_UNCONSTRAINED: "true"}, cpu="4")
    await _submit(hub, "rack", 1, _IN_RACK, pod=_FIRST_RACK)
    yield Look("a node has a taint, and another one is cordoned")
    tolerated = [{"key": "spot", "operator": "Exists"}]
    await _submit(hub, "lenient", 1, _IN_RACK, pod=_FIRST_RACK | {"tolerations": tolerated})
    yield Look("a job tolerates the taint")
    await _clear(hub)
    await _submit(hub, "waits", 2, _IN_RACK, cpu="4", pod=_FIRST_RACK)
    yield Look("a job needs both nodes")
    await _change_node(hub, "b1-r1-h1", taints=None)
    await _change_node(hub, "b1-r1-h2", unschedulable=None)
    yield Look("both nodes are as before", _WAKING_SECONDS)
    await _clear(hub)


async def _waking(hub: ComparedHub) -> AsyncIterator[Look]:
    await _submit(hub, "first", 8, _IN_RACK, pod=_FIRST_RACK)
    await _submit(hub, "second", 2, _IN_RACK, pod=_FIRST_RACK)
    yield Look("a rack is full, and another job waits for it")
    await _remove(hub, JOBS, "first")
    yield Look("the first one is deleted", _WAKING_SECONDS)
    await _clear(hub)
    await _plain(hub, "other", "b1-r1-h1", "3")
    await anyio.sleep(RESERVED_SECONDS)
    await _submit(hub, "waits", 7, _IN_RACK, pod=_FIRST_RACK)
    yield Look("a pod without a queue is in the way")
    await _remove(hub, PODS, "other")
    yield Look("the pod is deleted", _WAKING_SECONDS)
    await _clear(hub)


async def _preemption(hub: ComparedHub) -> AsyncIterator[Look]:
    for number in range(4):
        await _submit(hub, f"low{number}", 8, _IN_RACK, priority="low")
    yield Look("four jobs fill all racks")
    await _submit(hub, "high", 8, _IN_RACK, priority="high")
    yield Look("another one preempts one of them", _WAKING_SECONDS)
    await _submit(hub, "large", 9, _IN_RACK, priority="high")
    yield Look("one is too large for a rack, and preempts none")
    await hub.change(JOBS, "low0", {"spec": {"suspend": True}})
    yield Look("a user suspends one", _WAKING_SECONDS)
    await _clear(hub)


async def _other_queues(hub: ComparedHub) -> AsyncIterator[Look]:
    await hub.make(RESOURCE_FLAVORS, "flat", {"nodeLabels": _POOL})
    await hub.queue("flat", resourceGroups=_quota("flat"))
    await hub.queue("mixed", resourceGroups=_quota("flat", "tas"))
    await hub.queue("small", resourceGroups=_quota("tas", cpu="3"))
    await hub.queue("checked", checks=("other",), resourceGroups=_quota("tas"))
    await anyio.sleep(RESERVED_SECONDS)
    await _submit(hub, "flat", 2, _IN_RACK, queue="flat")
    await _submit(hub, "mixed", 2, _IN_RACK, queue="mixed")
    await _submit(hub, "neither", 2, queue="mixed", pod={"nodeSelector": {HOSTNAME_LABEL: "b2-r2-h2"}})
    await _submit(hub, "quota", 4, _IN_RACK, queue="small")
    await _submit(hub, "checked", 2, _IN_RACK, queue="checked")
    yield Look("jobs are in queues with other flavors, less quota, and a check")
    await hub.check("checked", "other", "Ready", "by hand")
    yield Look("the check is ready")
    await _clear(hub)


async def _topologies(hub: ComparedHub) -> AsyncIterator[Look]:
    await hub.make(RESOURCE_FLAVORS, "racks", {"nodeLabels": _POOL, "topologyName": "racks"})
    await hub.queue("racks", resourceGroups=_quota("racks"))
    await _submit(hub, "racks", 16, {_PREFERRED: RACK}, queue="racks")
    yield Look("a flavor names a topology that is missing")
    await hub.make(TOPOLOGIES, "racks", _levels(BLOCK, RACK))
    yield Look("the topology is created, without hosts", _WAKING_SECONDS)
    await _submit(hub, "level", 1, {_REQUIRED: HOSTNAME_LABEL}, queue="racks")
    await hub.client.delete(TOPOLOGIES, "racks")
    yield Look("it is deleted while it is used")
    await _clear(hub)


async def _ended(hub: ComparedHub) -> AsyncIterator[Look]:
    await _submit(hub, "short", 1, _IN_RACK, run_for="2s")
    yield Look("a job has ended", _WAKING_SECONDS)
    await _clear(hub)


async def _node_failures(hub: ComparedHub) -> AsyncIterator[Look]:
    """Nodes are lost for good, so that these steps are the last."""
    await _submit(hub, "moves", 1, _IN_RACK)
    yield Look("a job runs on the first host")
    await hub.lose_nodes("b1-r1-h1")
    yield Look("the host is deleted, and another one of the rack is free", _WAKING_SECONDS)
    await _remove_pods_on(hub, "b1-r1-h1")
    yield Look("its pod is deleted", _REPLACING_SECONDS)
    # Placed somewhere else at once, Kueue 0.17.0 at times keeps the name of the node among the unhealthy ones.
    await _submit(hub, "fills", 8, _IN_RACK, pod={"nodeSelector": {RACK: "b1-r2"}})
    yield Look("another job fills the second rack")
    await hub.lose_nodes("b1-r2-h1")
    yield Look("a host of it is deleted, and none is free there", _WAKING_SECONDS)
    await _clear(hub)
    await _submit(hub, "both", 8, _IN_RACK, pod={"nodeSelector": {RACK: "b2-r1"}})
    yield Look("another job fills the third rack")
    await hub.lose_nodes("b2-r1-h1", "b2-r1-h2")
    yield Look("both of its hosts are deleted", _WAKING_SECONDS)
    await _clear(hub)
    await _submit(hub, "unready", 1, _IN_RACK, pod={"nodeSelector": {RACK: "b2-r2"}})
    yield Look("a job runs in the last rack")
    await hub.lose_nodes("b2-r2-h1", deleted=False)
    yield Look("its host is not ready", _WAKING_SECONDS)
    await _remove_pods_on(hub, "b2-r2-h1")
    yield Look("its pod is deleted there", _REPLACING_SECONDS)


def _levels(*labels: str) -> Object:
    return {"levels": [{"nodeLabel": each} for each in labels]}


def _quota(*flavors: str, cpu: str = "100") -> list[Object]:
    given = [{"name": each, "resources": [{"name": "cpu", "nominalQuota": cpu}]} for each in flavors]
    return [{"coveredResources": ["cpu"], "flavors": given}]


def _template(
    cpu: str, annotations: Mapping[str, str], *, run_for: str = "forever", pod: Object | None = None
) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"metadata": {"annotations": {_RUN_FOR: run_for, **annotations}}, "spec": spec | (pod or {})}


async def _submit(
    hub: ComparedHub,
    name: str,
    pods: int,
    annotations: Mapping[str, str] | None = None,
    *,
    cpu: str = "1",
    queue: str = "q",
    priority: str = "",
    completions: int = 0,
    indexed: bool = False,
    run_for: str = "forever",
    pod: Object | None = None,
) -> None:
    """A Job whose pods ask this, with more fields; it holds its hosts, if there are any, before the next one."""
    labels = {QUEUE_NAME_LABEL: queue} | ({PRIORITY_CLASS_LABEL: priority} if priority else {})
    template = _template(cpu, annotations or {}, run_for=run_for, pod=pod)
    spec = {
        "suspend": True,
        "parallelism": pods,
        "completions": completions or pods,
        "completionMode": "Indexed" if indexed else "NonIndexed",
        "template": template,
    }
    await hub.client.create(JOBS, _object(JOBS, name, labels, spec=spec), namespace=NAMESPACE)
    await anyio.sleep(RESERVED_SECONDS)


async def _job_set(
    hub: ComparedHub,
    name: str,
    annotations: Mapping[str, str],
    *,
    workers: int = 3,
    replicas: int = 1,
    completion_mode: str = "Indexed",
) -> None:
    """A JobSet of a leader and its workers; pods of a group are no more in the order of their indexes."""

    def replicated(role: str, cpu: str, pods: int, count: int) -> Object:
        given = {"completionMode": completion_mode, "parallelism": pods, "completions": pods, "backoffLimit": 0}
        template = {"spec": {**given, "template": _template(cpu, annotations)}}
        return {"name": role, "replicas": count, "template": template}

    roles = [replicated("leader", "1", 1, 1), replicated("workers", "2", workers, replicas)]
    spec = {"suspend": True, "replicatedJobs": roles}
    body = _object(JOB_SETS, name, {QUEUE_NAME_LABEL: "q"}, spec=spec)
    await hub.client.create(JOB_SETS, body, namespace=NAMESPACE)
    await anyio.sleep(RESERVED_SECONDS)


async def _pod(
    hub: ComparedHub,
    name: str,
    annotations: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    *,
    cpu: str = "1",
) -> None:
    template = _template(cpu, annotations)
    body = _object(PODS, name, {QUEUE_NAME_LABEL: "q", **(labels or {})}, spec=template["spec"])
    body["metadata"]["annotations"] = template["metadata"]["annotations"]
    await hub.client.create(PODS, body, namespace=NAMESPACE)


async def _plain(hub: ComparedHub, name: str, node: str, cpu: str) -> None:
    """A pod without a queue on this node."""
    template = _template(cpu, {}, pod={"nodeName": node})
    body = _object(PODS, name, {}, spec=template["spec"])
    body["metadata"]["annotations"] = template["metadata"]["annotations"]
    await hub.client.create(PODS, body, namespace=NAMESPACE)


def _object(resource: Resource, name: str, labels: Mapping[str, str], *, spec: Object) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": dict(labels)}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


async def _change_node(hub: ComparedHub, name: str, **spec: object) -> None:
    await hub.client.patch(NODES, name, {"spec": spec})


async def _remove(hub: ComparedHub, resource: Resource, name: str) -> None:
    await hub.client.delete(resource, name, namespace=NAMESPACE, propagation="Background")
    await anyio.sleep(RESERVED_SECONDS)


async def _remove_pods_on(hub: ComparedHub, node: str) -> None:
    for pod in await hub.objects(PODS):
        if pod["spec"].get("nodeName") == node:
            await hub.client.delete(PODS, pod["metadata"]["name"], namespace=NAMESPACE)


async def _clear(hub: ComparedHub) -> None:
    """Delete all jobs, and wait until they are gone with what was made for them."""
    for resource in (JOB_SETS, JOBS):
        for obj in await hub.objects(resource):
            if not obj["metadata"].get("ownerReferences"):
                name = obj["metadata"]["name"]
                await hub.client.delete(resource, name, namespace=NAMESPACE, propagation="Background")
    for obj in await hub.objects(PODS):
        if not obj["metadata"].get("ownerReferences"):
            await hub.client.delete(PODS, obj["metadata"]["name"], namespace=NAMESPACE)
    for obj in await hub.objects(WORKLOADS):
        # Otherwise a group waits for other pods.
        if IS_GROUP_WORKLOAD_ANNOTATION in (obj["metadata"].get("annotations") or {}):
            await hub.client.delete(WORKLOADS, obj["metadata"]["name"], namespace=NAMESPACE)
    # What is left is shown after the next step.
    with anyio.move_on_after(_GONE_SECONDS):
        while any([await hub.objects(resource) for resource in (JOB_SETS, JOBS, PODS, WORKLOADS)]):
            await anyio.sleep(RESERVED_SECONDS / 5)
    await anyio.sleep(RESERVED_SECONDS)
