# SPDX-License-Identifier: Apache-2.0
"""What a user sees of Jobs, Workloads and queues, as lines that can be compared between two managers.

Uids, hashes, times and durations are replaced, since they differ from run to run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import orjson

from multikueue.api.resource import CLUSTER_QUEUES, EVENTS, JOBS, LOCAL_QUEUES, PODS, WORKLOADS
from multikueue.kube.rest.client import KubeClient

Object = dict[str, Any]

_TOPOLOGY: Final = "kueue.x-k8s.io/topology"
_ROLE_HASH: Final = "kueue.x-k8s.io/role-hash"
_REPLACED: Final = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\b((?:job|pod|statefulset)-[a-z0-9-]+)-[0-9a-f]{5}\b"), r"\1-HASH"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b\d+s\b"), "SECONDS"),
)


def comparable(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, instead in _REPLACED:
        text = pattern.sub(instead, text)
    return text


def differences(kueue: Sequence[str], ours: Sequence[str]) -> Iterator[str]:
    """The lines that only one of both has."""
    yield from (f"kueue: {line}" for line in kueue if line not in ours)
    yield from (f"ours:  {line}" for line in ours if line not in kueue)


async def lines(client: KubeClient, namespace: str) -> list[str]:
    """Everything of that namespace but events, and the ClusterQueues."""
    found: list[str] = []
    for obj in await _objects(client, JOBS, namespace):
        found.append(
            f"Job {_name(obj)}: suspend {obj['spec'].get('suspend')}, parallelism {obj['spec']['parallelism']}"
        )
    for obj in await _objects(client, PODS, namespace):
        found += _pod(obj)
    for obj in await _objects(client, WORKLOADS, namespace):
        found += _workload(obj)
    for resource, place in ((CLUSTER_QUEUES, None), (LOCAL_QUEUES, namespace)):
        for obj in await _objects(client, resource, place):
            found += _queue(obj)
    return [comparable(line) for line in found]


async def events(client: KubeClient, namespace: str) -> set[str]:
    """The events so far; equal ones count once."""
    found = await _objects(client, EVENTS, namespace)
    return {
        comparable(f"event about {_about(each)}: {each.get('type')} {each.get('reason')}: {each.get('note')}")
        for each in found
    }


def _about(event: Object) -> str:
    regarding: Object = event.get("regarding") or {}
    return f"{regarding.get('kind')} {regarding.get('name')}"


def _pod(obj: Object) -> Iterator[str]:
    metadata, name = obj["metadata"], f"Pod {_name(obj)}"
    gates = sorted(each["name"] for each in obj["spec"].get("schedulingGates") or ())
    # Kueue 0.17.0 gates every pod for topologies too, and writes a hash of its own.
    yield f"{name}: gates {[each for each in gates if each != _TOPOLOGY]}, finalizers {metadata.get('finalizers')}"
    yield f"{name}: deleted {'deletionTimestamp' in metadata}, {(obj.get('status') or {}).get('phase')}"
    for field in ("labels", "annotations"):
        for key, value in sorted((metadata.get(field) or {}).items()):
            if key != _ROLE_HASH:
                yield f"{name}: {field} {key}={value}"
    for each in (obj.get("status") or {}).get("conditions") or ():
        yield f"{name}: {each['type']}={each['status']} {each.get('reason')}: {each.get('message')}"


def _workload(obj: Object) -> Iterator[str]:
    spec, status = obj["spec"], obj.get("status") or {}
    name = f"Workload {_name(obj)}"
    yield f"{name}: active {spec.get('active')}, priority {spec.get('priority')}, queue {spec.get('queueName')}"
    for each in sorted(status.get("conditions") or (), key=lambda each: str(each["type"])):
        yield f"{name}: {each['type']}={each['status']} {each['reason']}: {each.get('message')}"
    for each in (status.get("admission") or {}).get("podSetAssignments") or ():
        yield f"{name}: admitted {each['count']} of {each['name']} in {each.get('flavors')}"
    for each in status.get("admissionChecks") or ():
        yield f"{name}: check {each['name']} {each['state']}: {each.get('message')}, retries {each.get('retryCount')}"
    for each in status.get("reclaimablePods") or ():
        yield f"{name}: reclaimable {each['count']} of {each['name']}"
    requeue = status.get("requeueState") or {}
    yield f"{name}: requeued {requeue.get('count')}, waits {'requeueAt' in requeue}"
    yield from _evictions(name, (status.get("schedulingStats") or {}).get("evictions") or ())


def _evictions(name: str, found: Iterable[Object]) -> Iterator[str]:
    for each in found:
        yield f"{name}: evicted {each['count']} times for {each['reason']} {each.get('underlyingCause')}".rstrip()


def _queue(obj: Object) -> Iterator[str]:
    status = obj.get("status") or {}
    counts = [status.get(f"{each}Workloads") or 0 for each in ("pending", "reserving", "admitted")]
    yield f"{obj['kind']} {_name(obj)}: pending, reserving, admitted {counts}"
    for each in status.get("conditions") or ():
        yield f"{obj['kind']} {_name(obj)}: {each['type']}={each['status']} {each['reason']}: {each['message']}"


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


async def _objects(client: KubeClient, resource: Any, namespace: str | None) -> list[Object]:
    return [orjson.loads(raw) for raw in (await client.list_all(resource, namespace=namespace)).items]
