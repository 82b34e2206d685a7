# SPDX-License-Identifier: Apache-2.0
"""`python -m multikueue.devcluster.supervisor FOLDER`: owns a federation that outlives the command that started it.

Reads `spec.json` in the folder, brings the federation up, keeps it running, tells its state, and ends it on SIGTERM.
When it is killed the kernel ends everything it started. Nothing talks to it but signals and files.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import orjson

from multikueue.core.errors import MultikueueError
from multikueue.devcluster import providers, state
from multikueue.devcluster.federation import HUB, Federation, FederationSpec, several_workers
from multikueue.devcluster.progress import Step
from multikueue.devcluster.state import ClusterState, ComponentState, Phase, State

log = logging.getLogger(__name__)

_SPEC: Final = "spec.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedSpec:
    """What `mkctl up` asks for."""

    name: str
    provider: str
    workers: int
    nodes: int

    def write(self, folder: Path) -> None:
        """Leave it for the supervisor."""
        values = {"name": self.name, "provider": self.provider, "workers": self.workers, "nodes": self.nodes}
        (folder / _SPEC).write_bytes(orjson.dumps(values))

    @classmethod
    def read(cls, folder: Path) -> SupervisedSpec:
        """What was left."""
        return cls(**orjson.loads((folder / _SPEC).read_bytes()))


class Supervisor:
    """One federation and its state file."""

    def __init__(self, folder: Path, spec: SupervisedSpec) -> None:
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


def main() -> int:
    """Supervise the federation of a folder."""
    parser = argparse.ArgumentParser(description="owns a federation of local clusters")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        with state.supervising(folder):
            return anyio.run(Supervisor(folder, SupervisedSpec.read(folder)).run)
    except MultikueueError as error:
        log.error("%s", error)
        return 2


if __name__ == "__main__":
    sys.exit(main())
