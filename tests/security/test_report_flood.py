# SPDX-License-Identifier: Apache-2.0
"""A worker whose quota changes all the time, or whose agent lies about it, does not make the hub write without end."""

from __future__ import annotations

import pytest

from multikueue.api.resource import CLUSTER_QUEUES
from tests.unit.manager.dispatch.test_quota_automation import Hub

pytestmark = pytest.mark.anyio


async def test_reports_a_hundred_times_a_second_change_the_hubs_quota_once_a_second() -> None:
    hub = Hub("w1")
    manager = hub.manager()
    await manager.reconcile()
    hub.writes.clear()
    for tick in range(500):
        hub.reports("w1", cpu=str(1 + tick))
        await manager.reconcile()
        hub.clock.advance(0.01)
    written = [write for write in hub.writes if write.startswith(f"{CLUSTER_QUEUES.plural} spec")]
    assert 4 <= len(written) <= 7
    hub.clock.advance(1.0)
    await manager.reconcile()
    assert hub.cpu == "500", "the last word counts"
