# SPDX-License-Identifier: Apache-2.0
"""Facts in a few words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from multikueue.api.constants import CheckState
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.core.keys import Key
from multikueue.dispatch.hub.facts import (
    CheckFacts,
    ClusterFacts,
    DispatchedWorkload,
    DispatchFacts,
    Observation,
    OwnerFacts,
    RemoteEnd,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OWNER = OwnerFacts(api_version="batch/v1", kind="Job", name="j")
RUNNING_STATUS = {"active": 1, "startTime": "2026-01-01T11:00:00Z"}


def minutes_ago(minutes: float) -> datetime:
    """A moment before NOW."""
    return NOW - timedelta(minutes=minutes)


def workload(state: CheckState | None = CheckState.PENDING, **changes: Any) -> DispatchedWorkload:
    """A workload with quota whose MultiKueue check is in `state`."""
    facts = DispatchedWorkload(
        key=Key("ns", "wl"),
        uid="u1",
        epoch=1,
        check=None if state is None else CheckFacts(name="mk", state=state),
        owner=OWNER,
        quota_reserved=True,
        fingerprint="f",
    )
    return replace(facts, **changes)


def running(cluster: str = "w1", **changes: Any) -> DispatchedWorkload:
    """A workload that was granted to `cluster`."""
    return workload(CheckState.READY, cluster_name=cluster, **changes)


def cluster(name: str, *, lost_minutes: float | None = None, **changes: Any) -> ClusterFacts:
    """A worker cluster, available unless it was lost."""
    facts = ClusterFacts(name=name)
    if lost_minutes is not None:
        away = minutes_ago(lost_minutes)
        facts = replace(facts, lost_since=away, agent_lost_since=away, reason="ClientConnectionFailed", message="lost")
    return replace(facts, **changes)


def seen(name: str, phase: AssignmentPhase = AssignmentPhase.PENDING, **changes: Any) -> Observation:
    """What `name` said about epoch 1."""
    facts = Observation(
        cluster=name, workload_uid="u1", epoch=1, intent=Intent.RESERVE, fingerprint="f", status_epoch=1, phase=phase
    )
    return replace(facts, **changes)


def granted(name: str = "w1", phase: AssignmentPhase = AssignmentPhase.RUNNING, **changes: Any) -> Observation:
    """The copy that was told to run."""
    return seen(name, phase, **({"intent": Intent.RUN, "job_status": RUNNING_STATUS, "job_uid": "j1"} | changes))


def ended(name: str = "w1", reason: str = "Succeeded", **changes: Any) -> Observation:
    """A copy that has ended."""
    return granted(name, AssignmentPhase.FINISHED, **({"end": RemoteEnd(reason=reason, message="done")} | changes))


def facts(
    of: DispatchedWorkload | None,
    *observations: Observation,
    clusters: tuple[ClusterFacts, ...] | None = None,
    **more: Any,
) -> DispatchFacts:
    """Everything together; w1 and w2 are there and well unless said otherwise."""
    known = (cluster("w1"), cluster("w2")) if clusters is None else clusters
    return DispatchFacts(workload=of, clusters=known, observations={o.cluster: o for o in observations}, **more)
