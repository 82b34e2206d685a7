# SPDX-License-Identifier: Apache-2.0
"""A few clusters more each round, never fewer (`docs/spec/multikueue.md §1.6`).

Owns the rounds. The clusters nominated so far stand in the Workload's status; when the round began stands there too:
of the first it is the moment from which nothing but a cluster was missing, of later ones an annotation that is written
before the clusters are. So a new leader goes on in the same round, and one that was away for long adds one step.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from multikueue.federation.dispatchers.all_at_once import MAX_NOMINATED
from multikueue.federation.dispatchers.protocol import Nomination
from multikueue.federation.facts import ClusterFacts, Round, Settings, WorkloadFacts


def incremental(
    workload: WorkloadFacts, candidates: tuple[ClusterFacts, ...], *, settings: Settings, now: datetime
) -> Nomination:
    """What is nominated, and the next clusters of the config when the round is over."""
    more = [cluster.name for cluster in candidates if cluster.name not in workload.nominated]
    found = workload.round if workload.round is not None and workload.round.epoch == workload.epoch else None
    if not workload.nominated:
        first = min(found.clusters if found is not None else settings.step_size, MAX_NOMINATED)
        began = _first_round(workload, now) if found is None else found.began
        late = found is None and now - began > settings.round_length / 10
        nomination = _in_round(tuple(more[:first]), more[first:], now if late else began, settings=settings, now=now)
        # It could not be nominated when it was ready: its first round begins only now.
        return replace(nomination, round=Round(workload.epoch, first, now)) if late else nomination
    began = found.began if found is not None else _first_round(workload, now)
    wanted = 0 if found is None else found.clusters - len(workload.nominated)
    if wanted > 0:
        # The round was written, and its clusters were not: a manager ended in between.
        return _in_round(_joined(workload, more[:wanted]), more[wanted:], began, settings=settings, now=now)
    if now < began + settings.round_length:
        return _in_round(workload.nominated, more, began, settings=settings, now=now)
    added = _joined(workload, more[: settings.step_size])
    if added == workload.nominated:
        return Nomination(clusters=added)
    nomination = _in_round(added, more[settings.step_size :], now, settings=settings, now=now)
    return replace(nomination, round=Round(workload.epoch, len(added), now))


def _joined(workload: WorkloadFacts, names: list[str]) -> tuple[str, ...]:
    return (*workload.nominated, *names)[:MAX_NOMINATED]


def _first_round(workload: WorkloadFacts, now: datetime) -> datetime:
    return now if workload.waits_since is None else workload.waits_since


def _in_round(
    clusters: tuple[str, ...], more: list[str], began: datetime, *, settings: Settings, now: datetime
) -> Nomination:
    left = max(0.0, (began + settings.round_length - now).total_seconds())
    return Nomination(clusters=clusters, requeue_after=left if more and len(clusters) < MAX_NOMINATED else None)
