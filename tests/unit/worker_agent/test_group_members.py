# SPDX-License-Identifier: Apache-2.0
"""Which pods of a group are deleted before it runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from multikueue.api.remoteassignment import Intent
from multikueue.core.keys import Key
from multikueue.dispatch.worker.assignment_state import AssignmentFacts, ReportedStatus
from worker_agent.creation import Creation
from worker_agent.group_members import GroupMembers
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.obstacles import Obstacles
from worker_agent.local.remote_group import RemoteGroup

pytestmark = pytest.mark.anyio
FORMER = (Key("ns", "g-0"), "former")


async def deleted(intent: Intent, *, may_run: bool = True) -> tuple[list[str], bool]:
    """The uids of the deleted pods of a group in whose place a former pod is, and whether the agent waits for it."""
    uids: list[str] = []

    async def delete(key: Key, uid: str, *, ended: bool) -> None:
        uids.append(uid)

    desired: Any = SimpleNamespace(
        facts=AssignmentFacts(name="a", epoch=1, intent=intent, may_run=may_run),
        jobs=SimpleNamespace(delete=delete),
        named="pods ns/g",
    )
    obstacles: Any = SimpleNamespace(refusal=lambda named: None)
    members = GroupMembers(obstacles=cast(Obstacles, obstacles), creation=cast(Creation, None))
    group = RemoteGroup(job=None, replaced=(FORMER,))
    waits = await members.take_back(cast(AssignmentSpec, desired), group, ReportedStatus())
    return uids, waits


async def test_a_pod_in_the_place_of_a_group_that_is_to_run_is_deleted_first() -> None:
    assert await deleted(Intent.RUN) == (["former"], True)


async def test_it_is_left_before_the_grant_and_while_fenced_work_may_not_run() -> None:
    assert await deleted(Intent.RESERVE) == ([], False)
    assert await deleted(Intent.RUN, may_run=False) == ([], False)
