# SPDX-License-Identifier: Apache-2.0
"""What is said to the hub, when, and how often; against a server whose answers the test decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest
from aiohttp import web

from multikueue.api.constants import MANAGER_UID_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.core.clock import Clock, ManualClock, SystemClock
from multikueue.dispatch.protocol.job_logs import LogAnswer
from multikueue.dispatch.protocol.wire import status_wire
from multikueue.dispatch.worker.assignment_state import ReportedStatus
from multikueue.kube.rest.client import KubeClient
from tests.support.polling import until
from tests.support.stub_api import StubApi, json_answer, listing, status_answer, stub_api
from worker_agent.hub.mailbox import Mailbox
from worker_agent.hub.status_reporter import StatusReporter

pytestmark = pytest.mark.anyio

WINDOW = 0.15
SAID = ReportedStatus()
RESERVED = ReportedStatus(epoch=1, phase=AssignmentPhase.RESERVED)
FINISHED = ReportedStatus(epoch=1, phase=AssignmentPhase.FINISHED, job_uid="j")


def running(active: int) -> ReportedStatus:
    return ReportedStatus(epoch=1, phase=AssignmentPhase.RUNNING, job_uid="j", job_status={"active": active})


def statuses(stub: StubApi) -> list[Any]:
    """The statuses that were sent, in order."""
    return [orjson.loads(body)[1]["value"] for body in stub.bodies if body]


@asynccontextmanager
async def status_reporter(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
    *,
    clock: Clock | None = None,
    written: Callable[[JsonObject], None] = lambda obj: None,
) -> AsyncIterator[tuple[StatusReporter, StubApi]]:
    async with stub_api(answer) as stub, stub.client() as client, anyio.create_task_group() as tasks:
        clock = clock or SystemClock()
        made = StatusReporter(
            client, "mk-w", boot_id="b", window=WINDOW, clock=clock, random=Random(1), written=written
        )
        tasks.start_soon(made.run)
        yield made, stub
        tasks.cancel_scope.cancel()


async def fine(request: web.Request) -> web.StreamResponse:
    return json_answer({})


async def test_a_new_phase_goes_out_at_once_whole_and_guarded_by_the_uid() -> None:
    async with status_reporter(fine) as (it, stub):
        it.put("a", "u1", RESERVED, reported=SAID)
        await until(lambda: it.unsent == 0, what="sent")
        assert stub.seen == ["PATCH /apis/multikueue.io/v1alpha1/namespaces/mk-w/remoteassignments/a/status"]
        assert orjson.loads(stub.bodies[0]) == [
            {"op": "test", "path": "/metadata/uid", "value": "u1"},
            {
                "op": "add",
                "path": "/status",
                "value": {"epoch": 1, "phase": "Reserved", "sequence": 1, "bootID": "b"},
            },
        ]


async def test_a_status_is_not_written_twice() -> None:
    async with status_reporter(fine) as (it, stub):
        it.put("a", "u1", RESERVED, reported=RESERVED)
        it.put("b", "u2", RESERVED, reported=SAID)
        await until(lambda: it.unsent == 0, what="sent")
        it.put("b", "u2", RESERVED, reported=SAID)
        await anyio.sleep(2 * WINDOW)
        assert len(stub.seen) == 1


async def test_progress_within_a_phase_is_sent_as_one_and_the_newest_wins() -> None:
    async with status_reporter(fine) as (it, stub):
        it.put("a", "u1", RESERVED, reported=SAID)
        await until(lambda: it.unsent == 0, what="the phase is sent")
        for active in range(1, 9):
            it.put("a", "u1", running(active), reported=SAID)
            await anyio.sleep(0.005)
        assert len(stub.seen) == 1
        await until(lambda: it.unsent == 0, what="the rest is sent")
        assert [(status.get("jobStatus") or {}).get("active") for status in statuses(stub)] == [None, 8]
        assert [status["sequence"] for status in statuses(stub)] == [1, 2]


async def test_news_does_not_wait_for_the_window() -> None:
    async with status_reporter(fine) as (it, stub):
        it.put("a", "u1", RESERVED, reported=SAID)
        await until(lambda: it.unsent == 0, what="the phase is sent")
        it.put("a", "u1", running(2), reported=SAID)
        it.put("a", "u1", ReportedStatus(epoch=1, phase=AssignmentPhase.EVICTED, job_uid="j"), reported=SAID)
        await until(lambda: it.unsent == 0, what="the end is sent")
        assert [status["phase"] for status in statuses(stub)] == ["Reserved", "Evicted"]


async def test_progress_just_before_the_end_is_written_with_it() -> None:
    async with status_reporter(fine) as (it, stub):
        it.put("a", "u1", running(1), reported=SAID)
        await until(lambda: it.unsent == 0, what="that it runs is sent")
        await anyio.sleep(2 * WINDOW)
        it.put("a", "u1", running(0), reported=SAID)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()  # a sender that did not wait would have taken it by now
        it.put("a", "u1", ReportedStatus(epoch=1, phase=AssignmentPhase.FINISHED, job_uid="j"), reported=SAID)
        await until(lambda: it.unsent == 0, what="the end is sent")
        assert [status["phase"] for status in statuses(stub)] == ["Running", "Finished"]


async def test_while_many_jobs_start_a_short_one_is_reported_with_its_end_only_and_the_others_later() -> None:
    clock = ManualClock()
    async with status_reporter(fine, clock=clock) as (it, stub):

        def look() -> None:
            """The clock moved, which a queue learns when something is added to it."""
            other = ReportedStatus(epoch=len(stub.seen) + 2, phase=AssignmentPhase.RESERVED)
            it.put("other", "u", other, reported=SAID)

        def started() -> list[str]:
            named = zip(stub.seen, statuses(stub), strict=True)
            return [seen.split("/")[-2] for seen, status in named if status["phase"] == "Running"]

        for number in range(30):
            it.put(f"j{number}", f"u{number}", running(1), reported=SAID)
        clock.advance(1.6 * WINDOW)
        look()
        await until(lambda: it.unsent == 25, what="the first five starts are sent")
        assert sorted(started()) == ["j0", "j1", "j2", "j3", "j4"]
        end = ReportedStatus(epoch=1, phase=AssignmentPhase.FINISHED, job_uid="j")
        it.put("j29", "u29", end, reported=SAID)
        clock.advance(9 * WINDOW)
        look()
        await until(lambda: it.unsent == 0, what="all are sent")
        assert sorted(started()) == sorted(f"j{number}" for number in range(29))


async def test_once_short_jobs_have_ended_the_starts_of_the_next_wait_for_their_ends() -> None:
    clock = ManualClock()
    end = ReportedStatus(epoch=1, phase=AssignmentPhase.FINISHED, job_uid="j")
    async with status_reporter(fine, clock=clock) as (it, stub):
        for number in range(6):
            it.put(f"j{number}", f"u{number}", running(1), reported=SAID)
        clock.advance(WINDOW)
        for number in range(6):
            it.put(f"j{number}", f"u{number}", end, reported=SAID)
        await until(lambda: it.unsent == 0, what="the ends of the first are sent")
        for number in range(6, 12):
            it.put(f"j{number}", f"u{number}", running(1), reported=SAID)
        clock.advance(9 * WINDOW)
        it.put("other", "u", RESERVED, reported=SAID)  # a queue learns that the clock moved when something is added
        await until(lambda: it.unsent == 6, what="the other is sent, and no start")
        for number in range(6, 12):
            it.put(f"j{number}", f"u{number}", end, reported=SAID)
        await until(lambda: it.unsent == 0, what="the ends are sent")
        assert "Running" not in {status["phase"] for status in statuses(stub)}


async def test_the_start_of_a_short_job_is_not_held_back_where_the_hub_waits_for_it() -> None:
    clock = ManualClock()
    async with status_reporter(fine, clock=clock) as (it, stub):
        for number in range(30):
            it.put(f"j{number}", f"u{number}", running(1), reported=SAID, awaits_start=number % 2 == 0)
        clock.advance(1.6 * WINDOW)
        it.put("other", "u", RESERVED, reported=SAID)  # a queue learns that the clock moved when something is added
        awaited = {f"j{number}" for number in range(0, 30, 2)}
        first = {"j1", "j3"}  # as ever: five starts are not many
        await until(lambda: it.unsent == 30 - len(awaited | first), what="the starts that the hub waits for are sent")
        assert {seen.split("/")[-2] for seen in stub.seen} == awaited | first | {"other"}


async def test_an_unreachable_hub_gets_the_newest_status_when_it_is_back() -> None:
    away = True

    async def answer(request: web.Request) -> web.StreamResponse:
        return status_answer(503, "ServiceUnavailable") if away else json_answer({})

    async with status_reporter(answer) as (it, stub):
        it.put("a", "u1", RESERVED, reported=SAID)
        await until(lambda: len(stub.seen) >= 2, what="it tries again")
        it.put("a", "u1", running(1), reported=SAID)
        away = False
        await until(lambda: it.unsent == 0, what="sent")
        assert statuses(stub)[-1]["phase"] == "Running"


@pytest.mark.parametrize(
    ("code", "reason"), [(404, "NotFound"), (422, "Invalid")], ids=["gone", "another of that name"]
)
async def test_a_status_that_cannot_land_is_given_up(code: int, reason: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return status_answer(code, reason)

    async with status_reporter(answer) as (it, stub):
        it.put("a", "u1", RESERVED, reported=SAID)
        await until(lambda: len(stub.seen) == 1, what="tried")
        await anyio.sleep(0.2)
        assert len(stub.seen) == 1


def stored(*, version: str, epoch: int = 1, reported: ReportedStatus = SAID, sequence: int = 1) -> dict[str, Any]:
    """The assignment `a` as the hub has it."""
    metadata = {"name": "a", "namespace": "mk-w", "uid": "u1", "resourceVersion": version}
    status = status_wire(reported, sequence=sequence, boot_id="b", now=SystemClock().now())
    return {"metadata": metadata, "spec": {"epoch": epoch, "intent": "Run"}, "status": status}


def mailbox_of(client: KubeClient, reporter: StatusReporter) -> Mailbox:
    return Mailbox(
        client,
        "w",
        clock=SystemClock(),
        random=Random(1),
        changed=lambda name: None,
        resend=reporter.resend,
        is_behind=reporter.is_ahead_of,
    )


async def test_a_restored_hub_gets_the_lost_statuses_again() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/remoteassignments"):
            return listing(stored(version="100"), version="1000")
        return json_answer(stored(version="130"))

    async with status_reporter(answer) as (it, stub), stub.client() as client:
        it.put("a", "u1", RESERVED, reported=SAID)
        await until(lambda: it.unsent == 0, what="sent")
        await mailbox_of(client, it).informer.relist()  # as when a version that was followed is too old there
        await until(lambda: len(statuses(stub)) == 2, what="it is said again")
        assert [status["phase"] for status in statuses(stub)] == ["Reserved", "Reserved"]


async def test_a_restored_hub_gets_the_status_again_whose_write_was_not_answered() -> None:
    answered = True

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/remoteassignments"):
            return listing(stored(version="120", reported=RESERVED), version="1000")
        if not answered:
            assert request.transport is not None
            request.transport.abort()
        return json_answer(stored(version="120", reported=RESERVED))

    async with status_reporter(answer, clock=ManualClock()) as (it, stub), stub.client() as client:
        it.put("a", "u1", RESERVED, reported=SAID)
        await until(lambda: it.unsent == 0, what="sent")
        answered = False
        it.put("a", "u1", FINISHED, reported=SAID)
        await until(lambda: len(stub.seen) == 2, what="its end is written")
        it.resend_if_replaced(stored(version="130", reported=FINISHED, sequence=2))
        assert it.unsent == 0, "the watch has shown it"
        answered = True
        await mailbox_of(client, it).informer.relist()
        await until(lambda: len(statuses(stub)) == 3, what="the end is written again")
        assert statuses(stub)[-1]["phase"] == "Finished"


async def test_a_write_counts_in_the_digests_before_a_watch_shows_it_until_a_restored_hub_lists_without_it() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/remoteassignments"):
            return listing(stored(version="100", reported=RESERVED), version="1000")
        return web.Response(body=await resumed.get(), content_type="application/json")

    resumed: asyncio.Queue[bytes] = asyncio.Queue()
    written: list[Any] = []
    async with status_reporter(answer, written=written.append) as (it, stub), stub.client() as client:
        mailbox = mailbox_of(client, it)
        await mailbox.informer.relist()
        listed = mailbox.digests()
        it.put("a", "u1", FINISHED, reported=RESERVED)
        resumed.put_nowait(orjson.dumps(stored(version="130", reported=FINISHED)))
        await until(lambda: bool(written), what="the end is written")
        mailbox.on_write(written.pop())
        reported = mailbox.digests()
        assert reported != listed, "a hub that has lost the write still has those of the list"
        await mailbox.informer.relist()
        assert mailbox.digests() == listed
        resumed.put_nowait(orjson.dumps(stored(version="1001", reported=FINISHED)))
        await until(lambda: bool(written), what="the end is written again")
        mailbox.on_write(written.pop())
        assert mailbox.digests() == reported


async def test_an_answer_that_comes_after_the_end_of_an_assignment_counts_in_no_digest() -> None:
    async with status_reporter(fine) as (it, stub), stub.client() as client:
        mailbox = mailbox_of(client, it)
        empty = mailbox.digests()
        mailbox.on_write(stored(version="130", reported=FINISHED))
        assert mailbox.digests() == empty


async def test_the_status_of_an_epoch_that_a_restored_hub_lost_is_dropped() -> None:
    async with status_reporter(fine) as (it, stub):
        it.put("a", "u1", ReportedStatus(epoch=2, phase=AssignmentPhase.EVICTED), reported=SAID)
        await until(lambda: it.unsent == 0, what="sent")
        it.resend(stored(version="1", epoch=1))
        assert it.latest("a", "u1") is None
        assert len(stub.seen) == 1


async def test_an_assignment_that_was_created_again_has_no_former_status() -> None:
    async with status_reporter(fine) as (it, _):
        it.put("a", "u1", RESERVED, reported=SAID)
        assert it.latest("a", "u1") == RESERVED
        assert it.latest("a", "u2") is None
        it.forget("a")
        assert it.latest("a", "u1") is None


async def test_whose_mailbox_it_is_is_asked_once_for_each_list() -> None:
    manager = "m1"

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/remoteassignments"):
            return listing()
        return json_answer({"metadata": {"name": "mk-w", "annotations": {MANAGER_UID_ANNOTATION: manager}}})

    async with stub_api(answer) as stub, stub.client() as client:
        mailbox = Mailbox(client, "w", clock=SystemClock(), random=Random(1), changed=lambda name: None)
        await mailbox.informer.relist()
        answers: list[str] = []

        async def ask() -> None:
            answers.append(await mailbox.owner())

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
        assert answers == ["m1"] * 20
        assert len(stub.seen) == 2
        manager = "m2"
        assert await mailbox.owner() == "m1", "the watch goes on, so it is the same server"
        await mailbox.informer.relist()
        assert await mailbox.owner() == "m2"


async def test_a_status_that_a_late_request_has_replaced_is_written_again() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return json_answer({"metadata": {"resourceVersion": "7"}})

    def stands(version: str, **status: Any) -> dict[str, Any]:
        return {"metadata": {"name": "a", "uid": "u1", "resourceVersion": version}, "status": status}

    async with status_reporter(answer) as (it, stub):
        it.put("a", "u1", RESERVED, reported=SAID)
        await until(lambda: it.unsent == 0, what="sent")
        it.resend_if_replaced(stands("7", epoch=1, phase="Reserved", bootID="b", sequence=1))
        it.resend_if_replaced(stands("6", epoch=1, phase="Pending", bootID="b", sequence=0))
        assert it.unsent == 0, "what is its own, or older than that, is no news"
        it.resend_if_replaced(stands("8", epoch=1, phase="Pending", bootID="b", sequence=0))
        await until(lambda: it.unsent == 0, what="said again")
        assert [(status["phase"], status["sequence"]) for status in statuses(stub)] == [
            ("Reserved", 1),
            ("Reserved", 2),
        ]


@pytest.mark.parametrize("code", [0, 409, 429, 500], ids=["answered", "409", "429", "500"])
async def test_a_chunk_of_a_log_goes_out_at_once_with_the_newest_status_and_stays_until_it_is_replaced(
    code: int,
) -> None:
    failing = [code] if code else []

    async def answer(request: web.Request) -> web.StreamResponse:
        return status_answer(failing.pop(), "Refused") if failing else json_answer({})

    first, second = (LogAnswer(request="r", cursor=number, text=f"line {number}\n") for number in (1, 2))
    async with status_reporter(answer) as (it, stub):
        it.put_logs("a", "u1", (first,))
        assert it.unsent == 0, "there is no status yet"
        it.put("a", "u1", RESERVED, reported=RESERVED)
        it.put_logs("a", "other", (first,))
        assert it.unsent == 0, "it is another assignment"
        it.put_logs("a", "u1", (first,))
        await until(lambda: it.unsent == 0, what="sent")
        assert statuses(stub)[-1]["logs"] == [first.wire()]
        it.put("a", "u1", ReportedStatus(epoch=1, phase=AssignmentPhase.EVICTED), reported=RESERVED)
        await until(lambda: it.unsent == 0, what="sent")
        assert (statuses(stub)[-1]["phase"], statuses(stub)[-1]["logs"]) == ("Evicted", [first.wire()])
        it.put_logs("a", "u1", (second,))
        it.put_logs("a", "u1", ())
        await until(lambda: it.unsent == 0, what="sent")
        assert "logs" not in statuses(stub)[-1]


async def test_a_chunk_that_the_hub_has_lost_is_written_again() -> None:
    chunk = LogAnswer(request="r", cursor=1, text="line\n")
    async with status_reporter(fine) as (it, stub):
        it.put("a", "u1", RESERVED, reported=RESERVED)
        it.put_logs("a", "u1", (chunk,))
        await until(lambda: it.unsent == 0, what="sent")
        status = {"epoch": 1, "phase": "Reserved"}
        it.resend({"metadata": {"name": "a", "uid": "u1"}, "spec": {"epoch": 1}, "status": status})
        await until(lambda: it.unsent == 0, what="sent again")
        assert [status.get("logs") for status in statuses(stub)] == [[chunk.wire()]] * 2
