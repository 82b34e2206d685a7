# SPDX-License-Identifier: Apache-2.0
"""A whole worker cluster that the hub may use with chosen rights only, with nodes, queues and a hub of its own kind.

Owns the ClusterRole of the identity by which the hub reaches the worker, which a test changes at any moment, and a
scene with everything that one Job needs: managers of both clusters, virtual nodes, queues and the check.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import anyio
import orjson

from devcluster import kubeconfigs
from devcluster.cluster import Cluster
from devcluster.federation import enrolment
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from manager.dispatch.controller import DispatchController
from manager.dispatch.transport.push_hosts import PushSettings
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    JOBS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    PODS,
    SECRETS,
    WORKLOADS,
    Resource,
)
from multikueue.core.backoff import Backoff
from multikueue.dispatch.protocol.worker_rights import WorkerRight, rights_of
from multikueue.kube.errors import NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import agent_client
from tests.support.managers import (
    Object,
    condition,
    ensure,
    eventually,
    get,
    job_manifest,
    make_namespace,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)
from tests.support.names import unique_name
from tests.support.push_workers import SYSTEM
from tests.support.sites import Transport
from tests.support.workers import PATIENT, FakeWorker, make_check
from worker_agent.app import Agent
from worker_agent.hub.heartbeat import AgentIntervals

INTERVALS = AgentIntervals(
    renew_seconds=0.5,
    lease_seconds=40,  # a machine that is busy for some seconds loses no cluster
    report_seconds=1.0,
    status_window_seconds=0.1,
    gc_seconds=1.0,
    rights_seconds=0.5,
    pod_start_seconds=0.3,
)
PUSH = PushSettings(intervals=INTERVALS, backoff=Backoff(base=0.2, cap=1.0), first_read_seconds=10.0)
_KUEUE = "kueue.x-k8s.io"
ALL = tuple(right for right in rights_of([JOBS]) if not right.resource.startswith("/"))
"""Every right of the table that not every user has."""


def rule(group: str, resource: str, verbs: str) -> Object:
    """One rule of a ClusterRole."""
    return {"apiGroups": [group], "resources": [resource], "verbs": verbs.split()}


KUEUES_RULES = (
    rule("batch", "jobs", "create delete get list watch"),
    rule("batch", "jobs/status", "get"),
    rule("", "pods", "create delete get list watch"),
    rule("", "pods/status", "get"),
    rule(_KUEUE, "workloads", "create delete get list watch update patch"),
    rule(_KUEUE, "workloads/status", "get patch update"),
    rule(_KUEUE, "localqueues", "get list watch"),
    rule(_KUEUE, "clusterqueues", "get list watch"),
)
"""What Kueue's guide grants the management cluster on a worker."""


def rules_of(rights: Sequence[WorkerRight]) -> tuple[Object, ...]:
    """The rules that give exactly these rights."""
    found = []
    for right in rights:
        asked = right.review["resourceAttributes"]
        name = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        found.append(rule(asked.get("group", ""), name, asked["verb"]))
    return tuple(found)


@dataclass(frozen=True)
class Pair:
    """A hub, a worker with Kueue's kinds and one without, of one provider, for many tests."""

    hub: Cluster
    worker: Cluster
    plain: Cluster


@dataclass(frozen=True)
class LimitedScene:
    """What one test has of its own: a queue of its name on both sides, and a worker of its name on the hub."""

    pair: Pair
    hub: KubeClient
    worker: KubeClient
    name: str

    @property
    def namespace(self) -> str:
        return f"ns-{self.name}"

    async def grant(self, rules: Sequence[Object]) -> None:
        """Let the hub have these rights on the worker, and no others, from now on."""
        body = {"rules": list(rules)}
        await self.worker.patch(CLUSTER_ROLES, self.name, body)

    async def submit(self, job: str = "j", *, run_for: str = "200ms", labels: dict[str, str] | None = None) -> None:
        manifest = job_manifest(job, namespace=self.namespace, queue=self.name, labels=labels)
        manifest["spec"]["backoffLimit"] = 0
        manifest["spec"]["template"]["metadata"] = {"annotations": {"multikueue.io/run-for": run_for}}
        await self.hub.create(JOBS, manifest, namespace=self.namespace)

    async def workload(self, job: str = "j") -> Object | None:
        return await workload_of(self.hub, job, namespace=self.namespace)

    async def finished(self, job: str = "j") -> Object:
        """Wait until its Workload has finished and the Job on the hub shows the same."""
        workload = await wait_condition(self.hub, job, "Finished", namespace=self.namespace, reason="Succeeded")
        found = await self.hub.get_object(JOBS, job, namespace=self.namespace)
        assert found["status"]["succeeded"] == 1
        return workload

    async def copy(self, job: str = "j") -> Object | None:
        return await get(self.worker, JOBS, job, namespace=self.namespace)

    async def runs(self, job: str = "j", *, epoch: int = 1) -> Object:
        """Wait until the remote job of that epoch has a ready pod."""
        found = await eventually(
            lambda: self.copy(job),
            what=f"{job} runs in epoch {epoch}",
            until=lambda seen: (
                seen is not None
                and seen["metadata"]["annotations"]["multikueue.io/epoch"] == str(epoch)
                and (seen.get("status") or {}).get("ready") == 1
            ),
        )
        assert found is not None
        return found

    async def created(self, job: str = "j") -> Object:
        """Wait until there is a remote job."""
        found = await eventually(
            lambda: self.copy(job), what=f"{job} is created on the worker", until=lambda seen: seen is not None
        )
        assert found is not None
        return found

    async def gone(self, job: str = "j") -> None:
        """Wait until nothing of the Job is left on the worker."""
        await eventually(lambda: self._left(job), what=f"{job} is gone from the worker", until=lambda seen: not seen)

    async def _left(self, job: str) -> list[str]:
        left = []
        for resource in (JOBS, PODS, WORKLOADS):
            for raw in await self._all(resource):
                name = orjson.loads(raw)["metadata"]["name"]
                if (resource is JOBS and name == job) or (resource is not JOBS and f"{job}-" in name):
                    left.append(f"{resource.kind} {name}")
        return left

    async def _all(self, resource: Resource) -> list[bytes]:
        try:
            return list((await self.worker.list_all(resource, namespace=self.namespace)).items)
        except NotFound:
            return []  # a worker without Kueue's kinds

    async def says(self, status: str, reason: str, *parts: str, without: str = "", whole: str = "") -> str:
        """The message of the cluster's Active condition once it is that, has these parts and not that one.

        With `whole` it is to be that.
        """
        found = await eventually(
            lambda: get(self.hub, MULTIKUEUE_CLUSTERS, self.name),
            what=f"{self.name} says Active={status} {reason} {parts} without {without!r}",
            until=lambda seen: (
                (condition(seen, "Active").get("status"), condition(seen, "Active").get("reason")) == (status, reason)
                and all(part in condition(seen, "Active")["message"] for part in parts)
                and (not without or without not in condition(seen, "Active")["message"])
                and (not whole or whole == condition(seen, "Active")["message"])
            ),
        )
        return str(condition(found, "Active")["message"])


@asynccontextmanager
async def limited_scene(
    pair: Pair,
    title: str,
    *,
    rules: Sequence[Object] = KUEUES_RULES,
    transport: Transport = Transport.PUSH,
    queues: bool = True,
    cpu: str = "10",
) -> AsyncIterator[LimitedScene]:
    """The objects, and the nodes of the worker; no manager of the hub yet.

    With `queues` the worker has Kueue's kinds, an engine and the LocalQueue; without, it has no such kinds.
    """
    cluster = pair.worker if queues else pair.plain
    name = unique_name(title)
    namespace = f"ns-{name}"
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(pair.hub.client())
        worker = await stack.enter_async_context(cluster.client())
        for client in (hub, worker):
            await ensure(client, NAMESPACES, enrolment.system_namespace())
            await make_namespace(client, namespace)
        await give_rights(worker, name, rules)
        if queues:
            await make_queue(worker, name, namespace=namespace)
            await stack.enter_async_context(running_manager(cluster))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        nodes = await stack.enter_async_context(cluster.client())
        tasks.start_soon(VirtualNodes(nodes, nodes=several(2)).run)
        stack.callback(tasks.cancel_scope.cancel)
        kubeconfig = cluster.issue_client_certificate(name)
        if transport is Transport.PUSH:
            await enrol_by_kubeconfig(hub, name, kubeconfig)
        else:
            await FakeWorker(hub, name).enrol()
            to_hub = await stack.enter_async_context(agent_client(pair.hub, name))
            to_worker = await stack.enter_async_context(KubeClient(credentials.from_dict(kubeconfig)))
            tasks.start_soon(Agent(to_hub, to_worker, cluster=name, intervals=INTERVALS, random=Random(1)).run)
        await make_check(hub, name, (name,))
        await make_queue(hub, name, namespace=namespace, cpu=cpu, checks=(name,))
        try:
            yield LimitedScene(pair, hub, worker, name)
        finally:
            with anyio.CancelScope(shield=True):
                await _clean(hub, worker, name, namespace)


@asynccontextmanager
async def hub_managed(pair: Pair, *, settings: str = PATIENT) -> AsyncIterator[None]:
    """The manager of the hub, as long as the context lasts."""
    async with running_manager(pair.hub, settings=settings, dispatch=partial(DispatchController, push=PUSH)):
        yield


def slower(**seconds: Any) -> PushSettings:
    """The settings of the push transport with other times."""
    return replace(PUSH, intervals=replace(INTERVALS, **seconds))


async def give_rights(worker: KubeClient, name: str, rules: Sequence[Object]) -> None:
    """A ClusterRole with these rules, bound to the user of that name."""
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}
    await worker.create(CLUSTER_ROLES, role)
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }
    await worker.create(CLUSTER_ROLE_BINDINGS, binding)


async def enrol_by_kubeconfig(hub: KubeClient, name: str, kubeconfig: Object) -> None:
    """The Secret and the MultiKueueCluster of a worker that the manager connects to."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": SYSTEM},
        "data": {"kubeconfig": base64.b64encode(kubeconfigs.dump(kubeconfig)).decode()},
    }
    await hub.create(SECRETS, secret, namespace=SYSTEM)
    cluster = {
        "apiVersion": MULTIKUEUE_CLUSTERS.api_version,
        "kind": MULTIKUEUE_CLUSTERS.kind,
        "metadata": {"name": name},
        "spec": {"clusterSource": {"kubeConfig": {"location": name}}},
    }
    await hub.create(MULTIKUEUE_CLUSTERS, cluster)


async def _clean(hub: KubeClient, worker: KubeClient, name: str, namespace: str) -> None:
    for client in (hub, worker):
        for resource in (JOBS, LOCAL_QUEUES):
            with suppress(NotFound):  # a worker without Kueue's kinds
                await client.delete_collection(resource, namespace=namespace)
    for client, resource, at in (
        (hub, MULTIKUEUE_CLUSTERS, None),
        (hub, SECRETS, SYSTEM),
        (hub, CLUSTER_QUEUES, None),
        (worker, CLUSTER_QUEUES, None),
        (worker, CLUSTER_ROLE_BINDINGS, None),
        (worker, CLUSTER_ROLES, None),
    ):
        try:
            await client.delete(resource, name, namespace=at)
        except NotFound:
            continue
