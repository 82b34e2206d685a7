# SPDX-License-Identifier: Apache-2.0
"""What a user sees of jobs, Workloads and queues, as lines that can be compared between two managers.

Uids, hashes, times and durations are replaced, since they differ from run to run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    EVENTS,
    JOBS,
    LOCAL_QUEUES,
    PODS,
    RESOURCE_FLAVORS,
    WORKLOADS,
    Resource,
)
from multikueue.kube.rest.client import KubeClient

Object = dict[str, Any]

_TOPOLOGY: Final = "kueue.x-k8s.io/topology"
_ROLE_HASH: Final = "kueue.x-k8s.io/role-hash"
_REPLACED: Final = (
    (re.compile(r"\b(kube-api-access|[a-z-]+-[a-z0-9]{8,10})-[a-z0-9]{5}(-[0-9a-f]{5})?\b"), "POD"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\b([a-z]+-[a-z0-9-]+)-[0-9a-f]{5}\b"), r"\1-HASH"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b\d+s\b"), "SECONDS"),
)
_SHOWN_OF_STATUS: Final = ("conditions", "admissionChecks", "requeueState", "schedulingStats")
_SHOWN_OF_METADATA: Final = ("labels", "annotations", "finalizers")
_OF_CONTROLLERS: Final = frozenset(
    {"Scheduled", "SuccessfulCreate", "SuccessfulDelete", "Completed", "ScalingReplicaSet", "Resumed"}
)
"""Reasons of events of the controllers that run jobs."""
_ADMINISTERED: Final = (RESOURCE_FLAVORS, ADMISSION_CHECKS, COHORTS)


def comparable(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, instead in _REPLACED:
        text = pattern.sub(instead, text)
    return text


def differences(kueue: Sequence[str], ours: Sequence[str]) -> Iterator[str]:
    """The lines that only one of both has."""
    yield from (f"kueue: {line}" for line in kueue if line not in ours)
    yield from (f"ours:  {line}" for line in ours if line not in kueue)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values in an object, each with its path; empty ones are left out, as Kueue writes those of its types."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from leaves(one, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for index, one in enumerate(value):
            yield from leaves(one, f"{path}[{index}]")
    elif value not in (None, "", {}, []):
        yield path, value


async def lines(
    client: KubeClient, namespace: str, *, jobs: Iterable[Resource] = (JOBS,), run_by_controllers: bool = False
) -> list[str]:
    """Everything of that namespace but events, with jobs of these kinds, and what administrators own.

    If jobs are run by controllers neither their status nor pods are shown, which depend on the moment.
    """
    found: list[str] = []
    for resource in jobs:
        for obj in await _objects(client, resource, namespace):
            found += job_lines(obj, with_status=not run_by_controllers)
    if not run_by_controllers:
        for obj in await _objects(client, PODS, namespace):
            found += _pod(obj)
    for obj in await _objects(client, WORKLOADS, namespace):
        found += _workload(obj)
    for resource, place in ((CLUSTER_QUEUES, None), (LOCAL_QUEUES, namespace)):
        for obj in await _objects(client, resource, place):
            found += _queue(obj)
    for resource in _ADMINISTERED:
        for obj in await _objects(client, resource, None):
            found += _metadata(obj)
            found += _part(obj, "status", obj.get("status"))
    return [comparable(line) for line in found]


async def events(client: KubeClient, namespace: str) -> set[str]:
    """The events so far; equal ones count once."""
    found = await _objects(client, EVENTS, namespace)
    return {
        comparable(f"event about {_about(each)}: {each.get('type')} {each.get('reason')}: {each.get('note')}")
        for each in found
        if each.get("reason") not in _OF_CONTROLLERS
    }


def _about(event: Object) -> str:
    regarding: Object = event.get("regarding") or {}
    return f"{regarding.get('kind')} {regarding.get('name')}"


def job_lines(obj: Object, *, with_status: bool = True) -> Iterator[str]:
    """A job, or what is made for one."""
    yield from _metadata(obj)
    for field in ("spec", "template"):
        yield from _part(obj, field, obj.get(field))
    if with_status:
        yield from _part(obj, "status", obj.get("status"))


def _metadata(obj: Object) -> Iterator[str]:
    for field in _SHOWN_OF_METADATA:
        yield from _part(obj, field, obj["metadata"].get(field))
    for owner in obj["metadata"].get("ownerReferences") or ():
        yield f"{obj['kind']} {_name(obj)}: owned by {owner['kind']} {owner['name']}, {owner.get('controller')}"


def _part(obj: Object, name: str, value: object) -> Iterator[str]:
    yield from (f"{obj['kind']} {_name(obj)}: {path}: {one}" for path, one in leaves(value, name))


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
    yield from _metadata(obj)
    yield from _part(obj, "spec", obj["spec"])
    status: Object = obj.get("status") or {}
    name = f"Workload {_name(obj)}"
    for each in sorted(status.get("conditions") or (), key=lambda each: str(each["type"])):
        yield f"{name}: {each['type']}={each['status']} {each['reason']}: {each.get('message')}"
    for each in status.get("admissionChecks") or ():
        yield f"{name}: check {each['name']} {each['state']}: {each.get('message')}, retries {each.get('retryCount')}"
        yield from _part(obj, f"check {each['name']}", each.get("podSetUpdates"))
    requeue = status.get("requeueState") or {}
    yield f"{name}: requeued {requeue.get('count')}, waits {'requeueAt' in requeue}"
    yield from _evictions(name, (status.get("schedulingStats") or {}).get("evictions") or ())
    yield from _part(
        obj, "status", _without(status, "conditions", "admissionChecks", "requeueState", "schedulingStats")
    )


def _without(value: Mapping[str, Any], *fields: str) -> Object:
    return {key: one for key, one in value.items() if key not in fields}


def _evictions(name: str, found: Iterable[Object]) -> Iterator[str]:
    for each in found:
        yield f"{name}: evicted {each['count']} times for {each['reason']} {each.get('underlyingCause')}".rstrip()


def _queue(obj: Object) -> Iterator[str]:
    yield from _metadata(obj)
    status = obj.get("status") or {}
    counts = [status.get(f"{each}Workloads") or 0 for each in ("pending", "reserving", "admitted")]
    yield f"{obj['kind']} {_name(obj)}: pending, reserving, admitted {counts}"
    for each in status.get("conditions") or ():
        yield f"{obj['kind']} {_name(obj)}: {each['type']}={each['status']} {each['reason']}: {each['message']}"
    counted = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")
    yield from _part(obj, "status", _without(status, "conditions", *counted))


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


async def _objects(client: KubeClient, resource: Resource, namespace: str | None) -> list[Object]:
    return [
        {"kind": resource.kind, **orjson.loads(raw)}
        for raw in (await client.list_all(resource, namespace=namespace)).items
    ]
