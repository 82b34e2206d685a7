# SPDX-License-Identifier: Apache-2.0
"""Starts a federation, keeps it running, writes its state and stops it; `supervisor.py` is the process that does so."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import anyio

from devcluster.federation.federation import Federation
from devcluster.federation.spec import HUB, FederationSpec, SupervisedSpec, WorkerSpec
from devcluster.federation.state import ClusterState, ComponentState, FederationPhase, FederationState
from devcluster.kubelet.node import of_groups
from devcluster.processes.forkserver import ForkServer
from devcluster.processes.process import Process
from devcluster.progress import Step
from devcluster.providers import catalog
from multikueue.core.errors import MultikueueError

log = logging.getLogger(__name__)


class FederationSupervisor:
    """One federation and its state file."""

    def __init__(self, folder: Path, spec: SupervisedSpec, *, forks: ForkServer) -> None:
        self._folder = folder
        self._spec = spec
        self._phase = FederationPhase.STARTING
        self._step = ""
        self._error = ""
        self._federation = Federation(
            _federation_spec(spec),
            folder=folder,
            provider=catalog.factory(spec.provider),
            progress=self._progress,
            forks=forks,
        )

    async def run(self) -> int:
        """Start the federation and keep it running until SIGTERM or SIGINT. Returns the exit code."""
        self._write_state()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_on_signal, tasks.cancel_scope)
            try:
                await self._federation.up()
                self._write_state(FederationPhase.UP)
                await self._federation.keep(changed=lambda process: self._write_state())
            except MultikueueError as error:
                self._error = str(error)
                log.error("%s", error)
            except Exception as error:
                self._error = f"internal error: {type(error).__name__}: {error}; see supervisor.log"
                log.exception("federation failed")
            finally:
                with anyio.CancelScope(shield=True):
                    await self._end()
            tasks.cancel_scope.cancel()
        return 1 if self._error else 0

    async def _end(self) -> None:
        if not self._error:
            self._write_state(FederationPhase.STOPPING)
        await self._federation.down()
        self._write_state(FederationPhase.FAILED if self._error else FederationPhase.DOWN)

    async def _end_on_signal(self, scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                log.info("stopping signal=%s", signal.Signals(number).name)
                scope.cancel()
                return

    def _progress(self, step: Step) -> None:
        log.info("%s", step.text)
        self._step = step.text
        self._write_state()

    def _write_state(self, phase: FederationPhase | None = None) -> None:
        self._phase = phase or self._phase
        components = list(self._federation.components())
        FederationState(
            name=self._spec.name,
            provider=self._spec.provider,
            phase=self._phase,
            supervisor=os.getpid(),
            step=self._step,
            error=self._error,
            kubeconfig=str(self._folder / "kubeconfig") if self._spec.as_kind else "",
            metrics=self._federation.metrics,
            clusters=[
                ClusterState(
                    name=cluster.name,
                    role="hub" if cluster.name == HUB else "worker",
                    server=cluster.server,
                    kubeconfig=str(cluster.kubeconfig),
                    context=cluster.context,
                )
                for cluster in self._federation.clusters
            ],
            components=[
                ComponentState(
                    owner=owner,
                    name=component.name,
                    pid=component.pid,
                    running=component.running,
                    log=str(component.log),
                    restarts=component.restarts if isinstance(component, Process) else 0,
                    health=component.spec.health if isinstance(component, Process) else "",
                )
                for owner, component in components
            ],
        ).write(self._folder)


def _federation_spec(spec: SupervisedSpec) -> FederationSpec:
    workers = [WorkerSpec(name=name, nodes=of_groups(spec.nodes.get(name, ()))) for name in spec.worker_names]
    return FederationSpec(
        name=spec.name,
        workers=workers,
        configuration=dict(spec.configuration),
        worker_queues=spec.worker_queues,
        as_kind=spec.as_kind,
        hub_nodes=of_groups(spec.nodes.get(HUB, ())),
    )
