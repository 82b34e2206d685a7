# SPDX-License-Identifier: Apache-2.0
"""How fast Jobs travel from the hub to running on a worker, on any federation.

Owns one measurement: it creates Jobs on the hub, sees on each worker when the remote job is created and runs, and
counts what was written to each API server until the hub says that all Jobs are complete. The Jobs stay for who wants to
look. It knows nothing of who dispatches, so that another implementation can be put under it:

    python -m tests.bench.dispatch --hub HUB.kubeconfig --worker W1.kubeconfig --worker W2.kubeconfig

A queue of the given name must exist in the namespace (dispatch.yaml beside this file makes one). Without `--rate` all
Jobs are created as one burst.

With `--kind jobset` JobSets of two replicated jobs travel instead of Jobs, and with `--kind both` first Jobs and then
as many JobSets, with the figures of JobSets in proportion to those of Jobs. The framework `jobset.x-k8s.io/jobset` has
to be enabled (`mkctl up --config`); the definition is installed where it is missing, and this process is the controller
of JobSets on the workers.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any, Final

import anyio
import orjson

from devcluster.operators.definitions import JOB_SETS, install
from devcluster.operators.job_sets import JobSetOperator
from devcluster.operators.operator import operating
from multikueue.api import constants
from multikueue.api.resource import JOBS, Resource
from multikueue.core.conditions import is_true_in
from multikueue.kube.errors import NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient

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
            "template": _template(run_for),
        },
    }


def job_set(name: str, *, queue: str, run_for: str) -> dict[str, object]:
    """A JobSet of two replicated jobs of one short pod each."""

    def replicated(role: str) -> dict[str, object]:
        spec = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": _template(run_for)}
        return {"name": role, "replicas": 1, "template": {"spec": spec}}

    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": {"name": name, "labels": {constants.QUEUE_NAME_LABEL: queue}},
        "spec": {
            "suspend": True,
            "managedBy": constants.MULTIKUEUE_MANAGED_BY,
            "replicatedJobs": [replicated("leader"), replicated("worker")],
        },
    }


def _template(run_for: str) -> dict[str, object]:
    return {
        "metadata": {"annotations": {constants.RUN_FOR_ANNOTATION: run_for}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": "bench", "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}}}
            ],
        },
    }


@dataclass(frozen=True, slots=True)
class BenchedKind:
    """A kind of job that travels: how one is made, whether it runs, and whether it has ended."""

    resource: Resource
    body: Callable[..., dict[str, object]]
    runs: Callable[[dict[str, Any]], bool]
    complete: Callable[[dict[str, Any]], bool]


def _both_run(status: dict[str, Any]) -> bool:
    """Whether both Jobs of a JobSet have, or had, a pod."""
    jobs = status.get("replicatedJobsStatus") or ()
    started = [each for each in jobs if any(each.get(name) for name in ("active", "ready", "succeeded"))]
    return len(started) == 2


KINDS: Final[Mapping[str, BenchedKind]] = {
    "job": BenchedKind(
        JOBS,
        job,
        runs=lambda status: status.get("active", 0) > 0,
        complete=lambda status: "completionTime" in status,
    ),
    "jobset": BenchedKind(
        JOB_SETS,
        job_set,
        runs=_both_run,
        complete=lambda status: is_true_in(status, "Completed"),
    ),
}
BOTH: Final = "both"


async def watch_worker(client: KubeClient, *, kind: BenchedKind, namespace: str, seen: Observed) -> None:
    """Record the creation and the first active pods of every remote job on one worker; runs until cancelled."""
    resource = kind.resource
    version = (await client.list_all(resource, namespace=namespace)).resource_version
    while True:
        async for event in client.watch(resource, namespace=namespace, resource_version=version, timeout_seconds=600):
            parsed = orjson.loads(event.raw)
            version = parsed["metadata"]["resourceVersion"]
            name = parsed["metadata"].get("name", "")
            journey = seen.journeys.get(name)
            if journey is None:
                continue
            if event.type == "ADDED":
                seen.copies[name] += 1
                journey.copied = journey.copied or monotonic()
            if journey.running is None and kind.runs(parsed.get("status") or {}):
                journey.running = monotonic()


async def requests_of(client: KubeClient) -> Counter[tuple[str, str]]:
    """Requests that an API server has answered so far, by verb and resource; none of one without metrics."""
    counted: Counter[tuple[str, str]] = Counter()
    try:
        text = (await client.request("GET", "/metrics")).body.decode()
    except NotFound:
        return counted  # an embedded one
    for match in _REQUESTS.finditer(text):
        labels = dict(_LABEL.findall(match["labels"]))
        resource = "/".join(filter(None, (labels.get("resource", ""), labels.get("subresource", ""))))
        counted[labels.get("verb", ""), resource] += int(float(match["count"]))
    return counted


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of the sorted values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of the kind, or of both kinds with their ratios."""
    if options.kind != BOTH:
        return await measure_kind(options, options.kind)
    found: dict[str, Any] = {name: await measure_kind(options, name) for name in KINDS}
    return {**found, "jobset_to_job": ratios(found["jobset"], found["job"])}


async def measure_kind(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Create the jobs, wait until all have run, and report; after the deadline with what was seen."""
    seen, kind = Observed(), KINDS[name]
    async with AsyncExitStack() as stack:
        hub, *workers = [
            await stack.enter_async_context(KubeClient(credentials.load(path)))
            for path in (options.hub, *options.worker)
        ]
        if kind.resource == JOB_SETS:
            for client in (hub, *workers):
                await install(client, JOB_SETS)
            await anyio.sleep(options.settle)  # manager and agents look for missing kinds now and then
            await stack.enter_async_context(operating(*map(JobSetOperator, workers)))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for client in workers:
            watch = functools.partial(watch_worker, client, kind=kind, namespace=options.namespace, seen=seen)
            tasks.start_soon(watch)
        await anyio.sleep(1.0)  # the watches are up before the first Job
        before = [await requests_of(client) for client in (hub, *workers)]
        start = monotonic()
        prefix = f"{_PREFIX}{name}-"
        await _create_all(hub, options, kind, prefix=prefix, seen=seen)
        created = monotonic()
        with anyio.move_on_after(options.deadline):
            while any(journey.running is None for journey in seen.journeys.values()):
                await anyio.sleep(0.05)
            while await _complete(hub, kind, prefix=prefix, namespace=options.namespace) < options.jobs:
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


async def _complete(hub: KubeClient, kind: BenchedKind, *, prefix: str, namespace: str) -> int:
    """How many of our jobs the hub says are complete."""
    page = await hub.list_all(kind.resource, namespace=namespace)
    found = (orjson.loads(raw) for raw in page.items)
    return sum(
        each["metadata"]["name"].startswith(prefix) and kind.complete(each.get("status") or {}) for each in found
    )


async def _create_all(
    hub: KubeClient, options: argparse.Namespace, kind: BenchedKind, *, prefix: str, seen: Observed
) -> None:
    limit = anyio.CapacityLimiter(16)
    start = monotonic()

    async def create(name: str) -> None:
        async with limit:
            body = kind.body(name, queue=options.queue, run_for=options.run_for)
            seen.journeys[name] = Journey(created=monotonic())
            await hub.create(kind.resource, body, namespace=options.namespace)

    async with anyio.create_task_group() as tasks:
        for number in range(options.jobs):
            if options.rate:
                await anyio.sleep(max(0.0, start + number / options.rate - monotonic()))
            tasks.start_soon(create, f"{prefix}{number:05}")


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


def ratios(found: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, float | None]:
    """The rate, the times and the writes of one kind in proportion to those of the other."""
    figures = {
        "jobs_per_second": (found["jobs_per_second"], other["jobs_per_second"]),
        "create_to_running_p50": (found["create_to_running_p50"], other["create_to_running_p50"]),
        "create_to_running_p99": (found["create_to_running_p99"], other["create_to_running_p99"]),
        "hub_writes_per_job": (found["hub"]["writes_per_job"], other["hub"]["writes_per_job"]),
        "worker_writes_per_job": (found["workers"]["writes_per_job"], other["workers"]["writes_per_job"]),
    }
    return {name: round(one / two, 2) if one and two else None for name, (one, two) in figures.items()}


def _share(count: int, jobs: int) -> float:
    return round(count / jobs, 2) if jobs else 0.0


def main(arguments: list[str] | None = None) -> int:
    """Print the figures as JSON; exit 1 when a Job did not run in time."""
    parser = argparse.ArgumentParser(description="dispatch rate and latency of a federation")
    parser.add_argument("--hub", type=Path, required=True, help="kubeconfig of the management cluster")
    parser.add_argument("--worker", type=Path, action="append", required=True, help="kubeconfig of a worker; repeat")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--queue", default="bench")
    parser.add_argument("--jobs", type=int, default=1000, help="how many of each kind")
    parser.add_argument("--kind", choices=[*KINDS, BOTH], default="job", help="what travels")
    parser.add_argument(
        "--settle", type=float, default=15.0, help="seconds until manager and agents have found the kind of JobSets"
    )
    parser.add_argument("--rate", type=float, default=0.0, help="Jobs per second; 0 is one burst")
    parser.add_argument("--run-for", default="1s", help="how long each pod runs on a virtual node")
    parser.add_argument("--deadline", type=float, default=600.0, help="seconds to wait for the last Job")
    options = parser.parse_args(arguments)
    figures = anyio.run(measure, options)
    print(json.dumps(figures, indent=2))
    measured = [figures] if options.kind != BOTH else [figures[name] for name in KINDS]
    return 0 if all(each["running"] == each["jobs"] for each in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
