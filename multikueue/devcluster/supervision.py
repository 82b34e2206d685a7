# SPDX-License-Identifier: Apache-2.0
"""A federation under supervision: brought up, kept running, told of, ended.

Owns what the supervisor's process does once it has its folder and its spec; `supervisor.py` is that process.
"""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import anyio

from multikueue.core.errors import MultikueueError
from multikueue.devcluster import providers
from multikueue.devcluster.federation import HUB, Federation, FederationSpec, several_workers
from multikueue.devcluster.processes.forkserver import ForkServer
from multikueue.devcluster.progress import Step
from multikueue.devcluster.state import ClusterState, ComponentState, Phase, State
from multikueue.devcluster.supervisor import SupervisedSpec

log = logging.getLogger(__name__)


class Supervisor:
    """One federation and its state file."""

    def __init__(self, folder: Path, spec: SupervisedSpec, *, forks: ForkServer) -> None:
        self._folder = folder
        self._spec = spec
        self._phase = Phase.STARTING
        self._step = ""
        self._error = ""
        self._federation = Federation(
            FederationSpec(name=spec.name, workers=several_workers(spec.workers, nodes=spec.nodes)),
            folder=folder,
            provider=providers.factory(spec.provider),
            progress=self._progress,
            forks=forks,
        )

    async def run(self) -> int:
        """Bring the federation up and keep it until SIGTERM or SIGINT; the exit code."""
        self._tell()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_on_signal, tasks.cancel_scope)
            try:
                await self._federation.up()
                self._tell(Phase.UP)
                await self._federation.keep(changed=lambda process: self._tell())
            except MultikueueError as error:
                self._error = str(error)
                log.error("%s", error)
            except Exception as error:
                self._error = f"a defect of multikueue: {type(error).__name__}: {error}; see supervisor.log"
                log.exception("the federation cannot be kept")
            finally:
                with anyio.CancelScope(shield=True):
                    await self._end()
            tasks.cancel_scope.cancel()
        return 1 if self._error else 0

    async def _end(self) -> None:
        if not self._error:
            self._tell(Phase.STOPPING)
        await self._federation.down()
        self._tell(Phase.FAILED if self._error else Phase.DOWN)

    async def _end_on_signal(self, scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                log.info("ending on %s", signal.Signals(number).name)
                scope.cancel()
                return

    def _progress(self, step: Step) -> None:
        log.info("%s", step.text)
        self._step = step.text
        self._tell()

    def _tell(self, phase: Phase | None = None) -> None:
        self._phase = phase or self._phase
        components = list(self._federation.components())
        State(
            name=self._spec.name,
            provider=self._spec.provider,
            phase=self._phase,
            supervisor=os.getpid(),
            step=self._step,
            error=self._error,
            clusters=[
                ClusterState(
                    name=cluster.name,
                    role="hub" if cluster.name == HUB else "worker",
                    server=cluster.server,
                    kubeconfig=str(cluster.kubeconfig),
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
                )
                for owner, component in components
            ],
        ).write(self._folder)
