# SPDX-License-Identifier: Apache-2.0
"""`mkctl demo`: starts a temporary federation, runs jobs on it and removes everything."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from multikueue.cli.display import StepDisplay, errors_of, fail, terminal_or_wide
from multikueue.cli.local import federations
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.printable import excerpt

if TYPE_CHECKING:
    from devcluster.federation.federation import Federation
    from devcluster.federation.spec import FederationSpec, WorkerSpec
    from devcluster.kubelet.node import NodeSpec

_TWO_TEAMS: Final = "two-teams"
_PROVISIONING: Final = "provisioning"
_ONE_CLUSTER: Final = "provisioning-one-cluster"
_EXAMPLES: Final = (
    Path(__file__).parents[3] / "deploy" / "examples",  # of a checkout
    Path(__file__).parent / "examples",  # of an installed package
)


def demo(
    jobs: Annotated[int, typer.Option(min=1, max=500, metavar="N", help="Number of Jobs, at most 500.")] = 20,
    provider: Annotated[
        str, typer.Option(metavar="NAME", help="Provider of the clusters: embedded or binaries.")
    ] = "embedded",
    example: Annotated[
        str, typer.Option(metavar="NAME", help=f"What to show: {_TWO_TEAMS}, {_PROVISIONING} or {_ONE_CLUSTER}.")
    ] = _TWO_TEAMS,
    kinds: Annotated[
        bool,
        typer.Option(
            "--kinds",
            help="Run JobSets, PyTorchJobs, RayJobs, Pods and pod groups next to Jobs, with small controllers.",
        ),
    ] = False,
) -> None:
    """Start a hub and two workers, run jobs of two teams, show them live and remove everything.

    `--example provisioning` shows capacity that is provisioned on one worker, revoked, and provisioned on the other;
    `--example provisioning-one-cluster` the same on a cluster without workers. Each runs one Job.

    Exit code 0 if every job ran exactly once on a worker and nothing is left; else 1, with the jobs that did not finish
    and the last lines of the logs.
    """
    import anyio

    with errors_of("demo"):
        folder = federations.folder_of(f"demo-{os.getpid()}")
        try:
            if example in (_PROVISIONING, _ONE_CLUSTER):
                across = example == _PROVISIONING
                show = functools.partial(_provisioning_demo, folder=folder, provider=provider, across=across)
                problem = anyio.run(show)
            elif example == _TWO_TEAMS:
                run = functools.partial(_demo, folder=folder, count=jobs, provider=provider, mixed=kinds)
                problem = anyio.run(run)
            else:
                known = f"{_TWO_TEAMS}, {_PROVISIONING} or {_ONE_CLUSTER}"
                raise BadInput(f"no example {excerpt(example)}; expected {known}")
        except KeyboardInterrupt:
            federations.forget(folder)
            raise
        if problem:
            fail("demo", f"{problem}\nlogs and data are in {folder}")
        federations.forget(folder)


async def _demo(*, folder: Path, count: int, provider: str, mixed: bool) -> str:
    """Run the demo; returns the error, or an empty text."""
    from devcluster.federation.federation import Federation
    from devcluster.federation.spec import FederationSpec
    from devcluster.providers import catalog
    from multikueue.cli.local.demo_jobs import jobs
    from multikueue.cli.local.demo_run import Demo, log_ends
    from multikueue.cli.local.demo_view import LiveTable
    from multikueue.jobs.framework.registry import known_integrations
    from multikueue.jobs.kinds.batch_job import BATCH_JOB

    console = terminal_or_wide()
    spec = FederationSpec(name=folder.name, workers=_workers())
    spec = _with_kinds(spec) if mixed else spec
    display = StepDisplay()
    federation = Federation(spec, folder=folder, provider=catalog.factory(provider), progress=display)
    run = Demo(
        federation,
        example=_example(_TWO_TEAMS),
        jobs=jobs(count, mixed=mixed),
        progress=display,
        kinds=tuple(known_integrations().values()) if mixed else (BATCH_JOB,),
    )
    try:
        with display:
            await federation.up()
            await run.prepare()
        async with run.operators():
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
    console.print(
        f"{count} {'jobs' if mixed else 'Jobs'} ran exactly once each, on {' and '.join(clusters)}; nothing is left.",
        highlight=False,
    )
    return ""


async def _provisioning_demo(*, folder: Path, provider: str, across: bool) -> str:
    """Run a provisioning example; returns the error, or an empty text."""
    from devcluster.federation.federation import Federation
    from devcluster.providers import catalog
    from multikueue.cli.local.demo_run import log_ends
    from multikueue.cli.local.provisioning.one_cluster import OneClusterDemo
    from multikueue.cli.local.provisioning.run import ProvisioningDemo

    console = terminal_or_wide()
    display = StepDisplay()
    spec = _growing_workers(folder.name) if across else _growing_cluster(folder.name)
    federation = Federation(spec, folder=folder, provider=catalog.factory(provider), progress=display)
    run = (ProvisioningDemo if across else OneClusterDemo)(
        federation,
        example=_example(_PROVISIONING) / ("across-clusters" if across else "."),
        tell=functools.partial(console.print, highlight=False, markup=False),
    )
    try:
        with display:
            await federation.up()
        last = await run.run()
    except BadInput:
        raise
    except MultikueueError as error:
        return f"{error}\n{log_ends(federation)}"
    finally:
        await _down(federation, display)
    console.print(last, highlight=False)
    return ""


def _growing_workers(name: str) -> FederationSpec:
    """Two workers, each with a node that is too small for the Job."""
    from devcluster.federation.spec import FederationSpec, WorkerSpec
    from devcluster.provisioner.definition import definition

    workers = [WorkerSpec(name=f"worker-{number}", nodes=_small_node()) for number in (1, 2)]
    return FederationSpec(name=name, workers=workers, worker_manifests=[definition()])


def _growing_cluster(name: str) -> FederationSpec:
    """One cluster with the manager and with a node that is too small for the Job."""
    from devcluster.federation.spec import FederationSpec

    return FederationSpec(name=name, workers=(), as_kind=name, worker_queues=True, hub_nodes=_small_node())


def _small_node() -> Sequence[NodeSpec]:
    from devcluster.kubelet.node import several

    return several(1, allocatable={"cpu": "2", "memory": "4Gi"})


def _example(name: str) -> Path:
    """The file or folder of an example. Raises `BadInput` if it is in neither place."""
    for folder in _EXAMPLES:
        if (folder / name).exists():
            return folder / name
    raise BadInput(f"example {name} not found in {' or '.join(map(str, _EXAMPLES))}")


def _workers() -> list[WorkerSpec]:
    from devcluster.federation.spec import WorkerSpec
    from devcluster.kubelet.node import several

    # Six CPUs each, less than the quota of ten, so that the Jobs need both workers.
    return [
        WorkerSpec(name=f"worker-{number}", nodes=several(2, allocatable={"cpu": "3", "memory": "8Gi"}))
        for number in (1, 2)
    ]


def _with_kinds(spec: FederationSpec) -> FederationSpec:
    """The kinds that the demo runs beside Jobs: their frameworks, and their definitions on every cluster."""
    from devcluster.operators.definitions import shipped_definition
    from multikueue.cli.local.demo_kinds import FRAMEWORKS, KINDS

    return replace(
        spec,
        configuration={"integrations": {"frameworks": list(FRAMEWORKS)}},
        definitions=[shipped_definition(each) for each in KINDS],
    )


async def _down(federation: Federation, display: StepDisplay) -> None:
    import anyio

    from devcluster.progress import Step

    with anyio.CancelScope(shield=True), display:
        display(Step("stopping the federation"))
        await federation.down()
