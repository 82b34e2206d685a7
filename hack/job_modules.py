#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the modules of manager, agent and library that run code between the creation of one Job and its end.

A federation runs in this process: hub, two workers, manager with webhooks, two agents. After 25 s of idling it records
for 25 s which modules run without a Job (reports, leases, watches). Then it creates one Job and records, until the Job
is complete on the hub and its remote job is deleted, the module of every Python function that is called in a task of
the manager or of an agent. Code that the devcluster runs is not counted.

`--document` writes the list into docs/architecture.md.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Awaitable, Iterable
from contextvars import ContextVar
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

from devcluster import manifests
from devcluster.manifests import create_all
from manager.app import Manager
from multikueue.testing.in_process import InProcessFederation, embedded_federation
from worker_agent.app import Agent

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path(sys.modules["manager"].__path__[0]).parent
PAGE = ROOT / "docs" / "architecture.md"
BLOCK = re.compile(r"(<!-- hack/job_modules.py -->\n).*?(<!-- end -->)", re.DOTALL)
PACKAGES = tuple(f"{SOURCE / name}/" for name in ("multikueue", "manager", "worker_agent"))
EXAMPLE = ROOT / "deploy" / "examples" / "two-teams"
JOB = "/apis/batch/v1/namespaces/team-a/jobs"
IDLE_SECONDS = 25.0
PROCESS: ContextVar[str] = ContextVar("PROCESS", default="")
"""`manager` or `agent` in the tasks of these; tasks and callbacks inherit it."""


class Recorder:
    """Which files ran code, by the process that ran it."""

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = {"manager": set(), "agent": set()}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>" and (process := PROCESS.get()):
            self.files[process].add(frame.f_code.co_filename)

    def modules(self, process: str) -> set[str]:
        """The modules of ours among the files."""
        ours = {Path(file).relative_to(SOURCE) for file in self.files[process] if file.startswith(PACKAGES)}
        return {".".join(file.with_suffix("").parts) for file in ours if file.name != "__init__.py"}


def mark(owner: type[Any], process: str) -> None:
    """Have the tasks of a process carry its name."""
    run = owner.run

    async def marked(self: object) -> None:
        PROCESS.set(process)
        await run(self)

    owner.run = marked


async def record(work: Awaitable[object]) -> Recorder:
    """What runs during `work`."""
    recorder = Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        await work
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return recorder


async def run_job(federation: InProcessFederation) -> None:
    """Create one Job on the hub and wait until it is complete there and gone on the workers."""
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "one",
            "namespace": "team-a",
            "labels": {"kueue.x-k8s.io/queue-name": "jobs"},
        },
        "spec": {
            "template": {
                "metadata": {"annotations": {"multikueue.io/run-for": "3s"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
                },
            }
        },
    }
    async with federation.hub.client() as hub:
        await hub.request("POST", JOB, body=manifest)
        with anyio.fail_after(120):
            while True:
                job = (await hub.request("GET", f"{JOB}/one")).json()
                conditions = job.get("status", {}).get("conditions", [])
                if any(each["type"] == "Complete" and each["status"] == "True" for each in conditions):
                    break
                await anyio.sleep(0.2)
            for worker in federation.workers.values():
                async with worker.client() as client:
                    while (await client.request("GET", JOB)).json()["items"]:  # noqa: ASYNC110
                        await anyio.sleep(0.2)


async def prepare(federation: InProcessFederation) -> None:
    """Make the queues of the two-team example and its namespaces."""
    async with federation.hub.client() as hub:
        await create_all(hub, manifests.read(EXAMPLE))
    for worker in federation.workers.values():
        async with worker.client() as client:
            await create_all(client, manifests.read(EXAMPLE / "00-namespaces.yaml"))


async def measure() -> tuple[Recorder, Recorder]:
    """What runs without a Job, and what runs for one."""
    mark(Manager, "manager")
    mark(Agent, "agent")
    async with embedded_federation() as federation:
        await prepare(federation)
        await anyio.sleep(IDLE_SECONDS)
        idle = await record(anyio.sleep(IDLE_SECONDS))
        return idle, await record(run_job(federation))


def described(idle: Recorder, job: Recorder) -> str:
    """The figures and the list, in Markdown."""
    hub, worker = job.modules("manager"), job.modules("agent")
    both = hub | worker
    background = (idle.modules("manager") | idle.modules("agent")) & both
    lines = [
        f"One Job passes **{len(both)} modules**: {len(hub)} in the manager and {len(worker)} in the agent, "
        f"{len(hub & worker)} of them in both. {len(background)} of them also run while there is no Job (in italics), "
        f"{len(both) - len(background)} only for a Job.",
        "",
        "| package | manager | agent |",
        "|---|---|---|",
    ]

    def package(module: str) -> str:
        return module.rpartition(".")[0]

    def cell(modules: Iterable[str]) -> str:
        names = ((each, each.rpartition(".")[2]) for each in sorted(modules))
        return ", ".join(f"*{name}*" if module in background else name for module, name in names)

    for name, group in groupby(sorted(both, key=lambda each: (package(each), each)), key=package):
        modules = set(group)
        lines.append(f"| `{name.replace('.', '/')}` | {cell(modules & hub)} | {cell(modules & worker)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print and, if asked, write the page."""
    text = described(*anyio.run(measure))
    print(text)
    if "--document" in sys.argv:
        PAGE.write_text(BLOCK.sub(lambda match: f"{match[1]}\n{text}\n{match[2]}", PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
