# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from random import Random
from time import monotonic
from typing import Any

import anyio
import orjson
import pytest
from aiohttp import web

from multikueue.core.clock import Clock, ManualClock
from multikueue.kube.runtime.leader import LeaderElector, LeaseRestoreDetector
from tests.support.stub_api import StubApi, json_answer, status_answer, stub_api


class LeaseServer:
    """One Lease with optimistic concurrency, and a switch that makes it fail."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.failing = False

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if self.failing:
            return status_answer(403, "Forbidden")
        if request.method == "GET":
            return json_answer(self.lease) if self.lease else status_answer(404, "NotFound")
        body = orjson.loads(await request.read())
        if request.method == "POST" and self.lease:
            return status_answer(409, "AlreadyExists")
        if request.method == "PUT" and body["metadata"].get("resourceVersion") != str(self.version):
            return status_answer(409, "Conflict")
        self.take(body)
        return json_answer(body)

    def take(self, body: dict[str, Any]) -> None:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.lease = body

    def steal(self) -> None:
        """Somebody else writes itself into the lease."""
        assert self.lease is not None
        self.take({**self.lease, "spec": {**self.lease["spec"], "holderIdentity": "thief", "renewTime": "x"}})

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""


def elector(
    client: Any, identity: str, *, restore_detector: LeaseRestoreDetector | None = None, clock: Clock | None = None
) -> LeaderElector:
    return LeaderElector(
        client,
        namespace="kueue-system",
        name="lock",
        identity=identity,
        lease_seconds=0.6,
        renew_seconds=0.3,
        retry_seconds=0.03,
        clock=clock,
        random=Random(1),
        restore_detector=restore_detector,
    )


class Work:
    """What the leader does: runs until cancelled, and remembers."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.ended = False

    async def __call__(self) -> None:
        self.started.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.ended = True


async def test_one_of_two_leads_and_the_other_takes_over_when_it_leaves() -> None:
    server, clock = LeaseServer(), ManualClock()  # a busy machine lets no lease expire
    first, second = Work(), Work()
    async with stub_api(server) as api, api.client() as client, anyio.create_task_group() as tasks:
        leaving = anyio.CancelScope()

        async def run_first() -> None:
            with leaving:
                await elector(client, "one", clock=clock).run(first)

        tasks.start_soon(run_first)
        with anyio.fail_after(30):
            await first.started.wait()
            tasks.start_soon(elector(client, "two", clock=clock).run, second)
            for _ in range(20):  # twice as long as the lease: renewals keep the second out
                clock.advance(0.1)
                renewed, asked = server.version, len(api.seen)
                while server.version == renewed or len(api.seen) < asked + 6:
                    await anyio.sleep(0.005)
                assert not second.started.is_set()
            leaving.cancel()
            await second.started.wait()
        assert first.ended
        assert server.holder == "two"
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "backup",
    [
        pytest.param({"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "one"}}, id="an older one"),
        pytest.param({"metadata": {"resourceVersion": "99", "uid": "b"}, "spec": {}}, id="another one"),
        pytest.param(None, id="none"),
    ],
)
async def test_an_older_lease_shows_that_the_server_was_restored(backup: dict[str, Any] | None) -> None:
    server, told = LeaseServer(), anyio.Event()
    restore_detector = LeaseRestoreDetector(restored=told.set)
    async with stub_api(server) as api, api.client() as client, anyio.create_task_group() as tasks:
        work = Work()
        tasks.start_soon(elector(client, "one", restore_detector=restore_detector).run, work)
        with anyio.fail_after(30):
            while server.version < 4:
                await anyio.sleep(0.005)
            assert not told.is_set()
            server.lease = backup
            server.version = int(backup["metadata"]["resourceVersion"]) if backup else 0
            await told.wait()
        tasks.cancel_scope.cancel()


async def test_what_others_wrote_on_the_lease_stays() -> None:
    server = LeaseServer()
    metadata = {"name": "lock", "namespace": "kueue-system", "labels": {"team": "ops"}}
    server.take({"metadata": metadata, "spec": {"holderIdentity": "", "strategy": "OldestEmulationVersion"}})
    work = Work()
    async with stub_api(server) as api, api.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(elector(client, "one").run, work)
        with anyio.fail_after(30):
            await work.started.wait()
        assert server.lease is not None
        assert server.lease["metadata"]["labels"] == {"team": "ops"}
        assert server.lease["spec"]["strategy"] == "OldestEmulationVersion"
        assert server.holder == "one"
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("failing", id="the leader stops when it cannot renew"),
        pytest.param("steal", id="the leader stops when the lease is stolen"),
    ],
)
async def test_the_work_ends_before_another_candidate_may_lead(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    server = LeaseServer()
    work = Work()
    async with stub_api(server) as api, api.client() as client, anyio.create_task_group() as tasks:
        done = anyio.Event()

        async def run() -> None:
            await elector(client, "one").run(work)
            done.set()

        tasks.start_soon(run)
        with anyio.fail_after(30), caplog.at_level(logging.ERROR):
            await work.started.wait()
            if fault == "failing":
                server.failing = True
            else:
                server.steal()
            await done.wait()
        assert work.ended
        assert "lock" in caplog.text
        tasks.cancel_scope.cancel()


async def test_a_server_that_hangs_does_not_prolong_the_leadership() -> None:
    server = LeaseServer()
    work = Work()

    async def hang(request: web.Request) -> web.StreamResponse:
        await anyio.sleep_forever()
        raise AssertionError

    async with stub_api(server) as api, api.client() as client, anyio.create_task_group() as tasks:
        done = anyio.Event()

        async def run() -> None:
            await elector(client, "one").run(work)
            done.set()

        tasks.start_soon(run)
        # By the renew deadline and the time to give the lease back, long before the request's own timeout.
        with anyio.fail_after(15):
            await work.started.wait()
            api.answer = hang
            await done.wait()
        tasks.cancel_scope.cancel()


async def test_a_lease_that_is_not_renewed_is_taken_by_our_clock_not_by_its_times() -> None:
    server = LeaseServer()
    stale = {"holderIdentity": "dead", "leaseDurationSeconds": 0, "renewTime": "2099-01-01T00:00:00.000000Z"}
    server.take({"metadata": {"name": "lock"}, "spec": stale})
    work = Work()
    async with stub_api(server) as api, api.client() as client, anyio.create_task_group() as tasks:
        began = monotonic()
        tasks.start_soon(elector(client, "one").run, work)
        with anyio.fail_after(30):
            await work.started.wait()
        assert monotonic() - began > 0.6, "the holder has its whole term"
        assert server.lease is not None
        assert server.lease["spec"]["leaseTransitions"] == 1
        tasks.cancel_scope.cancel()


def test_terms_that_cannot_be_safe_are_refused() -> None:
    with pytest.raises(ValueError, match="retry < renew < lease"):
        LeaderElector(
            StubApi("http://127.0.0.1:1", LeaseServer()).client(),
            namespace="n",
            name="l",
            identity="i",
            lease_seconds=5,
            renew_seconds=10,
        )


async def test_an_answer_that_comes_after_the_term_gives_no_leadership() -> None:
    server = LeaseServer()
    work = Work()
    slow = 2

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal slow
        response = await server(request)
        if request.method in ("POST", "PUT") and slow > 0:
            slow -= 1
            await anyio.sleep(0.4)  # the server has taken it; the term runs from before the request
        return response

    async with stub_api(answer) as api, api.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(elector(client, "one").run, work)
        with anyio.fail_after(30):
            await work.started.wait()
        assert slow == 0, "neither of the late answers was enough"
        tasks.cancel_scope.cancel()
