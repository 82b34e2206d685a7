# SPDX-License-Identifier: Apache-2.0
"""The steps of the provisioning example across clusters, and what it has in common with that on one cluster.

Owns the provisioners that play the cluster autoscaler of each cluster, in this process. A run without a change for a
minute fails with what was there last.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import orjson

from devcluster import manifests
from devcluster.cluster import Cluster
from devcluster.federation.federation import Federation
from devcluster.provisioner.answers import CAPACITY_LABEL
from devcluster.provisioner.controller import Provisioner
from devcluster.provisioner.settings import NAME, NAMESPACE
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CONFIG_MAPS, JOBS, NODES, PROVISIONING_REQUESTS, WORKLOADS
from multikueue.cli.local.demo_run import DemoFailed
from multikueue.cli.local.provisioning.story import ExampleView, example_view, happened, worker_view
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.kube.rest.client import KubeClient

_STUCK_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.2


class ProvisioningExample(ABC):
    """One run of an example with one Job; `tell` prints one line."""

    def __init__(self, federation: Federation, *, example: Path, tell: Callable[[str], None]) -> None:
        objects = manifests.read(example)
        self._federation = federation
        self._objects = [each for each in objects if each["kind"] != JOBS.kind]
        jobs = [each for each in objects if each["kind"] == JOBS.kind]
        if len(jobs) != 1:
            raise BadInput(f"{example}: expected one Job, found {len(jobs)}")
        self._job: JsonObject = jobs[0]
        self._tell = tell
        self._began = time.monotonic()
        self._last = ExampleView()

    @abstractmethod
    async def run(self) -> str:
        """Submit the Job, revoke its capacity once it runs, and wait until it is complete; returns a last sentence.

        Raises `DemoFailed` if nothing changes for a minute.
        """

    @abstractmethod
    def _clusters(self) -> Mapping[str, Cluster]:
        """The clusters that provision, by name."""

    @abstractmethod
    def _sentences(self, before: ExampleView, after: ExampleView) -> Iterator[str]:
        """What to print of a change."""

    async def _until(
        self,
        hub: KubeClient,
        workers: dict[str, KubeClient],
        what: str,
        reached: Callable[[ExampleView], bool],
    ) -> None:
        moved = time.monotonic()
        while True:
            now = await self._look(hub, workers)
            if now != self._last:
                moved = time.monotonic()
            for line in self._sentences(self._last, now):
                self._say(line)
            self._last = now
            if reached(now):
                return
            if time.monotonic() - moved > _STUCK_SECONDS:
                raise DemoFailed(f"no change for {_STUCK_SECONDS:.0f} s while waiting until {what}: {now}")
            await anyio.sleep(_POLL_SECONDS)

    async def _look(self, hub: KubeClient, workers: dict[str, KubeClient]) -> ExampleView:
        namespace = self._job["metadata"]["namespace"]
        jobs = [orjson.loads(raw) for raw in (await hub.list_all(JOBS, namespace=namespace)).items]
        workloads = [orjson.loads(raw) for raw in (await hub.list_all(WORKLOADS, namespace=namespace)).items]
        seen = {}
        for name, worker in workers.items():
            requests = (await worker.list_all(PROVISIONING_REQUESTS, namespace=namespace)).items
            nodes = len((await worker.list_all(NODES, label_selector=CAPACITY_LABEL)).items)
            seen[name] = worker_view([orjson.loads(raw) for raw in requests], nodes)
        return example_view(next(iter(jobs), None), next(iter(workloads), None), seen)

    @asynccontextmanager
    async def _provisioners(self) -> AsyncIterator[dict[str, KubeClient]]:
        problem: MultikueueError | None = None
        async with AsyncExitStack() as stack:
            found = {}
            tasks = await stack.enter_async_context(anyio.create_task_group())
            for name, cluster in self._clusters().items():
                own, found[name] = [await stack.enter_async_context(cluster.client()) for _ in range(2)]
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": NAMESPACE}}
                await manifests.create_all(found[name], [{**body, "data": {"delaySeconds": "3"}}])
                tasks.start_soon(Provisioner(own).run)
            try:
                yield found
            except MultikueueError as error:
                problem = error  # the task group would wrap it
            tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem

    def _say(self, line: str) -> None:
        self._tell(f"{time.monotonic() - self._began:5.1f} s  {line}")


class ProvisioningDemo(ProvisioningExample):
    """Across clusters: the Job runs on one worker, and on the other after its capacity is revoked."""

    async def run(self) -> str:
        """Each of the two clusters provisions once. Raises `DemoFailed`."""
        self._began = time.monotonic()
        async with self._provisioners() as workers, self._federation.hub.client() as hub:
            await manifests.apply_when_served(hub, self._objects)
            for worker in workers.values():
                await manifests.create_all(worker, [each for each in self._objects if each["kind"] == "Namespace"])
            self._say("no worker has a node for the Job: 3 pods of 6 cpu")
            await manifests.create_all(hub, [self._job])
            await self._until(hub, workers, "pods of the Job run", lambda seen: seen.active > 0)
            first = self._last.cluster
            self._say(f"demo: the autoscaler of {first} takes the capacity away")
            await configure(workers[first], revoke="*")
            await self._until(hub, workers, "the Job is complete", lambda seen: seen.complete)
            last = self._last.cluster
            self._say("demo: the Job is deleted")
            await manifests.delete_all(hub, [self._job])
            await self._until(hub, workers, "nothing is left", is_empty)
            await manifests.delete_all(hub, self._objects)
        if last == first:
            raise DemoFailed(f"the Job ran on {first} again, which had lost its capacity")
        return f"The Job ran on {first} and then {last}; nothing is left."

    def _clusters(self) -> Mapping[str, Cluster]:
        return self._federation.workers

    def _sentences(self, before: ExampleView, after: ExampleView) -> Iterator[str]:
        return happened(before, after)


async def configure(cluster: KubeClient, **data: str | None) -> None:
    """Change settings of the provisioner of a cluster; None takes one back."""
    await cluster.patch(CONFIG_MAPS, NAME, {"data": data}, namespace=NAMESPACE)


def is_empty(seen: ExampleView) -> bool:
    """Whether no cluster has a request or a node that was added."""
    return not any(worker.request or worker.nodes for worker in seen.workers.values())
