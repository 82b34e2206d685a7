# SPDX-License-Identifier: Apache-2.0
"""A management cluster with many workloads on many workers, as files of the embedded API server.

A Job that runs, one that has ended and one that waits for quota are made for real, by a manager and an agent; their
objects, with every field and every owner of a field, are then copied under other names and uids. So a hundred thousand
of them take less than a minute, and are what a hub would hold.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import orjson

from manager.dispatch.assignments import fingerprint
from manager.dispatch.controller import DispatchController
from multikueue.api.constants import MULTIKUEUE_MANAGED_BY
from multikueue.api.remoteassignment import assignment_name, mailbox_namespace
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, LEASES, REMOTE_ASSIGNMENTS, WORKLOADS
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.dispatch.protocol.wire import FINGERPRINT_ANNOTATION
from multikueue.kube.rest.client import KubeClient
from tests.support.hubs import agent_of, running_hub, worker_of
from tests.support.jobs import finish_job
from tests.support.managers import eventually, get, is_true, job_manifest, make_queue, running_manager, workload_of
from tests.support.workers import FakeWorker, make_check

TEAM = "team"
SETTINGS = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
multiKueue: {workerLostTimeout: 1h}
"""
RUNNING, WAITING, ENDED = "storm", "waits", "ended"
"""What the names of the Jobs in each state begin with."""
_IN_CONFIG = 20
"""As many clusters as one MultiKueueConfig takes; each has its check."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many clusters, workloads in each state, and ClusterQueues of each check."""

    clusters: int
    running: int
    waiting: int = 0
    ended: int = 0
    queues: int = 1

    @property
    def workloads(self) -> int:
        """In all states."""
        return self.running + self.waiting + self.ended

    @property
    def checks(self) -> int:
        """As many as there are MultiKueueConfigs."""
        return -(-self.clusters // _IN_CONFIG)

    def cluster(self, number: int) -> str:
        """The cluster of the workload with that number."""
        return cluster_name(number % self.clusters)

    def check(self, number: int) -> str:
        """The check of its queue, which is that of its cluster."""
        return f"check-{number % self.clusters // _IN_CONFIG}"

    def queue(self, number: int) -> str:
        """Its queue."""
        check = number % self.clusters // _IN_CONFIG
        return _queue_name(check * self.queues + number // self.clusters % self.queues)

    def quotas(self) -> Mapping[str, int]:
        """The quota of each queue: as much as what runs in it, so that what waits goes on waiting."""
        held = Counter(self.queue(number) for number in range(self.running))
        return {name: held[name] for name in (_queue_name(each) for each in range(self.checks * self.queues))}


@dataclass(frozen=True, slots=True)
class Crowd:
    """Where the objects are, and how many."""

    hub: Path
    workers: dict[str, Path]
    size: Size


def cluster_name(position: int) -> str:
    """The name of a cluster."""
    return f"c-{position:02}"


async def make_crowd(folder: Path, size: Size) -> Crowd:
    """So many workloads, spread evenly over the clusters and queues."""
    names = [cluster_name(position) for position in range(size.clusters)]
    hub, worker = folder / "hub.db", folder / "worker.db"
    await _run_first(hub, worker, size)
    with closing(sqlite3.connect(hub)) as database:
        running = _workload_name(database, RUNNING)
        for state, count in ((RUNNING, size.running), (WAITING, size.waiting), (ENDED, size.ended)):
            if not count:
                continue
            workload, copied = _workload_name(database, state), range(1, count)
            for kind in (JOBS, WORKLOADS, *((REMOTE_ASSIGNMENTS,) if state == RUNNING else ())):
                _multiply(database, kind.qualified, size, state=state, workload=workload, numbers=copied)
        _set_quotas(database, size.quotas())
        database.commit()
    homes = {}
    for position, name in enumerate(names):
        homes[name] = folder / f"{name}.db"
        with closing(sqlite3.connect(worker)) as source, closing(sqlite3.connect(homes[name])) as target:
            source.backup(target)
            own = range(position, size.running, size.clusters)
            _multiply(target, JOBS.qualified, size, state=RUNNING, workload=running, numbers=own)
            if position:
                first = (JOBS.qualified, f"{TEAM}/{_first(RUNNING)}")
                target.execute("DELETE FROM objects WHERE collection = ? AND key = ?", first)
            target.commit()
    return Crowd(hub, homes, size)


async def _run_first(hub_file: Path, worker_file: Path, size: Size) -> None:
    """The first of each state: one Job ends, then one runs, and there is no quota for a third."""
    names = [cluster_name(position) for position in range(size.clusters)]
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(running_hub(database=hub_file))
        worker = await stack.enter_async_context(worker_of(hub, names[0], namespace=TEAM, database=worker_file))
        client = await stack.enter_async_context(hub.client())
        for check in range(size.checks):
            await make_check(client, f"check-{check}", tuple(names[check * _IN_CONFIG : (check + 1) * _IN_CONFIG]))
            for number in range(size.queues):
                queue = _queue_name(check * size.queues + number)
                await make_queue(client, queue, namespace=TEAM, cpu="1", checks=(f"check-{check}",))
        for name in names:
            await FakeWorker(client, name).enrol()
        await stack.enter_async_context(
            running_manager(hub.as_cluster, settings=SETTINGS, webhooks=False, dispatch=DispatchController)
        )
        for name in names:
            await eventually(partial(_mailbox, client, name), what=f"the mailbox of {name}", deadline=120)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(agent_of(worker).run)
        if size.ended:
            await _run(client, worker.client, _first(ENDED))
            await finish_job(worker.client, _first(ENDED), namespace=TEAM)
            await eventually(
                lambda: workload_of(client, _first(ENDED), namespace=TEAM),
                what="it has finished",
                until=lambda seen: is_true(seen or {}, "Finished"),
            )
            await eventually(
                lambda: get(worker.client, JOBS, _first(ENDED), namespace=TEAM),
                what="its remote job is removed",
                until=lambda seen: seen is None,
            )
        await _run(client, worker.client, _first(RUNNING))
        if size.waiting:
            await _create(client, _first(WAITING))
            await eventually(
                lambda: workload_of(client, _first(WAITING), namespace=TEAM),
                what="why it waits is written",
                until=lambda seen: bool(((seen or {}).get("status") or {}).get("conditions")),
            )
        tasks.cancel_scope.cancel()


async def _run(client: KubeClient, worker: KubeClient, name: str) -> None:
    """Create a Job on the hub, and let it run on the worker."""
    await _create(client, name)
    await eventually(lambda: get(worker, JOBS, name, namespace=TEAM), what="it is made")
    status = {"active": 1, "ready": 1, "startTime": format_time(SystemClock().now())}
    await worker.patch(JOBS, name, {"status": status}, namespace=TEAM, subresource="status")
    await eventually(
        lambda: get(client, JOBS, name, namespace=TEAM),
        what="its status is synced",
        until=lambda seen: bool(((seen or {}).get("status") or {}).get("ready")),
    )


async def _create(client: KubeClient, name: str) -> None:
    await client.create(JOBS, queued_job(name, queue=_queue_name(0)), namespace=TEAM)


def queued_job(name: str, *, queue: str) -> dict[str, Any]:
    """A Job of one CPU that is to be dispatched, as the webhook leaves it."""
    manifest = job_manifest(name, namespace=TEAM, queue=queue, suspend=True)
    manifest["spec"]["managedBy"] = MULTIKUEUE_MANAGED_BY
    return manifest


async def _mailbox(client: KubeClient, name: str) -> object:
    return await get(client, LEASES, "agent", namespace=mailbox_namespace(name))


def _multiply(
    database: sqlite3.Connection, collection: str, size: Size, *, state: str, workload: str, numbers: Iterable[int]
) -> None:
    """Copy the object of the first Job in that state, for each of the numbers but its own."""
    place, raw = _object_of(database, collection, state)
    obj = orjson.loads(raw)
    (last,) = database.execute("SELECT max(version) FROM objects").fetchone()
    uids = _uids(obj)

    def copies() -> Iterator[tuple[str, str, int, bytes]]:
        for version, number in enumerate((number for number in numbers if number), last + 1):
            name = _name(state, number)
            renamed = workload.replace(_first(state), name)
            texts = {
                assignment_name(Key(TEAM, workload)): assignment_name(Key(TEAM, renamed)),
                _first(state): name,
                cluster_name(0): size.cluster(number),
                size.check(0): size.check(number),
                size.queue(0): size.queue(number),
                **{uid: f"{uid[:-12]}{number:012}" for uid in uids},
            }
            text, key = raw.decode(), place
            for old, new in texts.items():
                text, key = text.replace(old, new), key.replace(old, new)
            made = orjson.loads(text)
            made["metadata"]["resourceVersion"] = str(version)
            if collection == REMOTE_ASSIGNMENTS.qualified:
                # Else the manager would send each of them anew.
                sent = _stored(database, WORKLOADS.qualified, f"{TEAM}/{renamed}")
                made["metadata"]["annotations"][FINGERPRINT_ANNOTATION] = fingerprint(sent)
            yield collection, key, version, orjson.dumps(made)

    database.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", list(copies()))


def _object_of(database: sqlite3.Connection, collection: str, state: str) -> tuple[str, bytes]:
    rows: list[tuple[str, bytes]] = database.execute(
        "SELECT key, value FROM objects WHERE collection = ? AND key LIKE ?", (collection, f"%{_first(state)}%")
    ).fetchall()
    assert len(rows) == 1, (collection, state, rows)
    return rows[0]


def _workload_name(database: sqlite3.Connection, state: str) -> str:
    """The name of the Workload of the first Job in that state."""
    key, _ = _object_of(database, WORKLOADS.qualified, state)
    return key.rpartition("/")[2]


def _stored(database: sqlite3.Connection, collection: str, key: str) -> dict[str, Any]:
    # With both parts of the primary key, since it is asked ten thousand times.
    query = "SELECT value FROM objects WHERE collection = ? AND key = ?"
    (raw,) = database.execute(query, (collection, key)).fetchone()
    found: dict[str, Any] = orjson.loads(raw)
    return found


def _set_quotas(database: sqlite3.Connection, quotas: Mapping[str, int]) -> None:
    for name, cpu in quotas.items():
        queue = _stored(database, CLUSTER_QUEUES.qualified, name)
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = str(cpu)
        database.execute(
            "UPDATE objects SET value = ? WHERE collection = ? AND key = ?",
            (orjson.dumps(queue), CLUSTER_QUEUES.qualified, name),
        )


def _name(state: str, number: int) -> str:
    return f"{state}-{number:06}"


def running_name(number: int) -> str:
    """The name of a Job that runs."""
    return _name(RUNNING, number)


def _first(state: str) -> str:
    return _name(state, 0)


def _queue_name(number: int) -> str:
    return f"queue-{number:03}"


def _uids(obj: dict[str, Any]) -> set[str]:
    """Of the object, its owner, its workload and its job; not of the manager."""
    found = {obj["metadata"]["uid"], *(owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ())}
    if obj["kind"] == REMOTE_ASSIGNMENTS.kind:
        found |= {obj["spec"]["workload"]["uid"], obj["status"]["jobUID"]}
    return found
