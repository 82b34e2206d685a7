# SPDX-License-Identifier: Apache-2.0
"""A Workload that the server has deleted and that is still in the cache of the manager."""

from __future__ import annotations

from typing import Any

import pytest

from manager.scheduler import scheduler
from manager.workload.status_writer import StatusWriter
from multikueue.api.resource import JOBS
from multikueue.core.keys import Key
from tests.support.hubs import running_hub
from tests.support.managers import job_manifest, make_namespace, make_queue, running_manager, wait_condition

pytestmark = pytest.mark.anyio

TEAM = "team"


async def test_it_is_not_reserved_for_as_fast_as_the_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_GONE_PAUSE", 3600.0)
    write, reserved = StatusWriter.write, []

    async def forgetful(self: StatusWriter, key: Key, change: Any, **more: Any) -> Any:
        if key.name.startswith("job-gone-") and "written" in more:
            reserved.append(key)
            return None
        return await write(self, key, change, **more)

    monkeypatch.setattr(StatusWriter, "write", forgetful)
    async with running_hub() as hub, hub.client() as client:
        await make_namespace(client, TEAM)
        await make_queue(client, TEAM, namespace=TEAM, cpu="64")
        async with running_manager(hub.as_cluster, webhooks=False):
            for name in ("gone", "first", "second"):
                await client.create(JOBS, job_manifest(name, namespace=TEAM, queue=TEAM, suspend=True), namespace=TEAM)
                if name != "gone":
                    await wait_condition(client, name, "Admitted", namespace=TEAM)
    assert len(reserved) == 1
