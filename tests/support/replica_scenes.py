# SPDX-License-Identifier: Apache-2.0
"""A hub whose LeaderWorkerSets run on two worker clusters; the manager can be restarted while the workers go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

import anyio

from devcluster.cluster import Cluster
from devcluster.federation import enrolment
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from manager.dispatch.controller import DispatchController
from multikueue.api.constants import LEADER_WORKER_SET_FRAMEWORK
from multikueue.api.resource import (
    LEADER_WORKER_SETS,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    PODS,
    SECRETS,
    WORKLOADS,
)
from multikueue.cli.cluster.lifecycle import set_availability
from multikueue.jobs.declared.roles import agent_roles
from multikueue.kube.errors import NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import agent_client
from tests.support.app_sets import Apps, is_gated, runs
from tests.support.crds import kinds
from tests.support.leader_worker_sets import leader_worker_set
from tests.support.limited_workers import ALL, INTERVALS, PUSH, enrol_by_kubeconfig, give_rights, rules_of
from tests.support.managers import Object, ensure, make_namespace, make_queue, running_manager
from tests.support.names import unique_name
from tests.support.operators.operated_kinds import kind_of
from tests.support.operators.operator import operating
from tests.support.operators.templated import TemplatedOperator
from tests.support.push_workers import SYSTEM
from tests.support.sites import Transport
from tests.support.workers import FakeWorker, check_of, make_check
from worker_agent.app import Agent
from worker_agent.kinds import served_integrations

FRAMEWORKS: Final = ("batch/job", "pod", LEADER_WORKER_SET_FRAMEWORK)
SETTINGS: Final = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {{frameworks: [{", ".join(FRAMEWORKS)}]}}
multiKueue: {{workerLostTimeout: 60s, gcInterval: 2s}}
"""
RIGHTS: Final = (*rules_of(ALL), *agent_roles(PODS)[0]["rules"])


@dataclass(frozen=True)
class ReplicaScene:
    """The objects of one namespace on the hub and on both workers."""

    hub: Apps
    workers: dict[str, Apps]
    """By the name of the cluster."""
    queue: str
    restart: Callable[..., Awaitable[None]]
    """Start the manager anew; what is passed is awaited while it is away."""

    async def create(self, name: str = "llm", **given: Any) -> Object:
        """A LeaderWorkerSet of groups of two pods."""
        return await self.hub.create(leader_worker_set(name, self.queue, **given))

    async def scale(self, replicas: int) -> None:
        await self.hub.scale(LEADER_WORKER_SETS, "llm", replicas)

    async def made(self, replicas: int) -> None:
        """Wait until all pods of that many replicas are gated on the hub: without a manager they would not be gated."""
        await self.hub.pods(
            lambda pods: len(pods) == 2 * replicas and all(map(is_gated, pods)), what=f"{replicas} replicas are made"
        )

    async def placed(self, replicas: int, *, besides: str = "") -> str:
        """The one cluster of all of that many Workloads, which is not `besides`, once their pods run there."""

        def clusters(workloads: list[Object]) -> set[str]:
            return {str((each.get("status") or {}).get("clusterName") or "") for each in workloads}

        found = await self.hub.workloads(
            lambda seen: len(seen) == replicas and clusters(seen).isdisjoint({"", besides}),
            what=f"{replicas} replicas have a cluster",
        )
        [cluster] = clusters(found)
        await self.workers[cluster].pods(
            lambda pods: len(pods) == 2 * replicas and all(map(runs, pods)), what=f"all pods run on {cluster}"
        )
        for name, other in self.workers.items():
            if name != cluster:
                await other.pods(lambda pods: not pods, what=f"no pod is on {name}")
        return cluster

    async def waits(self, index: int, reason: str) -> Object:
        """The Workload of that replica once its check gives that reason, without a cluster."""

        def is_it(workload: Object) -> bool:
            marks: dict[str, str] = workload["metadata"].get("annotations") or {}
            return marks.get("kueue.x-k8s.io/component-workload-index") == str(index)

        found = await self.hub.workloads(
            lambda seen: any(is_it(each) and reason in check_of(each, self.queue).get("message", "") for each in seen),
            what=f"replica {index} waits: {reason}",
        )
        [waiting] = filter(is_it, found)
        assert not waiting["status"].get("clusterName")
        return waiting

    async def set_availability(self, cluster: str, **spec: Any) -> None:
        """Cordon or drain a cluster, or no longer."""
        await set_availability(self.hub.client, cluster, spec)


@asynccontextmanager
async def replica_scene(
    hub_cluster: Cluster, worker_clusters: Sequence[Cluster], title: str, *, transport: Transport, cpu: str = "10"
) -> AsyncIterator[ReplicaScene]:
    """The scene; `cpu` is the quota on the hub."""
    queue = unique_name(title)
    namespace = f"ns-{queue}"
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(hub_cluster.client())
        await kinds.install(hub, LEADER_WORKER_SETS)
        await ensure(hub, NAMESPACES, enrolment.system_namespace())
        await make_namespace(hub, namespace)
        workers: dict[str, Apps] = {}
        for number, cluster in enumerate(worker_clusters, 1):
            workers[f"{queue}-{number}"] = Apps(await stack.enter_async_context(cluster.client()), namespace)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        for name, worker in workers.items():
            await make_namespace(worker.client, namespace)
            tasks.start_soon(VirtualNodes(worker.client, nodes=several(2)).run)
            await give_rights(worker.client, name, RIGHTS)
        manager = partial(
            running_manager, hub_cluster, settings=SETTINGS, dispatch=partial(DispatchController, push=PUSH)
        )
        for cluster, name in zip(worker_clusters, workers, strict=True):
            await _join(stack, hub_cluster, cluster, name, hub=hub, transport=transport)
        await stack.enter_async_context(operating(TemplatedOperator(hub, kind_of(LEADER_WORKER_SETS))))
        # The last of all: a restart leaves and enters its cancel scopes again.
        hosted = await stack.enter_async_context(AsyncExitStack())

        async def restart(meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
            await hosted.aclose()
            if meanwhile is not None:
                await meanwhile()
            await hosted.enter_async_context(manager())

        await restart()
        await make_check(hub, queue, tuple(workers))
        await make_queue(hub, queue, namespace=namespace, cpu=cpu, checks=(queue,))
        scene = ReplicaScene(Apps(hub, namespace), workers, queue, restart)
        try:
            yield scene
        finally:
            with anyio.CancelScope(shield=True):
                await _clean(scene)


async def _join(
    stack: AsyncExitStack, hub_cluster: Cluster, cluster: Cluster, name: str, *, hub: KubeClient, transport: Transport
) -> None:
    kubeconfig = cluster.issue_client_certificate(name)
    if transport is Transport.PUSH:
        await enrol_by_kubeconfig(hub, name, kubeconfig)
        return
    await FakeWorker(hub, name).enrol()
    to_hub = await stack.enter_async_context(agent_client(hub_cluster, name))
    to_worker = await stack.enter_async_context(KubeClient(credentials.from_dict(kubeconfig)))
    served = served_integrations(FRAMEWORKS)
    agent = Agent(to_hub, to_worker, cluster=name, intervals=INTERVALS, random=Random(1), integrations=served)
    tasks = await stack.enter_async_context(anyio.create_task_group())
    stack.callback(tasks.cancel_scope.cancel)
    tasks.start_soon(agent.run)


async def _clean(scene: ReplicaScene) -> None:
    """What the manager of the next scene would otherwise serve as well."""
    client = scene.hub.client
    await client.delete_collection(LEADER_WORKER_SETS, namespace=scene.hub.namespace, propagation="Background")
    await scene.hub.pods(lambda pods: not pods, what="the pods are gone")
    await client.delete_collection(WORKLOADS, namespace=scene.hub.namespace)
    for name in scene.workers:
        with suppress(NotFound):
            await client.delete(MULTIKUEUE_CLUSTERS, name)
        with suppress(NotFound):
            await client.delete(SECRETS, name, namespace=SYSTEM)
