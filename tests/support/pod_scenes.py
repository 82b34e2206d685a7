# SPDX-License-Identifier: Apache-2.0
"""A hub and a worker on which Pods and pod groups run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import anyio
import orjson

from devcluster.cluster import Cluster
from multikueue.api.constants import (
    ADMISSION_SCHEDULING_GATE,
    EPOCH_ANNOTATION,
    POD_FINALIZER,
    POD_GROUP_NAME_LABEL,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
)
from multikueue.api.resource import PODS, REMOTE_ASSIGNMENTS, WORKLOADS
from multikueue.core.conditions import is_true_in
from multikueue.jobs.declared.roles import agent_roles
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from tests.support.kind_scenes import KindScene, kind_scene
from tests.support.limited_workers import INTERVALS
from tests.support.managers import Object, eventually, get
from tests.support.sites import Transport

FRAMEWORKS: Final = ("batch/job", "pod")
RIGHTS_TO_PODS: Final[tuple[Object, ...]] = tuple(agent_roles(PODS)[0]["rules"])
QUICK: Final = "300ms"
FOREVER: Final = "forever"


@dataclass(frozen=True)
class PodScene:
    """What one test has of its own."""

    scene: KindScene

    @property
    def hub(self) -> KubeClient:
        return self.scene.hub

    @property
    def worker(self) -> KubeClient:
        return self.scene.worker

    @property
    def namespace(self) -> str:
        return self.scene.namespace

    def manifest(
        self,
        name: str,
        *,
        group: str = "",
        total: int = 0,
        run_for: str = FOREVER,
        exit_code: int = 0,
        cpu: str = "100m",
        priority: str = "",
        annotations: dict[str, str] | None = None,
    ) -> Object:
        """A pod, of a group if that is named."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        labels = {QUEUE_NAME_LABEL: self.scene.name, **({PRIORITY_CLASS_LABEL: priority} if priority else {})}
        marks = {"multikueue.io/run-for": run_for, **(annotations or {})}
        if exit_code:
            marks["multikueue.io/exit-code"] = str(exit_code)
        if group:
            labels[POD_GROUP_NAME_LABEL], marks[POD_GROUP_TOTAL_COUNT_ANNOTATION] = group, str(total)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels, "annotations": marks},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
        }

    async def submit(self, *pods: Object) -> None:
        """Create these pods on the hub, as a user does."""
        for pod in pods:
            await self.hub.create(PODS, pod, namespace=self.namespace)

    async def group(
        self, name: str, *, pods: int, run_for: str = FOREVER, priority: str = "", cpu: str = "100m"
    ) -> None:
        """A group of that many pods on the hub."""
        for index in range(pods):
            each = self.manifest(f"{name}-{index}", group=name, total=pods, run_for=run_for, priority=priority, cpu=cpu)
            await self.submit(each)

    async def shown(self, name: str, what: str, holds: Callable[[Object], bool]) -> Object:
        """The pod on the hub once that holds."""
        return await self._until(self.hub, name, f"on the hub {what}", holds)

    async def remote(self, name: str, what: str, holds: Callable[[Object], bool]) -> Object:
        """The pod on the worker once that holds."""
        return await self._until(self.worker, name, f"on the worker {what}", holds)

    async def runs(self, name: str, *, epoch: int = 1) -> Object:
        """The remote pod of that epoch once it is ready and the hub shows it, gated as before."""
        found = await self.remote(name, f"ready in epoch {epoch}", lambda seen: ready(seen) and epoch_of(seen) == epoch)
        shown = await self.shown(name, "ready", ready)
        assert is_gated(shown), "the pod on the hub lost its gate"
        return found

    async def gone(self, client: KubeClient, name: str) -> None:
        """Wait until the pod is gone from that cluster."""
        await eventually(
            lambda: get(client, PODS, name, namespace=self.namespace),
            what=f"{name} is gone",
            until=lambda seen: seen is None,
        )

    async def workload(self, name: str, what: str, holds: Callable[[Object], bool]) -> Object:
        """The Workload of a pod or a group once that holds."""

        async def probe() -> Object | None:
            page = await self.hub.list_all(WORKLOADS, namespace=self.namespace)
            found = [orjson.loads(raw) for raw in page.items]
            names = (name, f"pod-{name}-")
            return next(
                (
                    each
                    for each in found
                    if each["metadata"]["name"] == names[0] or each["metadata"]["name"].startswith(names[1])
                ),
                None,
            )

        made = await eventually(
            probe, what=f"the Workload of {name} is {what}", until=lambda seen: seen is not None and holds(seen)
        )
        assert made is not None
        return made

    async def finished(self, name: str) -> Object:
        """Its Workload once it has finished."""
        return await self.workload(name, "finished", lambda seen: is_true_in(seen.get("status"), "Finished"))

    async def names(self, client: KubeClient) -> list[str]:
        """The pods of the namespace on that cluster."""
        page = await client.list_all(PODS, namespace=self.namespace)
        return sorted(orjson.loads(raw)["metadata"]["name"] for raw in page.items)

    async def assignments(self) -> list[Object]:
        """The assignments in the mailbox of the worker."""
        page = await self.hub.list_all(REMOTE_ASSIGNMENTS, namespace=f"mk-{self.scene.name}")
        return [orjson.loads(raw) for raw in page.items]

    async def _until(self, client: KubeClient, name: str, what: str, holds: Callable[[Object], bool]) -> Object:
        found = await eventually(
            lambda: get(client, PODS, name, namespace=self.namespace),
            what=f"{name} {what}",
            until=lambda seen: seen is not None and holds(seen),
        )
        assert found is not None
        return found


def ready(pod: Object) -> bool:
    """Whether it is ready, according to its status."""
    return is_true_in(pod.get("status"), "Ready")


def phase(wanted: str) -> Callable[[Object], bool]:
    """Whether a pod is in that phase."""
    return lambda seen: (seen.get("status") or {}).get("phase") == wanted


def is_gated(pod: Object) -> bool:
    """Whether the gate of admission holds it."""
    return any(each["name"] == ADMISSION_SCHEDULING_GATE for each in pod["spec"].get("schedulingGates") or ())


def epoch_of(pod: Object) -> int:
    """The epoch of a remote pod."""
    return int(pod["metadata"]["annotations"][EPOCH_ANNOTATION])


@asynccontextmanager
async def pod_scene(
    hub: Cluster,
    worker: Cluster,
    title: str,
    *,
    transport: Transport,
    cpu: str = "10",
    lease_seconds: int = INTERVALS.lease_seconds,
    frameworks: Sequence[str] = FRAMEWORKS,
    has_logs: bool = False,
) -> AsyncIterator[PodScene]:
    """The scene; `cpu` is the quota, `has_logs` whether the nodes serve the logs of their pods."""
    async with kind_scene(
        hub,
        worker,
        f"pods-{title}",
        transport=transport,
        cpu=cpu,
        operator=False,
        frameworks=frameworks,
        rights=RIGHTS_TO_PODS,
        lease_seconds=lease_seconds,
        has_logs=has_logs,
    ) as scene:
        try:
            yield PodScene(scene)
        finally:
            with anyio.CancelScope(shield=True):
                for client in (scene.hub, scene.worker):
                    await _clean(client, scene.namespace)


async def _clean(client: KubeClient, namespace: str) -> None:
    for raw in (await client.list_all(PODS, namespace=namespace)).items:
        metadata = orjson.loads(raw)["metadata"]
        with suppress(NotFound):
            if POD_FINALIZER in (metadata.get("finalizers") or ()):
                await client.patch(PODS, metadata["name"], {"metadata": {"finalizers": None}}, namespace=namespace)
            await client.delete(PODS, metadata["name"], namespace=namespace)
