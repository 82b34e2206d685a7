# SPDX-License-Identifier: Apache-2.0
"""How fast Jobs travel from the hub to running on a worker, on any federation.

Owns one measurement: it creates Jobs on the hub, sees on each worker when the copy is created and when it runs, and
counts what was written to each API server until the hub says that all Jobs are complete. The Jobs stay for who wants to
look. It knows nothing
of who dispatches, so that another implementation can be put under it:

    python -m tests.bench.dispatch --hub HUB.kubeconfig --worker W1.kubeconfig --worker W2.kubeconfig

A queue of the given name must exist in the namespace (dispatch.yaml beside this file makes one). Without `--rate` all
Jobs are created as one burst.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import statistics
import sys
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time

import anyio
import orjson

from multikueue.api import constants
from multikueue.api.resource import JOBS
from multikueue.kube import credentials
from multikueue.kube.client import KubeClient

_WRITING = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
_CLEANING_SECONDS = 3.0  # what is removed once the hub knows the end
_PREFIX = f"bench-{int(time()):x}-"
_REQUESTS = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(slots=True)
class Journey:
    """When one Job passed each station, in seconds of this process's monotonic clock."""

    created: float
    copied: float | None = None
    running: float | None = None


@dataclass(slots=True)
class Observed:
    """What the watches have seen so far."""

    journeys: dict[str, Journey] = field(default_factory=dict)
    copies: Counter[str] = field(default_factory=Counter)


def job(name: str, *, queue: str, run_for: str) -> dict[str, object]:
    """An ordinary Job of one short pod."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {constants.QUEUE_NAME_LABEL: queue}},
        "spec": {
            "suspend": True,
            "managedBy": constants.MULTIKUEUE_MANAGED_BY,
            "template": {
                "metadata": {"annotations": {constants.RUN_FOR_ANNOTATION: run_for}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "main", "image": "bench", "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}}}
                    ],
                },
            },
        },
    }


async def watch_worker(client: KubeClient, *, namespace: str, seen: Observed) -> None:
    """Note the first sight and the first active pod of every copy on one worker; runs until cancelled."""
    version = (await client.list_all(JOBS, namespace=namespace)).resource_version
    while True:
        async for event in client.watch(JOBS, namespace=namespace, resource_version=version, timeout_seconds=600):
            parsed = orjson.loads(event.raw)
            version = parsed["metadata"]["resourceVersion"]
            name = parsed["metadata"].get("name", "")
            journey = seen.journeys.get(name)
            if journey is None:
                continue
            if event.type == "ADDED":
                seen.copies[name] += 1
                journey.copied = journey.copied or monotonic()
            if journey.running is None and parsed.get("status", {}).get("active", 0) > 0:
                journey.running = monotonic()


async def requests_of(client: KubeClient) -> Counter[tuple[str, str]]:
    """Requests that an API server has answered so far, by verb and resource."""
    text = (await client.request("GET", "/metrics")).body.decode()
    counted: Counter[tuple[str, str]] = Counter()
    for match in _REQUESTS.finditer(text):
        labels = dict(_LABEL.findall(match["labels"]))
        resource = "/".join(filter(None, (labels.get("resource", ""), labels.get("subresource", ""))))
        counted[labels.get("verb", ""), resource] += int(float(match["count"]))
    return counted


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of the sorted values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(options: argparse.Namespace) -> dict[str, object]:
    """Create the Jobs, wait until all have run, and report; after the deadline with what was seen."""
    seen = Observed()
    async with AsyncExitStack() as stack:
        hub, *workers = [
            await stack.enter_async_context(KubeClient(credentials.load(path)))
            for path in (options.hub, *options.worker)
        ]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for client in workers:
            tasks.start_soon(functools.partial(watch_worker, client, namespace=options.namespace, seen=seen))
        await anyio.sleep(1.0)  # the watches are up before the first Job
        before = [await requests_of(client) for client in (hub, *workers)]
        start = monotonic()
        await _create_all(hub, options, seen)
        created = monotonic()
        with anyio.move_on_after(options.deadline):
            while any(journey.running is None for journey in seen.journeys.values()):
                await anyio.sleep(0.05)
            while await _complete(hub, options.namespace) < options.jobs:
                await anyio.sleep(1.0)
            await anyio.sleep(_CLEANING_SECONDS)
        requests = [
            await requests_of(client) - earlier for client, earlier in zip((hub, *workers), before, strict=True)
        ]
        tasks.cancel_scope.cancel()
    figures = speed(seen, start=start, created=created)
    total = len(seen.journeys)
    return {
        **figures,
        "hub_requests_per_job": _share(sum(requests[0].values()), total),
        "hub": writes(requests[0], jobs=total),
        "workers": writes(sum(requests[1:], Counter()), jobs=total),
    }


async def _complete(hub: KubeClient, namespace: str) -> int:
    """How many of our Jobs the hub says are complete."""
    page = await hub.list_all(JOBS, namespace=namespace)
    found = (orjson.loads(raw) for raw in page.items)
    return sum(
        job["metadata"]["name"].startswith(_PREFIX) and "completionTime" in (job.get("status") or {}) for job in found
    )


async def _create_all(hub: KubeClient, options: argparse.Namespace, seen: Observed) -> None:
    limit = anyio.CapacityLimiter(16)
    start = monotonic()

    async def create(name: str) -> None:
        async with limit:
            body = job(name, queue=options.queue, run_for=options.run_for)
            seen.journeys[name] = Journey(created=monotonic())
            await hub.create(JOBS, body, namespace=options.namespace)

    async with anyio.create_task_group() as tasks:
        for number in range(options.jobs):
            if options.rate:
                await anyio.sleep(max(0.0, start + number / options.rate - monotonic()))
            tasks.start_soon(create, f"{_PREFIX}{number:05}")


def speed(seen: Observed, *, start: float, created: float) -> dict[str, object]:
    """The rate, and quantiles in seconds."""
    journeys = seen.journeys.values()
    copied = [journey.copied - journey.created for journey in journeys if journey.copied is not None]
    running = [journey.running - journey.created for journey in journeys if journey.running is not None]
    last = max((journey.running for journey in journeys if journey.running is not None), default=start)
    return {
        "jobs": len(journeys),
        "running": len(running),
        "create_seconds": round(created - start, 2),
        "jobs_per_second": round(len(running) / (last - start), 2) if running else 0.0,
        "create_to_copy_p50": round(statistics.median(copied), 3) if copied else None,
        "create_to_copy_p99": round(quantile(copied, 0.99), 3) if copied else None,
        "create_to_running_p50": round(statistics.median(running), 3) if running else None,
        "create_to_running_p99": round(quantile(running, 0.99), 3) if running else None,
        "copies_per_job": _share(sum(seen.copies.values()), len(journeys)),
    }


def writes(requests: Counter[tuple[str, str]], *, jobs: int) -> dict[str, object]:
    """Writes per Job over its whole life: all of them, and those of a kind that a twentieth of the Jobs needs."""
    found = {key: count for key, count in requests.items() if key[0] in _WRITING}
    return {
        "writes_per_job": _share(sum(found.values()), jobs),
        "writes": {
            f"{verb} {resource}": _share(count, jobs)
            for (verb, resource), count in sorted(found.items(), key=lambda item: -item[1])
            if count >= jobs / 20
        },
    }


def _share(count: int, jobs: int) -> float:
    return round(count / jobs, 2) if jobs else 0.0


def main(arguments: list[str] | None = None) -> int:
    """Print the figures as JSON; exit 1 when a Job did not run in time."""
    parser = argparse.ArgumentParser(description="dispatch rate and latency of a federation")
    parser.add_argument("--hub", type=Path, required=True, help="kubeconfig of the management cluster")
    parser.add_argument("--worker", type=Path, action="append", required=True, help="kubeconfig of a worker; repeat")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--queue", default="bench")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=0.0, help="Jobs per second; 0 is one burst")
    parser.add_argument("--run-for", default="1s", help="how long each pod runs on a virtual node")
    parser.add_argument("--deadline", type=float, default=600.0, help="seconds to wait for the last Job")
    options = parser.parse_args(arguments)
    figures = anyio.run(measure, options)
    print(json.dumps(figures, indent=2))
    return 0 if figures["running"] == figures["jobs"] else 1


if __name__ == "__main__":
    sys.exit(main())
