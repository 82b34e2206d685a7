# SPDX-License-Identifier: Apache-2.0
"""Each right of the table alone taken away, and given back, while a worker is served.

On real API servers only. How the embedded one decides is compared with theirs in `tests/conformance/access`.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.limited_workers import ALL, Pair, hub_managed, limited_scene, rules_of
from tests.support.sites import Transport

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.conformance,
    pytest.mark.timeout(600),
    pytest.mark.parametrize(
        "pair", [pytest.param("binaries", marks=pytest.mark.binaries)], indirect=True, scope="package"
    ),
]

NOTHING_MISSING: Final = "missing rights"
both_transports = pytest.mark.parametrize("transport", list(Transport))


@both_transports
async def test_without_any_one_optional_right_the_cluster_is_active_names_it_and_runs_jobs(
    pair: Pair, transport: Transport
) -> None:
    async with limited_scene(pair, "optional", rules=rules_of(ALL), transport=transport) as scene, hub_managed(pair):
        await scene.says("True", "Active", without=NOTHING_MISSING)
        await scene.submit("long", run_for="forever")
        long = await scene.runs("long")
        # Those for ProvisioningRequests are used where these are installed, and not missed here.
        optional = [right for right in ALL if not (right.required or right.provisioning)]
        assert len(optional) == 30
        for number, right in enumerate(optional):
            await scene.grant(rules_of([each for each in ALL if each is not right]))
            only = f"Connected; missing rights: {right.name} (would give: {right.gives})"
            await scene.says("True", "Active", whole=only)
            await scene.submit(f"j{number}")
            await scene.finished(f"j{number}")
        await scene.grant(rules_of(ALL))
        await scene.says("True", "Active", without=NOTHING_MISSING)
        for number in range(len(optional)):
            await scene.gone(f"j{number}")
        found = await scene.runs("long")
        assert found["metadata"]["uid"] == long["metadata"]["uid"]
        workload = await scene.workload("long")
        assert workload is not None
        assert not (workload["status"].get("schedulingStats") or {}).get("evictions")


@both_transports
async def test_without_any_one_required_right_the_cluster_is_not_active_names_it_and_comes_back_with_it(
    pair: Pair, transport: Transport
) -> None:
    async with limited_scene(pair, "required", rules=rules_of(ALL), transport=transport) as scene, hub_managed(pair):
        await scene.says("True", "Active", without=NOTHING_MISSING)
        required = [right for right in ALL if right.required]
        assert [right.verb for right in required] == ["create", "delete", "get", "list", "watch"]
        for right in required:
            await scene.grant(rules_of([each for each in ALL if each is not right]))
            await scene.says("False", "MissingRights", f"{right.name} (required: {right.gives})")
            await scene.grant(rules_of(ALL))
            await scene.says("True", "Active", without=NOTHING_MISSING)
        await scene.submit()
        await scene.finished()
        await scene.gone()


@both_transports
@pytest.mark.parametrize("verb", ["create", "delete", "get", "list", "watch"])
async def test_a_cluster_that_lacks_a_required_right_from_the_start_becomes_active_when_it_is_given(
    pair: Pair, transport: Transport, verb: str
) -> None:
    lacking = [right for right in ALL if not (right.required and right.verb == verb)]
    async with (
        limited_scene(pair, f"start-{verb}", rules=rules_of(lacking), transport=transport, queues=False) as scene,
        hub_managed(pair),
    ):
        await scene.says("False", "MissingRights", f"{verb} jobs.batch (required: ")
        await scene.grant(rules_of(ALL))
        await scene.says("True", "Active", without=NOTHING_MISSING)
        await scene.submit()
        await scene.finished()
