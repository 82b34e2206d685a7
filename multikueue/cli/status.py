# SPDX-License-Identifier: Apache-2.0
"""`mkctl status`: what runs, as a table or as JSON."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import orjson
import typer

from multikueue.cli import federations
from multikueue.cli.display import FAILED, Output, errors_of, terminal_or_wide
from multikueue.devcluster import state
from multikueue.devcluster.state import Phase, State


def status(
    name: Annotated[str | None, typer.Option(help="which federation; without it all of yours")] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="form of the result")] = Output.TABLE,
) -> None:
    """Show clusters and components. Exit code 0 when all of them run, 1 when something does not."""
    with errors_of("status"):
        chosen = [name] if name is not None else federations.names()
        found = [current(federations.existing(each)) for each in chosen]
        if output is Output.JSON:
            print(orjson.dumps([document(each) for each in found], option=orjson.OPT_INDENT_2).decode())
        elif not found:
            print("no federation; make one with `mkctl up`")
        else:
            for each in found:
                show(each, output)
        if not all(healthy(each) for each in found):
            raise typer.Exit(FAILED)


def current(told: State) -> State:
    """What the supervisor told last, corrected by what can be seen of it and its processes."""
    folder = federations.folder_of(told.name)
    if not state.is_supervised(folder):
        components = [replace(component, pid=None, running=False) for component in told.components]
        phase = told.phase if told.phase is Phase.FAILED else Phase.DOWN
        return replace(told, phase=phase, components=components)
    components = [
        replace(component, running=component.pid is not None and _exists(component.pid))
        for component in told.components
    ]
    return replace(told, components=components)


def healthy(found: State) -> bool:
    """Whether everything runs."""
    return found.phase is Phase.UP and all(component.running for component in found.components)


def document(found: State) -> dict[str, object]:
    """The state as JSON shows it."""
    return {**asdict(found), "healthy": healthy(found)}


def show(found: State, output: Output) -> None:
    """Print one federation."""
    if output is Output.JSON:
        print(orjson.dumps(document(found), option=orjson.OPT_INDENT_2).decode())
        return
    from rich import box
    from rich.table import Table

    console = terminal_or_wide()
    folder = federations.folder_of(found.name)
    console.print(
        f"federation [bold]{found.name}[/bold] is {found.phase.value} (provider {found.provider}), in {folder}"
    )
    if found.error:
        console.print(found.error, style="red", highlight=False, markup=False)
    clusters = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("CLUSTER", "ROLE", "SERVER", "KUBECONFIG"):
        clusters.add_column(column, overflow="fold")
    for cluster in found.clusters:
        clusters.add_row(cluster.name, cluster.role, cluster.server, _within(folder, cluster.kubeconfig))
    components = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("COMPONENT", "OF", "STATE", "PID", "LOG"):
        components.add_column(column, overflow="fold")
    for part in found.components:
        shown = "[green]running[/green]" if part.running else "[red]not running[/red]"
        components.add_row(part.name, part.owner, shown, str(part.pid or "-"), _within(folder, part.log))
    console.print(clusters)
    console.print(components)


def _within(folder: Path, path: str) -> str:
    return os.path.relpath(path, folder)


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
