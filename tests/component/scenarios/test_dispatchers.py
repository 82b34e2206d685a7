# SPDX-License-Identifier: Apache-2.0
"""D: who nominates worker clusters, and what follows from it."""

from __future__ import annotations

from functools import partial

import pytest

from multikueue.api.resource import MULTIKUEUE_CONFIGS
from tests.support.managers import Object, eventually, wait_condition, workload_of
from tests.support.scenes import Scene, Stage, scene, settings

pytestmark = pytest.mark.anyio

INCREMENTAL = settings(
    dispatcherName="kueue.x-k8s.io/multikueue-dispatcher-incremental", incrementalDispatcherConfig="{stepSize: 1}"
)
EXTERNAL = settings(dispatcherName="example.com/own")
SOME_TIME = "2026-01-01T00:00:00Z"


async def nominated(made: Scene) -> list[str]:
    """As the status says."""
    return list((await made.status()).get("nominatedClusterNames") or ())


async def evicted(made: Scene) -> Object:
    """The Workload once it was evicted: it gets quota again soon, and its condition Evicted is False then."""
    found = await eventually(
        partial(workload_of, made.client, "j", namespace=made.namespace),
        what="it was evicted",
        until=lambda seen: bool(seen and (seen["status"].get("schedulingStats") or {}).get("evictions")),
    )
    assert found is not None
    return found


async def test_d1_q1_incremental_goes_by_rounds_and_starts_over_after_an_eviction(stage: Stage) -> None:
    async with scene(stage, "d1", configuration=INCREMENTAL) as made:
        workload = await made.submit()
        await made.w1.asked(workload)
        only = [made.w1.name]
        await eventually(lambda: nominated(made), what="one is nominated", until=lambda seen: seen == only)
        assert await made.w2.clone(workload) is None
        await made.w1.admits(workload)
        found = await made.check("Ready")
        assert found["status"]["clusterName"] == made.w1.name
        assert not found["status"].get("nominatedClusterNames")
        await made.w1.starts("j")
        await made.job_says("ready", 1)
        await made.w1.evicts(workload, "j")
        found = await evicted(made)
        assert not found["status"].get("clusterName")
        await made.w1.cleaned("j")
        await made.w1.admits(workload, epoch=2)
        await made.w1.starts("j", epoch=2)
        await made.w1.ends("j")
        await made.finished()


async def test_d1_a_round_survives_a_change_of_leader(stage: Stage) -> None:
    async with scene(stage, "d1-leader", configuration=INCREMENTAL) as made:
        workload = await made.submit()
        await made.w1.asked(workload)
        await stage.restart(INCREMENTAL)

        async def ready() -> bool:
            # A manager that holds the mailbox itself may ask anew where nothing had begun.
            if await made.w1.clone(workload) is not None:
                await made.w1.admits(workload)
            return bool((await made.status()).get("clusterName"))

        await eventually(ready, what="it is granted")
        assert (await made.status())["clusterName"] == made.w1.name
        assert await made.w2.clone(workload) is None


async def test_d2_nothing_is_sent_before_a_program_of_the_users_nominates(stage: Stage) -> None:
    async with scene(stage, "d2", configuration=EXTERNAL) as made:
        workload = await made.submit()
        await made.check("Pending")
        assert (await made.w1.clone(workload), await made.w2.clone(workload)) == (None, None)
        await made.say(lambda _: {"nominatedClusterNames": [made.w2.name]})
        await made.w2.asked(workload)
        assert await made.w1.clone(workload) is None
        await made.say(lambda _: {"nominatedClusterNames": [made.w1.name, made.w2.name]})
        await made.w1.asked(workload)
        await made.w2.admits(workload)
        await made.w1.relieved(workload)
        found = await made.check("Ready")
        assert found["status"]["clusterName"] == made.w2.name
        await made.w2.starts("j")
        await made.job_says("ready", 1)
        await made.w2.evicts(workload, "j")
        found = await evicted(made)
        assert not found["status"].get("clusterName")
        assert not found["status"].get("nominatedClusterNames")


async def test_d3_d4_d5_nominations_are_cleared_by_the_manager_itself_without_any_policy(stage: Stage) -> None:
    async with scene(stage, "d3") as made:
        workload = await made.submit()
        await made.w1.asked(workload)
        await made.w2.asked(workload)
        both = [made.w1.name, made.w2.name]
        await eventually(lambda: nominated(made), what="both are nominated", until=lambda seen: seen == both)
        await made.w1.admits(workload)
        found = await made.check("Ready")
        assert (found["status"]["clusterName"], await nominated(made)) == (made.w1.name, [])
        await made.w1.starts("j")
        await made.job_says("ready", 1)
        await made.w1.evicts(workload, "j")
        found = await wait_condition(made.client, "j", "Evicted", namespace=made.namespace)
        assert not found["status"].get("nominatedClusterNames")


async def test_d6_nominations_stay_as_they_are_while_nothing_is_chosen_and_nothing_evicted(stage: Stage) -> None:
    async with scene(stage, "d6", configuration=EXTERNAL) as made:
        workload = await made.submit()
        await made.check("Pending")
        chosen = [made.w2.name]
        await made.say(lambda _: {"nominatedClusterNames": chosen})
        await made.w2.asked(workload)
        await made.w2.reserves(workload)
        # Somebody's own condition makes the manager look at it again.
        noted = {"type": "Noted", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": SOME_TIME}
        await made.say(lambda status: {"conditions": [*status["conditions"], noted]})
        found = await made.check("Pending")
        assert (found["status"]["nominatedClusterNames"], found["status"].get("clusterName")) == (chosen, None)
        assert await made.w1.clone(workload) is None
        await made.w2.admits(workload)
        await made.check("Ready", message=made.w2.name)
        assert await nominated(made) == []


async def test_d7_a_workload_that_was_made_before_this_manager_came_is_sent_to_all(stage: Stage) -> None:
    async with scene(stage, "d7", configuration=EXTERNAL) as made:
        workload = await made.submit()
        await made.check("Pending")
        await stage.restart(settings())
        await made.w1.asked(workload)
        await made.w2.asked(workload)
        both = [made.w1.name, made.w2.name]
        await eventually(lambda: nominated(made), what="both are nominated", until=lambda seen: seen == both)


async def test_d8_a_cluster_that_is_added_to_the_config_gets_what_waits(stage: Stage) -> None:
    async with scene(stage, "d8", clusters=(1,)) as made:
        workload = await made.submit()
        await made.w1.asked(workload)
        assert await made.w2.clone(workload) is None
        both = {"spec": {"clusters": [made.w1.name, made.w2.name]}}
        await made.client.patch(MULTIKUEUE_CONFIGS, made.name, both)
        await made.w2.admits(workload)
        await made.check("Ready", message=made.w2.name)
