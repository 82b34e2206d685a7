# SPDX-License-Identifier: Apache-2.0
"""The engine fails at one Workload: it is quarantined with the reason in its status, and all others are processed."""

from __future__ import annotations

import orjson
import pytest

from multikueue.api.resource import EVENTS, JOBS, WORKLOADS
from multikueue.engine.cycle.nomination import NominatedHead, Nominator
from multikueue.kube.runtime.quarantine import Quarantined
from tests.support.hubs import running_hub
from tests.support.managers import (
    condition,
    eventually,
    job_manifest,
    make_job,
    make_namespace,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)

pytestmark = pytest.mark.anyio

TEAM = "team"
WANTED = "ignores it until it changes: TypeError: a mistake of ours"


async def settled(entries: tuple[Quarantined, ...]) -> tuple[Quarantined, ...]:
    return entries


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Jobs at whose Workloads the engine breaks."""
    names: set[str] = set()
    nominate = Nominator.nominate

    def break_or_nominate(self: Nominator, nomination: NominatedHead, *, cycle: int) -> None:
        if any(nomination.pending.workload.key.name.startswith(f"job-{name}-") for name in names):
            raise TypeError("a mistake of ours")
        nominate(self, nomination, cycle=cycle)

    monkeypatch.setattr(Nominator, "nominate", break_or_nominate)
    return names


@pytest.mark.breaks_on_purpose
async def test_a_workload_at_which_the_engine_breaks_holds_up_no_other(broken: set[str]) -> None:
    broken.add("cursed")
    async with running_hub() as hub, hub.client() as client:
        await make_namespace(client, TEAM)
        await make_queue(client, TEAM, namespace=TEAM, cpu="64")
        async with running_manager(hub.as_cluster, webhooks=False):
            for name, cpu in (("before", "1"), ("cursed", "3"), ("after", "2")):
                manifest = job_manifest(name, namespace=TEAM, queue=TEAM, cpu=cpu, suspend=True)
                await client.create(JOBS, manifest, namespace=TEAM)
            for name in ("before", "after"):
                await wait_condition(client, name, "Admitted", namespace=TEAM)
            found = await eventually(
                lambda: workload_of(client, "cursed", namespace=TEAM),
                what="its status has the reason",
                until=lambda seen: WANTED in condition(seen, "QuotaReserved").get("message", ""),
            )
            assert found is not None
            assert condition(found, "QuotaReserved")["reason"] == "Misconfigured"
            # The next cycle finds the engine consistent: no quota is reserved twice or lost.
            await make_job(client, "next", namespace=TEAM, queue=TEAM, cpu="61")
            await wait_condition(client, "next", "Admitted", namespace=TEAM)
            # Who changes it is given another chance.
            broken.clear()
            await client.delete(JOBS, "next", namespace=TEAM, propagation="Background")
            await client.patch(WORKLOADS, found["metadata"]["name"], {"spec": {"priority": 5}}, namespace=TEAM)
            await wait_condition(client, "cursed", "Admitted", namespace=TEAM)


@pytest.mark.breaks_on_purpose
async def test_fifty_workloads_at_which_the_engine_breaks_hold_up_no_other(broken: set[str]) -> None:
    broken.update(f"j{number}" for number in range(50))
    async with running_hub() as hub, hub.client() as client:
        await make_namespace(client, TEAM)
        await make_queue(client, TEAM, namespace=TEAM, cpu="64")
        for name in sorted(broken):
            manifest = job_manifest(name, namespace=TEAM, queue=TEAM, suspend=True)
            await client.create(JOBS, manifest, namespace=TEAM)
        async with running_manager(hub.as_cluster, webhooks=False) as manager:
            manifest = job_manifest("sound", namespace=TEAM, queue=TEAM, suspend=True)
            await client.create(JOBS, manifest, namespace=TEAM)
            await wait_condition(client, "sound", "Admitted", namespace=TEAM)
            quarantined = await eventually(
                lambda: settled(manager.caches.quarantine.entries()),
                what="all fifty are quarantined",
                until=lambda entries: len(entries) == 50,
            )
            assert {entry.reader for entry in quarantined} == {"scheduler"}
            page = await client.list_all(EVENTS, namespace=TEAM)
            notes = [orjson.loads(raw) for raw in page.items]
            assert any(each["reason"] == "Quarantined" and WANTED in each["note"] for each in notes)
