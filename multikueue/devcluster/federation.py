# SPDX-License-Identifier: Apache-2.0
"""A whole federation: a hub, workers with virtual nodes, the manager and an agent beside each worker.

Owns the order in which these come up and go down, and the files they need. One object for mkctl, tests and the pytest
plugin. Promises that nothing runs on after `down`, or after the process that holds it has died. Which objects a user
then creates (queues, flavors, checks) is not its business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio
import orjson

from multikueue.api import constants, crds
from multikueue.api.meta import JsonObject
from multikueue.core.backoff import Backoff
from multikueue.core.clock import SystemClock
from multikueue.core.errors import BadInput
from multikueue.devcluster import connections, enrolment, kubeconfigs, programs, roles
from multikueue.devcluster.cluster import Cluster, Component
from multikueue.devcluster.nodes import journal
from multikueue.devcluster.nodes.node import NodeSpec, several
from multikueue.devcluster.ports import PortRegistry
from multikueue.devcluster.processes.forkserver import ForkServer
from multikueue.devcluster.processes.process import Process
from multikueue.devcluster.processes.revival import revive
from multikueue.devcluster.progress import Progress, Step, silent
from multikueue.devcluster.provider import ClusterSpec, Provider, ProviderFactory
from multikueue.devcluster.together import together

HUB: Final = "hub"
_REVIVAL: Final = Backoff(base=0.5, factor=2.0, cap=15.0, jitter=0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """A worker cluster."""

    name: str
    nodes: Sequence[NodeSpec] = field(default_factory=lambda: several(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationSpec:
    """What a federation consists of."""

    name: str = "default"
    workers: Sequence[WorkerSpec] = (WorkerSpec(name="worker-1"), WorkerSpec(name="worker-2"))
    configuration: JsonObject = field(default_factory=dict)
    """Laid over the manager's Configuration, section by section."""
    manager_arguments: Sequence[str] = ()
    agent_arguments: Sequence[str] = ()
    manager: bool = True
    """Run the manager and the agents; without them there are clusters, definitions and enrolments only."""

    def __post_init__(self) -> None:
        names = [HUB, *(worker.name for worker in self.workers)]
        if len(set(names)) != len(names):
            raise BadInput(f"federation {self.name}: cluster names must differ and not be {HUB!r}, got {names[1:]}")


def several_workers(count: int, *, nodes: int = 2) -> list[WorkerSpec]:
    """`count` workers alike, named `worker-1` and so on."""
    return [WorkerSpec(name=f"worker-{number}", nodes=several(nodes)) for number in range(1, count + 1)]


class Federation:
    """A federation of local clusters. An async context manager: `up` on entry, `down` on exit."""

    def __init__(
        self,
        spec: FederationSpec,
        *,
        folder: Path,
        provider: ProviderFactory,
        progress: Progress = silent,
        forks: ForkServer | None = None,
    ) -> None:
        """`forks` may have been started before; the federation ends it as if it were its own."""
        self.spec = spec
        self.folder = folder.resolve()
        self._progress = progress
        self._provider: Provider = provider(folder=self.folder, progress=progress)
        self._forks = forks or programs.fork_server(self.folder, provider=self._provider.name)
        self._ports = PortRegistry()
        self._stack = AsyncExitStack()
        self._hub: Cluster | None = None
        self._workers: dict[str, Cluster] = {}
        self._manager: Process | None = None
        self._agents: dict[str, Process] = {}
        self._nodes: Process | None = None
        self._since = SystemClock().now()

    @property
    def provider(self) -> str:
        """The name of the provider that made the clusters."""
        return self._provider.name

    @property
    def hub(self) -> Cluster:
        """The management cluster."""
        if self._hub is None:
            raise RuntimeError(f"federation {self.spec.name} has not been started")
        return self._hub

    @property
    def workers(self) -> dict[str, Cluster]:
        """The worker clusters by name."""
        return self._workers

    @property
    def clusters(self) -> list[Cluster]:
        """The hub and the workers, as far as they have been made."""
        return [*([self._hub] if self._hub is not None else []), *self._workers.values()]

    @property
    def manager(self) -> Process:
        """The manager."""
        if self._manager is None:
            raise RuntimeError(f"federation {self.spec.name} runs no manager")
        return self._manager

    @property
    def agents(self) -> dict[str, Process]:
        """The agents by the name of their worker."""
        return self._agents

    @property
    def nodes(self) -> Process:
        """The process of all virtual nodes."""
        if self._nodes is None:
            raise RuntimeError(f"federation {self.spec.name} has not been started")
        return self._nodes

    def components(self) -> Iterator[tuple[str, Component]]:
        """Every component with the name of what it belongs to."""
        for shared in self._provider.shared:
            yield "shared", shared
        for cluster in self.clusters:
            for component in cluster.components.values():
                yield cluster.name, component
        if self._nodes is not None:
            yield "workers", self._nodes
        if self._manager is not None:
            yield HUB, self._manager
        yield from self._agents.items()

    def journal(self) -> list[journal.Entry]:
        """What ran on the virtual nodes so far."""
        return journal.read(roles.journal_path(self.folder))

    async def up(self) -> None:
        """Start everything; returns when every worker is connected. On failure nothing is left running."""
        try:
            await self._up()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.down(grace=0.0)
            raise

    async def down(self, *, grace: float = 10.0) -> None:
        """End everything, data stay. Processes of ours first, so that none of them logs that its cluster is gone."""
        ours = [*self._agents.values(), self._manager, self._nodes]
        await together(*(process.stop(grace=grace) for process in ours if process is not None))
        await together(*(_down(cluster, grace) for cluster in self.clusters))
        await self._stack.aclose()
        self._forks.close()
        self._ports.close()

    async def keep(self, *, changed: Callable[[Process], None] | None = None) -> None:
        """Start components again that end unasked; runs until cancelled. `changed` is told of each end and start."""
        processes = [component for _, component in self.components() if isinstance(component, Process)]
        await revive(processes, backoff=_REVIVAL, changed=changed)

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.down()

    async def _up(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._forks.start()
        await self._stack.enter_async_context(self._provider)
        await self._create_clusters()
        self._progress(Step(f"starting {len(self._workers) + 1} clusters"))
        await together(*(self._start_cluster(cluster) for cluster in self.clusters), self._start_nodes())
        if not self.spec.manager:
            return
        self._progress(Step("starting the manager and the agents"))
        self._make_processes()
        await self.manager.start()
        async with self.hub.client() as client:
            await connections.wait_until_enrolled(client, self._workers, hint=f"manager log: {self.manager.log}")
        await together(*(process.start() for process in self._agents.values()))
        self._progress(Step("waiting until every worker is connected"))
        await self.wait_until_connected()

    async def _create_clusters(self) -> None:
        own = [enrolment.system_namespace()]
        for worker in self.spec.workers:
            own += enrolment.manifests(worker.name)
        spec = ClusterSpec(scheduler=False, manifests=[*crds.manifests(), *own], forks=self._forks)
        self._hub = await self._provider.create(HUB, folder=self.folder / HUB, spec=spec)
        for worker in self.spec.workers:
            folder = self.folder / worker.name
            made = await self._provider.create(worker.name, folder=folder, spec=ClusterSpec(forks=self._forks))
            self._workers[worker.name] = made

    async def _start_cluster(self, cluster: Cluster) -> None:
        await cluster.up()
        self._progress(Step(f"cluster {cluster.name} is up"))

    async def _start_nodes(self) -> None:
        for cluster in self._workers.values():
            cluster.write_kubeconfig()
        self._nodes = Process(roles.nodes(self.folder, self._workers, self.spec.workers), forks=self._forks)
        await self._nodes.start()

    def _make_processes(self) -> None:
        webhooks, metrics, health = (self._ports.take() for _ in range(3))
        configuration = self.folder / "manager.yaml"
        configuration.write_bytes(orjson.dumps(roles.manager_configuration(self.spec.configuration)))
        self._manager = Process(
            roles.manager(
                self.folder,
                kubeconfig=self.hub.kubeconfig,
                configuration=configuration,
                ports=roles.ManagerPorts(host=self._provider.host, webhooks=webhooks, metrics=metrics, health=health),
                extra=self.spec.manager_arguments,
            ),
            forks=self._forks,
        )
        for name, cluster in self._workers.items():
            identity = self.hub.issue_client_certificate(enrolment.agent_user(name), [constants.AGENT_GROUP])
            hub_kubeconfig = kubeconfigs.write(identity, cluster.folder / "agent.kubeconfig")
            self._agents[name] = Process(
                roles.agent(
                    cluster,
                    hub_kubeconfig=hub_kubeconfig,
                    health_port=self._ports.take(),
                    extra=self.spec.agent_arguments,
                ),
                forks=self._forks,
            )

    async def wait_until_connected(self, *, within: float = connections.CONNECTED_WITHIN) -> None:
        """Wait until the manager says that every worker is active, and its agent has been heard of since `up`.

        Raises `TimedOut` with what is said instead.
        """
        async with self.hub.client() as client:
            await connections.wait_until_connected(
                client, self._workers, since=self._since, within=within, hint=f"manager log: {self.manager.log}"
            )


async def _down(cluster: Cluster, grace: float) -> None:
    await cluster.down(grace=grace)
    cluster.close()
