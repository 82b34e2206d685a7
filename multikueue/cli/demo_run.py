# SPDX-License-Identifier: Apache-2.0
"""The demo's run: example in, Jobs in, wait, check, everything out.

Owns the sequence on a federation that is up, and saying what hung: a run that stands still for a minute ends with an
error that names each Job that did not finish, where it stands, and the ends of the logs that may tell why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import orjson

from multikueue.api.meta import JsonObject
from multikueue.api.resource import JOBS, PODS, WORKLOADS, Resource
from multikueue.cli.demo_jobs import Row, Stage, row, workload_by_job, wrong_runs
from multikueue.core.errors import MultikueueError
from multikueue.devcluster import manifests
from multikueue.devcluster.errors import TimedOut
from multikueue.devcluster.federation import Federation
from multikueue.devcluster.processes.process import Process
from multikueue.devcluster.progress import Progress, Step

if TYPE_CHECKING:
    from multikueue.kube.client import KubeClient

_STUCK_SECONDS: Final = 60.0
_EMPTY_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.25
_LOG_LINES: Final = 12


class DemoFailed(MultikueueError):
    """The run did not end as it should; the message tells a person where to look."""


class Demo:
    """One run on a federation that is up."""

    def __init__(
        self, federation: Federation, *, example: Path, jobs: Sequence[JsonObject], progress: Progress
    ) -> None:
        self._federation = federation
        self._example = manifests.read(example)
        self._jobs = jobs
        self._progress = progress

    async def prepare(self) -> None:
        """Apply the example and submit the Jobs."""
        async with self._federation.hub.client() as hub:
            self._progress(Step("applying the two-team example (v1beta1)"))
            await manifests.apply_when_served(hub, self._example)
            await self._make_namespaces()
            self._progress(Step(f"submitting {len(self._jobs)} Jobs"))
            await manifests.create_all(hub, self._jobs)

    async def watch(self, show: Callable[[Sequence[Row]], None]) -> list[Row]:
        """Show the Jobs until all have ended; the rows at the end. Raises `DemoFailed` when nothing moves any more."""
        before: list[tuple[object, ...]] = []
        moved = time.monotonic()
        async with self._federation.hub.client() as hub:
            while True:
                rows = await self._rows(hub)
                show(rows)
                if rows and all(row.stage in (Stage.FINISHED, Stage.FAILED) for row in rows):
                    return rows
                now: list[tuple[object, ...]] = [(row.stage, row.cluster, row.active, row.succeeded) for row in rows]
                if now != before:
                    before, moved = now, time.monotonic()
                elif time.monotonic() - moved > _STUCK_SECONDS:
                    raise DemoFailed(self._stuck(rows))
                await anyio.sleep(_POLL_SECONDS)

    async def check(self, rows: Sequence[Row]) -> list[str]:
        """Raise `DemoFailed` unless each Job finished and ran once, on a worker; the clusters that ran some."""
        problems = [f"Job {row.key} failed" for row in rows if row.stage is Stage.FAILED]
        entries = self._federation.journal()
        problems += wrong_runs(self._jobs, entries)
        async with self._federation.hub.client() as hub:
            on_hub = await _names(hub, PODS)
        problems += [f"pod {name} is on the hub, where none may be" for name in on_hub]
        if problems:
            raise DemoFailed("\n".join(problems))
        return sorted({entry.cluster for entry in entries})

    async def clean_up(self) -> None:
        """Delete the Jobs and the example, and see that nothing is left anywhere."""
        async with self._federation.hub.client() as hub:
            self._progress(Step("removing the Jobs"))
            await manifests.delete_all(hub, self._jobs)
            await _wait_until_empty(hub, "hub", (WORKLOADS,))
        for name, cluster in self._federation.workers.items():
            self._progress(Step(f"waiting until {name} is empty"))
            async with cluster.client() as worker:
                await _wait_until_empty(worker, name, (JOBS, PODS))
        async with self._federation.hub.client() as hub:
            self._progress(Step("removing the example"))
            await manifests.delete_all(hub, self._example)

    async def _make_namespaces(self) -> None:
        namespaces = [manifest for manifest in self._example if manifest["kind"] == "Namespace"]
        for cluster in self._federation.workers.values():
            async with cluster.client() as worker:
                await manifests.create_all(worker, namespaces)

    async def _rows(self, hub: KubeClient) -> list[Row]:
        workloads = workload_by_job(map(orjson.loads, (await hub.list_all(WORKLOADS)).items))
        jobs = [orjson.loads(raw) for raw in (await hub.list_all(JOBS)).items]
        now = datetime.now(UTC)
        return sorted(
            (row(job, workloads.get(job["metadata"]["uid"]), now=now) for job in jobs), key=lambda entry: entry.key.name
        )

    def _stuck(self, rows: Sequence[Row]) -> str:
        lines = [f"nothing has moved for {_STUCK_SECONDS:.0f} s; these Jobs hang:"]
        lines += [
            f"  {row.key}: {row.stage.value} {row.cluster} {row.note}".rstrip()
            for row in rows
            if row.stage not in (Stage.FINISHED, Stage.FAILED)
        ]
        return "\n".join(lines)


def log_ends(federation: Federation) -> str:
    """The ends of the logs of our own processes, and of every component that does not run."""
    told = []
    for owner, component in federation.components():
        if isinstance(component, Process) and (component.name in ("manager", "agent") or not component.running):
            state = "" if component.running else " (not running)"
            told.append(f"--- {component.name} of {owner}{state}: {component.log}\n{component.tail(lines=_LOG_LINES)}")
    return "\n".join(told)


async def _wait_until_empty(client: KubeClient, cluster: str, kinds: Sequence[Resource]) -> None:
    left: list[str] = []
    with anyio.move_on_after(_EMPTY_SECONDS):
        while True:
            left = [f"{kind.kind} {name}" for kind in kinds for name in await _names(client, kind)]
            if not left:
                return
            await anyio.sleep(_POLL_SECONDS)
    raise TimedOut(f"{cluster} still has after {_EMPTY_SECONDS:.0f} s: {', '.join(left)}")


async def _names(client: KubeClient, resource: Resource) -> list[str]:
    page = await client.list_all(resource)
    found = [orjson.loads(raw)["metadata"] for raw in page.items]
    return [f"{metadata.get('namespace', '')}/{metadata['name']}" for metadata in found]
