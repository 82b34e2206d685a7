# SPDX-License-Identifier: Apache-2.0
"""For how long a job that has ended is kept for the users who read its logs through the agent."""

from __future__ import annotations

import pytest

from manager.dispatch.log_relay import CONTINUE_SECONDS, AssignedLogRequests, LogRelay
from multikueue.api.resource import JOB_LOG_REQUESTS, WORKLOADS
from multikueue.dispatch.protocol.job_logs import INTERRUPTED, MAX_REQUESTS
from tests.support.relay_hubs import REQUEST, WORKLOAD, Hub, chunk

pytestmark = pytest.mark.anyio


def finish(hub: Hub) -> None:
    """The Job has succeeded."""
    hub.change(WORKLOADS, WORKLOAD, {"status": {"conditions": [{"type": "Finished", "status": "True"}]}})


async def test_a_job_that_has_ended_is_read_until_its_last_chunk_was_read() -> None:
    hub = Hub()
    assert hub.relay.read_for(WORKLOAD) == 0
    hub.request(follow=True)
    await hub.turn()
    assert (hub.relay.read_for(WORKLOAD) > 0, hub.released) == (True, [])
    finish(hub)
    hub.answer(chunk(1, "the last line\n", ended=True))
    assert hub.relay.read_for(WORKLOAD) > 0
    await hub.turn()
    assert (hub.status()["chunk"], hub.relay.read_for(WORKLOAD)) == ("the last line\n", 0)
    assert hub.released[-1] == WORKLOAD, "it is planned again, and removed"


@pytest.mark.parametrize("case", ["forged", "surplus"])
async def test_a_request_that_does_not_count_keeps_nothing(case: str) -> None:
    hub = Hub()
    finish(hub)
    if case == "forged":
        hub.request(sealed=False)
    else:
        job = {"apiVersion": "batch/v1", "kind": "Job", "name": "another"}
        for number in range(MAX_REQUESTS):
            hub.request(f"a{number}", job=job)
        hub.request()
    assert hub.relay.read_for(WORKLOAD) == 0


async def test_a_request_that_was_interrupted_keeps_the_job_until_the_next_one_can_be_there() -> None:
    hub = Hub()
    hub.request(follow=True)
    await hub.turn()
    finish(hub)
    hub.answer(chunk(1, ended=True, message=INTERRUPTED))
    await hub.turn()
    hub.clock.advance(CONTINUE_SECONDS)
    assert hub.relay.read_for(WORKLOAD) > 0, "its user has not read that it was"
    await hub.delete(JOB_LOG_REQUESTS, REQUEST.name, namespace=REQUEST.namespace, uid="r")
    assert hub.relay.read_for(WORKLOAD) == CONTINUE_SECONDS
    hub.clock.advance(CONTINUE_SECONDS)
    assert hub.relay.read_for(WORKLOAD) == 0


async def test_a_request_that_its_user_removes_keeps_nothing_any_more() -> None:
    hub = Hub()
    hub.request(follow=True)
    await hub.turn()
    finish(hub)
    await hub.delete(JOB_LOG_REQUESTS, REQUEST.name, namespace=REQUEST.namespace, uid="r")
    await hub.relay.deliver(WORKLOAD)
    assert (hub.relay.read_for(WORKLOAD), hub.released) == (0, [WORKLOAD])


async def test_a_new_manager_keeps_a_job_whose_logs_another_one_has_relayed() -> None:
    hub = Hub()
    hub.request(follow=True)
    await hub.turn()
    hub.answer(chunk(1, "one\n"))
    await hub.turn()
    finish(hub)
    hub.relay = LogRelay(hub.context, AssignedLogRequests(hub.context, hub.push))
    assert hub.relay.read_for(WORKLOAD) > 0
    await hub.turn()
    assert (hub.status()["message"], hub.relay.read_for(WORKLOAD) > 0) == (INTERRUPTED, True)
