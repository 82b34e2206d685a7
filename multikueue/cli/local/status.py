# SPDX-License-Identifier: Apache-2.0
"""`mkctl status`: the local federations, as a table or as JSON."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from devcluster.federation import state
from devcluster.federation.state import ComponentState, FederationPhase, FederationState
from multikueue.cli.display import Output, errors_of, terminal_or_wide
from multikueue.cli.local import federations
from multikueue.cli.local.federation_health import FederationHealth, examine
from multikueue.cli.terminal import FAILED, show_json

if TYPE_CHECKING:
    from rich.table import Table

FROZEN: Final = "frozen"
"""The problem of a process that a signal has stopped."""
_RECOVERY: Final = {
    FederationPhase.DOWN: ("to start it again with its data", "mkctl up"),
    FederationPhase.FAILED: ("to remove it, before a new `mkctl up`", "mkctl down"),
}


def status(
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            "--federation",
            metavar="NAME",
            help="Name of the federation. Default: all federations of this user.",
        ),
    ] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = Output.TABLE,
) -> None:
    """Show processes, workers, queues and workloads. Exit code 0 if everything is healthy, else 1.

    A process that does not answer its health check is down, and so is a worker whose agent lost the hub.
    """
    with errors_of("status"):
        chosen = [name] if name is not None else federations.names()
        found = [current(federations.existing(each)) for each in chosen]
        reports = [_health(each) for each in found]
        shown = [_with_unresponsive(each, health) for each, health in zip(found, reports, strict=True)]
        if output is Output.JSON:
            show_json([document(each, health) for each, health in zip(shown, reports, strict=True)])
        elif not found:
            print("no federation; create one with `mkctl up`")
        else:
            for each, health in zip(shown, reports, strict=True):
                show(each, output, health)
        if not all(healthy(each, health) for each, health in zip(shown, reports, strict=True)):
            raise typer.Exit(FAILED)


def current(found: FederationState) -> FederationState:
    """The state in the supervisor's file, corrected by the actual state of the processes."""
    folder = federations.folder_of(found.name)
    if not state.is_supervised(folder):
        components = [replace(component, pid=None, running=False) for component in found.components]
        phase = found.phase if found.phase is FederationPhase.FAILED else FederationPhase.DOWN
        return replace(found, phase=phase, components=components)
    return replace(found, components=[_with_process_state(component) for component in found.components])


def healthy(found: FederationState, health: FederationHealth | None = None) -> bool:
    """Whether everything is healthy."""
    processes = all(component.running and not component.problem for component in found.components)
    return found.phase is FederationPhase.UP and processes and (health is None or not health.problems)


def document(found: FederationState, health: FederationHealth | None = None) -> dict[str, object]:
    """The state as a document."""
    shown: dict[str, object] = {}
    if health is not None:
        shown = {**asdict(health), "problems": health.problems}
        del shown["unresponsive"]
    return {**asdict(found), **shown, "healthy": healthy(found, health)}


def show(found: FederationState, output: Output, health: FederationHealth | None = None) -> None:
    """Print one federation."""
    if output is Output.JSON:
        show_json(document(found, health))
        return
    from rich.text import Text

    console = terminal_or_wide()
    folder = federations.folder_of(found.name)
    console.print(
        Text.assemble("federation ", (found.name, "bold"), f" is {found.phase.value} (provider {found.provider})")
    )
    console.print(f"data and logs: {folder}", soft_wrap=True)
    if found.error:
        console.print(found.error, style="red")
    if found.kubeconfig:
        console.print(f"kubeconfig of all clusters: {found.kubeconfig}", soft_wrap=True)
    if found.metrics and found.phase is FederationPhase.UP:
        console.print(f"metrics of the manager: {found.metrics}")
    clusters = _table("CLUSTER", "ROLE", "SERVER", "CONTEXT", "KUBECONFIG")
    for cluster in found.clusters:
        path = _within(folder, cluster.kubeconfig)
        clusters.add_row(cluster.name, cluster.role, cluster.server, cluster.context or cluster.name, path)
    components = _table("COMPONENT", "OF", "STATE", "PID", "RESTARTS", "LOG")
    for part in found.components:
        good = part.running and not part.problem
        shown = Text("running", "green") if good else Text(part.problem or "not running", "red")
        restarts = str(part.restarts)
        components.add_row(part.name, part.owner, shown, str(part.pid or "-"), restarts, _within(folder, part.log))
    console.print(clusters)
    console.print(components)
    if health is None:
        if found.phase in _RECOVERY:
            step, command = _RECOVERY[found.phase]
            console.print(f"{step}:")
            console.print(f"  {command} --name {found.name}", soft_wrap=True)
        return
    if health.workers:
        workers = _table("WORKER", "ACTIVE", "LAST CONTACT", "WORKLOADS", "REASON")
        for each in health.workers:
            contact = "-" if each.contact_age is None else f"{each.contact_age:.0f} s ago"
            problem = each.problem
            workers.add_row(
                each.name, str(each.active), contact, str(each.workloads), Text(problem or each.reason, _style(problem))
            )
        console.print(workers)
    if health.queues:
        queues = _table("CLUSTERQUEUE", "ACTIVE", "PENDING", "ADMITTED", "REASON")
        for queue in health.queues:
            row = (queue.name, str(queue.active), str(queue.pending), str(queue.admitted), queue.message)
            queues.add_row(*row)
        console.print(queues)
    if not health.error:
        counts = ", ".join(f"{count} {phase}" for phase, count in health.workloads.items())
        console.print(f"Workloads: {counts or 'none'}")
    for problem in health.problems:
        console.print(problem, style="red")
    for step, command in next_steps(found, health):
        console.print(f"{step}:")
        console.print(f"  {command}", soft_wrap=True)


def next_steps(found: FederationState, health: FederationHealth) -> list[tuple[str, str]]:
    """What to do about each process and worker that is down, and the command for it."""
    steps: list[tuple[str, str]] = []
    for part in found.components:
        name = f"{part.name} of {part.owner}"
        if not part.running:
            log = federations.folder_of(found.name) / part.log
            steps.append((f"{name} has ended and is started again; its log", f"tail {log}"))
        elif part.problem == FROZEN:
            steps.append((f"{name} was stopped by a signal; to continue it", f"kill -CONT {part.pid}"))
        elif part.problem:
            steps.append((f"{name} {part.problem}; to have it started again", f"kill {part.pid}"))
    frozen = {part.owner for part in found.components if not part.running or part.problem}
    for each in health.workers:
        if each.problem and each.name not in frozen:
            steps.append((f"to see the connection of {each.name}", f"mkctl cluster describe {each.name}"))
    return steps


def _health(found: FederationState) -> FederationHealth | None:
    """The health of a federation from its hub; None if the hub is not up."""
    if found.phase is not FederationPhase.UP or not any(cluster.name == "hub" for cluster in found.clusters):
        return None
    import anyio

    from multikueue.core.clock import SystemClock

    async def ask() -> FederationHealth:
        return await examine(found, now=SystemClock().now())

    return anyio.run(ask)


def _with_unresponsive(found: FederationState, health: FederationHealth | None) -> FederationState:
    unresponsive = set(health.unresponsive) if health is not None else set()
    components = [
        replace(part, problem="does not answer") if part.health in unresponsive and not part.problem else part
        for part in found.components
    ]
    return replace(found, components=components)


def _with_process_state(component: ComponentState) -> ComponentState:
    """The component with the state of its process in `/proc`."""
    if component.pid is None:
        return replace(component, running=False)
    try:
        stat = Path(f"/proc/{component.pid}/stat").read_text()
    except OSError:
        return replace(component, running=False)
    process_state = stat.rpartition(")")[2].split()[0]
    if process_state in "ZX":
        return replace(component, running=False)
    return replace(component, running=True, problem=FROZEN if process_state in "Tt" else "")


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))  # must fit 80 columns
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _style(problem: str) -> str:
    return "red" if problem else ""


def _within(folder: Path, path: str) -> str:
    return os.path.relpath(path, folder)
