# SPDX-License-Identifier: Apache-2.0
"""Stops fenced jobs after a restart of the agent while it has no lease.

This runs before the mailbox is read. After a restart the time of the last renewal is unknown, so fenced jobs are
stopped unless a renewal succeeds soon, or if the lease expires again before the mailbox was read. Other jobs keep
running, as their policy says. While the worker's API server is unreachable the agent annotates its Lease instead
(`worker_agent.hub.heartbeat`); while no agent runs nothing is stopped (ADR 0011).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

import anyio

from multikueue.api.constants import PARTITION_POLICY_ANNOTATION, PartitionPolicy
from multikueue.core.keys import Key
from multikueue.kube.errors import KubeError
from worker_agent.local.jobs import RemoteJobs

_log = logging.getLogger(__name__)


async def fence_without_lease(
    kinds: Iterable[RemoteJobs],
    *,
    lease_valid: Callable[[], bool],
    assignments_known: Callable[[], bool],
    grace_seconds: float,
) -> None:
    """Stop fenced jobs while the lease is not valid; returns once it is and the assignments are known.

    The first check comes after `grace_seconds`.
    """
    kinds = tuple(kinds)
    await anyio.sleep(grace_seconds)
    while True:
        if not lease_valid():
            await _stop(kinds)
        elif assignments_known():
            return
        await anyio.sleep(grace_seconds / 5)


async def _stop(kinds: Iterable[RemoteJobs]) -> None:
    for jobs in kinds:
        for key, uid in _fenced(jobs):
            _log.warning("stopping fenced job: no lease job=%s", key)
            try:
                await jobs.stop(key, uid)
            except KubeError as error:
                _log.warning("cannot stop fenced job; retrying job=%s error=%s", key, error)


def _fenced(jobs: RemoteJobs) -> Iterator[tuple[Key, str]]:
    for name in jobs.assignments():
        for key in jobs.of_assignment(name):
            job = jobs.get(key)
            if job is None:
                continue
            metadata = job["metadata"]
            fenced = (metadata.get("annotations") or {}).get(PARTITION_POLICY_ANNOTATION) == PartitionPolicy.FENCED
            runs = not jobs.integration.is_suspended(job) and jobs.integration.finished(job) is None
            if fenced and runs and not metadata.get("deletionTimestamp"):
                yield key, metadata["uid"]
