# SPDX-License-Identifier: Apache-2.0
"""Groups of pods in a history: what their user does with them, and how a kubelet runs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import orjson

from multikueue.api.constants import (
    POD_GROUP_NAME_LABEL,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
)
from multikueue.api.resource import PODS
from multikueue.kube import errors
from multikueue.kube.rest.client import KubeClient
from tests.comparison.histories.history import SubmittedJob
from tests.comparison.histories.places import GPU

Object = dict[str, Any]

_TIME: Final = "2026-01-01T00:00:00Z"
_OVER: Final = ("Succeeded", "Failed")


def pod(name: str, job: SubmittedJob) -> Object:
    """A pod of a group."""
    labels = {QUEUE_NAME_LABEL: job.queue, POD_GROUP_NAME_LABEL: job.name}
    if job.priority:
        labels[PRIORITY_CLASS_LABEL] = job.priority
    annotations = {POD_GROUP_TOTAL_COUNT_ANNOTATION: str(job.parallelism)}
    metadata: Object = {"name": name, "labels": labels, "annotations": annotations}
    gpus = {GPU: str(job.gpu)} if job.gpu else {}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(job.cpu), **gpus}, "limits": gpus}}
    spec = {"restartPolicy": "Never", "containers": [container], "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class PodsOfGroups:
    """The pods of the groups of one namespace."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def of(self, group: str) -> list[Object]:
        """The pods of a group by name, also those that are being deleted."""
        selector = f"{POD_GROUP_NAME_LABEL}={group}"
        page = await self._client.list_all(PODS, namespace=self._namespace, label_selector=selector)
        found: list[Object] = [orjson.loads(raw) for raw in page.items]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    async def finish(self, group: str) -> None:
        """All pods succeed, if they run."""
        pods = await self.of(group)
        if pods and all(phase(each) == "Running" for each in pods):
            for each in pods:
                await self._show(each, "Succeeded")

    async def fail(self, group: str) -> None:
        """The first pod that runs fails."""
        for each in await self.of(group):
            if phase(each) == "Running":
                await self._show(each, "Failed")
                return

    async def delete(self, group: str) -> None:
        """Its user deletes all pods."""
        for each in await self.of(group):
            with suppress(errors.NotFound):
                await self._client.delete(PODS, each["metadata"]["name"], namespace=self._namespace)

    async def _show(self, each: Object, now: str) -> None:
        await show_phase(self._client, each, now)


def phase(each: Object) -> str:
    """The phase of a pod."""
    return str((each.get("status") or {}).get("phase"))


def is_live(each: Object) -> bool:
    """Whether a pod is neither over nor being deleted."""
    return phase(each) not in _OVER and "deletionTimestamp" not in each["metadata"]


async def show_phase(client: KubeClient, each: Object, now: str) -> None:
    """A kubelet shows this phase of a pod."""
    ready = {"type": "Ready", "status": str(now == "Running"), "lastTransitionTime": _TIME}
    name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
    status = {"phase": now, "conditions": [ready]}
    with suppress(errors.NotFound):
        await client.patch(PODS, name, {"status": status}, namespace=namespace, subresource="status")


async def run_pod(client: KubeClient, each: Object) -> None:
    """What a kubelet does with a pod: it runs without gates, and ends when it is being deleted."""
    gated = bool(each["spec"].get("schedulingGates"))
    deleting = "deletionTimestamp" in each["metadata"]
    if deleting and phase(each) == "Running":
        await show_phase(client, each, "Failed")
    elif not deleting and not gated and phase(each) == "Pending":
        await show_phase(client, each, "Running")


def lines_of_pod(each: Object) -> Iterator[str]:
    """What is compared of a pod."""
    name, spec = f"Pod {each['metadata']['name']}", each["spec"]
    gates = [gate["name"] for gate in spec.get("schedulingGates") or ()]
    yield f"{name}: {phase(each)}, gates {gates}, deleting {'deletionTimestamp' in each['metadata']}"
    yield f"{name}: {sorted((spec.get('nodeSelector') or {}).items())}"
