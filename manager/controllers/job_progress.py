# SPDX-License-Identifier: Apache-2.0
"""What a Workload shows of the pods of its job: how many need no quota any more, and whether the others are ready.

A job that runs on workers counts what its present cluster has reported (docs/adr/0036).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from manager.controllers.job_facts import ManagedJobFacts
from manager.controllers.job_steps import Step, WarnOwner, WriteReclaimable, WriteStatus
from manager.workload import changes
from manager.workload.status import Status
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import PodsReadyReason, WorkloadCondition
from multikueue.core.conditions import FALSE, TRUE
from multikueue.core.errors import BadInput
from multikueue.jobs.framework.protocol import Reclaimable

START_MESSAGE: Final = "Not all pods are ready or succeeded"
_READY_MESSAGE: Final = "All pods reached readiness and the workload is running"
_RECOVERY_MESSAGE: Final = "At least one pod has failed, waiting for recovery"


def reclaim(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> tuple[Step, ...]:
    """The write of the pods whose quota is free; nothing where it is what the Workload shows, or cannot be known."""
    if not facts.reclaims:
        return ()
    job: JsonObject | None = facts.job
    if facts.shows_remote_jobs(workload):
        if status.is_true(WorkloadCondition.EVICTED) and status.is_true(WorkloadCondition.QUOTA_RESERVED):
            return ()  # what still runs there needs no more than before
        job = facts.remote_job(workload)
        if job is None and status.cluster_name:
            return ()  # nothing is known of it
    try:
        found = () if job is None else facts.integration.reclaimable(job)
    except BadInput as error:
        return (WarnOwner("JobStatusInvalid", str(error)),)
    shown, wanted = reclaimable(workload), {item.name: item.count for item in found}
    if status.is_true(WorkloadCondition.QUOTA_RESERVED) and not facts.elastic:
        # Others may have this quota by now: a job that is restarted as a whole gets none of it back.
        wanted = {name: max(shown.get(name, 0), wanted.get(name, 0)) for name in shown | wanted}
    if wanted == shown:
        return ()
    return (WriteReclaimable(workload, tuple(Reclaimable(name=name, count=wanted[name]) for name in wanted)),)


def reclaimable(workload: JsonObject) -> dict[str, int]:
    """The pods whose quota is free, as the Workload shows them, by pod set."""
    return {entry["name"]: entry["count"] for entry in (workload.get("status") or {}).get("reclaimablePods") or ()}


def pods_ready(facts: ManagedJobFacts, workload: JsonObject, status: Status, now: datetime) -> tuple[Step, ...]:
    """The write of the condition PodsReady and its reason (`docs/spec/engine.md §7.7`)."""
    held_here = facts.held_here(workload)  # its status is that of the remote job
    admitted = status.is_true(WorkloadCondition.ADMITTED)
    if admitted and status.is_true(WorkloadCondition.EVICTED):
        return ()  # until its quota is released it is shown as it was
    runs = admitted and (held_here or not facts.integration.is_suspended(facts.job))
    # What had succeeded on a former cluster is not ready on this one.
    remote = facts.remote_job(workload) if facts.shows_remote_jobs(workload) else None
    ready = runs and facts.integration.pods_ready(remote or facts.job)
    old = status.condition(WorkloadCondition.PODS_READY)
    if old is None and not runs:
        return ()  # nothing has run yet, so there is nothing to wait for
    recovering = old is not None and old.status == FALSE and old.reason == PodsReadyReason.WAIT_FOR_RECOVERY
    if ready:
        if old is not None and old.status == TRUE:
            return ()
        reason, message = PodsReadyReason.RECOVERED if recovering else PodsReadyReason.STARTED, _READY_MESSAGE
    elif runs and (recovering or (old is not None and old.status == TRUE)):
        reason, message = PodsReadyReason.WAIT_FOR_RECOVERY, _RECOVERY_MESSAGE
    else:
        reason, message = PodsReadyReason.WAIT_FOR_START, START_MESSAGE
    changed = changes.pods_ready(status, ready=ready, reason=reason, message=message, now=now)
    if changed is status:
        return ()
    return (
        WriteStatus(
            workload,
            lambda seen: changes.pods_ready(seen, ready=ready, reason=reason, message=message, now=now),
        ),
    )
