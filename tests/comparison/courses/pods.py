# SPDX-License-Identifier: Apache-2.0
"""The courses of pods, alone and in groups, on a hub with the framework `pod`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import anyio

from multikueue.api.constants import PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL
from multikueue.api.resource import PODS
from tests.comparison.courses.course import RESERVED_SECONDS
from tests.comparison.hub import NAMESPACE, ComparedHub
from tests.comparison.looks import Look

PODS_TOO: Final = {"integrations": {"frameworks": ["batch/job", "pod"]}}
_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"


async def single(hub: ComparedHub) -> AsyncIterator[Look]:
    """A pod is preempted by another, which succeeds; a third waits, and fails."""
    await hub.queue(preempts=True, cpu="2")
    await _submit(hub, "a", cpu="2")
    yield Look("a is created")
    await _phase(hub, "a", "Running")
    yield Look("a runs")
    await _submit(hub, "b", cpu="2", priority="high")
    yield Look("b preempts a, which has no node and is gone at once")
    await _phase(hub, "b", "Running")
    await _submit(hub, "c")
    yield Look("c waits")
    await _phase(hub, "b", "Succeeded")
    yield Look("b has succeeded")
    await _phase(hub, "c", "Running")
    await _phase(hub, "c", "Failed")
    yield Look("c has failed")


async def grouped(hub: ComparedHub) -> AsyncIterator[Look]:
    """A group runs; a pod of it fails and is replaced; it succeeds. A second one is short of a pod, and is deleted."""
    await hub.queue(cpu="4")
    await _submit(hub, "a1", group="a", total=2)
    yield Look("one of two pods is created")
    await _submit(hub, "a2", group="a", total=2)
    yield Look("both are created")
    await _phase(hub, "a1", "Running")
    await _phase(hub, "a2", "Running")
    yield Look("both run")
    await _phase(hub, "a1", "Failed")
    yield Look("one has failed")
    await _submit(hub, "a3", group="a", total=2)
    yield Look("another one replaces it")
    await _phase(hub, "a3", "Running")
    await _phase(hub, "a2", "Succeeded")
    await _phase(hub, "a3", "Succeeded")
    yield Look("the group has succeeded")
    await _submit(hub, "b1", group="b", total=1)
    await anyio.sleep(RESERVED_SECONDS)
    await _submit(hub, "b2", group="b", total=1)
    yield Look("a group has a pod too many")
    await hub.client.delete(PODS, "b1", namespace=NAMESPACE)
    yield Look("its first pod is deleted")


async def _submit(
    hub: ComparedHub, name: str, *, cpu: str = "1", group: str = "", total: int = 0, priority: str = ""
) -> None:
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "labels": {QUEUE_NAME_LABEL: "q"}}
    if priority:
        metadata["labels"][PRIORITY_CLASS_LABEL] = priority
    if group:
        metadata["labels"][_GROUP] = group
        metadata["annotations"] = {_TOTAL: str(total)}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"restartPolicy": "Never", "containers": [container], "automountServiceAccountToken": False}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    await hub.client.create(PODS, body, namespace=NAMESPACE)


async def _phase(hub: ComparedHub, name: str, phase: str) -> None:
    """A kubelet reports this."""
    ready = {"type": "Ready", "status": str(phase == "Running"), "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"phase": phase, "conditions": [ready]}
    await hub.client.patch(PODS, name, {"status": status}, namespace=NAMESPACE, subresource="status")
