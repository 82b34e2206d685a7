# SPDX-License-Identifier: Apache-2.0
"""A whole federation in the event loop of whoever wants one: embedded API servers, controllers, nodes, manager, agents.

Owns how these are put together without processes, files or TLS, so that a test has a federation in about a second and
can look into every part of it. Leaves out what needs a process: killing, freezing, data that outlive it, logs of pods.
Faults are set on `InProcessCluster.api.faults` instead.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import anyio
import orjson
from anyio.abc import TaskGroup

from manager import options as manager_options
from manager.app import Manager
from manager.dispatch.controller import DispatchController
from multikueue.api import configuration, constants, crds
from multikueue.api.meta import JsonObject
from multikueue.core.clock import SystemClock
from multikueue.devcluster import connections, enrolment, kubeconfigs, roles
from multikueue.devcluster.apiserver.listener import Listener
from multikueue.devcluster.apiserver.requests import User
from multikueue.devcluster.apiserver.server import ApiServer
from multikueue.devcluster.cluster import ADMIN_GROUP, ADMIN_USER
from multikueue.devcluster.controllers.app import Controllers, Options
from multikueue.devcluster.federation import HUB, FederationSpec, WorkerSpec
from multikueue.devcluster.manifests import create_all
from multikueue.devcluster.nodes.journal import Entry
from multikueue.devcluster.nodes.virtual_nodes import VirtualNodes
from multikueue.devcluster.pki import new_key
from multikueue.devcluster.ports import LOOPBACK, PortRegistry
from multikueue.kube import credentials
from multikueue.kube.client import KubeClient
from worker_agent import options as agent_options
from worker_agent.app import Agent

_CONTROLLERS_USER = "system:kube-controller-manager"


class InProcessCluster:
    """One cluster without a process: its API server and who may ask it."""

    def __init__(self, name: str, *, users: Sequence[User] = ()) -> None:
        self.name = name
        everybody = [_administrator(ADMIN_USER), _administrator(_CONTROLLERS_USER), *users]
        self._tokens = {user.name: secrets.token_urlsafe(32) for user in everybody}
        self.api = ApiServer(signing_key=new_key(), static_tokens={self._tokens[user.name]: user for user in everybody})
        self.listener = Listener(self.api)

    @property
    def server(self) -> str:
        """The URL of the API server; plain HTTP on the loopback interface."""
        return self.listener.url

    def kubeconfig(self, user: str = ADMIN_USER) -> JsonObject:
        """The kubeconfig of one of the users it was made for."""
        return kubeconfigs.with_token(cluster=self.name, server=self.server, user=user, token=self._tokens[user])

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the administrator's, for kubectl or any other program; return its path."""
        return kubeconfigs.write(self.kubeconfig(), path)

    def client(self, user: str = ADMIN_USER) -> KubeClient:
        """A client of one of its users; the caller enters and closes it."""
        return KubeClient(credentials.from_dict(self.kubeconfig(user)))


@dataclass(slots=True, kw_only=True)
class InProcessFederation:
    """What runs: its clusters and its parts."""

    hub: InProcessCluster
    workers: dict[str, InProcessCluster]
    entries: list[Entry] = field(default_factory=list)
    managers: list[Manager] = field(default_factory=list)
    """The manager, unless the spec wants none."""
    agents: dict[str, Agent] = field(default_factory=dict)

    def journal(self) -> list[Entry]:
        """What ran on the virtual nodes so far."""
        return list(self.entries)

    @property
    def clusters(self) -> Iterator[InProcessCluster]:
        """The hub and the workers."""
        yield self.hub
        yield from self.workers.values()


@asynccontextmanager
async def embedded_federation(spec: FederationSpec | None = None) -> AsyncIterator[InProcessFederation]:
    """A federation as long as the context lasts; on entry every worker is connected.

    What goes wrong in a part of it cancels the body and is raised at its end.
    """
    spec = spec or FederationSpec()
    since = SystemClock().now()
    agents = [User(enrolment.agent_user(worker.name), groups=(constants.AGENT_GROUP,)) for worker in spec.workers]
    hub = InProcessCluster(HUB, users=agents)
    made = InProcessFederation(hub=hub, workers={worker.name: InProcessCluster(worker.name) for worker in spec.workers})
    async with AsyncExitStack() as stack:
        for cluster in made.clusters:
            await stack.enter_async_context(cluster.listener)
        ports = stack.enter_context(PortRegistry())
        parts = anyio.create_task_group()
        await parts.__aenter__()
        try:
            await _start(parts, made, spec, webhooks=ports.take())
            if spec.manager:
                async with hub.client() as client:
                    await connections.wait_until_connected(client, made.workers, since=since)
            yield made
        finally:
            # Without the body's error, which would come out wrapped in a group.
            parts.cancel_scope.cancel()
            await parts.__aexit__(None, None, None)


async def _start(parts: TaskGroup, made: InProcessFederation, spec: FederationSpec, *, webhooks: int) -> None:
    for worker in spec.workers:
        _start_worker(parts, made, worker)
    own = [enrolment.system_namespace()]
    for worker in spec.workers:
        own += enrolment.manifests(worker.name)
    async with made.hub.client() as client:
        await create_all(client, [*crds.manifests(), *own])
    parts.start_soon(_control, made.hub, Options(scheduler=False), name="controllers of the hub")
    if not spec.manager:
        return
    manager = _manager(made, spec, webhooks=webhooks)
    parts.start_soon(manager, name="manager")
    async with made.hub.client() as client:
        await connections.wait_until_enrolled(client, made.workers)
    for worker in spec.workers:
        parts.start_soon(_agent, made, worker.name, spec.agent_arguments, name=f"agent of {worker.name}")


def _start_worker(parts: TaskGroup, made: InProcessFederation, worker: WorkerSpec) -> None:
    cluster = made.workers[worker.name]

    async def run_nodes() -> None:
        async with cluster.client() as client:
            nodes = VirtualNodes(client, nodes=worker.nodes, cluster=worker.name, record=made.entries.append)
            await nodes.run()

    parts.start_soon(_control, cluster, Options(), name=f"controllers of {worker.name}")
    parts.start_soon(run_nodes, name=f"nodes of {worker.name}")


async def _control(cluster: InProcessCluster, options: Options) -> None:
    async with cluster.client(_CONTROLLERS_USER) as client:
        await Controllers(client, options).run()


def _manager(
    made: InProcessFederation, spec: FederationSpec, *, webhooks: int
) -> Callable[[], Coroutine[object, object, None]]:
    options = manager_options.parse(
        [
            f"--namespace={constants.DEFAULT_NAMESPACE}",
            f"--webhook-url=https://{LOOPBACK}:{webhooks}",
            f"--metrics-bind={LOOPBACK}:0",
            f"--health-bind={LOOPBACK}:0",
            "--no-leader-elect",
            *spec.manager_arguments,
        ]
    )
    settings = configuration.load(orjson.dumps(roles.manager_configuration(spec.configuration)).decode())

    async def run() -> None:
        async with made.hub.client() as client:
            manager = Manager(
                settings,
                client,
                options=options,
                clock=SystemClock(),
                random=Random(),
                dispatch=DispatchController,
            )
            made.managers.append(manager)
            await manager.run()

    return run


async def _agent(made: InProcessFederation, name: str, arguments: Sequence[str]) -> None:
    given = agent_options.parse([f"--cluster={name}", "--hub-kubeconfig=unused", *arguments])
    async with made.hub.client(enrolment.agent_user(name)) as hub, made.workers[name].client() as worker:
        made.agents[name] = Agent(hub, worker, cluster=name, origin=given.origin, rhythm=given.rhythm)
        await made.agents[name].run()


def _administrator(name: str) -> User:
    return User(name, groups=(ADMIN_GROUP,))
