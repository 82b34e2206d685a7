# SPDX-License-Identifier: Apache-2.0
"""Fenced work that a former agent left running, while the management cluster cannot be asked about it.

Owns the one thing that an agent does before it has read its mailbox. When the lease was last renewed is not known after
a restart, so fenced jobs are stopped unless a renewal succeeds soon; and a lease that was renewed and ends again before
the mailbox is read is watched here, for nobody else knows yet what it was for. Other work runs on, as its policy says.
While its own API server is away the agent says that it cannot stop anything (`worker_agent.heartbeat`); while no agent
runs, nobody does (ADR 0011).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

import anyio

from multikueue.api.constants import PARTITION_POLICY_ANNOTATION, PartitionPolicy
from multikueue.core.keys import Key
from multikueue.kube.errors import KubeError
from worker_agent.jobs import Jobs

_log = logging.getLogger(__name__)


async def fence_unheard(
    kinds: Iterable[Jobs], *, lease_valid: Callable[[], bool], assignments_known: Callable[[], bool], patience: float
) -> None:
    """Stop what is fenced while there is no lease, first after `patience` seconds, until both are there."""
    kinds = tuple(kinds)
    await anyio.sleep(patience)
    while True:
        if not lease_valid():
            await _stop(kinds)
        elif assignments_known():
            return
        await anyio.sleep(patience / 5)


async def _stop(kinds: Iterable[Jobs]) -> None:
    for jobs in kinds:
        for key, uid in _fenced(jobs):
            _log.warning("%s is fenced and the hub does not answer: stopping it", key)
            try:
                await jobs.suspend(key, uid)
            except KubeError as error:
                _log.warning("%s is not stopped: %s; trying again", key, error)


def _fenced(jobs: Jobs) -> Iterator[tuple[Key, str]]:
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
