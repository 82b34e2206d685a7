# SPDX-License-Identifier: Apache-2.0
"""A federation in the current event loop: embedded API servers, controllers, nodes, manager and agents.

Wires these without processes, files or TLS, so that a test has a federation in about a second and access to all its
parts. Other programs, such as kubectl, are served with TLS: over plain HTTP they do not send who they are. Not
available without processes: killing, freezing, persistent data and pod logs. Faults are set on
`InProcessCluster.api.faults`.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import anyio
import orjson
from anyio.abc import TaskGroup

from devcluster import kubeconfigs
from devcluster.apiserver.http.audit import Audit
from devcluster.apiserver.http.listener import Listener, Serving
from devcluster.apiserver.http.requests import User
from devcluster.apiserver.server import ApiServer
from devcluster.cluster import ADMIN_GROUP, ADMIN_USER
from devcluster.controllers.app import ControllerOptions, Controllers
from devcluster.federation import connections, enrolment, roles
from devcluster.federation.spec import HUB, FederationSpec, WorkerSpec
from devcluster.kubelet.journal import JournalEntry
from devcluster.kubelet.virtual_nodes import VirtualNodes
from devcluster.manifests import create_all
from devcluster.pki import Authority, new_key
from devcluster.ports import LOOPBACK, PortRegistry
from manager import options as manager_options
from manager.app import Manager
from manager.dispatch.controller import DispatchController
from multikueue.api import configuration_file, constants, crds
from multikueue.api.meta import JsonObject
from multikueue.core.clock import SystemClock
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from worker_agent import options as agent_options
from worker_agent.app import Agent
from worker_agent.kinds import served_integrations

MANAGER_USER = f"system:serviceaccount:{constants.DEFAULT_NAMESPACE}:kueue-controller-manager"
WORKER_AGENT_USER = f"system:serviceaccount:{constants.AGENT_NAMESPACE}:multikueue-agent"
"""The agent on its worker; on the hub it has the user of its enrolment."""
_CONTROLLERS_USER = "system:kube-controller-manager"


class InProcessCluster:
    """One cluster without a process: its API server and its users."""

    def __init__(self, name: str, *, users: Sequence[User] = (), audit: Audit | None = None) -> None:
        self.name = name
        administrators = (ADMIN_USER, _CONTROLLERS_USER, MANAGER_USER, WORKER_AGENT_USER)
        all_users = [*(_administrator(user) for user in administrators), *users]
        self._tokens = {user.name: secrets.token_urlsafe(32) for user in all_users}
        tokens = {self._tokens[user.name]: user for user in all_users}
        self.api = ApiServer(signing_key=new_key(), static_tokens=tokens, audit=audit)
        self.listener = Listener(self.api)
        self._authority = Authority.create(f"{name}-ca")
        self._secure: Listener | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve this process in plain HTTP, and other programs with TLS, until the end of the context."""
        with TemporaryDirectory() as folder:
            certificate, key = self._authority.serving("apiserver", hosts=[LOOPBACK]).write(
                Path(folder), name=self.name
            )
            self._secure = Listener(self.api, serving=Serving(certificate, key))
            async with self.listener:
                self.api.publish_address(self.listener.port)
                await self._secure.start()
                try:
                    yield
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._secure.stop()

    @property
    def server(self) -> str:
        """The URL of the API server; plain HTTP on the loopback interface."""
        return self.listener.url

    def kubeconfig(self, user: str = ADMIN_USER) -> JsonObject:
        """The kubeconfig of one of its users."""
        return kubeconfigs.with_token(cluster=self.name, server=self.server, user=user, token=self._tokens[user])

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the administrator's kubeconfig for kubectl or other programs. Returns its path."""
        if self._secure is None:
            raise MultikueueError(f"cluster {self.name} is not served; enter its federation first")
        config = kubeconfigs.with_token(
            cluster=self.name,
            server=self._secure.url,
            user=ADMIN_USER,
            token=self._tokens[ADMIN_USER],
            authority=self._authority.certificate,
        )
        return kubeconfigs.write(config, path)

    def client(self, user: str = ADMIN_USER) -> KubeClient:
        """A client for one of its users; the caller enters and closes it."""
        return KubeClient(credentials.from_dict(self.kubeconfig(user)))


@dataclass(slots=True, kw_only=True)
class InProcessFederation:
    """A running federation: its clusters and components."""

    hub: InProcessCluster
    workers: dict[str, InProcessCluster]
    entries: list[JournalEntry] = field(default_factory=list)
    managers: list[Manager] = field(default_factory=list)
    """The manager; empty if the spec has none."""
    worker_managers: dict[str, list[Manager]] = field(default_factory=dict)
    """The manager of each worker, with `worker_queues`."""
    agents: dict[str, Agent] = field(default_factory=dict)

    def journal(self) -> list[JournalEntry]:
        """The pods that the virtual nodes have run so far."""
        return list(self.entries)

    @property
    def clusters(self) -> Iterator[InProcessCluster]:
        """The hub and the workers."""
        yield self.hub
        yield from self.workers.values()


@asynccontextmanager
async def embedded_federation(
    spec: FederationSpec | None = None, *, audit: Audit | None = None
) -> AsyncIterator[InProcessFederation]:
    """A federation for the duration of the context; on entry every worker is connected.

    `audit` receives the audit events of all clusters. An error in a component cancels the body and is raised at exit.
    """
    spec = spec or FederationSpec()
    if spec.as_kind:
        raise BadInput(f"federation {spec.name}: as_kind needs processes; use Federation")
    since = SystemClock().now()
    agents = [User(enrolment.agent_user(worker.name), groups=(constants.AGENT_GROUP,)) for worker in spec.workers]
    hub = InProcessCluster(HUB, users=agents, audit=audit)
    workers = {worker.name: InProcessCluster(worker.name, audit=audit) for worker in spec.workers}
    made = InProcessFederation(hub=hub, workers=workers)
    async with AsyncExitStack() as stack:
        for cluster in made.clusters:
            await stack.enter_async_context(cluster.serving())
        ports = stack.enter_context(PortRegistry())
        parts = anyio.create_task_group()
        await parts.__aenter__()
        try:
            await _start(parts, made, spec, ports=ports)
            if spec.manager:
                async with hub.client() as client:
                    await connections.wait_until_connected(client, made.workers, since=since)
            yield made
        finally:
            # Without the body's error, which would be raised in an exception group.
            parts.cancel_scope.cancel()
            await parts.__aexit__(None, None, None)


async def _start(parts: TaskGroup, made: InProcessFederation, spec: FederationSpec, *, ports: PortRegistry) -> None:
    for worker in spec.workers:
        _start_worker(parts, made, worker)
    own = [enrolment.system_namespace()]
    for worker in spec.workers:
        own += enrolment.manifests(worker.name)
    async with made.hub.client() as client:
        await create_all(client, [*crds.manifests(), *own])
    parts.start_soon(_control, made.hub, ControllerOptions(scheduler=False), name="controllers of the hub")
    if not spec.manager:
        return
    manager = _manager(
        made.hub, made.managers, spec.configuration, webhooks=ports.take(), arguments=spec.manager_arguments
    )
    parts.start_soon(manager, name="manager")
    for worker in spec.workers if spec.worker_queues else ():
        cluster = made.workers[worker.name]
        async with cluster.client() as client:
            await create_all(client, [*crds.manifests(), enrolment.system_namespace()])
        engines = made.worker_managers.setdefault(worker.name, [])
        parts.start_soon(_manager(cluster, engines, {}, webhooks=ports.take()), name=f"manager of {worker.name}")
    async with made.hub.client() as client:
        await connections.wait_until_enrolled(client, made.workers)
    for worker in spec.workers:
        parts.start_soon(_agent, made, worker.name, spec, name=f"agent of {worker.name}")


def _start_worker(parts: TaskGroup, made: InProcessFederation, worker: WorkerSpec) -> None:
    cluster = made.workers[worker.name]

    async def run_nodes() -> None:
        async with cluster.client() as client:
            nodes = VirtualNodes(client, nodes=worker.nodes, cluster=worker.name, record=made.entries.append)
            await nodes.run()

    parts.start_soon(_control, cluster, ControllerOptions(), name=f"controllers of {worker.name}")
    parts.start_soon(run_nodes, name=f"nodes of {worker.name}")


async def _control(cluster: InProcessCluster, options: ControllerOptions) -> None:
    async with cluster.client(_CONTROLLERS_USER) as client:
        await Controllers(client, options).run()


def _manager(
    cluster: InProcessCluster,
    started: list[Manager],
    overlay: JsonObject,
    *,
    webhooks: int,
    arguments: Sequence[str] = (),
) -> Callable[[], Coroutine[object, object, None]]:
    options = manager_options.parse(
        [
            f"--namespace={constants.DEFAULT_NAMESPACE}",
            f"--webhook-url=https://{LOOPBACK}:{webhooks}",
            f"--visibility-bind={LOOPBACK}:0",
            f"--metrics-bind={LOOPBACK}:0",
            f"--health-bind={LOOPBACK}:0",
            "--no-leader-elect",
            *arguments,
        ]
    )
    settings = configuration_file.load(orjson.dumps(roles.manager_configuration(overlay)).decode())

    async def run() -> None:
        async with cluster.client(MANAGER_USER) as client:
            manager = Manager(
                settings,
                client,
                options=options,
                clock=SystemClock(),
                random=Random(),
                dispatch=DispatchController,
            )
            started.append(manager)
            await manager.run()

    return run


async def _agent(made: InProcessFederation, name: str, spec: FederationSpec) -> None:
    given = agent_options.parse([f"--cluster={name}", "--hub-kubeconfig=unused", *spec.agent_arguments])
    served = roles.manager_configuration(spec.configuration)["integrations"]
    integrations = served_integrations(served["frameworks"], declarations=served.get("declarations", ()))
    async with (
        made.hub.client(enrolment.agent_user(name)) as hub,
        made.workers[name].client(WORKER_AGENT_USER) as worker,
    ):
        made.agents[name] = Agent(
            hub,
            worker,
            cluster=name,
            origin=given.origin,
            intervals=given.intervals,
            integrations=integrations,
        )
        await made.agents[name].run()


def _administrator(name: str) -> User:
    return User(name, groups=(ADMIN_GROUP,))
