# SPDX-License-Identifier: Apache-2.0
"""What a manager's webhooks answer to writes: the message of a refusal, or the object as it was taken."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from copy import deepcopy
from typing import Any, Final

import anyio
import orjson

from multikueue.api.resource import (
    CLUSTER_QUEUES,
    JOBS,
    KUEUE_RESOURCES,
    SERVICE_ACCOUNTS,
    WORKLOAD_PRIORITY_CLASSES,
    Resource,
)
from multikueue.kube.errors import ApiError, NotFound
from multikueue.kube.rest.client import KubeClient
from tests.comparison.shown import comparable, differences, leaves
from tests.comparison.writes import KINDS, QUEUE, RESOURCES, Write, writes
from tests.support.crds.kinds import install
from tests.support.managers import ensure, make_namespace, make_queue

Object = dict[str, Any]

_NAMESPACE: Final = "team"
_REFUSED: Final = "refused: "
_LOOK_SECONDS: Final = 0.1
_LOOKS: Final = 100
_RESOURCES: Final = {**{each.kind: each for each in KUEUE_RESOURCES}, **RESOURCES}
_NOT_SHOWN: Final = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "name", "namespace")
_NAME: Final = re.compile(r"\bx\d+\b")
_OBJECT: Final = re.compile(r'[\w.-]+ "x" is invalid: ')
"""This project's webhooks name the object, as API servers do; Kueue's do not."""
_VOLUME: Final = re.compile(r"\bkube-api-access-[a-z0-9]{5}\b")


async def answers(client: KubeClient) -> AsyncIterator[tuple[str, list[str]]]:
    """The title of each write, and what was answered."""
    await make_namespace(client, _NAMESPACE)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": _NAMESPACE}}
    await ensure(client, SERVICE_ACCOUNTS, account)
    await install(client, *KINDS)
    await make_queue(client, QUEUE, namespace=_NAMESPACE, cpu="1000")
    # The webhook of Jobs looks for the queue, and nothing is to be admitted meanwhile.
    await make_queue(client, "lq", namespace=_NAMESPACE)
    await client.patch(CLUSTER_QUEUES, "lq", {"spec": {"stopPolicy": "Hold"}})
    for name, value in (("low", 1), ("high", 100)):
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}}
        await ensure(client, WORKLOAD_PRIORITY_CLASSES, body | {"value": value})
    for number, write in enumerate(writes()):
        answer = await _answer(client, write, f"x{number}")
        yield write.title, list(map(_comparable, answer))


def compared(kueue: Sequence[str], ours: Sequence[str]) -> Iterator[str]:
    """The lines that only one of both has; of what one takes and the other refuses, that it does."""
    sides = {"kueue": kueue, "ours": ours}
    if len({_is_refusal(lines) for lines in sides.values()}) == 1:
        yield from differences(kueue, ours)
        return
    for side, lines in sides.items():
        yield f"{side}: {lines[0] if _is_refusal(lines) else 'taken'}"


def _is_refusal(lines: Sequence[str]) -> bool:
    return any(line.startswith(_REFUSED) for line in lines)


def _comparable(line: str) -> str:
    return _OBJECT.sub("", _VOLUME.sub("kube-api-access", _NAME.sub("x", comparable(line))))


async def _answer(client: KubeClient, write: Write, name: str) -> list[str]:
    obj = deepcopy(write.new)
    obj["metadata"]["name"] = name
    resource = _RESOURCES[obj["kind"]]
    namespace = _NAMESPACE if resource.namespaced else None
    try:
        raw = await client.create(resource, obj, namespace=namespace, dry_run=not write.changes)
    except ApiError as error:
        return [f"{_REFUSED}{error.message}"]
    try:
        if write.runs:
            await _running(client, resource, name)
        for change in write.changes:
            raw = await client.patch(resource, name, change.body, namespace=namespace, subresource=change.subresource)
    except ApiError as error:
        return [f"{_REFUSED}{error.message}"]
    finally:
        if write.changes:
            await _deleted(client, write, name)
    return list(_shown(orjson.loads(raw), with_status=any(each.subresource for each in write.changes)))


async def _running(client: KubeClient, resource: Resource, name: str) -> None:
    for _ in range(_LOOKS):
        found = await client.get_object(resource, name, namespace=_NAMESPACE)
        conditions = (found.get("status") or {}).get("conditions") or ()
        if (resource == JOBS and not found["spec"]["suspend"]) or any(
            each["type"] == "Admitted" for each in conditions
        ):
            return
        await anyio.sleep(_LOOK_SECONDS)
    raise LookupError(f"{resource.kind} {_NAMESPACE}/{name} was not admitted")


async def _deleted(client: KubeClient, write: Write, name: str) -> None:
    resource = _RESOURCES[write.new["kind"]]
    namespace = _NAMESPACE if resource.namespaced else None
    try:
        await client.delete(resource, name, namespace=namespace)
        await client.patch(resource, name, {"metadata": {"finalizers": None}}, namespace=namespace)
    except NotFound:
        return


def _shown(obj: Object, *, with_status: bool) -> list[str]:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _NOT_SHOWN}
    found = {"metadata": metadata, "spec": obj.get("spec")} | ({"status": obj.get("status")} if with_status else {})
    return sorted(f"taken: {path}: {value}" for path, value in leaves(found))
