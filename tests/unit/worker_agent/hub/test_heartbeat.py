# SPDX-License-Identifier: Apache-2.0
"""The Lease of a mailbox: when it is renewed, and who is told of its end; against servers that the test answers for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import orjson
import pytest
from aiohttp import web

from multikueue.api.constants import CANNOT_STOP_ANNOTATION
from multikueue.core.clock import Clock, ManualClock, SystemClock
from tests.support.polling import until
from tests.support.stub_api import StubApi, json_answer, status_answer, stub_api
from worker_agent.hub.heartbeat import AgentIntervals, Heartbeat
from worker_agent.hub.restore_detector import RestoreDetector

pytestmark = pytest.mark.anyio

INTERVALS = AgentIntervals(renew_seconds=0.05, lease_seconds=1, report_seconds=1)


async def fine(request: web.Request) -> web.StreamResponse:
    return json_answer({})


@asynccontextmanager
async def beating(
    *, hub: Any, worker: Any, intervals: AgentIntervals = INTERVALS, clock: Clock | None = None
) -> AsyncIterator[tuple[Heartbeat, StubApi, list[bool]]]:
    flips: list[bool] = []
    async with (
        stub_api(hub) as one,
        stub_api(worker) as other,
        one.client() as hub_client,
        other.client() as worker_client,
        anyio.create_task_group() as tasks,
    ):
        heartbeat = Heartbeat(
            hub_client,
            worker_client,
            namespace="mk-w",
            holder="w/b",
            intervals=intervals,
            clock=clock or SystemClock(),
            restore_detector=RestoreDetector("w"),
            validity_changed=lambda: flips.append(heartbeat.valid()),
        )
        tasks.start_soon(heartbeat.run)
        yield heartbeat, one, flips
        tasks.cancel_scope.cancel()


async def test_the_lease_is_renewed_again_and_again() -> None:
    async with beating(hub=fine, worker=fine) as (heartbeat, hub, flips):
        await until(lambda: len(hub.seen) >= 3, what="renewed")
        assert heartbeat.valid()
        assert heartbeat.problem == ""
        assert flips == [True]
        spec = orjson.loads(hub.bodies[0])["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("w/b", 1)


async def test_the_end_of_each_limit_is_notified() -> None:
    cut, clock = False, ManualClock()

    async def answer(request: web.Request) -> web.StreamResponse:
        return status_answer(503, "ServiceUnavailable") if cut else json_answer({})

    async with beating(hub=answer, worker=fine, clock=clock) as (heartbeat, _, flips):

        def notified(times: int) -> bool:
            return len(flips) == times

        await until(heartbeat.valid, what="renewed")
        assert all(heartbeat.permits_fenced_work(seconds) for seconds in (0.2, 0.6))
        cut = True
        await until(lambda: heartbeat.problem != "", what="the hub is away")
        # What has a longer lease must hear of its own end, too.
        for told, seconds in enumerate((0.2, 0.4, 0.4), 2):
            clock.advance(seconds)
            await until(partial(notified, told), what="the end is told")
        assert flips == [True, True, True, False]
        cut = False
        await until(lambda: len(flips) == 5, what="it is valid again")
        assert all(heartbeat.permits_fenced_work(seconds) for seconds in (0.2, 0.6))


async def test_an_agent_that_cannot_reach_its_cluster_does_not_renew_and_annotates_the_lease() -> None:
    broken = True

    async def answer(request: web.Request) -> web.StreamResponse:
        return status_answer(401, "Unauthorized", "who are you") if broken else json_answer({})

    async with beating(hub=fine, worker=answer) as (heartbeat, hub, _):
        await until(lambda: len(hub.bodies) >= 2, what="the hub is told")
        assert not heartbeat.valid()
        assert "who are you" in heartbeat.problem
        first, second = (orjson.loads(body) for body in hub.bodies[:2])
        since = first["metadata"]["annotations"][CANNOT_STOP_ANNOTATION]
        assert first == second == {"metadata": {"annotations": {CANNOT_STOP_ANNOTATION: since}}}
        broken = False
        await until(heartbeat.valid, what="renewed")
        renewal = orjson.loads(hub.bodies[-1])
        assert "renewTime" in renewal["spec"]
        assert renewal["metadata"]["annotations"] == {CANNOT_STOP_ANNOTATION: None}


async def test_a_limit_shorter_than_the_lease_is_notified_when_it_ends() -> None:
    away = False

    async def answer(request: web.Request) -> web.StreamResponse:
        return status_answer(503, "ServiceUnavailable") if away else json_answer({})

    long = AgentIntervals(renew_seconds=0.05, lease_seconds=600, report_seconds=1)
    async with beating(hub=answer, worker=fine, intervals=long) as (heartbeat, _, flips):
        await until(lambda: heartbeat.permits_fenced_work(1), what="renewed")
        away = True
        # Told of each turn: after an even number of them it is over.
        await until(lambda: not heartbeat.permits_fenced_work(1) and len(flips) in (2, 4), what="its end is told")
        assert heartbeat.valid(), "the agent's own lease is longer than the hub counts with"


async def test_to_ask_how_old_the_last_renewal_is_causes_no_renewal() -> None:
    rare = AgentIntervals(renew_seconds=600, lease_seconds=600)
    async with beating(hub=fine, worker=fine, intervals=rare) as (heartbeat, hub, flips):
        assert not heartbeat.valid(within=0.05)
        await until(heartbeat.tried.is_set, what="renewed")
        assert heartbeat.valid(within=60)
        # With a limit of 0.05 s the lease would be renewed again and again before that.
        await until(lambda: not heartbeat.valid(within=0.2), what="older than what was asked for")
        assert (len(hub.seen), flips) == (1, [True])


async def test_an_assignment_with_a_short_lease_is_renewed_for_before_it_ends() -> None:
    rare = AgentIntervals(renew_seconds=150, lease_seconds=600)
    async with beating(hub=fine, worker=fine, intervals=rare) as (heartbeat, hub, flips):
        await until(heartbeat.tried.is_set, what="renewed")
        assert heartbeat.permits_fenced_work(2), "asked while the next renewal is 150 s away"
        await until(lambda: len(hub.seen) == 4, what="renewed a quarter of the short lease after another")
        assert flips == [True], "fenced work was never stopped"


async def test_the_end_of_a_short_lease_is_notified_although_the_next_renewal_is_far_away() -> None:
    away = False

    async def answer(request: web.Request) -> web.StreamResponse:
        return status_answer(503, "ServiceUnavailable") if away else json_answer({})

    rare = AgentIntervals(renew_seconds=150, lease_seconds=600)
    async with beating(hub=answer, worker=fine, intervals=rare) as (heartbeat, _, flips):
        await until(heartbeat.tried.is_set, what="renewed")
        away = True
        assert heartbeat.permits_fenced_work(1)
        await until(lambda: len(flips) == 2, what="the end of the short lease is told")
        assert not heartbeat.permits_fenced_work(1)
        assert heartbeat.valid()


async def test_the_end_of_a_lease_that_is_not_renewed_is_notified() -> None:
    away = False

    async def answer(request: web.Request) -> web.StreamResponse:
        return status_answer(503, "ServiceUnavailable") if away else json_answer({})

    async with beating(hub=answer, worker=fine) as (heartbeat, _, flips):
        await until(heartbeat.valid, what="renewed")
        away = True
        await until(lambda: flips == [True, False], what="it ran out")
        away = False
        await until(lambda: flips == [True, False, True], what="it holds again")
