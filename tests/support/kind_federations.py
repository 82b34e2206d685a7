# SPDX-License-Identifier: Apache-2.0
"""A hub and workers that serve many declared kinds at once, with the shipped roles and no other rights.

Owns the manager, an agent and a kubeconfig, virtual nodes and operators of every kind on every cluster, the queues of
each kind, and what is seen of the objects by watches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import anyio
import orjson

from devcluster.cluster import Cluster
from devcluster.federation import enrolment
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from manager.dispatch.controller import DispatchController
from multikueue.api.codec import documents
from multikueue.api.constants import AGENT_NAMESPACE
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    LOCAL_QUEUES,
    NAMESPACES,
    PODS,
    RESOURCE_FLAVORS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.cli.cluster.joining_instructions import newer_manifest
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import KubeError
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import agent_client
from tests.support.crds import kinds as definitions
from tests.support.faulty_proxy import TcpProxy, tcp_proxy
from tests.support.kind_scenes import LABELS, QUICKLY
from tests.support.limited_workers import PUSH, enrol_by_kubeconfig
from tests.support.managers import Object, ensure, get, make_namespace, running_manager
from tests.support.operators.operator import operating
from tests.support.operators.played_kinds import PlayedKind
from tests.support.push_workers import SYSTEM
from tests.support.sites import Transport
from tests.support.workers import FakeWorker, make_check
from worker_agent.app import Agent
from worker_agent.kinds import served_integrations
from worker_agent.local.boundary import Rules, default_rules

T = TypeVar("T")

NAMESPACE: Final = "kinds"
PULL: Final = str(Transport.PULL)
LOCAL: Final = "local"
"""The place of jobs that run on the hub; the others are transports."""
_RBAC: Final = Path(__file__).parents[2] / "deploy" / "rbac"
_MANAGER: Final = "system:serviceaccount:kueue-system:kueue-controller-manager"
_AGENT: Final = f"system:serviceaccount:{AGENT_NAMESPACE}:multikueue-agent"
_ROLES: Final = {
    each.kind: each for each in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS)
}
_NODES: Final = 4
_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.1
_API: Final = "kueue.x-k8s.io/v1beta2"


class Sight:
    """The objects of some resources of one cluster, as watches show them."""

    def __init__(self, client: KubeClient, resources: Iterable[Resource]) -> None:
        self._informers = {resource: Informer(client, resource, namespace=NAMESPACE) for resource in resources}
        self._objects: dict[tuple[Resource, str], Object] = {}
        for resource, informer in self._informers.items():
            informer.add_handler(partial(self._note, resource))

    def _note(self, resource: Resource, change: Change) -> None:
        key = (resource, change.key.name)
        if change.new is not None:
            self._objects[key] = change.new.object()
        else:
            self._objects.pop(key, None)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with anyio.create_task_group() as tasks:
            for informer in self._informers.values():
                tasks.start_soon(informer.run)

    async def synced(self) -> None:
        for informer in self._informers.values():
            await informer.synced.wait()

    def named(self, resource: Resource, name: str) -> Object | None:
        return self._objects.get((resource, name))

    def of(self, resource: Resource, *, containing: str) -> list[Object]:
        """The objects whose names contain that."""
        return [each for (kind, name), each in self._objects.items() if kind == resource and containing in name]


@dataclass(frozen=True, slots=True)
class Seen:
    """A job of one moment, with all that there is of it; None or empty where there is nothing."""

    name: str
    job: Object | None
    workload: Object | None
    pods: Sequence[Object]
    """On the hub, those that have ended too."""
    remote: Object | None = None
    remote_pods: Sequence[Object] = ()

    def __str__(self) -> str:
        parts = {"job": self.job, "remote": self.remote, "workload": self.workload}
        shown = {
            name: {"spec": (each or {}).get("spec"), "status": (each or {}).get("status")}
            for name, each in parts.items()
        }
        pods = [(each["metadata"]["name"], each.get("status", {}).get("phase")) for each in self.remote_pods]
        return f"{self.name}: {orjson.dumps(shown).decode()}, pods on the worker {pods}, on the hub {len(self.pods)}"


@dataclass(frozen=True)
class KindFederation:
    """The hub, and a worker for each transport."""

    hub: KubeClient
    seen: Sight
    workers: Mapping[str, Sight] = field(default_factory=dict)
    links: Mapping[str, TcpProxy] = field(default_factory=dict)

    async def submit(self, kind: PlayedKind, body: Object) -> Object:
        """The job as the server stored it, through the webhooks."""
        stored: Object = orjson.loads(await _asked(self.hub.create, kind.resource, body, namespace=NAMESPACE))
        return stored

    def look(self, kind: PlayedKind, name: str, place: str) -> Seen:
        """The job of that name now."""
        worker = self.workers.get(place)
        return Seen(
            name=name,
            job=self.seen.named(kind.resource, name),
            workload=next(iter(self.seen.of(WORKLOADS, containing=f"-{name}-")), None),
            pods=_living(self.seen.of(PODS, containing=f"{name}-")),
            remote=worker.named(kind.resource, name) if worker is not None else None,
            remote_pods=_living(worker.of(PODS, containing=f"{name}-")) if worker is not None else (),
        )

    async def until(self, kind: PlayedKind, name: str, place: str, what: str, holds: Callable[[Seen], bool]) -> Seen:
        """The job once that holds; fails with what was last seen when it never does."""
        with anyio.move_on_after(_SECONDS):
            while not holds(found := self.look(kind, name, place)):
                await anyio.sleep(_LOOK_SECONDS)
            return found
        raise AssertionError(f"not within {_SECONDS:.0f} s: {what}; last seen: {self.look(kind, name, place)}")


def _living(pods: Iterable[Object]) -> list[Object]:
    return [each for each in pods if (each.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]


async def _asked(call: Callable[..., Awaitable[T]], *arguments: Any, **options: Any) -> T:
    """What a write gives; it is repeated as a user does when a webhook has not answered in time on a busy machine."""
    with anyio.move_on_after(_SECONDS):
        while True:
            try:
                return await call(*arguments, **options)
            except KubeError as error:
                if "failed calling webhook" not in str(error):
                    raise
    raise AssertionError(f"no webhook has answered within {_SECONDS:.0f} s")


def queue_of(kind: PlayedKind, place: str) -> str:
    """The queue of the jobs of a kind at a place; its quota is that of one job."""
    return f"{place}-{kind.resource.plural}"


@asynccontextmanager
async def kind_federation(
    hub_cluster: Cluster,
    workers: Mapping[str, Cluster],
    kinds: Sequence[PlayedKind],
    *,
    local: bool,
    gates: str = "",
    rules: Rules = default_rules,
    also: Sequence[Resource] = (),
) -> AsyncIterator[KindFederation]:
    """The federation; all queues are on hold. With `local` the hub has queues without a check as well.

    `gates` are further feature gates of the manager, as YAML, and `rules` the dispatch policy of the agent. `also` are
    more kinds whose objects are shown.
    """
    resources = [each.resource for each in kinds]
    frameworks = ["batch/job", *(each.framework for each in kinds)]
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(hub_cluster.client())
        await ensure(hub, NAMESPACES, enrolment.system_namespace())
        await _prepare(hub, resources)
        await _apply(hub, "manager.yaml", "users.yaml", *(_role(each, "manager") for each in kinds))
        for cluster in (hub_cluster, *workers.values()):
            nodes, plays = [await stack.enter_async_context(cluster.client()) for _ in range(2)]
            if cluster is not hub_cluster:
                await _prepare(nodes, resources)
            await stack.enter_async_context(_running(VirtualNodes(nodes, nodes=several(_NODES)).run))
            await stack.enter_async_context(operating(*(each.operator(plays) for each in kinds)))
        await _make_classes(hub)
        links: dict[str, TcpProxy] = {}
        for transport, cluster in workers.items():
            client = await stack.enter_async_context(cluster.client())
            await _apply_agent(client, [_role(each, "agent") for each in kinds])
            pull = transport == PULL
            links[transport] = await stack.enter_async_context(tcp_proxy((hub_cluster if pull else cluster).server))
            kubeconfig = cluster.issue_client_certificate(_AGENT)
            if pull:
                await FakeWorker(hub, transport).enrol()
            else:
                kubeconfig["clusters"][0]["cluster"]["server"] = links[transport].url
                await enrol_by_kubeconfig(hub, transport, kubeconfig)
            await make_check(hub, transport, (transport,))
        dispatch = partial(DispatchController, push=replace(PUSH, intervals=QUICKLY))
        settings = _settings(frameworks, gates)
        await stack.enter_async_context(
            running_manager(hub_cluster, settings=settings, dispatch=dispatch, user=_MANAGER)
        )
        if PULL in workers:
            await stack.enter_async_context(_agent(hub_cluster, workers[PULL], links[PULL], frameworks, rules))
        sights = []
        for cluster in (hub_cluster, *workers.values()):
            followed = [*resources, *also, PODS, *([WORKLOADS] if cluster is hub_cluster else ())]
            sights.append(await stack.enter_async_context(_sight(cluster, followed)))
        for place in (*([LOCAL] if local else ()), *workers):
            for kind in kinds:
                if kind.dispatched or place == LOCAL:
                    await _make_queue(hub, kind, place)
        yield KindFederation(hub, sights[0], dict(zip(workers, sights[1:], strict=True)), links)


@asynccontextmanager
async def _running(run: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run it as long as the context lasts."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _agent(
    hub: Cluster, worker: Cluster, link: TcpProxy, frameworks: Sequence[str], rules: Rules
) -> AsyncIterator[None]:
    kubeconfig = worker.issue_client_certificate(_AGENT)
    async with (
        agent_client(hub, PULL, through=link.url) as to_hub,
        KubeClient(credentials.from_dict(kubeconfig)) as to_worker,
    ):
        served = served_integrations(frameworks)
        agent = Agent(
            to_hub, to_worker, cluster=PULL, intervals=QUICKLY, random=Random(1), integrations=served, rules=rules
        )
        async with _running(agent.run):
            yield


@asynccontextmanager
async def _sight(cluster: Cluster, resources: Sequence[Resource]) -> AsyncIterator[Sight]:
    async with cluster.client() as client:
        sight = Sight(client, resources)
        async with _running(sight.run):
            await sight.synced()
            yield sight


def _settings(frameworks: Sequence[str], gates: str) -> str:
    return f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {{frameworks: [{", ".join(frameworks)}]}}
multiKueue: {{workerLostTimeout: 60s, gcInterval: 2s}}
featureGates: {{SparkApplicationIntegration: true{f", {gates}" if gates else ""}}}
"""


def _role(kind: PlayedKind, of: str) -> str:
    return f"kinds/{kind.resource.singular}-{of}.yaml"


async def _prepare(client: KubeClient, resources: Sequence[Resource]) -> None:
    await make_namespace(client, NAMESPACE)
    await definitions.install(client, *resources)


async def _apply(client: KubeClient, *files: str) -> None:
    """The roles of these files of deploy/rbac."""
    await make_namespace(client, SYSTEM)
    for file in files:
        for obj in documents((_RBAC / file).read_text()):
            await _apply_role(client, obj)


async def _apply_agent(client: KubeClient, files: Sequence[str]) -> None:
    """The roles that an administrator applies on a worker: those of the agent's manifests, and of these files."""
    await make_namespace(client, AGENT_NAMESPACE)
    for obj in documents(newer_manifest("any")):
        if obj["kind"] in _ROLES:
            await _apply_role(client, obj)
    await _apply(client, *files)


async def _apply_role(client: KubeClient, obj: Object) -> None:
    metadata = obj["metadata"]
    await client.apply(_ROLES[obj["kind"]], metadata["name"], obj, namespace=metadata.get("namespace"), manager="test")


async def _make_classes(hub: KubeClient) -> None:
    flavor = {"apiVersion": _API, "kind": "ResourceFlavor", "metadata": {"name": "kinds"}}
    await hub.create(RESOURCE_FLAVORS, {**flavor, "spec": {"nodeLabels": LABELS}})
    high = {"apiVersion": _API, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000}
    await hub.create(WORKLOAD_PRIORITY_CLASSES, high)


async def _make_queue(hub: KubeClient, kind: PlayedKind, place: str) -> None:
    name = queue_of(kind, place)
    quotas = [
        {"name": "cpu", "nominalQuota": f"{kind.pods * 100}m"},
        {"name": "memory", "nominalQuota": "1Ti"},
    ]
    spec: Object = {
        "namespaceSelector": {},
        "stopPolicy": "Hold",
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [
            {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "kinds", "resources": quotas}]}
        ],
    }
    if place != LOCAL:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": place}]}
    queue = {"apiVersion": _API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}
    await _asked(hub.create, CLUSTER_QUEUES, queue)
    local = {"apiVersion": _API, "kind": "LocalQueue", "metadata": {"name": name, "namespace": NAMESPACE}}
    await _asked(hub.create, LOCAL_QUEUES, {**local, "spec": {"clusterQueue": name}}, namespace=NAMESPACE)


async def open_queue(hub: KubeClient, kind: PlayedKind, place: str) -> None:
    """Admit from the queue from now on."""
    await _asked(hub.patch, CLUSTER_QUEUES, queue_of(kind, place), {"spec": {"stopPolicy": "None"}})


async def remove(federation: KindFederation, kind: PlayedKind, name: str) -> None:
    """Delete the job on the hub, as its user does."""
    if await get(federation.hub, kind.resource, name, namespace=NAMESPACE) is not None:
        await _asked(federation.hub.delete, kind.resource, name, namespace=NAMESPACE)
