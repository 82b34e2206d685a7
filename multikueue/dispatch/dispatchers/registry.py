# SPDX-License-Identifier: Apache-2.0
"""The dispatchers by name, with the two simple ones (`docs/spec/multikueue.md §1.6`)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE, DISPATCHER_CAPACITY, DISPATCHER_INCREMENTAL
from multikueue.core.errors import BadInput
from multikueue.dispatch.dispatchers.capacity import capacity
from multikueue.dispatch.dispatchers.incremental import incremental
from multikueue.dispatch.dispatchers.protocol import MAX_NOMINATED, Dispatcher, Nomination
from multikueue.dispatch.hub.actions import WaitingReason
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchedWorkload, DispatchSettings


def all_at_once(
    workload: DispatchedWorkload, candidates: tuple[ClusterFacts, ...], *, settings: DispatchSettings, now: datetime
) -> Nomination:
    """Nominate all candidates, sorted by name; the first to reserve is granted."""
    return Nomination(clusters=tuple(sorted(cluster.name for cluster in candidates))[:MAX_NOMINATED])


def external(
    workload: DispatchedWorkload, candidates: tuple[ClusterFacts, ...], *, settings: DispatchSettings, now: datetime
) -> Nomination:
    """Follow `status.nominatedClusterNames`, which another program writes; report unusable clusters."""
    usable = {cluster.name for cluster in candidates}
    return Nomination(
        clusters=workload.nominated,
        waiting=tuple(
            WaitingReason(name, "nominated, but not usable") for name in workload.nominated if name not in usable
        ),
    )


DISPATCHERS: Final[Mapping[str, Dispatcher]] = {
    DISPATCHER_ALL_AT_ONCE: all_at_once,
    DISPATCHER_INCREMENTAL: incremental,
    DISPATCHER_CAPACITY: capacity,
}


_RESERVED: Final = ("kueue.x-k8s.io/multikueue-dispatcher-", "multikueue.io/dispatcher-")


def dispatcher(name: str) -> Dispatcher:
    """The built-in dispatcher of that name; any other name is that of an external program.

    Raises `BadInput` for an unknown name with a reserved prefix, for which no program would nominate.
    """
    if name not in DISPATCHERS and name.startswith(_RESERVED):
        known = ", ".join(sorted(DISPATCHERS))
        raise BadInput(
            f"multiKueue.dispatcherName: {name} is not built in: use {known}, or the name of an external dispatcher"
        )
    return DISPATCHERS.get(name, external)
