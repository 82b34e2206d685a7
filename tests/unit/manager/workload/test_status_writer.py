# SPDX-License-Identifier: Apache-2.0
"""The one way of a Workload's status to the API server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import orjson
import pytest

from manager.cache.views import View
from manager.scheduler import admission_writes
from manager.scheduler.pending_writes import News
from manager.workload import changes
from manager.workload.status import Status
from manager.workload.status_writer import StatusWriter
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import WORKLOADS
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.kube.errors import Conflict, Details, Forbidden, NotFound
from multikueue.kube.runtime.quarantine import Quarantine
from tests.unit.manager.builders import KEY, NOW, admitted, pending, status, wire

pytestmark = pytest.mark.anyio


class Server:
    """Keeps one Workload and honours resourceVersion, as an API server does."""

    def __init__(self, stored: dict[str, Any] | None) -> None:
        self.stored = stored
        self.applies: list[dict[str, Any]] = []
        self.gate: anyio.Event | None = None

    async def get(self, resource: object, name: str, *, namespace: str) -> bytes:
        if self.stored is None:
            raise NotFound(request="GET", status=404, reason="NotFound", message="", details=Details())
        return orjson.dumps(self.stored)

    async def apply(self, resource: object, name: str, body: dict[str, Any], **options: Any) -> bytes:
        assert options["manager"] == "kueue-admission"
        assert options["subresource"] == "status"
        assert options["force"]
        if self.gate is not None:
            await self.gate.wait()
        if self.stored is None:
            raise NotFound(request="APPLY", status=404, reason="NotFound", message="", details=Details())
        metadata = self.stored["metadata"]
        if body["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise Conflict(request="APPLY", status=409, reason="Conflict", message="", details=Details())
        self.applies.append(body)
        version = str(int(metadata["resourceVersion"]) + 1)
        self.stored = self.stored | {
            "metadata": metadata | {"resourceVersion": version},
            "status": body["status"],
        }
        return orjson.dumps(self.stored)


def writer(server: Server, cached: dict[str, Any] | None, *, former_reasons: bool = False) -> StatusWriter:
    view = View(WORKLOADS, clock=ManualClock())
    if cached is not None:
        view.on_write(orjson.dumps(cached))
    return StatusWriter(server, view, Quarantine(), former_reasons=former_reasons)  # type: ignore[arg-type]


def finish(old: Status) -> Status:
    return changes.finish(old, reason="Succeeded", message="", now=NOW)


def finish_unnominated(old: Status) -> Status:
    return replace(finish(old), nominated=())


async def test_a_change_is_applied_with_everything_owned_and_seen_at_once() -> None:
    before = wire(admitted(), version="3")
    server = Server(before)
    statuses = writer(server, before)
    after = await statuses.write(KEY, finish, uid="uid-w")
    assert after is not None
    (body,) = server.applies
    assert body["metadata"] == {"name": "w", "namespace": "team", "uid": "uid-w", "resourceVersion": "3"}
    assert body["status"]["admission"] == admitted().admission
    assert [entry["type"] for entry in body["status"]["conditions"]] == ["QuotaReserved", "Admitted", "Finished"]
    assert statuses.current(KEY) == after


async def test_what_changes_nothing_is_not_sent() -> None:
    before = wire(pending())
    server = Server(before)
    assert await writer(server, before).write(KEY, lambda old: old) == before
    assert server.applies == []


async def test_former_reasons_are_written_once_and_the_change_sees_those_of_today() -> None:
    before = wire(pending())
    server = Server(before)
    statuses = writer(server, before, former_reasons=True)
    seen: list[str] = []

    def hold(old: Status) -> Status:
        held = old.condition(WorkloadCondition.QUOTA_RESERVED)
        seen.append("" if held is None else held.reason)
        return changes.without_reservation(old, reason="Suspended", message="ClusterQueue q is stopped", now=NOW)

    await statuses.write(KEY, hold)
    await statuses.write(KEY, hold)
    (body,) = server.applies
    (written,) = (each for each in body["status"]["conditions"] if each["type"] == "QuotaReserved")
    assert (written["reason"], written["message"]) == ("Inadmissible", "ClusterQueue q is stopped")
    assert seen[1:] == ["Suspended"]
    shown = Status.of(statuses.current(KEY) or {})
    again = statuses.shown_as(hold(statuses.read(statuses.current(KEY) or {})), shown)
    assert admission_writes.news(shown, again) is News.NOTHING, "another reason of today alone is no news"


async def test_after_a_conflict_the_change_is_decided_again_on_the_live_object() -> None:
    server = Server(wire(admitted(), version="9"))
    seen: list[bool] = []

    def change(old: Status) -> Status:
        seen.append(old.is_true(WorkloadCondition.ADMITTED))
        return finish(old)

    assert await writer(server, wire(pending(), version="3")).write(KEY, change) is not None
    assert seen == [False, True]
    assert server.applies[0]["status"]["admission"] == admitted().admission, "what another writer set is not dropped"


@pytest.mark.parametrize(
    ("stored", "cached", "uid"),
    [
        pytest.param(None, None, "", id="never there"),
        pytest.param(None, wire(pending()), "", id="gone since"),
        pytest.param(wire(pending()), wire(pending()), "another", id="another object of that name"),
    ],
)
async def test_a_workload_that_is_gone(stored: Any, cached: Any, uid: str) -> None:
    assert await writer(Server(stored), cached).write(KEY, finish, uid=uid) is None


async def test_what_was_decided_for_another_spec_is_not_written() -> None:
    """Quota for one pod would be given to a Workload that asks for four by now: seed 19 of the simulation."""
    before = wire(pending(), version="3", generation=1)
    changed = wire(pending(), version="9", generation=2)
    server = Server(changed)
    assert await writer(server, before).write(KEY, finish, generation=1) == changed, "after a conflict"
    assert await writer(server, changed).write(KEY, finish, generation=1) == changed
    assert server.applies == []
    assert await writer(server, changed).write(KEY, finish, generation=2) != changed


async def test_two_writers_of_one_workload_take_turns() -> None:
    before = wire(status())
    server = Server(before)
    server.gate = anyio.Event()
    statuses = writer(server, before)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(statuses.write, KEY, finish)
        tasks.start_soon(
            statuses.write,
            KEY,
            lambda old: changes.pods_ready(old, ready=True, reason="Started", message="", now=NOW),
        )
        await anyio.wait_all_tasks_blocked()
        server.gate.set()
    assert [len(body["status"]["conditions"]) for body in server.applies] == [1, 2]


class Refusing(Server):
    """Answers 403 to every apply, as a webhook or for want of a right."""

    def __init__(self, stored: dict[str, Any], message: str) -> None:
        super().__init__(stored)
        self.message = message
        self.withdrawn = 0

    async def apply(self, resource: object, name: str, body: dict[str, Any], **options: Any) -> bytes:
        assert self.stored is not None
        if self.stored["status"].get("nominatedClusterNames"):
            details = Details()
            raise Forbidden(request="APPLY", status=403, reason="Forbidden", message=self.message, details=details)
        return await super().apply(resource, name, body, **options)

    async def patch(self, resource: object, name: str, body: dict[str, Any], **options: Any) -> bytes:
        assert self.stored is not None
        assert body["status"] == {"nominatedClusterNames": None}
        self.withdrawn += 1
        version = str(int(self.stored["metadata"]["resourceVersion"]) + 1)
        kept = {key: value for key, value in self.stored["status"].items() if key != "nominatedClusterNames"}
        self.stored = self.stored | {
            "metadata": self.stored["metadata"] | {"resourceVersion": version},
            "status": kept,
        }
        return orjson.dumps(self.stored)


NOMINATED = wire(replace(pending(), nominated=("worker-9",)), version="3")


async def test_a_nomination_for_which_a_webhook_refuses_the_status_is_withdrawn() -> None:
    server = Refusing(NOMINATED, 'admission webhook "vworkload.kb.io" denied the request: status.clusterName: no')
    assert await writer(server, NOMINATED).write(KEY, finish_unnominated) is not None
    assert server.withdrawn == 1


async def test_a_nomination_stays_where_the_right_to_write_is_missing() -> None:
    server = Refusing(NOMINATED, 'workloads.kueue.x-k8s.io "w" is forbidden: User "m" cannot patch resource')
    with pytest.raises(Forbidden):
        await writer(server, NOMINATED).write(KEY, finish_unnominated)
    assert server.withdrawn == 0


class GrantingHook:
    """A dispatch that grants `w1` in the write that it is asked about."""

    def __init__(self) -> None:
        self.asked = 0
        self.written: list[str] = []

    def complete(self, workload: dict[str, Any], status: Status) -> Status:
        self.asked += 1
        return replace(status, cluster_name="w1")

    def ended(self, key: Key, workload: dict[str, Any] | None) -> None:
        self.written.append("" if workload is None else workload["status"]["clusterName"])

    def may_run_elsewhere(self, workload: dict[str, Any]) -> bool:
        return True

    def remote_status(self, workload: dict[str, Any]) -> dict[str, Any]:
        return {"active": 1}


async def test_dispatch_takes_part_in_a_write_of_another_and_not_in_one_that_it_planned() -> None:
    before = wire(admitted())
    server, hook = Server(before), GrantingHook()
    statuses = writer(server, before)
    assert not statuses.may_run_elsewhere(before), "nothing runs elsewhere without dispatch"
    assert statuses.remote_status(before) is None
    statuses.use_hook(hook)
    assert statuses.may_run_elsewhere(before)
    assert statuses.remote_status(before) == {"active": 1}
    await statuses.write(KEY, lambda old: replace(old, requeue_count=1))
    assert (hook.asked, hook.written, server.applies[-1]["status"]["clusterName"]) == (1, ["w1"], "w1")
    await statuses.write(KEY, lambda old: replace(old, requeue_count=2), planned=True)
    assert hook.asked == 1, "it plans once for one event"
    statuses.use_hook(None)
    await statuses.write(KEY, lambda old: replace(old, requeue_count=3))
    assert hook.asked == 1


async def test_dispatch_learns_that_a_write_failed_in_which_it_took_part() -> None:
    before = wire(admitted())
    server, hook = Server(None), GrantingHook()
    statuses = writer(server, before)
    statuses.use_hook(hook)
    assert await statuses.write(KEY, lambda old: replace(old, requeue_count=1)) is None
    assert (hook.asked, hook.written) == (1, [""])
    refusing = Refusing(NOMINATED, "no right to write")
    statuses = writer(refusing, NOMINATED)
    statuses.use_hook(hook)
    with pytest.raises(Forbidden):
        await statuses.write(KEY, lambda old: replace(old, requeue_count=1))
    assert (hook.asked, hook.written) == (2, ["", ""])
