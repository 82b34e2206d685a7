# SPDX-License-Identifier: Apache-2.0
"""Who stops a job in a queue of the worker: its engine, for as long as one needs that runs, and then the agent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from multikueue.core.clock import ManualClock
from worker_agent.local.queueing.clones import Clones
from worker_agent.local.queueing.engine_stops import ENGINE_SECONDS, EngineStop, EngineStops
from worker_agent.local.queueing.queued_work import CloneSpec

pytestmark = pytest.mark.anyio


class Worker:
    """A worker whose clones answer as told, and its clock."""

    def __init__(self, *, deactivated: bool | None = True) -> None:
        async def deactivate(clone: CloneSpec) -> bool | None:
            return deactivated

        self.clock = ManualClock()
        self.stops = EngineStops(cast(Clones, SimpleNamespace(deactivate=deactivate)), clock=self.clock)

    async def stop(self, *, epoch: int = 1, suspended: bool = False) -> EngineStop:
        clone = cast(CloneSpec, SimpleNamespace(assignment="a", epoch=epoch))
        return await self.stops.stop(clone, suspended=suspended)


async def test_the_engine_goes_first_and_the_agent_stops_what_it_has_left_running() -> None:
    worker = Worker()
    assert await worker.stop() == EngineStop(seconds=ENGINE_SECONDS)
    worker.clock.advance(ENGINE_SECONDS - 1)
    assert await worker.stop() == EngineStop(seconds=1)
    worker.clock.advance(1)
    assert await worker.stop() == EngineStop()


async def test_each_epoch_of_an_assignment_has_its_time() -> None:
    worker = Worker()
    await worker.stop()
    worker.clock.advance(ENGINE_SECONDS)
    assert (await worker.stop(epoch=2)).seconds == ENGINE_SECONDS
    worker.clock.advance(ENGINE_SECONDS)
    worker.stops.forget("a")
    assert (await worker.stop(epoch=2)).seconds == ENGINE_SECONDS


@pytest.mark.parametrize(
    ("deactivated", "by_deletion"),
    [
        pytest.param(False, False, id="no clone: it is suspended"),
        pytest.param(None, True, id="a clone that the agent may not change: the engine would resume a suspended job"),
    ],
)
async def test_without_a_clone_that_can_be_deactivated_the_agent_stops_the_job_at_once(
    deactivated: bool | None, by_deletion: bool
) -> None:
    assert await Worker(deactivated=deactivated).stop() == EngineStop(by_deletion=by_deletion)


@pytest.mark.parametrize("deactivated", [True, False], ids=["with a clone", "with a clone that is not its own"])
async def test_a_suspended_job_that_may_still_be_started_is_deleted_once_the_engine_had_its_time(
    deactivated: bool,
) -> None:
    worker = Worker(deactivated=deactivated)
    assert await worker.stop(suspended=True) == EngineStop(seconds=ENGINE_SECONDS)
    worker.clock.advance(ENGINE_SECONDS)
    assert await worker.stop(suspended=True) == EngineStop(by_deletion=True)
