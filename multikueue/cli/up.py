# SPDX-License-Identifier: Apache-2.0
"""`mkctl up`: bring a federation up and leave it running."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from multikueue.cli import federations, status
from multikueue.cli.display import Output, StepDisplay, errors_of
from multikueue.cli.federations import DEFAULT_NAME
from multikueue.core.errors import BadInput


def up(
    name: Annotated[str, typer.Option(help="several federations may stand side by side")] = DEFAULT_NAME,
    workers: Annotated[int, typer.Option(min=1, max=20, help="worker clusters")] = 2,
    nodes: Annotated[int, typer.Option(min=0, max=1000, help="virtual nodes of 8 CPU per worker")] = 2,
    provider: Annotated[str, typer.Option(help="what makes the clusters: embedded or binaries")] = "embedded",
    output: Annotated[Output, typer.Option("-o", "--output", help="form of the result")] = Output.TABLE,
) -> None:
    """Bring up a management cluster and its workers, with the manager and an agent beside each worker.

    Exit code 0 when all workers are connected, or the federation was up already; 1 when it could not come up, 2 when
    something asked for makes no sense.
    """
    from multikueue.devcluster import providers, state
    from multikueue.devcluster.state import Phase
    from multikueue.devcluster.supervisor import SupervisedSpec

    with errors_of("up"):
        folder = federations.folder_of(name)
        if state.is_supervised(folder):
            found = federations.existing(name)
            if found.phase is not Phase.UP:
                raise BadInput(f"federation {name} is {found.phase.value}; wait, or end it with `mkctl down`")
            status.show(found, output)
            return
        providers.check(provider)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with StepDisplay() as display:
            if provider == "binaries":
                from multikueue.devcluster.binaries import acquire

                acquire.acquire(progress=display)
            SupervisedSpec(name=name, provider=provider, workers=workers, nodes=nodes).write(folder)
            supervisor = federations.start_supervisor(folder)
            try:
                found = federations.follow(folder, supervisor, display)
            except KeyboardInterrupt:
                supervisor.send_signal(signal.SIGTERM)
                supervisor.wait()
                raise
        status.show(found, output)
        if output is Output.TABLE:
            chosen = "" if name == DEFAULT_NAME else f" --name {name}"
            print(f"export KUBECONFIG=$(mkctl kubeconfig{chosen})")
