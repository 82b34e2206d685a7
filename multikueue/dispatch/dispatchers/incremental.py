# SPDX-License-Identifier: Apache-2.0
"""The incremental dispatcher: a few more clusters each round, never fewer (`docs/spec/multikueue.md §1.6`).

The nominated clusters are stored in the Workload's status. The begin of the first round is the moment from which only a
cluster was missing; that of a later round is an annotation, written before the clusters are. So a new leader continues
in the same round, and adds one step after a long absence.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from multikueue.dispatch.dispatchers.protocol import MAX_NOMINATED, Nomination
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
