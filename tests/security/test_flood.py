# SPDX-License-Identifier: Apache-2.0
"""One tenant's flood delays another tenant's Job by a few of its own, not by all of it.

What is asserted is an order: who is served while how many of the flood still wait. The latencies are printed by
`python -m tests.bench flood`.
"""

from __future__ import annotations

from typing import Any, Final

import anyio
import orjson
import pytest

from multikueue.api import constants
from multikueue.api.resource import JOBS, WORKLOADS
from tests.security.fuzz.catalogue import HUB, NAMESPACE, PULL, PUSH, QUEUE
from tests.security.fuzz.federation import OTHER_NAMESPACE, Fuzzed, fuzzed_federation
from tests.support.managers import eventually, get, job_manifest

pytestmark = pytest.mark.anyio

_FLOOD: Final = 1500
_LARGE: Final = 20
_LARGE_BYTES: Final = 1_000_000
_CREATORS: Final = 16


def flood_job(number: int, *, large: bool = False) -> dict[str, Any]:
    """A Job of the flood; a large one is about as large as an API server takes."""
    manifest = job_manifest(f"flood-{number:05}", namespace=NAMESPACE, queue=QUEUE, suspend=True)
    manifest["spec"]["managedBy"] = constants.MULTIKUEUE_MANAGED_BY
    manifest["spec"]["template"]["metadata"] = {"annotations": {constants.RUN_FOR_ANNOTATION: "forever"}}
    if large:
        manifest["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * _LARGE_BYTES]
    return manifest


async def _create(made: Fuzzed) -> None:
    async def some(first: int) -> None:
        for number in range(first, _FLOOD, _CREATORS):
            await made.clients[HUB].create(JOBS, flood_job(number, large=number < _LARGE), namespace=NAMESPACE)

    async with anyio.create_task_group() as tasks:
        for first in range(_CREATORS):
            tasks.start_soon(some, first)


async def _without_workload(made: Fuzzed) -> int:
    return _FLOOD - len((await made.clients[HUB].list_all(WORKLOADS, namespace=NAMESPACE)).items)


async def _dispatched(made: Fuzzed, names: list[str]) -> bool:
    found = []
    for name, cluster in zip(names, (PULL, PUSH), strict=True):
        found.append(await get(made.clients[cluster], JOBS, name, namespace=OTHER_NAMESPACE))
    return all(found)


@pytest.mark.attacks
async def test_a_job_that_comes_after_a_flood_is_dispatched_before_most_of_the_flood_is_looked_at() -> None:
    async with fuzzed_federation(webhooks=False) as made:
        manager = made.parts[0]
        # Without a manager they pile up, and then all of them are there at once.
        await manager.stop(abruptly=False)
        await _create(made)
        names = await made.submit()
        assert await _without_workload(made) == _FLOOD
        await manager.start()

        async def dispatched() -> int | None:
            return await _without_workload(made) if await _dispatched(made, names) else None

        left = await eventually(
            dispatched, what="the other tenant's Jobs are on both workers", until=lambda seen: seen is not None
        )
        assert left is not None
        assert left > _FLOOD // 2, f"only {left} of {_FLOOD} Jobs of the flood were not looked at by then"
        # None is forgotten over it: its Workloads are made all the same.
        assert (
            await eventually(lambda: _without_workload(made), what="it continues", until=lambda seen: seen < left)
            < left
        )
        for raw in (await made.clients[HUB].list_all(JOBS, namespace=OTHER_NAMESPACE)).items:
            assert orjson.loads(raw)["metadata"]["name"] in names
