# SPDX-License-Identifier: Apache-2.0
"""Fenced jobs of a former agent, as long as the mailbox has not been read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import anyio
import pytest

from multikueue.api.constants import PARTITION_POLICY_ANNOTATION
from multikueue.core.keys import Key
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from worker_agent.local.fencing import fence_without_lease
from worker_agent.local.jobs import RemoteJobs

pytestmark = pytest.mark.anyio

KEY = Key("team", "j")


class Running:
    """One fenced job that runs."""

    integration = BATCH_JOB

    def __init__(self, *, may_deactivate: bool | None = True) -> None:
        self.stopped = anyio.Event()
        self.deactivated: list[str] = []
        self.may_deactivate = may_deactivate

    def assignments(self) -> Iterable[str]:
        return ("a",)

    def of_assignment(self, name: str) -> Iterable[Key]:
        return (KEY,)

    def get(self, key: Key) -> dict[str, Any]:
        annotations = {PARTITION_POLICY_ANNOTATION: "fenced"}
        metadata = {"namespace": key.namespace, "name": key.name, "uid": "u", "annotations": annotations}
        return {"metadata": metadata, "spec": {"suspend": self.stopped.is_set()}}

    async def deactivate(self, assignment: str) -> bool | None:
        assert not self.stopped.is_set(), "the engine of the worker would resume it"
        self.deactivated.append(assignment)
        return self.may_deactivate

    async def stop(self, key: Key, uid: str, *, by_deletion: bool = False) -> None:
        assert by_deletion is (self.may_deactivate is None)
        self.stopped.set()


@pytest.mark.parametrize(
    "may_deactivate", [True, False, None], ids=["its clone", "no clone", "a clone that it may not"]
)
async def test_a_lease_that_ends_before_the_mailbox_is_read_stops_what_is_fenced(may_deactivate: bool | None) -> None:
    jobs, stopped_at = Running(may_deactivate=may_deactivate), list[bool]()

    def lease_valid() -> bool:
        stopped_at.append(jobs.stopped.is_set())
        return len(stopped_at) < 3  # it is renewed, and ends again at the third look

    async with anyio.create_task_group() as tasks:

        async def fence() -> None:
            await fence_without_lease(
                (cast(RemoteJobs, jobs),),
                deactivate=jobs.deactivate,
                lease_valid=lease_valid,
                assignments_known=lambda: False,
                grace_seconds=0.01,
            )

        tasks.start_soon(fence)
        with anyio.fail_after(60):
            await jobs.stopped.wait()
        tasks.cancel_scope.cancel()
    assert stopped_at[:3] == [False, False, False], "it ran as long as there was a lease"
    assert jobs.deactivated == ["a"]


async def test_with_the_lease_renewed_and_the_mailbox_read_others_stop_it() -> None:
    jobs = Running()
    with anyio.fail_after(60):
        await fence_without_lease(
            (cast(RemoteJobs, jobs),),
            deactivate=jobs.deactivate,
            lease_valid=lambda: True,
            assignments_known=lambda: True,
            grace_seconds=0.01,
        )
    assert not jobs.stopped.is_set()
