# SPDX-License-Identifier: Apache-2.0
"""The assignment of a workload that ended: it is kept for a while, and with it the Job on the worker.

That of a Job that failed is kept so that its pods can be looked at; that of any Job while a user reads its logs through
the agent, so that the last lines arrive, for `READ_SECONDS` after its end at most, whatever is requested.

An agent removes a Job whose assignment is gone (ADR 0003) and keeps one whose assignment is there, so that the hub
alone decides for how long, by its own clock. Only a cluster that reported the end of this dispatch keeps its
assignment: nothing may still run there, since the quota of the workload is free. Of one namespace only the newest are
kept, so that a tenant whose Jobs fail by the thousand does not fill workers and hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from multikueue.api.reasons import FinishedReason
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.core.keys import Key
from multikueue.dispatch.hub.facts import DispatchedWorkload, DispatchFacts, Observation

MAX_KEPT: Final = 20
"""Failed Jobs, in one namespace."""
READ_SECONDS: Final = 30.0
"""For so long after its end a job is kept for those who read its logs."""


def ended_there(facts: DispatchFacts, workload: DispatchedWorkload) -> Observation | None:
    """The assignment whose job ended, which finished the workload; None if it has none (any more)."""
    if not workload.finished or workload.deleting:
        return None
    return next(
        (
            seen
            for seen in facts.observations.values()
            if seen.cluster == workload.cluster_name
            and seen.epoch == workload.epoch
            and not seen.intent.precedes_grant
            and seen.has_phase(AssignmentPhase.FINISHED)
            and seen.end is not None
        ),
        None,
    )


def failed_there(facts: DispatchFacts, workload: DispatchedWorkload) -> Observation | None:
    """The assignment whose Job failed, which finished the workload; None if it has none (any more)."""
    ended = ended_there(facts, workload)
    if workload.failed_at is None or ended is None or ended.end is None:
        return None
    return ended if ended.end.reason == FinishedReason.FAILED else None


def kept_for(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> float:
    """The seconds for which the assignment of an ended job is still kept; 0 or less if it is to be removed.

    A cluster that is drained or removed keeps none.
    """
    cluster = facts.cluster(workload.cluster_name)
    if cluster is None or cluster.draining or not cluster.exists:
        return 0.0
    failed = failed_there(facts, workload) is not None and not workload.superseded
    keep = facts.settings.keep_failed_jobs.total_seconds()
    return max(
        _left(workload.failed_at if failed else None, keep, now),
        min(_left(workload.finished_at, READ_SECONDS, now), workload.logs_read_for),
    )


def _left(since: datetime | None, seconds: float, now: datetime) -> float:
    """The seconds that are left of so many since then; 0 without a time."""
    if since is None:
        return 0.0
    # The condition may have been written by another manager, whose clock is ahead.
    return min(seconds - (now - since).total_seconds(), seconds)


class KeptFailures:
    """The workloads whose failed Job is kept, by namespace."""

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._most = most
        self._failed: dict[str, dict[Key, datetime]] = {}

    def settle(self, key: Key, failed_at: datetime | None) -> list[Key]:
        """Count a workload that is kept, or with None one that is not; those superseded now, oldest first."""
        counted = self._failed.setdefault(key.namespace, {})
        before = counted.pop(key, None)
        if failed_at is not None:
            counted[key] = failed_at
        elif not counted:
            del self._failed[key.namespace]
        return self._superseded(counted) if failed_at is not None and before is None else []

    def is_superseded(self, key: Key) -> bool:
        """Whether the namespace has so many newer ones that this one is removed."""
        counted = self._failed.get(key.namespace, {})
        return key in counted and key in self._superseded(counted)

    def _superseded(self, counted: Mapping[Key, datetime]) -> list[Key]:
        if len(counted) <= self._most:
            return []
        ordered = sorted(counted, key=lambda each: (counted[each], each.name))
        return ordered[: len(ordered) - self._most]
