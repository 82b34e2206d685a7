# SPDX-License-Identifier: Apache-2.0
"""An agent's Lease says how long it is good; the hub believes that within limits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from manager.dispatch.controller import DispatchController
from multikueue.api.resource import LEASES, MULTIKUEUE_CLUSTERS
from multikueue.dispatch.hub.health import lease_duration
from tests.support.hubs import running_hub
from tests.support.managers import condition, eventually, get, running_manager
from tests.support.workers import SCALED_DOWN, FakeWorker


@pytest.mark.parametrize(
    ("written", "counted"),
    [
        pytest.param(None, 40, id="nothing"),
        pytest.param(1, 1, id="the least"),
        pytest.param(600, 600, id="the most"),
        pytest.param(601, 600, id="more than the most"),
        pytest.param(2**31 - 1, 600, id="a lifetime"),
        pytest.param(10**400, 40, id="more than any field holds"),
        pytest.param(0, 40, id="none"),
        pytest.param(-5, 40, id="less than none"),
        pytest.param("²", 40, id="a digit of another script"),
        pytest.param(True, 40, id="a truth"),
        pytest.param({"seconds": 5}, 40, id="a structure"),
    ],
)
def test_a_lease_is_good_for_one_second_to_ten_minutes(written: object, counted: int) -> None:
    duration, doubt = lease_duration(written)
    assert duration == timedelta(seconds=counted)
    assert bool(doubt) == (written not in (None, counted))


@pytest.mark.anyio
async def test_a_lease_for_years_is_cut_and_the_condition_reports_it() -> None:
    async with running_hub() as hub, hub.client() as client:
        worker = FakeWorker(client, "one")
        await worker.enrol()
        async with running_manager(hub.as_cluster, settings=SCALED_DOWN, webhooks=False, dispatch=DispatchController):
            await worker.connect(seconds=2**31 - 1)
            found = await eventually(
                lambda: get(client, MULTIKUEUE_CLUSTERS, "one"),
                what="it is Active",
                until=lambda seen: condition(seen, "Active").get("status") == "True",
            )
            assert "expected from 1 to 600, found 2147483647; 600 is used" in condition(found, "Active")["message"]
            await client.patch(LEASES, "agent", {"spec": {"leaseDurationSeconds": 30}}, namespace=worker.mailbox)
            await eventually(
                lambda: get(client, MULTIKUEUE_CLUSTERS, "one"),
                what="the condition has no such message",
                until=lambda seen: condition(seen, "Active").get("message") == "Connected",
            )
