# SPDX-License-Identifier: Apache-2.0
"""The steps of the demo on a running federation: apply the example, submit jobs, wait, check, clean up.

A run without progress for a minute fails with the jobs that did not finish, their state and the last lines of the logs.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import orjson

from devcluster import manifests
from devcluster.errors import TimedOut
from devcluster.federation.federation import Federation
from devcluster.operators.catalog import operator_of
from devcluster.operators.operator import operating
from devcluster.processes.process import Process
from devcluster.progress import Progress, Step
from multikueue.api.meta import JsonObject
from multikueue.api.resource import JOBS, PODS, WORKLOADS, Resource
from multikueue.cli.local.demo_jobs import DemoRow, Stage, row, workload_by_job, wrong_runs
from multikueue.core.errors import MultikueueError
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.kinds.batch_job import BATCH_JOB

if TYPE_CHECKING:
    from multikueue.kube.rest.client import KubeClient

_STUCK_SECONDS: Final = 60.0
_EMPTY_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.25
_LOG_LINES: Final = 12


class DemoFailed(MultikueueError):
    """The demo failed; the message has the reason."""


class Demo:
    """One run of the demo on a running federation."""

    def __init__(
        self,
        federation: Federation,
        *,
        example: Path,
        jobs: Sequence[JsonObject],
        progress: Progress,
        kinds: Sequence[JobIntegration] = (BATCH_JOB,),
    ) -> None:
        """`kinds` are at least those of the jobs."""
        self._federation = federation
        self._example = manifests.read(example)
        self._jobs = jobs
        self._progress = progress
        of = {(each.resource.group, each.resource.kind): each for each in kinds}
        groups = dict.fromkeys((job["apiVersion"].rpartition("/")[0], job["kind"]) for job in jobs)
        self._kinds = [of[each] for each in groups]

    async def prepare(self) -> None:
        """Apply the example and submit the jobs."""
        async with self._federation.hub.client() as hub:
            self._progress(Step("applying the two-team example (v1beta1)"))
            await manifests.apply_when_served(hub, self._example)
            await self._make_namespaces()
            self._progress(Step(f"submitting {len(self._jobs)} jobs"))
            await manifests.create_all(hub, self._jobs)

    @asynccontextmanager
    async def operators(self) -> AsyncIterator[None]:
        """Run the controllers of the kinds on the workers, where only Jobs have one; Pods need none."""
        wanted = [each.resource for each in self._kinds if each.resource not in (JOBS, PODS)]
        async with AsyncExitStack() as stack:
            for cluster in self._federation.workers.values() if wanted else ():
                worker = await stack.enter_async_context(cluster.client())
                await stack.enter_async_context(operating(*(operator_of(worker, kind) for kind in wanted)))
            yield

    async def watch(self, show: Callable[[Sequence[DemoRow]], None]) -> list[DemoRow]:
        """Show the jobs until all have finished; returns the last rows. Raises `DemoFailed` without progress."""
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

    async def check(self, rows: Sequence[DemoRow]) -> list[str]:
        """The clusters that ran jobs. Raises `DemoFailed` unless each job ran exactly once, on a worker."""
        problems = [f"{row.kind} {row.key} failed" for row in rows if row.stage is Stage.FAILED]
        entries = self._federation.journal()
        problems += wrong_runs(self._jobs, entries)
        async with self._federation.hub.client() as hub:
            on_hub = await _names(hub, PODS)
        gated = {f"{job['metadata']['namespace']}/{job['metadata']['name']}" for job in self._jobs if _is_pod(job)}
        problems += [f"pod {name} is on the hub; pods must run on workers" for name in on_hub if name not in gated]
        if problems:
            raise DemoFailed("\n".join(problems))
        return sorted({entry.cluster for entry in entries})

    async def clean_up(self) -> None:
        """Delete the jobs and the example, and check that nothing is left on any cluster."""
        async with self._federation.hub.client() as hub:
            self._progress(Step("removing the jobs"))
            await manifests.delete_all(hub, self._jobs)
            await _wait_until_empty(hub, "hub", (WORKLOADS, PODS))
        for name, cluster in self._federation.workers.items():
            self._progress(Step(f"waiting until {name} is empty"))
            async with cluster.client() as worker:
                await _wait_until_empty(worker, name, (*(each.resource for each in self._kinds), JOBS, PODS))
        async with self._federation.hub.client() as hub:
            self._progress(Step("removing the example"))
            await manifests.delete_all(hub, self._example)

    async def _make_namespaces(self) -> None:
        namespaces = [manifest for manifest in self._example if manifest["kind"] == "Namespace"]
        for cluster in self._federation.workers.values():
            async with cluster.client() as worker:
                await manifests.create_all(worker, namespaces)

    async def _rows(self, hub: KubeClient) -> list[DemoRow]:
        workloads = workload_by_job(map(orjson.loads, (await hub.list_all(WORKLOADS)).items))
        now = datetime.now(UTC)
        rows = [
            row(job, workloads.get(job["metadata"]["uid"]), now=now, integration=kind)
            for kind in self._kinds
            for job in map(orjson.loads, (await hub.list_all(kind.resource)).items)
        ]
        return sorted(rows, key=lambda entry: entry.key.name)

    def _stuck(self, rows: Sequence[DemoRow]) -> str:
        lines = [f"no progress for {_STUCK_SECONDS:.0f} s; these jobs did not finish:"]
        lines += [
            f"  {row.kind} {row.key}: {row.stage.value} {row.cluster} {row.note}".rstrip()
            for row in rows
            if row.stage not in (Stage.FINISHED, Stage.FAILED)
        ]
        return "\n".join(lines)


def log_ends(federation: Federation) -> str:
    """The last lines of the logs of manager, agents and every component that does not run."""
    logs = []
    for owner, component in federation.components():
        if isinstance(component, Process) and (component.name in ("manager", "agent") or not component.running):
            state = "" if component.running else " (not running)"
            logs.append(f"--- {component.name} of {owner}{state}: {component.log}\n{component.tail(lines=_LOG_LINES)}")
    return "\n".join(logs)


def _is_pod(job: JsonObject) -> bool:
    """Whether it is a Pod, which is kept on the hub by its gate."""
    return bool(job["kind"] == PODS.kind)


async def _wait_until_empty(client: KubeClient, cluster: str, kinds: Sequence[Resource]) -> None:
    left: list[str] = []
    with anyio.move_on_after(_EMPTY_SECONDS):
        while True:
            left = [f"{kind.kind} {name}" for kind in kinds for name in await _names(client, kind)]
            if not left:
                return
            await anyio.sleep(_POLL_SECONDS)
    raise TimedOut(f"{cluster} is not empty after {_EMPTY_SECONDS:.0f} s: {', '.join(left)}")


async def _names(client: KubeClient, resource: Resource) -> list[str]:
    page = await client.list_all(resource)
    found = [orjson.loads(raw)["metadata"] for raw in page.items]
    return [f"{metadata.get('namespace', '')}/{metadata['name']}" for metadata in found]
