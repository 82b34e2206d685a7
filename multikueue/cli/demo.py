# SPDX-License-Identifier: Apache-2.0
"""`mkctl demo`: a federation of its own comes up, Jobs run through it, everything is taken down again."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multikueue.cli import federations
from multikueue.cli.display import StepDisplay, errors_of, fail, terminal_or_wide
from multikueue.core.errors import BadInput, MultikueueError

if TYPE_CHECKING:
    from multikueue.devcluster.federation import Federation, WorkerSpec


def demo(
    jobs: Annotated[int, typer.Option(min=1, max=500, help="how many Jobs to submit")] = 20,
    provider: Annotated[str, typer.Option(help="what makes the clusters: embedded or binaries")] = "embedded",
) -> None:
    """Bring up a hub and two workers, apply the two-team example, run Jobs, show them live, remove everything.

    Exit code 0 when each Job ran once on a worker and nothing is left; 1 with what hung and the ends of the logs.
    """
    import anyio

    with errors_of("demo"):
        folder = federations.folder_of(f"demo-{os.getpid()}")
        try:
            problem = anyio.run(functools.partial(_demo, folder=folder, count=jobs, provider=provider))
        except KeyboardInterrupt:
            federations.forget(folder)
            raise
        if problem:
            fail("demo", f"{problem}\nlogs and data are kept in {folder}")
        federations.forget(folder)


async def _demo(*, folder: Path, count: int, provider: str) -> str:
    """The run; what went wrong, or nothing."""
    from multikueue.cli import examples
    from multikueue.cli.demo_jobs import jobs
    from multikueue.cli.demo_run import Demo, log_ends
    from multikueue.cli.demo_view import LiveTable
    from multikueue.devcluster import providers
    from multikueue.devcluster.federation import Federation, FederationSpec

    console = terminal_or_wide()
    spec = FederationSpec(name=folder.name, workers=_workers())
    display = StepDisplay()
    federation = Federation(spec, folder=folder, provider=providers.factory(provider), progress=display)
    run = Demo(federation, example=examples.path_of("two-teams"), jobs=jobs(count), progress=display)
    try:
        with display:
            await federation.up()
            await run.prepare()
        with LiveTable(console) as live:
            rows = await run.watch(live.show)
        with display:
            clusters = await run.check(rows)
            await run.clean_up()
    except BadInput:
        raise
    except MultikueueError as error:
        return f"{error}\n{log_ends(federation)}"
    finally:
        await _down(federation, display)
    console.print(f"{count} Jobs ran exactly once each, on {' and '.join(clusters)}; nothing is left.", highlight=False)
    return ""


def _workers() -> list[WorkerSpec]:
    from multikueue.devcluster.federation import WorkerSpec
    from multikueue.devcluster.nodes.node import several

    # Six CPUs each: less than the quota of ten, so that the Jobs need both.
    return [
        WorkerSpec(name=f"worker-{number}", nodes=several(2, allocatable={"cpu": "3", "memory": "8Gi"}))
        for number in (1, 2)
    ]


async def _down(federation: Federation, display: StepDisplay) -> None:
    import anyio

    from multikueue.devcluster.progress import Step

    with anyio.CancelScope(shield=True), display:
        display(Step("taking everything down"))
        await federation.down()
