# SPDX-License-Identifier: Apache-2.0
"""A management cluster with many workloads on many workers, as files of the embedded API server.

One Job is run for real, by a manager and an agent; its objects, with every field and every owner of a field, are then
copied under other names and uids. So ten thousand of them take seconds, and are what a hub would hold.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import anyio
import orjson

from manager.dispatch.assignments import fingerprint
from manager.dispatch.controller import DispatchController
from multikueue.api.constants import MULTIKUEUE_MANAGED_BY
from multikueue.api.remoteassignment import assignment_name, mailbox_namespace
from multikueue.api.resource import JOBS, LEASES, WORKLOADS
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.dispatch.protocol.wire import FINGERPRINT_ANNOTATION
from multikueue.kube.rest.client import KubeClient
from tests.support.hubs import agent_of, running_hub, worker_of
from tests.support.managers import eventually, get, job_manifest, make_queue, running_manager, workload_of
from tests.support.workers import FakeWorker, make_check

TEAM = "team"
SETTINGS = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
multiKueue: {workerLostTimeout: 1h}
"""
_NAME = "storm-00000"
_FIRST = "c-00"
_IN_CONFIG = 20
"""As many clusters as one MultiKueueConfig takes; each has its check and its queue."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Where the objects are, and how many."""

    hub: Path
    workers: dict[str, Path]
    workloads: int


async def make_crowd(folder: Path, *, clusters: int, workloads: int) -> Crowd:
    """So many workloads that run, spread evenly over so many clusters."""
    names = [f"c-{number:02}" for number in range(clusters)]
    hub, worker = folder / "hub.db", folder / "worker.db"
    await _run_one(hub, worker, names)
    with closing(sqlite3.connect(hub)) as database:
        workload = next(key for key in _keys(database, "workloads") if _NAME in key).rpartition("/")[2]
        for collection in ("jobs", "workloads", "remoteassignments"):
            _multiply(database, collection, names, workload=workload, numbers=range(1, workloads))
        database.commit()
    homes = {}
    for position, name in enumerate(names):
        homes[name] = folder / f"{name}.db"
        with closing(sqlite3.connect(worker)) as source, closing(sqlite3.connect(homes[name])) as target:
            source.backup(target)
            _multiply(target, "jobs", names, workload=workload, numbers=range(position, workloads, clusters))
            if position:
                target.execute("DELETE FROM objects WHERE collection LIKE '%jobs%' AND key LIKE ?", (f"%{_NAME}%",))
            target.commit()
    return Crowd(hub, homes, workloads)


async def _run_one(hub_file: Path, worker_file: Path, names: list[str]) -> None:
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(running_hub(database=hub_file))
        worker = await stack.enter_async_context(worker_of(hub, _FIRST, namespace=TEAM, database=worker_file))
        client = await stack.enter_async_context(hub.client())
        for start in range(0, len(names), _IN_CONFIG):
            queue = _queue(start)
            await make_check(client, queue, tuple(names[start : start + _IN_CONFIG]))
            await make_queue(client, queue, namespace=TEAM, cpu="1000000", checks=(queue,))
        for name in names:
            await FakeWorker(client, name).enrol()
        await stack.enter_async_context(
            running_manager(hub.as_cluster, settings=SETTINGS, webhooks=False, dispatch=DispatchController)
        )
        for name in names:
            await eventually(lambda name=name: _mailbox(client, name), what=f"the mailbox of {name}", deadline=120)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(agent_of(worker).run)
        manifest = job_manifest(_NAME, namespace=TEAM, queue=_queue(0), suspend=True)
        manifest["spec"]["managedBy"] = MULTIKUEUE_MANAGED_BY
        await client.create(JOBS, manifest, namespace=TEAM)
        await eventually(lambda: get(worker.client, JOBS, _NAME, namespace=TEAM), what="it is made")
        status = {"active": 1, "ready": 1, "startTime": format_time(SystemClock().now())}
        await worker.client.patch(JOBS, _NAME, {"status": status}, namespace=TEAM, subresource="status")
        await eventually(
            lambda: get(client, JOBS, _NAME, namespace=TEAM),
            what="its status is synced",
            until=lambda seen: bool(((seen or {}).get("status") or {}).get("ready")),
        )
        assert await workload_of(client, _NAME, namespace=TEAM)
        tasks.cancel_scope.cancel()


async def _mailbox(client: KubeClient, name: str) -> object:
    return await get(client, LEASES, "agent", namespace=mailbox_namespace(name))


def _keys(database: sqlite3.Connection, plural: str) -> Iterator[str]:
    query = "SELECT key FROM objects WHERE collection LIKE ?"
    yield from (key for (key,) in database.execute(query, (f"%{plural}%",)))


def _multiply(
    database: sqlite3.Connection, collection: str, clusters: list[str], *, workload: str, numbers: range
) -> None:
    """Copy the object of the Job that ran, for each of the numbers but its own."""
    rows = database.execute(
        "SELECT collection, key, value FROM objects WHERE collection LIKE ? AND key LIKE ?",
        (f"%{collection}%", f"%{_NAME}%"),
    ).fetchall()
    assert len(rows) == 1, (collection, rows)
    ((where, key, raw),) = rows
    (last,) = database.execute("SELECT max(version) FROM objects").fetchone()
    uids = _uids(raw)
    before = assignment_name(Key(TEAM, workload))
    for version, number in enumerate((number for number in numbers if number), last + 1):
        name = f"storm-{number:05}"
        position = number % len(clusters)
        cluster, queue = clusters[position], _queue(position)
        after = assignment_name(Key(TEAM, workload.replace(_NAME, name)))

        changes = ((before, after), (_NAME, name), (_FIRST, cluster), (_queue(0), queue))
        text, place = raw.decode(), key
        for old, new in changes:
            text, place = text.replace(old, new), place.replace(old, new)
        for uid in uids:
            text = text.replace(uid, f"{uid[:-12]}{number:012}")
        made = orjson.loads(text)
        made["metadata"]["resourceVersion"] = str(version)
        if made["kind"] == "RemoteAssignment":
            # Else the manager would send each of them anew.
            sent = _workload(database, made["spec"]["workload"]["name"])
            made["metadata"]["annotations"][FINGERPRINT_ANNOTATION] = fingerprint(sent)
        database.execute(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", (where, place, version, orjson.dumps(made))
        )


def _workload(database: sqlite3.Connection, name: str) -> dict[str, object]:
    # Named whole, since only then the index is used: it is asked ten thousand times.
    query = f"SELECT value FROM objects WHERE collection = '{WORKLOADS.qualified}' AND key = ?"
    (raw,) = database.execute(query, (f"{TEAM}/{name}",)).fetchone()
    found: dict[str, object] = orjson.loads(raw)
    return found


def _queue(position: int) -> str:
    return f"crowd-{position // _IN_CONFIG}"


def _uids(raw: bytes) -> set[str]:
    """Of the object, its owner, its workload and its job; not of the manager."""
    obj = orjson.loads(raw)
    found = {obj["metadata"]["uid"], *(owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ())}
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if obj["kind"] == "RemoteAssignment":
        found |= {spec["workload"]["uid"], status["jobUID"]}
    return found
