# SPDX-License-Identifier: Apache-2.0
"""All objects of a federation within a second, in any order, on real API servers: the Job is started soon after.

One hub and one worker with queues of its own serve all seeds, each with objects of its own; `MK_ARRIVALS` is how many
seeds there are, `MK_ARRIVALS_FIRST` the first of them. What a seed draws is in tests/support/arrivals.py.
"""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from time import monotonic

import anyio
import orjson
import pytest

from devcluster.cluster import Cluster
from devcluster.federation import enrolment
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from manager.dispatch.controller import DispatchController
from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE, DISPATCHER_CAPACITY, PREBUILT_WORKLOAD_ANNOTATION
from multikueue.api.crds import manifests
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    NODES,
)
from multikueue.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import agent_client, make_node
from tests.support.arrivals import HELD, Arrival, Thing, body, draw, things
from tests.support.managers import Object, condition, ensure, get, running_manager, workload_of
from tests.support.workers import KUEUE
from worker_agent.app import Agent

# Its limit is a time: beside three other tests the same seed took 12 s once, in a run of CI.
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.binaries,
    pytest.mark.conformance,
    pytest.mark.alone,
    pytest.mark.timeout(1800),
]

SEEDS = int(os.environ.get("MK_ARRIVALS", "16"))
FIRST = int(os.environ.get("MK_ARRIVALS_FIRST", "1"))
AT_A_TIME = 4
LATE = 8.0
"""Seconds: less than any interval at which something is looked at again, more than two busy cores need."""
PATIENCE = 60.0
WORKER = "k"
AGAIN = 0.05
SETTINGS = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmultiKueue: {dispatcherName: %s}\n"


@pytest.fixture(scope="module")
async def worker(
    binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """A real cluster with Kueue's kinds and capacity for everything."""
    spec = ClusterSpec(controllers=True, scheduler=False, manifests=manifests())
    cluster = await binaries_provider.create("arrivals", folder=tmp_path_factory.mktemp("arrivals"), spec=spec)
    async with cluster, cluster.client() as client:
        await make_node(client, "node", cpu="1000")
        await client.patch(NODES, "node", {"spec": {"taints": None}})
        yield cluster


class Seed:
    """One seed on its way."""

    def __init__(self, arrival: Arrival, hub: KubeClient, there: KubeClient, *, kubeconfig: bytes | None) -> None:
        """With a kubeconfig the manager reaches the worker; without one an agent does."""
        self.arrival = arrival
        self.clients = {"hub": hub, WORKER: there}
        self.things = {thing.name: thing for thing in things(arrival.workers)}
        self.made: dict[str, str] = {}
        self.known = {name: anyio.Event() for name in self.things}
        self.going: set[str] = set()
        self.coming: set[str] = set()
        """What is being created now."""
        self._began = self.last = monotonic()
        self.story: list[str] = []
        self._kubeconfig = kubeconfig

    async def play(self) -> str:
        """What was wrong; empty when the Job was started in time."""
        async with anyio.create_task_group() as tasks:
            for thing in self.things.values():
                tasks.start_soon(self._come, thing)
        with anyio.move_on_after(PATIENCE):
            while not await self._started():
                await anyio.sleep(AGAIN)
            late = monotonic() - self.last
            self._tell(f"the Job is started, {late:.1f} s after the last of them")
            return "" if late <= LATE + self._behind() else f"{self.title}: {late:.1f} s late\n{self._told()}"
        return f"{self.title}: not started after {PATIENCE:.0f} s\n{self._told()}\n{await self._why()}"

    def _behind(self) -> float:
        """How much longer the making took than was drawn: on a machine that is busy with others all takes longer."""
        drawn = max(each.made + (each.deleted or 0.0) + each.again for each in self.arrival.courses.values())
        return max(0.0, self.last - self._began - drawn)

    async def clean(self) -> None:
        """Take everything away, the Job first."""
        order = ("job", "cluster", "secret", "local", "queue", "check", "config", "flavor")
        for kind in order:
            for thing in self.things.values():
                if thing.kind == kind and thing.name in self.made:
                    await self._delete(thing, self.made[thing.name])

    async def _come(self, thing: Thing) -> None:
        course = self.arrival.courses[thing.name]
        await anyio.sleep(course.made)
        name = await self._make(thing, "" if course.generated else self.arrival.fixed_name(thing))
        self.made[thing.name] = name
        self.known[thing.name].set()
        if course.deleted is None:
            return
        await anyio.sleep(course.deleted)
        if self._is_held(thing):
            return
        self.going.add(thing.name)
        await self._delete(thing, name)
        self._tell(f"{thing.name} is deleted")
        with anyio.fail_after(PATIENCE):
            while await self._stands(thing, name):
                await anyio.sleep(AGAIN)
        self.going.discard(thing.name)
        await anyio.sleep(course.again)
        await self._make(thing, name)

    def _is_held(self, thing: Thing) -> bool:
        if thing.kind not in HELD:
            return False
        user = "job" if thing.kind == "queue" else f"{thing.worker} queue".strip()
        return user in self.made or user in self.coming

    async def _stands(self, thing: Thing, name: str) -> bool:
        namespace = self.arrival.namespace_of(thing)
        return await get(self.clients[thing.server], thing.resource, name, namespace=namespace) is not None

    async def _delete(self, thing: Thing, name: str) -> None:
        namespace = self.arrival.namespace_of(thing)
        try:
            await self.clients[thing.server].delete(thing.resource, name, namespace=namespace, propagation="Background")
        except NotFound:
            return
        self.last = monotonic()

    async def _name_of(self, name: str) -> str:
        if self.arrival.courses[name].generated:
            await self.known[name].wait()
            return self.made[name]
        return self.arrival.fixed_name(self.things[name])

    async def _make(self, thing: Thing, name: str) -> str:
        made, namespace = await self._object(thing), self.arrival.namespace_of(thing)
        if thing.name == f"{WORKER} local":
            name = await self._name_of("local")
        made["metadata"] |= {"name": name} if name else {"generateName": f"{thing.name.replace(' ', '-')}-"}
        while True:
            if not self.going.intersection(thing.names):
                self.coming.add(thing.name)
                try:
                    raw = await self.clients[thing.server].create(thing.resource, made, namespace=namespace)
                    break
                except (AlreadyExists, Conflict, NotFound, Forbidden) as error:
                    self._tell(f"{thing.name} is not taken yet: {error.message}")
                finally:
                    self.coming.discard(thing.name)
            await anyio.sleep(AGAIN)
        self.last = monotonic()
        stored = str(orjson.loads(raw)["metadata"]["name"])
        self._tell(f"{thing.name} is made: {stored}")
        return stored

    async def _object(self, thing: Thing) -> Object:
        if thing.kind not in ("secret", "cluster"):
            return body(thing, self.arrival, {name: await self._name_of(name) for name in thing.names})
        cluster = self.arrival.cluster(WORKER)
        if self._kubeconfig is None:
            return enrolment.manifests(cluster)[0 if thing.kind == "secret" else 1]
        if thing.kind == "secret":
            data = {"kubeconfig": base64.b64encode(self._kubeconfig).decode()}
            return {"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": data}
        source = {"clusterSource": {"kubeConfig": {"location": f"{cluster}-kubeconfig"}}}
        return {"apiVersion": KUEUE, "kind": "MultiKueueCluster", "metadata": {}, "spec": source}

    async def _started(self) -> bool:
        """Whether the worker has a copy for the Workload of now, and its queue has started it."""
        name, namespace = self.made["job"], self.arrival.namespace
        workload = await workload_of(self.clients["hub"], name, namespace=namespace)
        if workload is None or not (workload.get("status") or {}).get("clusterName"):
            return False
        copy = await get(self.clients[WORKER], JOBS, name, namespace=namespace)
        if copy is None or copy["spec"].get("suspend") or "deletionTimestamp" in copy["metadata"]:
            return False
        marks = copy["metadata"].get("annotations") or {}
        return bool(marks.get(PREBUILT_WORKLOAD_ANNOTATION) == workload["metadata"]["name"])

    def _tell(self, line: str) -> None:
        self.story.append(f"{monotonic() - self._began:7.3f} {line}")

    @property
    def title(self) -> str:
        """Which seed it is, and by what transport."""
        return f"seed {self.arrival.seed}, {'pull' if self._kubeconfig is None else 'push'}"

    def _told(self) -> str:
        return "\n".join(self.story)

    async def _why(self) -> str:
        hub, namespace = self.clients["hub"], self.arrival.namespace
        found: list[object] = [await workload_of(hub, self.made["job"], namespace=namespace)]
        for name, resource in (("check", ADMISSION_CHECKS), ("queue", CLUSTER_QUEUES), ("local", LOCAL_QUEUES)):
            where = namespace if resource is LOCAL_QUEUES else None
            found.append((name, condition(await get(hub, resource, self.made[name], namespace=where), "Active")))
        cluster = await get(hub, MULTIKUEUE_CLUSTERS, self.arrival.cluster(WORKER))
        found.append(("cluster", condition(cluster, "Active")))
        there = await get(self.clients[WORKER], JOBS, self.made["job"], namespace=namespace)
        return "\n".join(map(str, [*found, ("copy", there)]))


@asynccontextmanager
async def agent_of(hub: Cluster, worker: Cluster, arrival: Arrival) -> AsyncIterator[None]:
    """The agent beside the worker, which is there before anybody on the hub has heard of it."""
    name = arrival.cluster(WORKER)
    async with agent_client(hub, name) as to_hub, worker.client() as to_worker, anyio.create_task_group() as tasks:
        agent = Agent(to_hub, to_worker, cluster=name, random=Random(arrival.seed))
        tasks.start_soon(agent.run)
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "dispatcher",
    [
        pytest.param(DISPATCHER_CAPACITY, id="by capacity"),
        pytest.param(DISPATCHER_ALL_AT_ONCE, id="all at once"),
    ],
)
async def test_whatever_comes_first_the_job_is_started_soon_after_the_last(
    hub: Cluster, client: KubeClient, worker: Cluster, dispatcher: str
) -> None:
    late: list[str] = []
    began = monotonic()
    kubeconfig = worker.kubeconfig.read_bytes()
    odd = dispatcher == DISPATCHER_CAPACITY
    seeds = [seed for seed in range(FIRST, FIRST + SEEDS) if seed % 2 == odd]
    slots = anyio.Semaphore(AT_A_TIME)

    async def play(seed: int, there: KubeClient) -> None:
        arrival = draw(seed, workers=(WORKER,), tag=f"-{seed}")
        push = seed % 4 < 2
        async with slots, AsyncExitStack() as stack:
            if not push:
                await stack.enter_async_context(agent_of(hub, worker, arrival))
            played = Seed(arrival, client, there, kubeconfig=kubeconfig if push else None)
            problem = await played.play()
            if problem:
                late.append(problem)
            print(f"{played.title}: {problem or played.story[-1]}", flush=True)  # noqa: T201
            await played.clean()

    await ensure(client, NAMESPACES, enrolment.system_namespace())
    async with (
        worker.client() as there,
        running_manager(worker, identity="engine"),
        running_manager(hub, settings=SETTINGS % dispatcher, dispatch=DispatchController),
        anyio.create_task_group() as tasks,
    ):
        for seed in seeds:
            tasks.start_soon(play, seed, there)
    print(f"{len(seeds)} seeds, {dispatcher}: {len(late)} late, {monotonic() - began:.0f} s")  # noqa: T201
    assert not late, "\n\n".join(late)
