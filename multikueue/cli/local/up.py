# SPDX-License-Identifier: Apache-2.0
"""`mkctl up`: start a local federation and leave it running."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from devcluster.federation.spec import SupervisedSpec
from multikueue.cli.display import Output, StepDisplay, errors_of
from multikueue.cli.local import configuration_file, federations, kubeconfig_copy, status
from multikueue.cli.local.federations import DEFAULT_NAME
from multikueue.cli.local.shape_options import ShapeOptions
from multikueue.cli.terminal import print_message
from multikueue.core.errors import BadInput


def up(
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            "--federation",
            metavar="NAME",
            help="Name of the federation. Default: default, or NAME of --as-kind.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, max=20, metavar="N", help="Number of worker clusters, at most 20. Default: 2.")
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="N|FILE",
            help="Number of virtual nodes (8 CPU each) per worker, or a YAML file with node groups. Default: 2.",
        ),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--node-label", metavar="[CLUSTER:]KEY=VALUE", help="Label of the nodes. May be repeated."),
    ] = None,
    resources: Annotated[
        list[str] | None,
        typer.Option(
            "--node-resource",
            metavar="[CLUSTER:]NAME=AMOUNT",
            help="Resource of the nodes, such as example.com/gpu=4. May be repeated.",
        ),
    ] = None,
    taints: Annotated[
        list[str] | None,
        typer.Option("--node-taint", metavar="[CLUSTER:]KEY=VALUE:EFFECT", help="Taint of the nodes. May be repeated."),
    ] = None,
    worker_queues: Annotated[
        bool | None,
        typer.Option(
            "--worker-queues/--no-worker-queues", help="Run a manager with LocalQueues on each worker. Default: no."
        ),
    ] = None,
    as_kind: Annotated[
        str | None,
        typer.Option(
            "--as-kind",
            metavar="NAME",
            help="Create clusters that look like the kind clusters NAME-manager and NAME-worker1 to N (or NAME with"
            " --workers 0), with the manager in place of Kueue on each.",
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --as-kind: write the kubeconfig of all clusters to this file."),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Provider of the clusters: embedded or binaries. Default: embedded."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Configuration of the manager; only fields that differ are needed."
        ),
    ] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = Output.TABLE,
) -> None:
    """Start a management cluster and its workers, with the manager and an agent for each worker.

    The options are stored with the federation's data. `mkctl up` without options uses the stored ones, also after
    `mkctl down --keep-data`.

    Pods run no containers, see docs/reference/virtual-pods.md: annotations such as multikueue.io/run-for: 30s control
    how long they run and how they end. `kubectl top` has no data.

    Exit code 0 if all workers are connected or the federation was already up, 1 if it failed to start, 2 for invalid
    options or options that differ from the stored ones.
    """
    from devcluster.federation import state
    from devcluster.federation.state import FederationPhase

    options = ShapeOptions(
        provider=provider,
        workers=workers,
        nodes=nodes,
        labels=labels or (),
        resources=resources or (),
        taints=taints or (),
        worker_queues=worker_queues,
        as_kind=as_kind,
        kubeconfig=None if kubeconfig is None else str(kubeconfig.absolute()),
        config=config,
    )
    name = as_kind or DEFAULT_NAME if name is None else name
    with errors_of("up"):
        if as_kind is not None:
            federations.folder_of(as_kind)  # checks the name, with the rules of kind
        folder = federations.folder_of(name)
        running = state.is_supervised(folder)
        stored = _stored(folder)
        spec = options.spec(name, stored, running=running)
        if running:
            found = federations.existing(name)
            if found.phase is not FederationPhase.UP:
                raise BadInput(f"federation {name} is {found.phase.value}; wait, or stop it with `mkctl down`")
            status.show(status.current(found), output)
            return
        kubeconfig_copy.check(spec, folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _print_reused_options(stored, spec)
        with StepDisplay() as display:
            if spec.provider == "binaries":
                from devcluster.providers.binaries import acquire

                acquire.acquire(progress=display)
            spec.write(folder)
            supervisor = federations.start_supervisor(folder)
            try:
                found = federations.follow(folder, supervisor, display)
            except KeyboardInterrupt:
                supervisor.send_signal(signal.SIGTERM)
                supervisor.wait()
                raise
        kubeconfig_copy.write(spec, folder)
        status.show(found, output)
        if output is Output.TABLE:
            chosen = "" if name == DEFAULT_NAME else f" --name {name}"
            print(f"export KUBECONFIG=$(mkctl kubeconfig{chosen})")


def _print_reused_options(stored: SupervisedSpec | None, spec: SupervisedSpec) -> None:
    if stored is not None:
        print_message(f"federation {spec.name} starts with its stored options and data")
        if stored.configuration != spec.configuration:
            old = stored.configuration_file or "none"
            print_message(f"--config: the Configuration changes from {old} to {spec.configuration_file}")
    for field in configuration_file.unused(spec.configuration):
        print_message(f"--config: {field} has no effect: `mkctl up` sets the addresses")


def _stored(folder: Path) -> SupervisedSpec | None:
    """The stored options of the federation; None if it does not exist."""
    try:
        return SupervisedSpec.read(folder)
    except FileNotFoundError:
        return None
