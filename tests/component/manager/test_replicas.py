# SPDX-License-Identifier: Apache-2.0
"""Several managers of one cluster, and one that is started again."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any
from weakref import WeakSet

import pytest

from devcluster.cluster import Cluster
from manager import app
from manager.scheduler.scheduler import Scheduler
from multikueue.api.resource import LEASES
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import (
    condition,
    eventually,
    finish_pods,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
)

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]


async def test_a_second_manager_waits_with_one_line_and_takes_over_when_the_first_ends(
    hub: Cluster, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def leads(manager: object) -> bool:
        return bool(getattr(manager, "leading"))  # noqa: B009

    async with running_manager(hub, leader_election=True, identity="first", webhooks=False) as first:
        await eventually(lambda: leads(first), what="the first leads")
        async with running_manager(hub, leader_election=True, identity="second", webhooks=False) as second:
            await eventually(
                lambda: _logged(
                    caplog,
                    "waiting for the lease identity=second lease=kueue-system/c1f6bfd2.kueue.x-k8s.io holder=first",
                ),
                what="the second logs that it waits",
            )
            assert not second.leading
            assert second.caches.waiting_for == () or not second.leading
    async with running_manager(hub, leader_election=True, identity="third", webhooks=False) as third:
        await eventually(lambda: leads(third), what="the next one leads after the lease was given back", deadline=10)


async def test_what_a_manager_has_built_while_it_led_is_freed_when_it_leads_again(
    hub: Cluster, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedulers: WeakSet[Scheduler] = WeakSet()
    terms: list[str] = []

    class Noted(Scheduler):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            schedulers.add(self)
            terms.append("begins")

    async def begun() -> list[str]:
        return [*terms, *(["leads"] if manager.leading else [])]

    monkeypatch.setattr(app, "Scheduler", Noted)
    async with running_manager(
        hub, leader_election=True, identity="again", webhooks=False, own_process=True
    ) as manager:
        await eventually(begun, what="it leads", until=lambda seen: seen == ["begins", "leads"])
        other = {"holderIdentity": "other", "leaseDurationSeconds": 1, "renewTime": f"{datetime.now(UTC):%FT%T.%fZ}"}
        await client.patch(LEASES, "c1f6bfd2.kueue.x-k8s.io", {"spec": other}, namespace="kueue-system")
        await eventually(begun, what="it leads again", until=lambda seen: seen == ["begins", "begins", "leads"])
        assert len(schedulers) == 1


async def _logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return [record.getMessage() for record in caplog.records].count(text) == 1


async def test_a_new_manager_resumes_where_the_last_one_stopped(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub, webhooks=False):
        await make_queue(client, "again", namespace="team-again", cpu="1")
        await make_job(client, "one", namespace="team-again", queue="again", suspend=True)
        await wait_condition(client, "one", "Admitted", namespace="team-again")
        await make_job(client, "two", namespace="team-again", queue="again", suspend=True)
        await wait_condition(client, "two", "QuotaReserved", namespace="team-again", status="False")
    async with running_manager(hub, webhooks=False):
        await eventually(lambda: finish_pods(client, "one", namespace="team-again"), what="a pod to end")
        workload = await wait_condition(client, "two", "Admitted", namespace="team-again")
        assert condition(workload, "QuotaReserved")["reason"] == "QuotaReserved"
