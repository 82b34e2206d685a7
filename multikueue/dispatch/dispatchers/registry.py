# SPDX-License-Identifier: Apache-2.0
"""The dispatchers by name, with those that do not look at capacity (`docs/spec/multikueue.md §1.6`).

The incremental one nominates a few more clusters each round, never fewer; they are stored in the Workload's status. The
begin of the first round is the moment from which only a cluster was missing; that of a later round is an annotation,
written before the clusters are. So a new leader continues in the same round, and adds one step after a long absence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE, DISPATCHER_CAPACITY, DISPATCHER_INCREMENTAL
from multikueue.core.errors import BadInput
from multikueue.dispatch.dispatchers.capacity import capacity
from multikueue.dispatch.dispatchers.protocol import MAX_NOMINATED, Dispatcher, Nomination
from multikueue.dispatch.hub.actions import WaitingReason
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchedWorkload, DispatchSettings, Round


def incremental(
    workload: DispatchedWorkload, candidates: tuple[ClusterFacts, ...], *, settings: DispatchSettings, now: datetime
) -> Nomination:
    """The nominated clusters, and the next ones of the config when the round is over."""
    more = [cluster.name for cluster in candidates if cluster.name not in workload.nominated]
    found = workload.round if workload.round is not None and workload.round.epoch == workload.epoch else None
    if not workload.nominated:
        first = min(found.clusters if found is not None else settings.step_size, MAX_NOMINATED)
        began = _first_round(workload, now) if found is None else found.began
        late = found is None and now - began > settings.round_length / 10
        nomination = _in_round(tuple(more[:first]), more[first:], now if late else began, settings=settings, now=now)
        # Nothing could be nominated when it was ready, so its first round begins now.
        return replace(nomination, round=Round(workload.epoch, first, now)) if late else nomination
    began = found.began if found is not None else _first_round(workload, now)
    wanted = 0 if found is None else found.clusters - len(workload.nominated)
    if wanted > 0:
        # The round was stored and its clusters were not: the manager ended in between.
        return _in_round(_joined(workload, more[:wanted]), more[wanted:], began, settings=settings, now=now)
    if now < began + settings.round_length:
        return _in_round(workload.nominated, more, began, settings=settings, now=now)
    added = _joined(workload, more[: settings.step_size])
    if added == workload.nominated:
        return Nomination(clusters=added)
    nomination = _in_round(added, more[settings.step_size :], now, settings=settings, now=now)
    return replace(nomination, round=Round(workload.epoch, len(added), now))


def _joined(workload: DispatchedWorkload, names: list[str]) -> tuple[str, ...]:
    return (*workload.nominated, *names)[:MAX_NOMINATED]


def _first_round(workload: DispatchedWorkload, now: datetime) -> datetime:
    return now if workload.waits_since is None else workload.waits_since


def _in_round(
    clusters: tuple[str, ...], more: list[str], began: datetime, *, settings: DispatchSettings, now: datetime
) -> Nomination:
    left = max(0.0, (began + settings.round_length - now).total_seconds())
    return Nomination(clusters=clusters, requeue_after=left if more and len(clusters) < MAX_NOMINATED else None)


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
