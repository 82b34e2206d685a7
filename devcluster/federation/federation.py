# SPDX-License-Identifier: Apache-2.0
"""A complete federation: a hub, workers with virtual nodes, the manager, and an agent for each worker.

Owns the order in which these start and stop, and their files. Used by mkctl, tests and the pytest plugin. No process
survives `down` or the death of the process that owns the federation. Queues, flavors and checks are the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio
import orjson

from devcluster import kubeconfigs
from devcluster.cluster import ADMIN_GROUP, ADMIN_USER, Cluster, Component
from devcluster.federation import connections, enrolment, roles
from devcluster.federation.installed import objects
from devcluster.federation.installed.installation import InstalledManagers
from devcluster.federation.installed.kind_names import context_of, control_plane_node, kind_clusters, merged_kubeconfig
from devcluster.federation.spec import DEFAULT_NAME, HUB, FederationSpec, WorkerSpec
from devcluster.kubelet import journal
from devcluster.ports import PortRegistry
from devcluster.processes import programs
from devcluster.processes.forkserver import ForkServer
from devcluster.processes.process import Process, keep_running
from devcluster.progress import Progress, Step, ignore_progress
from devcluster.providers.provider import ClusterSpec, Provider, ProviderFactory
from devcluster.together import together
from multikueue.api import constants, crds
from multikueue.api.meta import JsonObject
from multikueue.core.backoff import Backoff
from multikueue.core.clock import SystemClock

_RESTART: Final = Backoff(base=0.5, factor=2.0, cap=15.0, jitter=0.2)


class Federation:
    """A federation of local clusters. An async context manager: `up` on entry, `down` on exit."""

    def __init__(
        self,
        spec: FederationSpec,
        *,
        folder: Path,
        provider: ProviderFactory,
        progress: Progress = ignore_progress,
        forks: ForkServer | None = None,
    ) -> None:
        """`forks` may already run; the federation stops it."""
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
        self._worker_managers: dict[str, Process] = {}
        self._installed: InstalledManagers | None = None
        self._changed: Callable[[Process | None], None] = _ignore
        self._agents: dict[str, Process] = {}
        self._nodes: Process | None = None
        self._metrics = ""
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
        """The hub and the workers that have been created."""
        return [*([self._hub] if self._hub is not None else []), *self._workers.values()]

    @property
    def kind_clusters(self) -> dict[str, str]:
        """The kind cluster that each cluster replaces; empty without `as_kind`."""
        if not self.spec.as_kind:
            return {}
        return kind_clusters(self.spec.as_kind, hub=HUB, workers=[worker.name for worker in self.spec.workers])

    @property
    def kubeconfig(self) -> Path:
        """One kubeconfig with all clusters if `as_kind` is set, else the hub's."""
        return self.folder / "kubeconfig" if self.spec.as_kind else self.hub.kubeconfig

    @property
    def manager(self) -> Process:
        """The manager."""
        if self._manager is None:
            raise RuntimeError(f"federation {self.spec.name} runs no manager")
        return self._manager

    @property
    def metrics(self) -> str:
        """The metrics URL of the hub's manager; empty if it has not started, and with `as_kind`."""
        return self._metrics

    @property
    def worker_managers(self) -> dict[str, Process]:
        """The managers on the workers, by worker name; empty without `worker_queues`."""
        return self._worker_managers

    @property
    def agents(self) -> dict[str, Process]:
        """The agents by worker name."""
        return self._agents

    @property
    def nodes(self) -> Process:
        """The process of all virtual nodes."""
        if self._nodes is None:
            raise RuntimeError(f"federation {self.spec.name} has not been started")
        return self._nodes

    def components(self) -> Iterator[tuple[str, Component]]:
        """Every component with the name of its owner."""
        for shared in self._provider.shared:
            yield "shared", shared
        for cluster in self.clusters:
            for component in cluster.components.values():
                yield cluster.name, component
        if self._nodes is not None:
            yield "workers", self._nodes
        if self._manager is not None:
            yield HUB, self._manager
        yield from self._worker_managers.items()
        if self._installed is not None:
            yield from self._installed.processes()
        yield from self._agents.items()

    def journal(self) -> list[journal.JournalEntry]:
        """The pods that the virtual nodes have run so far."""
        return journal.read(roles.journal_path(self.folder))

    async def up(self) -> None:
        """Start everything; returns when every worker is connected. Stops everything on failure."""
        try:
            await self._up()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.down(grace=0.0)
            raise

    async def down(self, *, grace: float = 10.0) -> None:
        """Stop everything and keep the data. Clusters stop last, so that no process logs connection errors."""
        if self._installed is not None:
            await self._installed.stop()
        ours = [*self._agents.values(), *self._worker_managers.values(), self._manager, self._nodes]
        await together(*(process.stop(grace=grace) for process in ours if process is not None))
        await together(*(_down(cluster, grace) for cluster in self.clusters))
        await self._stack.aclose()
        self._forks.close()
        self._ports.close()

    async def keep(self, *, changed: Callable[[Process | None], None] | None = None) -> None:
        """Restart components that crash, until cancelled. `changed` is called for each end and start."""
        self._changed = changed or _ignore
        installed = {process for _, process in self._installed.processes()} if self._installed is not None else set()
        processes = [each for _, each in self.components() if isinstance(each, Process) and each not in installed]
        watched = self._installed.wait() if self._installed is not None else _no_wait()
        await together(keep_running(processes, backoff=_RESTART, changed=self._changed), watched)

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
        if self.spec.as_kind:
            self._write_kubeconfig()
        if not self.spec.manager:
            return
        if self.spec.as_kind:
            await self._install()
            return
        self._progress(Step("starting the manager and the agents"))
        self._make_processes()
        await together(*(process.start() for process in (self.manager, *self._worker_managers.values())))
        async with self.hub.client() as client:
            await connections.wait_until_enrolled(client, self._workers, hint=f"manager log: {self.manager.log}")
        await together(*(process.start() for process in self._agents.values()))
        self._progress(Step("waiting until every worker is connected"))
        await self.wait_until_connected()

    async def _create_clusters(self) -> None:
        if self.spec.as_kind:
            await self._create_as_kind()
            return
        own = [enrolment.system_namespace()]
        for worker in self.spec.workers:
            own += enrolment.manifests(worker.name)
        spec = ClusterSpec(
            scheduler=False,
            manifests=[*crds.manifests(), *self.spec.definitions, *own],
            forks=self._forks,
            context=self._context(HUB),
            fairness=self.spec.fairness,
        )
        self._hub = await self._provider.create(HUB, folder=self.folder / HUB, spec=spec)
        for worker in self.spec.workers:
            folder = self.folder / worker.name
            installed = [*crds.manifests(), enrolment.system_namespace()] if self._has_worker_managers else []
            manifests = [*self.spec.definitions, *installed, *self.spec.worker_manifests]
            spec = ClusterSpec(manifests=manifests, forks=self._forks, context=self._context(worker.name))
            made = await self._provider.create(worker.name, folder=folder, spec=spec)
            self._workers[worker.name] = made

    def _context(self, cluster: str) -> str:
        """The context name of a cluster, unique across federations with equal cluster names."""
        return cluster if self.spec.name == DEFAULT_NAME else f"{self.spec.name}-{cluster}"

    async def _create_as_kind(self) -> None:
        for name, kind_cluster in self.kind_clusters.items():
            node = control_plane_node(kind_cluster)
            configuration = roles.manager_configuration(self.spec.configuration)
            installed = objects.manifests(node=node, configuration=configuration) if self.spec.manager else []
            spec = ClusterSpec(
                hosts=[node],
                manifests=[*crds.manifests(), *self.spec.definitions, enrolment.system_namespace(), *installed],
                forks=self._forks,
                context=context_of(kind_cluster),
            )
            made = await self._provider.create(name, folder=self.folder / name, spec=spec)
            if name == HUB:
                self._hub = made
            else:
                self._workers[name] = made

    def _write_kubeconfig(self) -> None:
        found = {
            kind_cluster: cluster.issue_client_certificate(ADMIN_USER, [ADMIN_GROUP])
            for cluster, kind_cluster in zip(self.clusters, self.kind_clusters.values(), strict=True)
        }
        kubeconfigs.write(merged_kubeconfig(found), self.kubeconfig)

    async def _install(self) -> None:
        self._progress(Step("waiting until the manager is available on each cluster"))
        self._installed = InstalledManagers(
            self.clusters,
            kind_clusters=self.kind_clusters,
            ports=self._ports,
            forks=self._forks,
            changed=lambda: self._changed(None),
        )
        await self._installed.start()

    async def _start_cluster(self, cluster: Cluster) -> None:
        await cluster.up()
        self._progress(Step(f"cluster {cluster.name} is up"))

    async def _start_nodes(self) -> None:
        for cluster in self.clusters:
            cluster.write_kubeconfig()
        specs = list(self.spec.workers)
        if self.spec.as_kind:
            specs.insert(0, WorkerSpec(name=HUB, nodes=self.spec.hub_nodes))
        served = {cluster.name: cluster for cluster in self.clusters}
        self._nodes = Process(roles.nodes(self.folder, served, specs), forks=self._forks)
        await self._nodes.start()

    @property
    def _has_worker_managers(self) -> bool:
        return self.spec.manager and self.spec.worker_queues

    def _make_processes(self) -> None:
        self._manager = self._make_manager(
            self.hub, folder=self.folder, configuration=self.spec.configuration, extra=self.spec.manager_arguments
        )
        if self._has_worker_managers:
            for name, cluster in self._workers.items():
                self._worker_managers[name] = self._make_manager(cluster, folder=cluster.folder, configuration={})
        for name, cluster in self._workers.items():
            identity = self.hub.issue_client_certificate(enrolment.agent_user(name), [constants.AGENT_GROUP])
            hub_kubeconfig = kubeconfigs.write(identity, cluster.folder / "agent.kubeconfig")
            self._agents[name] = Process(
                roles.agent(
                    cluster,
                    hub_kubeconfig=hub_kubeconfig,
                    health_port=self._ports.take(),
                    extra=[
                        *roles.agent_kinds(self.spec.configuration, folder=cluster.folder),
                        *self.spec.agent_arguments,
                    ],
                ),
                forks=self._forks,
            )

    def _make_manager(
        self, cluster: Cluster, *, folder: Path, configuration: JsonObject, extra: Sequence[str] = ()
    ) -> Process:
        webhooks, health, visibility = (self._ports.take() for _ in range(3))
        metrics = self._ports.take(kept_in=folder / "metrics.port")
        file = folder / "manager.yaml"
        file.write_bytes(orjson.dumps(roles.manager_configuration(configuration)))
        if cluster is self._hub:
            self._metrics = roles.metrics_url(configuration, port=metrics)
        spec = roles.manager(
            folder,
            kubeconfig=cluster.kubeconfig,
            configuration=file,
            ports=roles.ManagerPorts(
                host=self._provider.host, webhooks=webhooks, metrics=metrics, health=health, visibility=visibility
            ),
            extra=extra,
            owner="" if cluster is self._hub else cluster.name,
        )
        return Process(spec, forks=self._forks)

    async def wait_until_connected(self, *, within: float = connections.CONNECTED_WITHIN) -> None:
        """Wait until every worker is active and its agent has renewed its lease since `up`.

        Raises `TimedOut` with the status of the others.
        """
        async with self.hub.client() as client:
            await connections.wait_until_connected(
                client, self._workers, since=self._since, within=within, hint=f"manager log: {self.manager.log}"
            )


def _ignore(process: Process | None) -> None:
    """Discard the notification."""


async def _no_wait() -> None:
    """Return at once."""


async def _down(cluster: Cluster, grace: float) -> None:
    await cluster.down(grace=grace)
    cluster.close()
