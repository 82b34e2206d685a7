# SPDX-License-Identifier: Apache-2.0
"""Stops fenced jobs after a restart of the agent while it has no lease.

This runs before the mailbox is read. After a restart the time of the last renewal is unknown, so fenced jobs are
stopped unless a renewal succeeds soon, or if the lease expires again before the mailbox was read. Other jobs keep
running, as their policy says. The clone of a job in a queue of the worker is deactivated first, since its engine would
resume a job that is suspended beside an active one. While the worker's API server is unreachable the agent annotates
its Lease instead (`worker_agent.hub.heartbeat`); while no agent runs nothing is stopped (ADR 0011).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator

import anyio

from multikueue.api.constants import PARTITION_POLICY_ANNOTATION, PartitionPolicy
from multikueue.core.keys import Key
from multikueue.kube.errors import KubeError
from worker_agent.local.jobs import RemoteJobs

_log = logging.getLogger(__name__)


async def fence_without_lease(
    kinds: Iterable[RemoteJobs],
    *,
    deactivate: Callable[[str], Awaitable[bool | None]],
    lease_valid: Callable[[], bool],
    assignments_known: Callable[[], bool],
    grace_seconds: float,
) -> None:
    """Stop fenced jobs while the lease is not valid; returns once it is and the assignments are known.

    The first check comes after `grace_seconds`. `deactivate` is called with an assignment; its answer is None for a
    clone that the agent may not change, whose job is deleted.
    """
    kinds = tuple(kinds)
    await anyio.sleep(grace_seconds)
    while True:
        if not lease_valid():
            await _stop(kinds, deactivate)
        elif assignments_known():
            return
        await anyio.sleep(grace_seconds / 5)


async def _stop(kinds: Iterable[RemoteJobs], deactivate: Callable[[str], Awaitable[bool | None]]) -> None:
    for jobs in kinds:
        for name, key, uid in tuple(_fenced(jobs)):
            _log.warning("stopping fenced job: no lease job=%s", key)
            try:
                await jobs.stop(key, uid, by_deletion=await deactivate(name) is None)
            except KubeError as error:
                _log.warning("cannot stop fenced job; retrying job=%s error=%s", key, error)


def _fenced(jobs: RemoteJobs) -> Iterator[tuple[str, Key, str]]:
    for name in jobs.assignments():
        for key in jobs.of_assignment(name):
            job = jobs.get(key)
            if job is None:
                continue
            metadata = job["metadata"]
            fenced = (metadata.get("annotations") or {}).get(PARTITION_POLICY_ANNOTATION) == PartitionPolicy.FENCED
            runs = not jobs.integration.is_suspended(job) and jobs.integration.finished(job) is None
            if fenced and runs and not metadata.get("deletionTimestamp"):
                yield name, key, metadata["uid"]
